#include "store/store_earlier.h"

/* Temporary tables hide others of their name. */
static const char earlier_tables[] =
    "CREATE TEMP TABLE agents (incarnation INTEGER NOT NULL, agent TEXT NOT NULL, committed_seq"
    " INTEGER NOT NULL, registered_ns INTEGER NOT NULL, ops_seq INTEGER NOT NULL DEFAULT 0,"
    " events_ns INTEGER, PRIMARY KEY (incarnation, agent)) STRICT, WITHOUT ROWID;"
    "CREATE TEMP TABLE ops (incarnation INTEGER NOT NULL, agent TEXT NOT NULL, seq INTEGER NOT "
    "NULL,"
    " link INTEGER NOT NULL, bytes INTEGER NOT NULL, count INTEGER NOT NULL, min_ns INTEGER NOT"
    " NULL, median_ns INTEGER NOT NULL, max_ns INTEGER NOT NULL) STRICT";
static const char earlier_sums[] =
    "INSERT INTO main.agents (incarnation, agent, committed_seq, registered_ns, events_ns)"
    " SELECT incarnation, agent, committed_seq, registered_ns, events_ns FROM temp.agents;"
    "INSERT INTO link_totals SELECT o.incarnation, o.link, o.bytes, sum(o.count), count(*),"
    " min(o.min_ns), total(o.median_ns), max(o.max_ns) FROM temp.ops o CROSS JOIN temp.agents a"
    " ON a.incarnation = o.incarnation AND a.agent = o.agent WHERE o.seq > a.ops_seq"
    " GROUP BY o.incarnation, o.link, o.bytes ON CONFLICT DO UPDATE SET"
    " count = count + excluded.count, n_medians = n_medians + excluded.n_medians,"
    " min_ns = min(min_ns, excluded.min_ns), median_ns = median_ns + excluded.median_ns,"
    " max_ns = max(max_ns, excluded.max_ns);"
    "DROP TABLE temp.ops;"
    "DROP TABLE temp.agents";

int store_earlier_is(int64_t version) {
    return version < 6;
}

enum deft_status store_earlier_begin(struct store_db *db, struct deft_error *error) {
    return store_db_exec(db, earlier_tables, error);
}

enum deft_status store_earlier_end(struct store_db *db, struct deft_error *error) {
    return store_db_exec(db, earlier_sums, error);
}
