#include "store/store.h"

#include <math.h>
#include <sqlite3.h>

#include "store/store_db.h"

/* Rows of lists that grow with a job's life: the newest are shown. */
#define PRINT_MAX_ROWS 1000

static double print_real(sqlite3_stmt *s, int column) {
    return sqlite3_column_type(s, column) == SQLITE_NULL ? (double)NAN
                                                         : sqlite3_column_double(s, column);
}

static void print_time(struct json_out *out, const char *key, int64_t wall_ns) {
    char text[32];
    store_time_text(wall_ns, text);
    json_out_text(out, key, text);
}

static void print_id(struct json_out *out, const char *key, int64_t incarnation) {
    char text[STORE_ID_BYTES];
    store_id_text(incarnation, text);
    json_out_text(out, key, text);
}

static void print_plan_id(struct json_out *out, int64_t incarnation, int64_t seq) {
    char text[STORE_ID_BYTES];
    store_plan_id_text(incarnation, (uint64_t)seq, text);
    json_out_text(out, "id", text);
}

/* Integers of columns [first, first + n) under their column names. */
static void print_integers(struct json_out *out, sqlite3_stmt *s, int first, int n) {
    for (int i = first; i < first + n; i++) {
        json_out_int(out, sqlite3_column_name(s, i), sqlite3_column_int64(s, i));
    }
}

typedef void (*print_row_fn)(struct json_out *out, sqlite3_stmt *s);

/* An array of what `sql` finds for one incarnation. */
static enum deft_status print_list(struct store *store, const char *sql, int64_t incarnation,
                                   const char *key, print_row_fn row, struct json_out *out,
                                   struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s = store_db_statement(db, sql);
    int code = SQLITE_ERROR;
    if (s != NULL) {
        (void)sqlite3_bind_int64(s, 1, incarnation);
        json_out_begin_array(out, key);
        for (code = sqlite3_step(s); code == SQLITE_ROW; code = sqlite3_step(s)) {
            json_out_begin_object(out, NULL);
            row(out, s);
            json_out_end_object(out);
        }
        json_out_end_array(out);
    }
    if (code != SQLITE_DONE) {
        status = store_db_fail(db, "be read", error);
    }
    store_reader_give(store, db);
    return status;
}

/* --- down-sampled series -----------------------------------------------------------------------
 */

static enum deft_status print_last_iteration(struct store_db *db, int64_t incarnation,
                                             uint64_t *out, struct deft_error *error) {
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT max(iteration) FROM iterations WHERE incarnation = ?1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, incarnation);
    if (sqlite3_step(s) != SQLITE_ROW) {
        return store_db_fail(db, "be read", error);
    }
    *out = (uint64_t)sqlite3_column_int64(s, 0);
    return DEFT_OK;
}

static enum deft_status print_series(struct store *store, int64_t incarnation,
                                     const struct store_range *range, const char *sql,
                                     print_row_fn row, const char *key, struct json_out *out,
                                     struct deft_error *error) {
    struct store_db *db = NULL;
    uint64_t last = 0;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    status = print_last_iteration(db, incarnation, &last, error);
    uint64_t to = range->to < last ? range->to : last;
    uint64_t points =
        range->points > 0 && range->points < STORE_MAX_POINTS ? range->points : STORE_MAX_POINTS;
    uint64_t width = to >= range->from ? (to - range->from) / points + 1 : 1;
    sqlite3_stmt *s = status == DEFT_OK ? store_db_statement(db, sql) : NULL;
    if (s != NULL) {
        (void)sqlite3_bind_int64(s, 1, incarnation);
        (void)sqlite3_bind_int64(s, 2, (sqlite3_int64)range->from);
        (void)sqlite3_bind_int64(s, 3, (sqlite3_int64)to);
        (void)sqlite3_bind_int64(s, 4, (sqlite3_int64)width);
        json_out_uint(out, "from", range->from);
        json_out_uint(out, "to", to);
        json_out_uint(out, "iterations_per_point", width);
        json_out_begin_array(out, key);
        while (sqlite3_step(s) == SQLITE_ROW) {
            json_out_begin_object(out, NULL);
            row(out, s);
            json_out_end_object(out);
        }
        json_out_end_array(out);
    } else if (status == DEFT_OK) {
        status = store_db_fail(db, "be read", error);
    }
    store_reader_give(store, db);
    return status;
}

static void print_iteration(struct json_out *out, sqlite3_stmt *s) {
    print_integers(out, s, 0, 10);
    json_out_number(out, "loss", print_real(s, 10));
}

