#include "store/store_series.h"

#include <math.h>
#include <sqlite3.h>

#include "store/store.h"
#include "store/store_bind.h"
#include "store/store_history.h"

/* --- where an iteration is read -----------------------------------------------------------------
 */

/* Iterations up to `hours_to` are read from hours, up to `minutes_to` from minutes, and the rest
 * from rows of ranks. */
struct series_parts {
    int64_t hours_to;
    int64_t minutes_to;
};

/* Of a query: the incarnation and up to two more. */
#define SERIES_ARGUMENTS 3

/* One integer of a query; `absent` where it gives none. */
static enum deft_status series_int(struct store_db *db, const char *sql,
                                   const int64_t arguments[SERIES_ARGUMENTS], int64_t absent,
                                   int64_t *out, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(db, sql);
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    for (int i = 0; i < SERIES_ARGUMENTS && i < sqlite3_bind_parameter_count(s); i++) {
        store_bind_int(s, i + 1, arguments[i]);
    }
    int code = sqlite3_step(s);
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        return store_db_fail(db, "be read", error);
    }
    *out = code == SQLITE_ROW && sqlite3_column_type(s, 0) != SQLITE_NULL
               ? sqlite3_column_int64(s, 0)
               : absent;
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

_Static_assert(STORE_SERIES_MAX_MINUTES == 20000, "series_split counts one more at the most");

/* Roll-ups whose rows, or minutes, have gone in part are read as a whole: nothing counts twice. */
static enum deft_status series_split(struct store_db *db, const struct store_history *history,
                                     int64_t from, int64_t to, struct series_parts *out,
                                     struct deft_error *error) {
    const int64_t at_raw[3] = {history->incarnation, history->raw_from};
    const int64_t range[3] = {history->incarnation, from, to};
    struct series_parts parts = {-1, -1};
    int64_t first_minute = 0;
    int64_t n_minutes = 0;
    int64_t raw_from = from > history->raw_from ? from : history->raw_from;
    enum deft_status status = series_int(
        db,
        "SELECT last FROM rollups WHERE incarnation = ?1 AND period_s = 60 AND first < ?2"
        " ORDER BY first DESC LIMIT 1",
        at_raw, -1, &parts.minutes_to, error);
    if (status == DEFT_OK) {
        status = series_int(db,
                            "SELECT first FROM rollups WHERE incarnation = ?1"
                            " AND period_s = 60 ORDER BY first LIMIT 1",
                            at_raw, INT64_MAX, &first_minute, error);
    }
    const int64_t at_minute[3] = {history->incarnation, first_minute};
    if (status == DEFT_OK) {
        status = series_int(db,
                            "SELECT last FROM rollups WHERE incarnation = ?1"
                            " AND period_s = 3600 AND first < ?2 ORDER BY first DESC LIMIT 1",
                            at_minute, -1, &parts.hours_to, error);
    }
    if (to - raw_from >= STORE_SERIES_MAX_ROWS / history->n_ranks) {
        parts.minutes_to = history->rolled_to;
        if (status == DEFT_OK) {
            status = series_int(db,
                                "SELECT count(*) FROM (SELECT 1 FROM rollups WHERE incarnation = ?1"
                                " AND period_s = 60 AND first BETWEEN ?2 AND ?3 LIMIT 20001)",
                                range, 0, &n_minutes, error);
        }
    }
    if (n_minutes > STORE_SERIES_MAX_MINUTES && history->hours_to > parts.hours_to) {
        parts.hours_to = history->hours_to;
    }
    if (parts.minutes_to < parts.hours_to) {
        parts.minutes_to = parts.hours_to;
    }
    *out = parts;
    return status;
}

/* --- reading ------------------------------------------------------------------------------------
 */

struct series_reader {
    struct store_db *db;
    int64_t incarnation;
    store_series_fn found;
    void *context;
};

