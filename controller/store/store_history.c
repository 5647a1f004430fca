#include "store/store_history.h"

#include <sqlite3.h>
#include <string.h>

#include "store/store_sums.h"

#define NS_PER_S INT64_C(1000000000)

/* --- the row ------------------------------------------------------------------------------------
 */

enum deft_status store_history_read(struct store_db *db, int64_t incarnation,
                                    struct store_history *out, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT i.n_ranks, u.newest, u.rolled_to, u.hours_to, u.raw_from, u.n_rolled, u.n_raw,"
            " u.late_from, u.late_ns, u.raw_ns, u.minutes_ns, u.hours_ns"
            " FROM upkeep u JOIN incarnations i ON i.id = u.incarnation WHERE u.incarnation = ?1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, incarnation);
    int code = sqlite3_step(s);
    if (code == SQLITE_DONE) {
        return deft_fail(error, DEFT_NOT_FOUND, 0, "there is no history of this incarnation");
    }
    if (code != SQLITE_ROW) {
        return store_db_fail(db, "be read", error);
    }
    *out = (struct store_history){.incarnation = incarnation,
                                  .n_ranks = sqlite3_column_int64(s, 0),
                                  .newest = sqlite3_column_int64(s, 1),
                                  .rolled_to = sqlite3_column_int64(s, 2),
                                  .hours_to = sqlite3_column_int64(s, 3),
                                  .raw_from = sqlite3_column_int64(s, 4),
                                  .n_rolled = sqlite3_column_int64(s, 5),
                                  .n_raw = sqlite3_column_int64(s, 6),
                                  .late_from = sqlite3_column_int64(s, 7),
                                  .late_ns = sqlite3_column_int64(s, 8),
                                  .raw_ns = sqlite3_column_int64(s, 9),
                                  .minutes_ns = sqlite3_column_int64(s, 10),
                                  .hours_ns = sqlite3_column_int64(s, 11)};
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

static void history_bind_time(sqlite3_stmt *s, int parameter, int64_t ns) {
    if (ns != 0) {
        (void)sqlite3_bind_int64(s, parameter, ns);
    }
}

enum deft_status store_history_write(struct store_db *db, const struct store_history *history,
                                     struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "UPDATE upkeep SET rolled_to = ?2, hours_to = ?3, raw_from = ?4, n_rolled = ?5,"
            " n_raw = ?6, late_from = ?7, late_ns = ?8, raw_ns = ?9, minutes_ns = ?10,"
            " hours_ns = ?11 WHERE incarnation = ?1");
    if (s == NULL) {
        return store_db_fail(db, "keep its books", error);
    }
    (void)sqlite3_bind_int64(s, 1, history->incarnation);
    (void)sqlite3_bind_int64(s, 2, history->rolled_to);
    (void)sqlite3_bind_int64(s, 3, history->hours_to);
    (void)sqlite3_bind_int64(s, 4, history->raw_from);
    (void)sqlite3_bind_int64(s, 5, history->n_rolled);
    (void)sqlite3_bind_int64(s, 6, history->n_raw);
    if (history->late_ns != 0) {
        (void)sqlite3_bind_int64(s, 7, history->late_from);
    }
    history_bind_time(s, 8, history->late_ns);
    history_bind_time(s, 9, history->raw_ns);
    history_bind_time(s, 10, history->minutes_ns);
    history_bind_time(s, 11, history->hours_ns);
    return store_db_step(db, s, "keep its books", error);
}

/* --- runs ---------------------------------------------------------------------------------------
 */

/* The newest run of a roll-up, while it grows. */
struct history_run {
    int64_t period_s;
    int64_t max_iterations;
    int64_t received_ns;
    struct store_sums sums; /* of no iterations: there is none */
    int closed;             /* nothing is added to it any more */
    int changed;
};

static enum deft_status history_run_load(struct store_db *db, int64_t incarnation,
                                         struct history_run *run, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT " STORE_SUMS_COLUMNS " FROM rollups WHERE incarnation = ?1 AND period_s = ?2"
            " ORDER BY first DESC LIMIT 1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, incarnation);
    (void)sqlite3_bind_int64(s, 2, run->period_s);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        store_sums_read(s, &run->sums, &run->received_ns);
    } else if (code != SQLITE_DONE) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