enum deft_status store_print_iterations(struct store *store, int64_t incarnation,
                                        const struct store_range *range, struct json_out *out,
                                        struct deft_error *error) {
    /* The slowest rank counts inside an iteration, the mean over iterations. */
    return print_series(
        store, incarnation, range,
        "SELECT min(iteration) AS iteration, count(*) AS n_iterations, max(plan_seq) AS plan_seq,"
        " CAST(avg(step_ns) AS INTEGER) AS step_ns,"
        " CAST(avg(forward_ns) AS INTEGER) AS forward_ns,"
        " CAST(avg(backward_ns) AS INTEGER) AS backward_ns,"
        " CAST(avg(exposed_ns) AS INTEGER) AS exposed_ns,"
        " CAST(avg(optimizer_ns) AS INTEGER) AS optimizer_ns,"
        " CAST(avg(runtime_ns) AS INTEGER) AS runtime_ns,"
        " sum(updates) AS updates, avg(loss) FROM ("
        "SELECT iteration, max(plan_seq) AS plan_seq, nullif(max(step_ns), 0) AS step_ns,"
        " max(forward_ns) AS forward_ns, max(backward_ns) AS backward_ns,"
        " max(exposed_ns) AS exposed_ns, max(optimizer_ns) AS optimizer_ns,"
        " max(runtime_ns) AS runtime_ns, max(updates) AS updates, avg(loss) AS loss"
        " FROM iterations WHERE incarnation = ?1 AND iteration BETWEEN ?2 AND ?3"
        " GROUP BY iteration) GROUP BY (iteration - ?2) / ?4 ORDER BY 1",
        print_iteration, "points", out, error);
}

static void print_loss(struct json_out *out, sqlite3_stmt *s) {
    print_integers(out, s, 0, 3);
    json_out_number(out, "loss", print_real(s, 3));
    json_out_number(out, "loss_min", print_real(s, 4));
    json_out_number(out, "loss_max", print_real(s, 5));
    json_out_number(out, "grad_sq_local", print_real(s, 6));
    json_out_number(out, "grad_sq_mean", print_real(s, 7));
    json_out_number(out, "change_sq_local", print_real(s, 8));
    json_out_number(out, "learning_rate", print_real(s, 9));
}

enum deft_status store_print_losses(struct store *store, int64_t incarnation,
                                    const struct store_range *range, struct json_out *out,
                                    struct deft_error *error) {
    return print_series(
        store, incarnation, range,
        "SELECT min(iteration) AS iteration, count(DISTINCT iteration) AS n_iterations,"
        " max(plan_seq) AS plan_seq, avg(loss), min(loss), max(loss), avg(grad_sq_local),"
        " avg(grad_sq_mean), avg(change_sq_local), avg(learning_rate) FROM iterations"
        " WHERE incarnation = ?1 AND iteration BETWEEN ?2 AND ?3"
        " GROUP BY (iteration - ?2) / ?4 ORDER BY 1",
        print_loss, "points", out, error);
}

/* --- lists -------------------------------------------------------------------------------------
 */

static void print_link(struct json_out *out, sqlite3_stmt *s) {
    print_integers(out, s, 0, 6);
}

enum deft_status store_print_links(struct store *store, int64_t incarnation, struct json_out *out,
                                   struct deft_error *error) {
    return print_list(store,
                      "SELECT link, bytes, sum(count) AS count, min(min_ns) AS min_ns,"
                      " CAST(avg(median_ns) AS INTEGER) AS median_ns, max(max_ns) AS max_ns"
                      " FROM ops WHERE incarnation = ?1 GROUP BY link, bytes ORDER BY link, bytes",
                      incarnation, "ops", print_link, out, error);
}

static void print_plan_row(struct json_out *out, sqlite3_stmt *s) {
    print_plan_id(out, sqlite3_column_int64(s, 0), sqlite3_column_int64(s, 1));
    json_out_int(out, "seq", sqlite3_column_int64(s, 1));
    json_out_text(out, "hash", store_db_text(s, 2));
    print_time(out, "created_at", sqlite3_column_int64(s, 3));
    if (sqlite3_column_type(s, 4) == SQLITE_NULL) {
        json_out_null(out, "switched_at_iteration");
    } else {
        json_out_int(out, "switched_at_iteration", sqlite3_column_int64(s, 4));
    }
}

enum deft_status store_print_plans(struct store *store, int64_t incarnation, struct json_out *out,
                                   struct deft_error *error) {
    return print_list(store,
                      "SELECT p.incarnation, p.seq, p.hash, p.created_ns,"
                      " (SELECT min(e.iteration) FROM events e WHERE e.incarnation = p.incarnation"
                      "  AND e.kind = 'switched' AND e.plan_seq = p.seq)"
                      " FROM plans p WHERE p.incarnation = ?1 ORDER BY p.seq LIMIT 1000",
                      incarnation, "plans", print_plan_row, out, error);
}

static void print_decision(struct json_out *out, sqlite3_stmt *s) {
    print_time(out, "at", sqlite3_column_int64(s, 0));
    json_out_text(out, "kind", store_db_text(s, 1));
    print_integers(out, s, 2, 6);
    json_out_text(out, "reason", store_db_text(s, 8));
}

enum deft_status store_print_decisions(struct store *store, int64_t incarnation,
                                       struct json_out *out, struct deft_error *error) {
    return print_list(store,
                      "SELECT * FROM (SELECT at_ns, kind, iteration, plan_seq, exact_step_ns,"
                      " before_step_ns, predicted_step_ns, measured_step_ns, reason, id"
                      " FROM decisions WHERE incarnation = ?1 ORDER BY id DESC LIMIT 1000)"
                      " ORDER BY id",
                      incarnation, "decisions", print_decision, out, error);
}

