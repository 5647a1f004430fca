/* What the registry of jobs reads. */
#include "store/store.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_db.h"

/* Iterations that are counted one by one when a job is taken up. */
#define READ_MAX_TAIL 100000

static enum deft_status read_copy(sqlite3_stmt *s, int column, char **out,
                                  struct deft_error *error) {
    char *copy = strdup(store_db_text(s, column));
    if (copy == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read the database");
    }
    *out = copy;
    return DEFT_OK;
}

/* One row or DEFT_NOT_FOUND. */
static enum deft_status read_row(struct store_db *db, sqlite3_stmt *s, const char *what,
                                 struct deft_error *error) {
    int code = sqlite3_step(s);
    if (code == SQLITE_DONE) {
        return deft_fail(error, DEFT_NOT_FOUND, 0, "there is no such %s", what);
    }
    return code == SQLITE_ROW ? DEFT_OK : store_db_fail(db, "be read", error);
}

void store_incarnation_done(struct store_incarnation *incarnation) {
    if (incarnation != NULL) {
        free(incarnation->registration);
        free(incarnation->tuner);
        free(incarnation->plan);
        memset(incarnation, 0, sizeof(*incarnation));
    }
}

static double read_real(sqlite3_stmt *s, int column) {
    return sqlite3_column_type(s, column) == SQLITE_NULL ? (double)NAN
                                                         : sqlite3_column_double(s, column);
}

#define READ_JOB_COLUMNS                                                                           \
    "j.id, j.mode, j.max_merge, j.max_delay, j.epsilon, j.min_progress, j.loss_floor, j.frozen,"   \
    " j.pin"
#define READ_N_JOB_COLUMNS 9

static void read_job_columns(sqlite3_stmt *s, int first, struct store_job *out) {
    (void)snprintf(out->id, sizeof(out->id), "%s", store_db_text(s, first));
    (void)snprintf(out->mode, sizeof(out->mode), "%s", store_db_text(s, first + 1));
    out->limits.max_merge = (uint32_t)sqlite3_column_int64(s, first + 2);
    out->limits.max_delay = (uint32_t)sqlite3_column_int64(s, first + 3);
    out->limits.epsilon = sqlite3_column_double(s, first + 4);
    out->limits.min_progress = sqlite3_column_double(s, first + 5);
    out->limits.loss_floor = read_real(s, first + 6);
    out->frozen = sqlite3_column_int(s, first + 7) != 0;
    (void)snprintf(out->pin, sizeof(out->pin), "%s", store_db_text(s, first + 8));
}

static enum deft_status read_incarnation_row(struct store_db *db, int64_t id,
                                             struct store_incarnation *out,
                                             struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT " READ_JOB_COLUMNS ", i.state, i.registered_ns, i.updated_ns,"
            " i.registration, i.tuner, EXISTS (SELECT 1 FROM incarnations n WHERE n.job = i.job"
            " AND n.id > i.id) FROM incarnations i JOIN jobs j ON j.id = i.job"
            " WHERE i.id = ?1 AND i.state <> 'removing'");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, id);
    enum deft_status status = read_row(db, s, "incarnation", error);
    if (status != DEFT_OK) {
        return status;
    }
    out->id = id;
    read_job_columns(s, 0, &out->job);
    const int rest = READ_N_JOB_COLUMNS;
    (void)snprintf(out->state, sizeof(out->state), "%s", store_db_text(s, rest));
    out->registered_ns = sqlite3_column_int64(s, rest + 1);
    out->updated_ns = sqlite3_column_int64(s, rest + 2);
    out->is_superseded = sqlite3_column_int(s, rest + 5);
    status = read_copy(s, rest + 3, &out->registration, error);
    return status == DEFT_OK ? read_copy(s, rest + 4, &out->tuner, error) : status;
}

/* Iterations that are rolled up are counted; the few behind them are counted here. A long tail,
 * that of a database of an older release, is taken to have no gaps. */