static enum deft_status history_run_save(struct store_db *db, int64_t incarnation,
                                         struct history_run *run, struct deft_error *error) {
    if (!run->changed) {
        return DEFT_OK;
    }
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT OR REPLACE INTO rollups (incarnation, period_s, " STORE_SUMS_COLUMNS ")"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17,"
            " ?18, ?19, ?20, ?21, ?22, ?23, ?24, ?25, ?26, ?27, ?28, ?29)");
    if (s == NULL) {
        return store_db_fail(db, "take a roll-up", error);
    }
    (void)sqlite3_bind_int64(s, 1, incarnation);
    (void)sqlite3_bind_int64(s, 2, run->period_s);
    store_sums_bind(s, 3, &run->sums, run->received_ns);
    run->changed = 0;
    return store_db_step(db, s, "take a roll-up", error);
}

/* Adds what follows to the run, or begins another one with it. */
static enum deft_status history_run_take(struct store_db *db, int64_t incarnation,
                                         struct history_run *run, const struct store_sums *more,
                                         int64_t received_ns, struct deft_error *error) {
    const struct store_sums *sums = &run->sums;
    int64_t begin_ns = received_ns - received_ns % (run->period_s * NS_PER_S);
    begin_ns = begin_ns > run->received_ns ? begin_ns : run->received_ns;
    if (sums->n_iterations == 0 || run->closed || begin_ns != run->received_ns ||
        sums->plan_seq != more->plan_seq ||
        sums->n_iterations + more->n_iterations > run->max_iterations ||
        more->first - sums->last - 1 > STORE_RUN_MAX_MISSING) {
        enum deft_status status = history_run_save(db, incarnation, run, error);
        if (status != DEFT_OK) {
            return status;
        }
        memset(&run->sums, 0, sizeof(run->sums));
        run->received_ns = begin_ns;
        run->closed = 0;
    }
    store_sums_add(&run->sums, more);
    run->changed = 1;
    return DEFT_OK;
}

/* --- minutes ------------------------------------------------------------------------------------
 */

struct history_roll {
    struct store_history *history;
    int64_t settled_ns;
    struct history_run run;
};

/* 1 when nothing more is to be waited for. An iteration behind one that is missing waits longer,
 * since that one may be on its way. */
static int history_is_settled(const struct history_roll *roll, const struct store_fold *fold) {
    return fold->received_ns < roll->settled_ns ||
           (fold->n_rows >= roll->history->n_ranks &&
            fold->sums.first == roll->history->rolled_to + 1);
}

static enum deft_status history_roll_fold(struct store_db *db, struct history_roll *roll,
                                          const struct store_fold *fold, struct deft_error *error) {
    struct store_history *history = roll->history;
    int64_t received_ns = fold->received_ns > history->raw_ns ? fold->received_ns : history->raw_ns;
    enum deft_status status =
        history_run_take(db, history->incarnation, &roll->run, &fold->sums, received_ns, error);
    history->rolled_to = fold->sums.first;
    history->n_rolled++;
    history->n_raw++;
    if (history->minutes_ns == 0) {
        history->minutes_ns = roll->run.received_ns;
    }
    return status;
}

static enum deft_status history_roll_rows(struct store_db *db, struct history_roll *roll,
                                          unsigned rows, unsigned *out_rows,
                                          struct deft_error *error) {
    struct store_fold fold = {0};
    enum deft_status status = DEFT_OK;
    sqlite3_stmt *s = store_db_statement(db, "SELECT " STORE_SUMS_RAW_COLUMNS " FROM iterations"
                                             " WHERE incarnation = ?1 AND iteration > ?2"
                                             " ORDER BY iteration, rank");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, roll->history->incarnation);
    (void)sqlite3_bind_int64(s, 2, roll->history->rolled_to);
    int code = sqlite3_step(s);
    for (; code == SQLITE_ROW; code = sqlite3_step(s), ++*out_rows) {
        if (store_fold_row(&fold, s)) {
            continue;
        }
        if (!history_is_settled(roll, &fold)) {
            break;
        }
        status = history_roll_fold(db, roll, &fold, error);
        fold.n_rows = 0;
        if (status != DEFT_OK || *out_rows >= rows) {
            break;
        }
        (void)store_fold_row(&fold, s);
    }
    if (code == SQLITE_DONE && fold.n_rows > 0 && history_is_settled(roll, &fold)) {
        status = history_roll_fold(db, roll, &fold, error);
    }
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        status = store_db_fail(db, "be read", error);
    }
    (void)sqlite3_reset(s);
    return status;
}

