/* Answers of the API, printed while they are read. */
#include "store/store.h"

#include <sqlite3.h>

#include "store/store_db.h"
#include "store/store_series.h"

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

/* --- lists -------------------------------------------------------------------------------------
 */

static void print_link(struct json_out *out, sqlite3_stmt *s) {
    print_integers(out, s, 0, 6);
}

enum deft_status store_print_links(struct store *store, int64_t incarnation, struct json_out *out,
                                   struct deft_error *error) {
    return print_list(store,
                      "SELECT link, bytes, count, min_ns,"
                      " CAST(median_ns / n_medians AS INTEGER) AS median_ns, max_ns"
                      " FROM link_totals WHERE incarnation = ?1 ORDER BY link, bytes",
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
                      " (SELECT a.iteration FROM activations a"
                      "  WHERE a.incarnation = p.incarnation AND a.plan_seq = p.seq)"
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
            " FROM incarnations WHERE id = ?1 AND state <> 'removing'");
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

struct print_measured {
    int64_t plan_seq;
    struct store_sums sums;
};

static void print_take_measured(void *context, const struct store_sums *sums) {
    struct print_measured *measured = context;
    if (sums->plan_seq == measured->plan_seq) {
        store_sums_add(&measured->sums, sums);
    }
}

/* What the iterations under this plan took: of the slowest rank, mean over iterations. */
static enum deft_status print_measured(struct store_db *db, int64_t incarnation, int64_t seq,
                                       struct json_out *out, struct deft_error *error) {
    struct print_measured measured = {.plan_seq = seq};
    const struct store_sums *sums = &measured.sums;
    enum deft_status status =
        store_series_each(db, incarnation, 0, INT64_MAX, print_take_measured, &measured, error);
    if (status == DEFT_OK) {
        json_out_begin_object(out, "measured");
        json_out_int(out, "n_iterations", sums->n_iterations);
        json_out_int(out, "step_ns",
                     sums->n_steps > 0 ? (int64_t)(sums->step_ns / (double)sums->n_steps) : 0);
        json_out_int(out, "exposed_ns",
                     sums->n_iterations > 0 ? (int64_t)(sums->stage_ns[STORE_SUMS_EXPOSED] /
                                                        (double)sums->n_iterations)
                                            : 0);
        json_out_end_object(out);
    }
    return status;
}

static enum deft_status print_plan(struct store_db *db, int64_t incarnation, uint64_t seq,
                                   int explain, struct json_out *out, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT p.hash, p.plan, p.solution, p.created_ns,"
            " (SELECT reason FROM decisions d WHERE d.incarnation = p.incarnation"
            "  AND d.plan_seq = p.seq"
            "  AND d.kind IN ('push', 'rollback', 'halt', 'compare', 'resume')"
            "  ORDER BY d.id LIMIT 1) FROM plans p WHERE p.incarnation = ?1 AND p.seq = ?2"
            " AND EXISTS (SELECT 1 FROM incarnations i WHERE i.id = ?1 AND i.state <> 'removing')");
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