static enum deft_status read_n_iterations(struct store_db *db, int64_t incarnation, uint64_t *out,
                                          struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT u.n_rolled, u.newest - u.rolled_to, (SELECT count(*) FROM (SELECT DISTINCT"
            " iteration FROM iterations WHERE incarnation = ?1 AND iteration > u.rolled_to"
            " LIMIT ?2)) FROM upkeep u WHERE u.incarnation = ?1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, incarnation);
    (void)sqlite3_bind_int64(s, 2, READ_MAX_TAIL);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        int64_t n_tail = sqlite3_column_int64(s, 2);
        n_tail = n_tail == READ_MAX_TAIL ? sqlite3_column_int64(s, 1) : n_tail;
        *out = (uint64_t)(sqlite3_column_int64(s, 0) + n_tail);
    }
    (void)sqlite3_reset(s);
    return code == SQLITE_ROW || code == SQLITE_DONE ? DEFT_OK
                                                     : store_db_fail(db, "be read", error);
}

static enum deft_status read_incarnation_rest(struct store_db *db, struct store_incarnation *out,
                                              struct deft_error *error) {
    enum deft_status status = read_n_iterations(db, out->id, &out->n_iterations, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT reason FROM decisions WHERE incarnation = ?1 ORDER BY id DESC LIMIT 1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, out->id);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        (void)snprintf(out->decision, sizeof(out->decision), "%s", store_db_text(s, 0));
    } else if (code != SQLITE_DONE) {
        return store_db_fail(db, "be read", error);
    }
    s = store_db_statement(db, "SELECT seq, hash, plan, max_loss, max_grad_sq FROM plans"
                               " WHERE incarnation = ?1 ORDER BY seq DESC LIMIT 1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, out->id);
    code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        out->plan_seq = (uint64_t)sqlite3_column_int64(s, 0);
        out->plan_hash = strtoull(store_db_text(s, 1), NULL, 16);
        out->max_loss = read_real(s, 3);
        out->max_grad_sq = read_real(s, 4);
        return read_copy(s, 2, &out->plan, error);
    }
    return code == SQLITE_DONE ? DEFT_OK : store_db_fail(db, "be read", error);
}

enum deft_status store_read_incarnation(struct store *store, int64_t id,
                                        struct store_incarnation *out, struct deft_error *error) {
    struct store_db *db = NULL;
    struct store_incarnation found = {0};
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    status = read_incarnation_row(db, id, &found, error);
    if (status == DEFT_OK) {
        status = read_incarnation_rest(db, &found, error);
    }
    store_reader_give(store, db);
    if (status != DEFT_OK) {
        store_incarnation_done(&found);
        return status;
    }
    *out = found;
    return DEFT_OK;
}

enum deft_status store_read_ends(struct store *store, int64_t incarnation, store_end_fn found,
                                 void *context, struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    int code = SQLITE_ERROR;
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT rank, failed FROM ends WHERE incarnation = ?1");
    if (s != NULL) {
        (void)sqlite3_bind_int64(s, 1, incarnation);
        for (code = sqlite3_step(s); code == SQLITE_ROW; code = sqlite3_step(s)) {
            found(context, (uint32_t)sqlite3_column_int64(s, 0), sqlite3_column_int(s, 1));
        }
    }
    if (code != SQLITE_DONE) {
        status = store_db_fail(db, "be read", error);
    }
    store_reader_give(store, db);
    return status;
}

enum deft_status store_read_open(struct store *store, size_t capacity, int64_t **out_ids,
                                 size_t *out_n, struct deft_error *error) {
    struct store_db *db = NULL;
    size_t n = 0;
    int code = SQLITE_ERROR;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s = store_db_statement(db, "SELECT id FROM incarnations"
                                             " WHERE state IN ('running', 'lost')"
                                             " ORDER BY id DESC LIMIT ?1");
    int64_t *ids = calloc(capacity, sizeof(*ids));
    if (ids == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read the database");
    } else if (s != NULL) {
        (void)sqlite3_bind_int64(s, 1, (sqlite3_int64)capacity);
        for (code = sqlite3_step(s); code == SQLITE_ROW && n < capacity; code = sqlite3_step(s)) {
            ids[n++] = sqlite3_column_int64(s, 0);
        }
    }
    if (status == DEFT_OK && code != SQLITE_DONE) {
        status = store_db_fail(db, "be read", error);
    }
    store_reader_give(store, db);
    if (status != DEFT_OK) {
        free(ids);
        return status;
    }
    *out_ids = ids;
    *out_n = n;
    return DEFT_OK;
}

enum deft_status store_read_job(struct store *store, const char *id, struct store_job *out,
                                char **out_summary, struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT " READ_JOB_COLUMNS ", j.summary FROM jobs j WHERE j.id = ?1"
                               " AND j.state <> 'removing'");
    if (s == NULL) {
        status = store_db_fail(db, "be read", error);
    } else {
        (void)sqlite3_bind_text(s, 1, id, -1, SQLITE_STATIC);
        status = read_row(db, s, "job", error);
    }
    if (status == DEFT_OK) {
        char *summary = NULL;
        status = read_copy(s, READ_N_JOB_COLUMNS, &summary, error);
        if (status == DEFT_OK) {
            read_job_columns(s, 0, out);
            *out_summary = summary;
        }
    }
    store_reader_give(store, db);
    return status;
}

static enum deft_status read_decisions(struct store_db *db, const char *job,
                                       store_decision_fn found, void *context,
                                       struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT d.incarnation, d.id, d.kind, d.iteration, d.plan_seq, d.reason, d.inputs,"
            " d.solve FROM decisions d JOIN incarnations i ON i.id = d.incarnation"
            " WHERE i.job = ?1 ORDER BY d.id");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_text(s, 1, job, -1, SQLITE_STATIC);
    int code = sqlite3_step(s);
    for (; status == DEFT_OK && code == SQLITE_ROW; code = sqlite3_step(s)) {
        const struct store_decision decision = {
            .incarnation = sqlite3_column_int64(s, 0),
            .id = sqlite3_column_int64(s, 1),
            .kind = store_db_text(s, 2),
            .iteration = (uint64_t)sqlite3_column_int64(s, 3),
            .plan_seq = (uint64_t)sqlite3_column_int64(s, 4),
            .reason = store_db_text(s, 5),
            .inputs = store_db_text(s, 6),
            .solve = store_db_text(s, 7),
        };
        status = found(context, &decision, error);
    }
    return status == DEFT_OK && code != SQLITE_DONE ? store_db_fail(db, "be read", error) : status;
}