enum deft_status store_history_roll(struct store_db *db, struct store_history *history,
                                    int64_t settled_ns, unsigned rows, unsigned *out_rows,
                                    struct deft_error *error) {
    struct history_roll roll = {
        .history = history,
        .settled_ns = settled_ns,
        .run = {.period_s = STORE_MINUTE_S, .max_iterations = STORE_RUN_MINUTE_MAX_ITERS}};
    *out_rows = 0;
    enum deft_status status = history_run_load(db, history->incarnation, &roll.run, error);
    if (status == DEFT_OK) {
        /* What is part of an hour already must not change. */
        roll.run.closed = roll.run.sums.last <= history->hours_to;
        status = history_roll_rows(db, &roll, rows, out_rows, error);
    }
    return status == DEFT_OK ? history_run_save(db, history->incarnation, &roll.run, error)
                             : status;
}

/* --- what came late -----------------------------------------------------------------------------
 */

/* The first iteration that can be rolled up again such that `from` is among them, or the nearest
 * behind: runs whose rows have gone in part must stay. */
static enum deft_status history_unroll_to(struct store_db *db, const struct store_history *history,
                                          int64_t from, int64_t *out, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(db, "SELECT first, last FROM rollups"
                                             " WHERE incarnation = ?1 AND period_s = 60"
                                             " AND first <= ?2 ORDER BY first DESC LIMIT 1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, history->incarnation);
    (void)sqlite3_bind_int64(s, 2, from);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW && sqlite3_column_int64(s, 1) >= from) {
        int64_t first = sqlite3_column_int64(s, 0);
        *out = first >= history->raw_from ? first : sqlite3_column_int64(s, 1) + 1;
    } else {
        *out = from;
    }
    (void)sqlite3_reset(s);
    return code == SQLITE_ROW || code == SQLITE_DONE ? DEFT_OK
                                                     : store_db_fail(db, "be read", error);
}

static enum deft_status history_drop_minutes(struct store_db *db, struct store_history *history,
                                             int64_t target, struct deft_error *error) {
    int64_t n_iterations = 0;
    sqlite3_stmt *s = store_db_statement(db, "DELETE FROM rollups WHERE incarnation = ?1"
                                             " AND period_s = 60 AND first >= ?2"
                                             " RETURNING n_iterations");
    if (s == NULL) {
        return store_db_fail(db, "drop a roll-up", error);
    }
    (void)sqlite3_bind_int64(s, 1, history->incarnation);
    (void)sqlite3_bind_int64(s, 2, target);
    int code = sqlite3_step(s);
    for (; code == SQLITE_ROW; code = sqlite3_step(s)) {
        n_iterations += sqlite3_column_int64(s, 0);
    }
    if (code != SQLITE_DONE) {
        return store_db_fail(db, "drop a roll-up", error);
    }
    (void)sqlite3_reset(s);
    history->n_rolled -= n_iterations;
    history->n_raw -= n_iterations;
    history->rolled_to = target - 1;
    return DEFT_OK;
}

/* When the oldest run of a period was received; 0: there is none. */
static enum deft_status history_oldest(struct store_db *db, int64_t incarnation, int64_t period_s,
                                       int64_t *out_ns, struct deft_error *error) {
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT received_ns FROM rollups WHERE incarnation = ?1"
                               " AND period_s = ?2 ORDER BY first LIMIT 1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, incarnation);
    (void)sqlite3_bind_int64(s, 2, period_s);
    int code = sqlite3_step(s);
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        return store_db_fail(db, "be read", error);
    }
    *out_ns = code == SQLITE_ROW ? sqlite3_column_int64(s, 0) : 0;
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

