#include "store/store_logs.h"

#include <sqlite3.h>

#include "store/store_bind.h"

/* Where the rows that stay begin. */
struct logs_cut {
    int64_t seq;
    int64_t position;
    int64_t next_ns; /* 0: none stays */
    unsigned n_rows;
};

static enum deft_status logs_find_cut(struct store_db *db, int64_t incarnation, const char *agent,
                                      int64_t before_ns, int64_t oldest_ns, unsigned rows,
                                      struct logs_cut *out, struct deft_error *error) {
    struct logs_cut cut = {.seq = INT64_MAX, .position = INT64_MAX};
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT seq, position, received_ns FROM events WHERE incarnation"
                               " = ?1 AND agent = ?2 ORDER BY seq, position");
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

static enum deft_status logs_remove(struct store_db *db, int64_t incarnation, const char *agent,
                                    const struct logs_cut *cut, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(db, "DELETE FROM events WHERE incarnation = ?1 AND agent"
                                             " = ?2 AND (seq, position) < (?3, ?4)");
    if (s == NULL) {
        return store_db_fail(db, "remove events", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_text(s, 2, agent);
    store_bind_int(s, 3, cut->seq);
    store_bind_int(s, 4, cut->position);
    enum deft_status status = store_db_step(db, s, "remove events", error);
    if (status != DEFT_OK) {
        return status;
    }
    s = store_db_statement(
        db, "UPDATE agents SET events_ns = ?3 WHERE incarnation = ?1 AND agent = ?2");
    if (s == NULL) {
        return store_db_fail(db, "keep its books", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_text(s, 2, agent);
    if (cut->next_ns != 0) {
        store_bind_int(s, 3, cut->next_ns);
    }
    return store_db_step(db, s, "keep its books", error);
}

/* What the books say of an agent's oldest event. */
static enum deft_status logs_oldest(struct store_db *db, int64_t incarnation, const char *agent,
                                    int64_t *out_ns, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT events_ns FROM agents WHERE incarnation = ?1 AND agent = ?2");
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
    *out_ns = sqlite3_column_int64(s, 0);
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

enum deft_status store_logs_trim(struct store_db *db, int64_t incarnation, const char *agent,
                                 int64_t before_ns, unsigned rows, unsigned *out_rows,
                                 struct deft_error *error) {
    struct logs_cut cut = {0};
    int64_t oldest_ns = 0;
    *out_rows = 0;
    enum deft_status status = logs_oldest(db, incarnation, agent, &oldest_ns, error);
    if (status == DEFT_OK) {
        status = logs_find_cut(db, incarnation, agent, before_ns, oldest_ns, rows, &cut, error);
    }
    if (status == DEFT_OK) {
        status = logs_remove(db, incarnation, agent, &cut, error);
        *out_rows = status == DEFT_OK ? cut.n_rows : 0;
    }
    return status;
}