static void print_agent(struct json_out *out, sqlite3_stmt *s) {
    json_out_text(out, "agent", store_db_text(s, 0));
    json_out_int(out, "committed_seq", sqlite3_column_int64(s, 1));
    print_time(out, "registered_at", sqlite3_column_int64(s, 2));
}

static enum deft_status print_incarnation_row(struct store_db *db, int64_t incarnation,
                                              struct json_out *out, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT id, job, key, state, n_ranks, table_hash, registered_ns, updated_ns"
            " FROM incarnations WHERE id = ?1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, incarnation);
    int code = sqlite3_step(s);
    if (code == SQLITE_DONE) {
        return deft_fail(error, DEFT_NOT_FOUND, 0, "there is no such incarnation");
    }
    if (code != SQLITE_ROW) {
        return store_db_fail(db, "be read", error);
    }
    print_id(out, "id", sqlite3_column_int64(s, 0));
    json_out_text(out, "job", store_db_text(s, 1));
    json_out_text(out, "key", store_db_text(s, 2));
    json_out_text(out, "state", store_db_text(s, 3));
    json_out_int(out, "n_ranks", sqlite3_column_int64(s, 4));
    json_out_text(out, "table_hash", store_db_text(s, 5));
    print_time(out, "registered_at", sqlite3_column_int64(s, 6));
    print_time(out, "updated_at", sqlite3_column_int64(s, 7));
    return DEFT_OK;
}

enum deft_status store_print_incarnation(struct store *store, int64_t incarnation,
                                         struct json_out *out, struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status == DEFT_OK) {
        status = print_incarnation_row(db, incarnation, out, error);
        store_reader_give(store, db);
    }
    if (status == DEFT_OK) {
        status = print_list(store,
                            "SELECT agent, committed_seq, registered_ns FROM agents"
                            " WHERE incarnation = ?1 ORDER BY registered_ns",
                            incarnation, "agents", print_agent, out, error);
    }
    return status;
}

/* What the runs of this plan took: of the slowest rank, mean over iterations. */
static enum deft_status print_measured(struct store_db *db, int64_t incarnation, int64_t seq,
                                       struct json_out *out, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT count(*) AS n_iterations, CAST(avg(step_ns) AS INTEGER) AS step_ns,"
            " CAST(avg(exposed_ns) AS INTEGER) AS exposed_ns FROM (SELECT"
            " nullif(max(step_ns), 0) AS step_ns, max(exposed_ns) AS exposed_ns FROM iterations"
            " WHERE incarnation = ?1 AND plan_seq = ?2 GROUP BY iteration"
            " ORDER BY iteration DESC LIMIT ?3)");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, incarnation);
    (void)sqlite3_bind_int64(s, 2, seq);
    (void)sqlite3_bind_int64(s, 3, PRINT_MAX_ROWS);
    if (sqlite3_step(s) != SQLITE_ROW) {
        return store_db_fail(db, "be read", error);
    }
    json_out_begin_object(out, "measured");
    print_integers(out, s, 0, 3);
    json_out_end_object(out);
    return DEFT_OK;
}

static enum deft_status print_plan(struct store_db *db, int64_t incarnation, uint64_t seq,
                                   int explain, struct json_out *out, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT p.hash, p.plan, p.solution, p.created_ns,"
            " (SELECT reason FROM decisions d WHERE d.incarnation = p.incarnation"
            "  AND d.plan_seq = p.seq"
            "  AND d.kind IN ('push', 'rollback', 'halt', 'compare', 'resume')"
            "  ORDER BY d.id LIMIT 1) FROM plans p WHERE p.incarnation = ?1 AND p.seq = ?2");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, incarnation);
    (void)sqlite3_bind_int64(s, 2, (sqlite3_int64)seq);
    int code = sqlite3_step(s);
    if (code == SQLITE_DONE) {
        return deft_fail(error, DEFT_NOT_FOUND, 0, "there is no such plan");
    }
    if (code != SQLITE_ROW) {
        return store_db_fail(db, "be read", error);
    }
    print_plan_id(out, incarnation, (int64_t)seq);
    print_id(out, "incarnation", incarnation);
    json_out_uint(out, "seq", seq);
    json_out_text(out, "hash", store_db_text(s, 0));
    print_time(out, "created_at", sqlite3_column_int64(s, 3));
    json_out_text(out, "reason", store_db_text(s, 4));
    json_out_raw(out, "plan", store_db_text(s, 1));
    if (!explain) {
        return DEFT_OK;
    }
    const char *solution = store_db_text(s, 2);
    if (solution[0] != '\0') {
        json_out_raw(out, "solution", solution);
    } else {
        json_out_null(out, "solution");
    }
    return print_measured(db, incarnation, (int64_t)seq, out, error);
}

enum deft_status store_print_plan(struct store *store, int64_t incarnation, uint64_t seq,
                                  int explain, struct json_out *out, struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status == DEFT_OK) {
        status = print_plan(db, incarnation, seq, explain, out, error);
        store_reader_give(store, db);
    }
    return status;
}