enum deft_status store_history_unroll(struct store_db *db, struct store_history *history,
                                      struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    int64_t target = 0;
    int64_t from = history->late_from;
    from = from > history->raw_from ? from : history->raw_from;
    from = from > history->hours_to ? from : history->hours_to + 1;
    history->late_ns = 0;
    if (from > history->rolled_to) {
        return DEFT_OK;
    }
    status = history_unroll_to(db, history, from, &target, error);
    if (status == DEFT_OK && target <= history->rolled_to) {
        status = history_drop_minutes(db, history, target, error);
    }
    return status == DEFT_OK ? history_oldest(db, history->incarnation, STORE_MINUTE_S,
                                              &history->minutes_ns, error)
                             : status;
}

/* --- hours --------------------------------------------------------------------------------------
 */

/* Puts minutes into hours: those whose rows have gone, and those received before `before_ns`. */
static enum deft_status history_roll_hours(struct store_db *db, struct store_history *history,
                                           int64_t before_ns, unsigned rows,
                                           struct deft_error *error) {
    struct history_run run = {.period_s = STORE_HOUR_S, .max_iterations = STORE_RUN_HOUR_MAX_ITERS};
    enum deft_status status = history_run_load(db, history->incarnation, &run, error);
    sqlite3_stmt *s = status != DEFT_OK
                          ? NULL
                          : store_db_statement(db, "SELECT " STORE_SUMS_COLUMNS " FROM rollups"
                                                   " WHERE incarnation = ?1 AND period_s = 60"
                                                   " AND first > ?2 ORDER BY first");
    if (s == NULL) {
        return status != DEFT_OK ? status : store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, history->incarnation);
    (void)sqlite3_bind_int64(s, 2, history->hours_to);
    int code = SQLITE_DONE;
    for (unsigned n = 0; n < rows && status == DEFT_OK; n++) {
        struct store_sums minute;
        int64_t received_ns = 0;
        code = sqlite3_step(s);
        if (code != SQLITE_ROW) {
            break;
        }
        store_sums_read(s, &minute, &received_ns);
        if (minute.last >= history->raw_from && received_ns >= before_ns) {
            break;
        }
        status = history_run_take(db, history->incarnation, &run, &minute, received_ns, error);
        history->hours_to = minute.last;
        if (history->hours_ns == 0) {
            history->hours_ns = run.received_ns;
        }
    }
    if (status == DEFT_OK && code != SQLITE_ROW && code != SQLITE_DONE) {
        status = store_db_fail(db, "be read", error);
    }
    (void)sqlite3_reset(s);
    return status == DEFT_OK ? history_run_save(db, history->incarnation, &run, error) : status;
}

/* --- removal ------------------------------------------------------------------------------------
 */

/* What goes in one step: whole iterations from the first on. */
struct history_cut {
    int64_t last; /* iteration; -1: none */
    int64_t n_iterations;
    unsigned n_rows;
    int64_t next_ns; /* of the first row that stays; 0: none stays */
};

static enum deft_status history_find_cut(struct store_db *db, const struct store_history *history,
                                         int64_t before_ns, int64_t max_iterations, unsigned rows,
                                         struct history_cut *out, struct deft_error *error) {
    struct history_cut cut = {.last = -1};
    int64_t at = -1; /* iteration whose rows are being counted */
    unsigned n_rows = 0;
    sqlite3_stmt *s = store_db_statement(db, "SELECT iteration, received_ns FROM iterations"
                                             " WHERE incarnation = ?1 ORDER BY iteration, rank");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_bind_int64(s, 1, history->incarnation);
    int code = sqlite3_step(s);
    for (; code == SQLITE_ROW; code = sqlite3_step(s)) {
        int64_t iteration = sqlite3_column_int64(s, 0);
        int64_t received_ns = sqlite3_column_int64(s, 1);
        received_ns = received_ns > history->raw_ns ? received_ns : history->raw_ns;
        if (iteration != at) {
            cut.last = at;
            cut.n_iterations += at >= 0;
            cut.n_rows = n_rows;
            cut.next_ns = received_ns;
            at = iteration;
            if (iteration > history->rolled_to || cut.n_iterations >= max_iterations ||
                n_rows >= rows) {
                break;
            }
        }
        if (received_ns >= before_ns) {
            break;
        }
        n_rows++;
    }
    if (code == SQLITE_DONE) {
        cut = (struct history_cut){
            .last = at, .n_iterations = cut.n_iterations + (at >= 0), .n_rows = n_rows};
    } else if (code != SQLITE_ROW) {
        return store_db_fail(db, "be read", error);
    }
    (void)sqlite3_reset(s);
    *out = cut;
    return DEFT_OK;
}

