#include "store/store_mend.h"

#include <sqlite3.h>

#include "base/clock.h"
#include "store/store_bind.h"

/* In this order; ?1 is now. Rows of the first group are made up. */
static const char *const mend_stand_ins[] = {
    /* Starts that something is known of. */
    "INSERT INTO incarnations (id, job, key, state, n_ranks, table_hash, registration, tuner,"
    " profile, registered_ns, updated_ns) SELECT incarnation, 'recovered', 'i' || incarnation,"
    " 'lost', max(1, coalesce((SELECT 1 + max(rank) FROM (SELECT rank FROM iterations t WHERE"
    " t.incarnation = x.incarnation ORDER BY iteration DESC LIMIT 1000)), 1)), '0', '', '', '', ?1,"
    " ?1 FROM (SELECT incarnation FROM iterations UNION SELECT incarnation FROM rollups"
    " UNION SELECT incarnation FROM plans UNION SELECT incarnation FROM decisions"
    " UNION SELECT incarnation FROM agents UNION SELECT incarnation FROM link_totals"
    " UNION SELECT incarnation FROM events) x"
    " WHERE NOT EXISTS (SELECT 1 FROM incarnations i WHERE i.id = x.incarnation)",
    "INSERT INTO jobs (id, user, state, mode, max_merge, max_delay, summary, created_ns, "
    "updated_ns)"
    " SELECT job, '', 'lost', 'observe', 1, 0, '', ?1, ?1 FROM (SELECT job FROM incarnations UNION"
    " SELECT job FROM job_keep) x WHERE NOT EXISTS (SELECT 1 FROM jobs j WHERE j.id = x.job)",
    /* What an agent has sent is known by what there is of it. */
    "INSERT INTO agents (incarnation, agent, committed_seq, registered_ns)"
    " SELECT incarnation, agent, max(seq), ?1 FROM events x WHERE NOT EXISTS (SELECT 1 FROM agents "
    "a"
    " WHERE a.incarnation = x.incarnation AND a.agent = x.agent) GROUP BY incarnation, agent",
};