enum deft_status store_read_decisions(struct store *store, const char *job, store_decision_fn found,
                                      void *context, struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status == DEFT_OK) {
        status = read_decisions(db, job, found, context, error);
        store_reader_give(store, db);
    }
    return status;
}

#define READ_JOBS_WHERE                                                                            \
    " FROM jobs WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR user = ?2)"                    \
    " AND (?3 = 0 OR state = 'running' OR updated_ns >= ?3) AND state <> 'removing'"
#define READ_JOBS_PAGE(order)                                                                      \
    "SELECT id, summary" READ_JOBS_WHERE " ORDER BY " order " LIMIT ?4 OFFSET ?5"

static sqlite3_stmt *read_jobs_statement(struct store_db *db, const char *sql,
                                         const struct store_filter *filter) {
    sqlite3_stmt *s = store_db_statement(db, sql);
    if (s != NULL) {
        (void)sqlite3_bind_text(s, 1, filter->state, -1, SQLITE_STATIC);
        (void)sqlite3_bind_text(s, 2, filter->user, -1, SQLITE_STATIC);
        (void)sqlite3_bind_int64(s, 3, filter->since_ns);
    }
    return s;
}

static enum deft_status read_jobs(struct store_db *db, const struct store_filter *filter,
                                  store_summary_fn found, void *context, uint64_t *out_total,
                                  struct deft_error *error) {
    static const char *const pages[][2] = {
        {READ_JOBS_PAGE("created_ns DESC, id"), READ_JOBS_PAGE("created_ns, id")},
        {READ_JOBS_PAGE("id DESC"), READ_JOBS_PAGE("id")},
        {READ_JOBS_PAGE("user DESC, created_ns DESC, id"),
         READ_JOBS_PAGE("user, created_ns DESC, id")},
    };
    enum deft_status status = DEFT_OK;
    sqlite3_stmt *s = read_jobs_statement(db, "SELECT count(*)" READ_JOBS_WHERE, filter);
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    status = read_row(db, s, "count", error);
    if (status != DEFT_OK) {
        return status;
    }
    *out_total = (uint64_t)sqlite3_column_int64(s, 0);
    s = read_jobs_statement(db, pages[filter->order][filter->is_rising != 0], filter);
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 4, (sqlite3_int64)filter->limit);
    (void)sqlite3_bind_int64(s, 5, (sqlite3_int64)filter->offset);
    int code = sqlite3_step(s);
    for (; status == DEFT_OK && code == SQLITE_ROW; code = sqlite3_step(s)) {
        status = found(context, store_db_text(s, 0), store_db_text(s, 1));
    }
    return status == DEFT_OK && code != SQLITE_DONE ? store_db_fail(db, "be read", error) : status;
}

enum deft_status store_read_jobs(struct store *store, const struct store_filter *filter,
                                 store_summary_fn found, void *context, uint64_t *out_total,
                                 struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status == DEFT_OK) {
        status = read_jobs(db, filter, found, context, out_total, error);
        store_reader_give(store, db);
    }
    return status;
}

enum deft_status store_read_plan_text(struct store *store, int64_t incarnation, uint64_t seq,
                                      char **out, uint64_t *out_hash, struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT plan, hash FROM plans WHERE incarnation = ?1 AND seq = ?2");
    if (s == NULL) {
        status = store_db_fail(db, "be read", error);
    } else {
        (void)sqlite3_bind_int64(s, 1, incarnation);
        (void)sqlite3_bind_int64(s, 2, (sqlite3_int64)seq);
        status = read_row(db, s, "plan", error);
    }
    if (status == DEFT_OK) {
        status = read_copy(s, 0, out, error);
        if (status == DEFT_OK) {
            *out_hash = strtoull(store_db_text(s, 1), NULL, 16);
        }
    }
    store_reader_give(store, db);
    return status;
}

enum deft_status store_read_profile(struct store *store, int64_t incarnation, char **out,
                                    struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT profile FROM incarnations WHERE id = ?1 AND profile <> ''");
    if (s == NULL) {
        status = store_db_fail(db, "be read", error);
    } else {
        (void)sqlite3_bind_int64(s, 1, incarnation);
        status = read_row(db, s, "profile", error);
    }
    if (status == DEFT_OK) {
        status = read_copy(s, 0, out, error);
    }
    store_reader_give(store, db);
    return status;
}