enum deft_status store_history_trim_raw(struct store_db *db, struct store_history *history,
                                        int64_t before_ns, int64_t max_iterations, unsigned rows,
                                        unsigned *out_rows, struct deft_error *error) {
    struct history_cut cut = {0};
    enum deft_status status =
        history_find_cut(db, history, before_ns, max_iterations, rows, &cut, error);
    if (status != DEFT_OK) {
        return status;
    }
    *out_rows = cut.n_rows;
    history->raw_ns = cut.next_ns;
    if (cut.n_rows == 0) {
        return DEFT_OK;
    }
    sqlite3_stmt *s = store_db_statement(db, "DELETE FROM iterations WHERE incarnation = ?1"
                                             " AND iteration <= ?2");
    if (s == NULL) {
        return store_db_fail(db, "remove iterations", error);
    }
    (void)sqlite3_bind_int64(s, 1, history->incarnation);
    (void)sqlite3_bind_int64(s, 2, cut.last);
    status = store_db_step(db, s, "remove iterations", error);
    /* A repaired database may have rows from before. */
    history->raw_from = cut.last >= history->raw_from ? cut.last + 1 : history->raw_from;
    history->n_raw = cut.n_iterations < history->n_raw ? history->n_raw - cut.n_iterations : 0;
    return status == DEFT_OK ? history_roll_hours(db, history, INT64_MIN, UINT32_MAX, error)
                             : status;
}

/* Removes runs of one period that end at `up_to` or before. */
static enum deft_status history_trim_runs(struct store_db *db, struct store_history *history,
                                          int64_t period_s, int64_t before_ns, int64_t up_to,
                                          unsigned rows, unsigned *out_rows,
                                          struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "DELETE FROM rollups WHERE incarnation = ?1 AND period_s = ?2 AND first IN ("
            "SELECT first FROM (SELECT first, last, received_ns FROM rollups WHERE incarnation = ?1"
            " AND period_s = ?2 ORDER BY first LIMIT ?3) WHERE last <= ?4 AND received_ns < ?5)");
    if (s == NULL) {
        return store_db_fail(db, "remove roll-ups", error);
    }
    (void)sqlite3_bind_int64(s, 1, history->incarnation);
    (void)sqlite3_bind_int64(s, 2, period_s);
    (void)sqlite3_bind_int64(s, 3, rows);
    (void)sqlite3_bind_int64(s, 4, up_to);
    (void)sqlite3_bind_int64(s, 5, before_ns);
    enum deft_status status = store_db_step(db, s, "remove roll-ups", error);
    if (status == DEFT_OK) {
        *out_rows = (unsigned)sqlite3_changes(db->handle);
    }
    return status;
}

enum deft_status store_history_trim_minutes(struct store_db *db, struct store_history *history,
                                            int64_t before_ns, unsigned rows, unsigned *out_rows,
                                            struct deft_error *error) {
    enum deft_status status = history_roll_hours(db, history, before_ns, rows, error);
    if (status == DEFT_OK) {
        status = history_trim_runs(db, history, STORE_MINUTE_S, before_ns, history->hours_to, rows,
                                   out_rows, error);
    }
    return status == DEFT_OK ? history_oldest(db, history->incarnation, STORE_MINUTE_S,
                                              &history->minutes_ns, error)
                             : status;
}

enum deft_status store_history_trim_hours(struct store_db *db, struct store_history *history,
                                          int64_t before_ns, unsigned rows, unsigned *out_rows,
                                          struct deft_error *error) {
    enum deft_status status =
        history_trim_runs(db, history, STORE_HOUR_S, before_ns, INT64_MAX, rows, out_rows, error);
    return status == DEFT_OK
               ? history_oldest(db, history->incarnation, STORE_HOUR_S, &history->hours_ns, error)
               : status;
}
