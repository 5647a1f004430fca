#include "store/store_logs.h"

#include <sqlite3.h>
#include <stdio.h>

#include "store/store_bind.h"
#include "wire/wire.h"

/* --- totals of links ----------------------------------------------------------------------------
 */

/* Sizes of one link that are added up before they are written; a plan has some tens of buckets. */
#define LOGS_MAX_TOTALS 128u

struct logs_total {
    int64_t link;
    int64_t bytes;
    int64_t count;
    int64_t n_medians;
    int64_t min_ns;
    double median_ns;
    int64_t max_ns;
};
struct logs_totals {
    int64_t incarnation;
    unsigned n;
    struct logs_total totals[LOGS_MAX_TOTALS];
};

static enum deft_status logs_save_total(struct store_db *db, int64_t incarnation,
                                        const struct logs_total *total, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT INTO link_totals VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)"
            " ON CONFLICT DO UPDATE SET count = count + ?4, n_medians = n_medians + ?5,"
            " min_ns = min(min_ns, ?6), median_ns = median_ns + ?7, max_ns = max(max_ns, ?8)");
    if (s == NULL) {
        return store_db_fail(db, "add all-reduces up", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_int(s, 2, total->link);
    store_bind_int(s, 3, total->bytes);
    store_bind_int(s, 4, total->count);
    store_bind_int(s, 5, total->n_medians);
    store_bind_int(s, 6, total->min_ns);
    store_bind_real(s, 7, total->median_ns);
    store_bind_int(s, 8, total->max_ns);
    return store_db_step(db, s, "add all-reduces up", error);
}

static enum deft_status logs_save_totals(struct store_db *db, struct logs_totals *totals,
                                         struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (unsigned i = 0; i < totals->n && status == DEFT_OK; i++) {
        status = logs_save_total(db, totals->incarnation, &totals->totals[i], error);
    }
    totals->n = 0;
    return status;
}

/* A row of link, bytes, count, min_ns, median_ns, max_ns from `column` on. */
static enum deft_status logs_take_op(struct store_db *db, struct logs_totals *totals,
                                     sqlite3_stmt *row, int column, struct deft_error *error) {
    const struct logs_total op = {.link = sqlite3_column_int64(row, column),
                                  .bytes = sqlite3_column_int64(row, column + 1),
                                  .count = sqlite3_column_int64(row, column + 2),
                                  .n_medians = 1,
                                  .min_ns = sqlite3_column_int64(row, column + 3),
                                  .median_ns = sqlite3_column_double(row, column + 4),
                                  .max_ns = sqlite3_column_int64(row, column + 5)};
    unsigned at = 0;
    while (at < totals->n &&
           (totals->totals[at].link != op.link || totals->totals[at].bytes != op.bytes)) {
        at++;
    }
    if (at < totals->n) {
        struct logs_total *total = &totals->totals[at];
        total->count += op.count;
        total->n_medians++;
        total->min_ns = op.min_ns < total->min_ns ? op.min_ns : total->min_ns;
        total->median_ns += op.median_ns;
        total->max_ns = op.max_ns > total->max_ns ? op.max_ns : total->max_ns;
        return DEFT_OK;
    }
    if (totals->n == LOGS_MAX_TOTALS) {
        enum deft_status status = logs_save_totals(db, totals, error);
        if (status != DEFT_OK) {
            return status;
        }
    }
    totals->totals[totals->n++] = op;
    return DEFT_OK;
}

static enum deft_status logs_set_seq(struct store_db *db, int64_t incarnation, const char *agent,
                                     int64_t seq, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "UPDATE agents SET ops_seq = ?3 WHERE incarnation = ?1 AND agent = ?2");
    if (s == NULL) {
        return store_db_fail(db, "keep its books", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_text(s, 2, agent);
    store_bind_int(s, 3, seq);
    return store_db_step(db, s, "keep its books", error);
}

/* Whole reports of one agent, until `rows` are exceeded. */
static enum deft_status logs_roll_agent(struct store_db *db, struct logs_totals *totals,
                                        const char *agent, int64_t from_seq, int64_t to_seq,
                                        unsigned rows, unsigned *out_rows,
                                        struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    int64_t done_seq = to_seq;
    int64_t seq = from_seq;
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT seq, link, bytes, count, min_ns, median_ns, max_ns FROM ops"
                               " WHERE incarnation = ?1 AND agent = ?2 AND seq > ?3 AND seq <= ?4"
                               " ORDER BY seq, position");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    store_bind_int(s, 1, totals->incarnation);
    store_bind_text(s, 2, agent);
    store_bind_int(s, 3, from_seq);
    store_bind_int(s, 4, to_seq);
    int code = sqlite3_step(s);
    for (; code == SQLITE_ROW && status == DEFT_OK; code = sqlite3_step(s)) {
        if (sqlite3_column_int64(s, 0) != seq && *out_rows >= rows) {
            done_seq = seq;
            break;
        }
        seq = sqlite3_column_int64(s, 0);
        status = logs_take_op(db, totals, s, 1, error);
        ++*out_rows;
    }
    if (status == DEFT_OK && code != SQLITE_ROW && code != SQLITE_DONE) {
        status = store_db_fail(db, "be read", error);
    }
    (void)sqlite3_reset(s);
    return status == DEFT_OK ? logs_set_seq(db, totals->incarnation, agent, done_seq, error)
                             : status;
}

enum deft_status store_logs_roll(struct store_db *db, int64_t incarnation, unsigned rows,
                                 unsigned *out_rows, struct deft_error *error) {
    struct logs_totals totals = {.incarnation = incarnation};
    enum deft_status status = DEFT_OK;
    *out_rows = 0;
    while (*out_rows < rows && status == DEFT_OK) {
        sqlite3_stmt *s =
            store_db_statement(db, "SELECT agent, ops_seq, committed_seq FROM agents"
                                   " WHERE incarnation = ?1 AND committed_seq > ops_seq LIMIT 1");
        if (s == NULL) {
            return store_db_fail(db, "be read", error);
        }
        store_bind_int(s, 1, incarnation);
        int code = sqlite3_step(s);
        if (code != SQLITE_ROW) {
            status = code == SQLITE_DONE ? DEFT_OK : store_db_fail(db, "be read", error);
            break;
        }
        char agent[WIRE_ID_BYTES];
        int64_t from_seq = sqlite3_column_int64(s, 1);
        int64_t to_seq = sqlite3_column_int64(s, 2);
        (void)snprintf(agent, sizeof(agent), "%s", store_db_text(s, 0));
        (void)sqlite3_reset(s);
        status = logs_roll_agent(db, &totals, agent, from_seq, to_seq, rows, out_rows, error);
    }
    return status == DEFT_OK ? logs_save_totals(db, &totals, error) : status;
}

/* --- removal ------------------------------------------------------------------------------------
 */

/* The statements for one of the two tables. */
struct logs_table {
    const char *oldest; /* what stays behind those that go: seq, position, received_ns */
    const char *remove;
    const char *mark; /* the oldest that is left */
};

#define LOGS_OLDEST(table)                                                                         \
    "SELECT seq, position, received_ns FROM " table                                                \
    " WHERE incarnation = ?1 AND agent = ?2 ORDER BY seq, position"
#define LOGS_REMOVE(table)                                                                         \
    "DELETE FROM " table " WHERE incarnation = ?1 AND agent = ?2 AND (seq, position) < (?3, ?4)"
#define LOGS_MARK(column) "UPDATE agents SET " column " = ?3 WHERE incarnation = ?1 AND agent = ?2"

static const struct logs_table logs_ops = {LOGS_OLDEST("ops"), LOGS_REMOVE("ops"),
                                           LOGS_MARK("ops_ns")};
static const struct logs_table logs_events = {LOGS_OLDEST("events"), LOGS_REMOVE("events"),
                                              LOGS_MARK("events_ns")};

/* Where the rows that stay begin. */
struct logs_cut {
    int64_t seq;
    int64_t position;
    int64_t next_ns; /* 0: none stays */
    unsigned n_rows;
};

static enum deft_status logs_find_cut(struct store_db *db, const struct logs_table *table,
                                      int64_t incarnation, const char *agent, int64_t before_ns,
                                      int64_t oldest_ns, unsigned rows, struct logs_cut *out,
                                      struct deft_error *error) {
    struct logs_cut cut = {.seq = INT64_MAX, .position = INT64_MAX};
    sqlite3_stmt *s = store_db_statement(db, table->oldest);
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_text(s, 2, agent);
    int code = sqlite3_step(s);
    for (; code == SQLITE_ROW; code = sqlite3_step(s), cut.n_rows++) {
        int64_t received_ns = sqlite3_column_int64(s, 2);
        received_ns = received_ns > oldest_ns ? received_ns : oldest_ns;
        if (received_ns >= before_ns || cut.n_rows == rows) {
            cut.seq = sqlite3_column_int64(s, 0);
            cut.position = sqlite3_column_int64(s, 1);
            cut.next_ns = received_ns;
            break;
        }
    }
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_reset(s);
    *out = cut;
    return DEFT_OK;
}

static enum deft_status logs_trim(struct store_db *db, const struct logs_table *table,
                                  int64_t incarnation, const char *agent, int64_t before_ns,
                                  int64_t oldest_ns, unsigned rows, unsigned *out_rows,
                                  struct deft_error *error) {
    struct logs_cut cut = {0};
    enum deft_status status =
        logs_find_cut(db, table, incarnation, agent, before_ns, oldest_ns, rows, &cut, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s = store_db_statement(db, table->remove);
    if (s == NULL) {
        return store_db_fail(db, "remove what reports said", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_text(s, 2, agent);
    store_bind_int(s, 3, cut.seq);
    store_bind_int(s, 4, cut.position);
    status = store_db_step(db, s, "remove what reports said", error);
    if (status != DEFT_OK) {
        return status;
    }
    s = store_db_statement(db, table->mark);
    if (s == NULL) {
        return store_db_fail(db, "keep its books", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_text(s, 2, agent);
    if (cut.next_ns != 0) {
        store_bind_int(s, 3, cut.next_ns);
    }
    *out_rows = cut.n_rows;
    return store_db_step(db, s, "keep its books", error);
}

/* The books of an agent: what is rolled up, what is there, and since when. */
static enum deft_status logs_read_agent(struct store_db *db, int64_t incarnation, const char *agent,
                                        int64_t out[4], struct deft_error *error) {
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT ops_seq, committed_seq, ops_ns, events_ns FROM agents"
                               " WHERE incarnation = ?1 AND agent = ?2");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_text(s, 2, agent);
    int code = sqlite3_step(s);
    if (code != SQLITE_ROW) {
        return code == SQLITE_DONE ? deft_fail(error, DEFT_NOT_FOUND, 0, "there is no such agent")
                                   : store_db_fail(db, "be read", error);
    }
    for (int i = 0; i < 4; i++) {
        out[i] = sqlite3_column_int64(s, i);
    }
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

enum deft_status store_logs_trim_ops(struct store_db *db, int64_t incarnation, const char *agent,
                                     int64_t before_ns, unsigned rows, unsigned *out_rows,
                                     struct deft_error *error) {
    int64_t books[4] = {0};
    struct logs_totals totals = {.incarnation = incarnation};
    unsigned n_rolled = 0;
    *out_rows = 0;
    enum deft_status status = logs_read_agent(db, incarnation, agent, books, error);
    if (status == DEFT_OK && books[1] > books[0]) { /* nothing goes before it is added up */
        status =
            logs_roll_agent(db, &totals, agent, books[0], books[1], UINT32_MAX, &n_rolled, error);
        if (status == DEFT_OK) {
            status = logs_save_totals(db, &totals, error);
        }
    }
    return status == DEFT_OK ? logs_trim(db, &logs_ops, incarnation, agent, before_ns, books[2],
                                         rows, out_rows, error)
                             : status;
}

enum deft_status store_logs_trim_events(struct store_db *db, int64_t incarnation, const char *agent,
                                        int64_t before_ns, unsigned rows, unsigned *out_rows,
                                        struct deft_error *error) {
    int64_t books[4] = {0};
    *out_rows = 0;
    enum deft_status status = logs_read_agent(db, incarnation, agent, books, error);
    return status == DEFT_OK ? logs_trim(db, &logs_events, incarnation, agent, before_ns, books[3],
                                         rows, out_rows, error)
                             : status;
}