static const char *const mend_books[] = {
    "INSERT OR IGNORE INTO ends SELECT incarnation, rank, max(kind = 'failed') FROM events"
    " WHERE kind IN ('finished', 'failed') GROUP BY incarnation, rank",
    "INSERT OR IGNORE INTO activations SELECT incarnation, plan_seq, min(iteration) FROM events"
    " WHERE kind = 'switched' GROUP BY incarnation, plan_seq",
    "INSERT OR IGNORE INTO sequences VALUES ('incarnations', 0)",
    "UPDATE sequences SET last = max(last, (SELECT coalesce(max(id), 0) FROM incarnations))"
    " WHERE name = 'incarnations'",
    /* Pages that were free may have been taken for some that were lost: roll-ups that were made
       again, and rows that had been removed. */
    "DELETE FROM rollups WHERE (incarnation, period_s, first) IN (SELECT incarnation, period_s, "
    "first"
    " FROM (SELECT incarnation, period_s, first, max(last) OVER (PARTITION BY incarnation, period_s"
    " ORDER BY first ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before FROM rollups)"
    " WHERE first <= before)",
    "DELETE FROM upkeep WHERE incarnation NOT IN (SELECT id FROM incarnations)",
    "DELETE FROM iterations WHERE (incarnation, iteration, rank) IN (SELECT t.incarnation,"
    " t.iteration, t.rank FROM upkeep u JOIN iterations t ON t.incarnation = u.incarnation AND"
    " t.iteration < u.raw_from)",
    /* Without books, rows count from where none is missing that a roll-up has seen; those before
       stay until they are old. */
    "INSERT INTO upkeep (incarnation, newest, raw_from) SELECT incarnation, -1, max("
    " coalesce((SELECT max(last) + 1 FROM rollups r WHERE r.incarnation = x.incarnation AND "
    "period_s"
    " = 3600), 0), coalesce((SELECT max(last) + 1 FROM rollups r WHERE r.incarnation = "
    "x.incarnation"
    " AND period_s = 60 AND n_iterations > (SELECT count(DISTINCT iteration) FROM iterations t "
    "WHERE"
    " t.incarnation = x.incarnation AND iteration BETWEEN r.first AND r.last)), 0))"
    " FROM (SELECT incarnation FROM iterations UNION SELECT incarnation FROM rollups) x"
    " WHERE NOT EXISTS (SELECT 1 FROM upkeep u WHERE u.incarnation = x.incarnation)",
    /* Roll-ups say how far they go. */
    "UPDATE upkeep SET"
    " hours_to = max(hours_to, coalesce((SELECT max(last) FROM rollups r WHERE r.incarnation ="
    " upkeep.incarnation AND period_s = 3600), -1)),"
    " rolled_to = max(rolled_to, hours_to, coalesce((SELECT max(last) FROM rollups r WHERE"
    " r.incarnation = upkeep.incarnation), -1)),"
    " minutes_ns = (SELECT received_ns FROM rollups r WHERE r.incarnation = upkeep.incarnation AND"
    " period_s = 60 ORDER BY first LIMIT 1),"
    " hours_ns = (SELECT received_ns FROM rollups r WHERE r.incarnation = upkeep.incarnation AND"
    " period_s = 3600 ORDER BY first LIMIT 1),"
    " raw_ns = (SELECT max(1, received_ns) FROM iterations t WHERE t.incarnation ="
    " upkeep.incarnation ORDER BY iteration, rank LIMIT 1)",
    "UPDATE upkeep SET newest = max(newest, rolled_to, coalesce((SELECT max(iteration) FROM"
    " iterations t WHERE t.incarnation = upkeep.incarnation), -1)),"
    " n_raw = (SELECT count(DISTINCT iteration) FROM iterations t WHERE t.incarnation ="
    " upkeep.incarnation AND iteration BETWEEN raw_from AND rolled_to),"
    " n_rolled = max(n_rolled, coalesce((SELECT sum(n_iterations) FROM rollups r WHERE "
    "r.incarnation"
    " = upkeep.incarnation AND (period_s = 3600 OR first > upkeep.hours_to)), 0))",
    "UPDATE agents SET"
    " events_ns = (SELECT max(1, received_ns) FROM events e WHERE e.incarnation = "
    "agents.incarnation"
    " AND e.agent = agents.agent ORDER BY seq, position LIMIT 1)",
};

static enum deft_status mend_run(struct store_db *db, const char *sql, int64_t now_ns,
                                 struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(db, sql);
    if (s == NULL) {
        return store_db_fail(db, "be mended", error);
    }
    if (sqlite3_bind_parameter_count(s) > 0) {
        store_bind_int(s, 1, now_ns);
    }
    return store_db_step(db, s, "be mended", error);
}

enum deft_status store_mend(struct store_db *db, uint64_t *out_n, struct deft_error *error) {
    int64_t now_ns = clock_wall_ns();
    uint64_t n = 0;
    enum deft_status status = store_db_exec(db, "BEGIN", error);
    for (size_t i = 0; i < sizeof(mend_stand_ins) / sizeof(mend_stand_ins[0]); i++) {
        if (status == DEFT_OK) {
            status = mend_run(db, mend_stand_ins[i], now_ns, error);
            n += (uint64_t)sqlite3_changes(db->handle);
        }
    }
    for (size_t i = 0; i < sizeof(mend_books) / sizeof(mend_books[0]) && status == DEFT_OK; i++) {
        status = mend_run(db, mend_books[i], now_ns, error);
    }
    if (status == DEFT_OK) {
        status = store_db_exec(db, "COMMIT", error);
    }
    if (status == DEFT_OK) {
        *out_n = n;
    }
    return status;
}