/* Roll-ups that have iterations of [from, to]; the first may begin before. */
static enum deft_status series_rollups(const struct series_reader *reader, int64_t period_s,
                                       int64_t from, int64_t to, struct deft_error *error) {
    sqlite3_stmt *s =
        from > to ? NULL
                  : store_db_statement(reader->db,
                                       "SELECT " STORE_SUMS_COLUMNS " FROM rollups"
                                       " WHERE incarnation = ?1 AND period_s = ?2 AND first <= ?4"
                                       " AND first >= coalesce((SELECT first FROM rollups"
                                       "  WHERE incarnation = ?1 AND period_s = ?2 AND first <= ?3"
                                       "  ORDER BY first DESC LIMIT 1), ?3)"
                                       " AND last >= ?3 ORDER BY first");
    if (s == NULL) {
        return from > to ? DEFT_OK : store_db_fail(reader->db, "be read", error);
    }
    store_bind_int(s, 1, reader->incarnation);
    store_bind_int(s, 2, period_s);
    store_bind_int(s, 3, from);
    store_bind_int(s, 4, to);
    int code = sqlite3_step(s);
    for (; code == SQLITE_ROW; code = sqlite3_step(s)) {
        struct store_sums sums;
        store_sums_read(s, &sums, NULL);
        reader->found(reader->context, &sums);
    }
    if (code != SQLITE_DONE) {
        return store_db_fail(reader->db, "be read", error);
    }
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

static enum deft_status series_rows(const struct series_reader *reader, int64_t from, int64_t to,
                                    struct deft_error *error) {
    struct store_fold fold = {0};
    sqlite3_stmt *s =
        from > to
            ? NULL
            : store_db_statement(reader->db, "SELECT " STORE_SUMS_RAW_COLUMNS " FROM iterations"
                                             " WHERE incarnation = ?1 AND iteration BETWEEN ?2"
                                             " AND ?3 ORDER BY iteration, rank");
    if (s == NULL) {
        return from > to ? DEFT_OK : store_db_fail(reader->db, "be read", error);
    }
    store_bind_int(s, 1, reader->incarnation);
    store_bind_int(s, 2, from);
    store_bind_int(s, 3, to);
    int code = sqlite3_step(s);
    for (; code == SQLITE_ROW; code = sqlite3_step(s)) {
        if (!store_fold_row(&fold, s)) {
            reader->found(reader->context, &fold.sums);
            fold.n_rows = 0;
            (void)store_fold_row(&fold, s);
        }
    }
    if (code != SQLITE_DONE) {
        return store_db_fail(reader->db, "be read", error);
    }
    if (fold.n_rows > 0) {
        reader->found(reader->context, &fold.sums);
    }
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

static int64_t series_larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static int64_t series_smaller(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/* 0 when there is none. */
static enum deft_status series_newest(struct store_db *db, int64_t incarnation, int64_t *out_newest,
                                      struct deft_error *error) {
    const int64_t arguments[3] = {incarnation};
    return series_int(db, "SELECT newest FROM upkeep WHERE incarnation = ?1", arguments, 0,
                      out_newest, error);
}

enum deft_status store_series_each(struct store_db *db, int64_t incarnation, int64_t from,
                                   int64_t to, store_series_fn found, void *context,
                                   struct deft_error *error) {
    struct store_history history;
    struct series_parts parts;
    struct deft_error why = {0};
    const struct series_reader reader = {
        .db = db, .incarnation = incarnation, .found = found, .context = context};
    enum deft_status status = store_history_read(db, incarnation, &history, &why);
    if (status == DEFT_NOT_FOUND) {
        return DEFT_OK;
    }
    if (status == DEFT_OK) {
        to = series_smaller(to, history.newest);
        status = series_split(db, &history, from, to, &parts, &why);
    }
    if (status == DEFT_OK) {
        status =
            series_rollups(&reader, STORE_HOUR_S, from, series_smaller(to, parts.hours_to), &why);
    }
    if (status == DEFT_OK) {
        status = series_rollups(&reader, STORE_MINUTE_S, series_larger(from, parts.hours_to + 1),
                                series_smaller(to, parts.minutes_to), &why);
    }
    if (status == DEFT_OK) {
        status = series_rows(&reader, series_larger(from, parts.minutes_to + 1), to, &why);
    }
    if (status != DEFT_OK && error != NULL) {
        *error = why;
    }
    return status;
}

/* --- points -------------------------------------------------------------------------------------
 */

typedef void (*series_print_fn)(struct json_out *out, const struct store_sums *point);

struct series_points {
    struct json_out *out;
    series_print_fn print;
    int64_t from;
    int64_t width;
    int64_t index;
    struct store_sums point;
};

static void series_flush(struct series_points *points) {
    if (points->point.n_iterations > 0) {
        json_out_begin_object(points->out, NULL);
        points->print(points->out, &points->point);
        json_out_end_object(points->out);
        points->point.n_iterations = 0;
    }
}

/* A roll-up belongs to the point in which it begins. */
static void series_take(void *context, const struct store_sums *sums) {
    struct series_points *points = context;
    struct store_sums clipped = *sums;
    clipped.first = series_larger(sums->first, points->from);
    int64_t index = (clipped.first - points->from) / points->width;
    if (index != points->index) {
        series_flush(points);
        points->index = index;
    }
    store_sums_add(&points->point, &clipped);
}

static enum deft_status series_print(struct store_db *db, int64_t incarnation,
                                     const struct store_range *range, series_print_fn print,
                                     struct json_out *out, struct deft_error *error) {
    int64_t newest = 0;
    enum deft_status status = series_newest(db, incarnation, &newest, error);
    if (status != DEFT_OK) {
        return status;
    }
    uint64_t to = range->to < (uint64_t)newest ? range->to : (uint64_t)newest;
    uint64_t n =
        range->points > 0 && range->points < STORE_MAX_POINTS ? range->points : STORE_MAX_POINTS;
    uint64_t width = to >= range->from ? (to - range->from) / n + 1 : 1;
    struct series_points points = {
        .out = out, .print = print, .from = (int64_t)range->from, .width = (int64_t)width};
    json_out_uint(out, "from", range->from);
    json_out_uint(out, "to", to);
    json_out_uint(out, "iterations_per_point", width);
    json_out_begin_array(out, "points");
    status = store_series_each(db, incarnation, (int64_t)range->from, (int64_t)to, series_take,
                               &points, error);
    series_flush(&points);
    json_out_end_array(out);
    return status;
}

/* All parts are read as of one moment. */
static enum deft_status series_answer(struct store *store, int64_t incarnation,
                                      const struct store_range *range, series_print_fn print,
                                      struct json_out *out, struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    status = store_db_exec(db, "BEGIN", error);
    if (status == DEFT_OK) {
        status = series_print(db, incarnation, range, print, out, error);
        store_db_reset(db);
        (void)sqlite3_exec(db->handle, "COMMIT", NULL, NULL, NULL);
    }
    store_reader_give(store, db);
    return status;
}

static double series_mean(double sum, int64_t n) {
    return n > 0 ? sum / (double)n : (double)NAN;
}

static void series_print_shared(struct json_out *out, const struct store_sums *point) {
    json_out_int(out, "iteration", point->first);
    json_out_int(out, "n_iterations", point->n_iterations);
    json_out_int(out, "plan_seq", point->plan_seq);
}

/* A mean of durations; 0: unknown. */
static void series_print_ns(struct json_out *out, const char *key, double sum, int64_t n) {
    double mean = n > 0 ? sum / (double)n : 0;
    json_out_int(out, key, mean < (double)INT64_MAX ? (int64_t)mean : INT64_MAX);
}

static void series_print_stages(struct json_out *out, const struct store_sums *point) {
    static const char *const stages[STORE_SUMS_STAGES] = {"forward_ns", "backward_ns", "exposed_ns",
                                                          "optimizer_ns", "runtime_ns"};
    series_print_shared(out, point);
    series_print_ns(out, "step_ns", point->step_ns, point->n_steps);
    json_out_int(out, "step_min_ns", point->step_min_ns);
    json_out_int(out, "step_max_ns", point->step_max_ns);
    for (int i = 0; i < STORE_SUMS_STAGES; i++) {
        series_print_ns(out, stages[i], point->stage_ns[i], point->n_iterations);
    }
    json_out_int(out, "updates", point->updates);
    json_out_number(out, "loss", series_mean(point->loss, point->n_losses));
}

static void series_print_losses(struct json_out *out, const struct store_sums *point) {
    static const char *const figures[STORE_SUMS_FIGURES] = {"grad_sq_local", "grad_sq_mean",
                                                            "change_sq_local", "learning_rate"};
    series_print_shared(out, point);
    json_out_number(out, "loss", series_mean(point->loss, point->n_losses));
    json_out_number(out, "loss_min", point->n_losses > 0 ? point->loss_min : (double)NAN);
    json_out_number(out, "loss_max", point->n_losses > 0 ? point->loss_max : (double)NAN);
    for (int i = 0; i < STORE_SUMS_FIGURES; i++) {
        json_out_number(out, figures[i], series_mean(point->figures[i], point->n_figures[i]));
    }
}

enum deft_status store_print_iterations(struct store *store, int64_t incarnation,
                                        const struct store_range *range, struct json_out *out,
                                        struct deft_error *error) {
    return series_answer(store, incarnation, range, series_print_stages, out, error);
}

enum deft_status store_print_losses(struct store *store, int64_t incarnation,
                                    const struct store_range *range, struct json_out *out,
                                    struct deft_error *error) {
    return series_answer(store, incarnation, range, series_print_losses, out, error);
}
