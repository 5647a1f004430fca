#include "store/store_upkeep.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "store/store_bind.h"
#include "store/store_history.h"
#include "store/store_logs.h"
#include "store/store_remove.h"

/* What looking at an incarnation without work costs, in rows. */
#define UPKEEP_VISIT_ROWS 8u
/* Fewer free pages are not worth the moving. */
#define UPKEEP_FREE_PAGES 256
/* Pages moved to the front per row of a slice: moving one costs as much as removing some rows. */
#define UPKEEP_ROWS_PER_PAGE 16u

/* One step of a task. `*out_again`: 1 when it wants another one in this round. */
typedef enum deft_status (*upkeep_fn)(struct store_upkeep *upkeep, struct store_db *db,
                                      unsigned rows, int *out_again, struct deft_error *error);

/* The first integer columns of one row; `*out_found` 0: there is none. */
static enum deft_status upkeep_row(struct store_db *db, sqlite3_stmt *s, int n, int64_t *out,
                                   int *out_found, struct deft_error *error) {
    int code = sqlite3_step(s);
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        return store_db_fail(db, "be searched for upkeep", error);
    }
    *out_found = code == SQLITE_ROW;
    for (int i = 0; i < n && code == SQLITE_ROW; i++) {
        out[i] = sqlite3_column_int64(s, i);
    }
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

/* What is done to one incarnation. `*out_more`: 1 when there is more to be done to it. */
typedef enum deft_status (*upkeep_one_fn)(const struct store_upkeep *upkeep, struct store_db *db,
                                          int64_t incarnation, unsigned rows, unsigned *out_rows,
                                          int *out_more, struct deft_error *error);

/* Goes through the incarnations that `sql` finds behind ?1, until `rows` are used up. */
static enum deft_status upkeep_visit(struct store_upkeep *upkeep, struct store_db *db,
                                     const char *sql, upkeep_one_fn one, unsigned rows,
                                     int *out_again, struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    while (rows > 0 && status == DEFT_OK) {
        int64_t incarnation = 0;
        unsigned n_rows = 0;
        int more = 0;
        sqlite3_stmt *s = store_db_statement(db, sql);
        if (s == NULL) {
            return store_db_fail(db, "be searched for upkeep", error);
        }
        store_bind_int(s, 1, upkeep->cursor);
        status = upkeep_row(db, s, 1, &incarnation, out_again, error);
        if (status != DEFT_OK || !*out_again) {
            return status;
        }
        upkeep->cursor = incarnation;
        status = one(upkeep, db, incarnation, rows, &n_rows, &more, error);
        if (status == DEFT_OK && more) {
            upkeep->cursor = incarnation - 1;
        }
        n_rows += UPKEEP_VISIT_ROWS;
        rows = n_rows < rows ? rows - n_rows : 0;
    }
    return status;
}

/* --- rolling up --------------------------------------------------------------------------------
 */

static enum deft_status upkeep_late(struct store_upkeep *upkeep, struct store_db *db, unsigned rows,
                                    int *out_again, struct deft_error *error) {
    struct store_history history;
    int64_t found[2] = {0};
    sqlite3_stmt *s = store_db_statement(db, "SELECT incarnation, late_ns FROM upkeep"
                                             " WHERE late_ns > ?1 AND late_ns < ?2"
                                             " ORDER BY late_ns LIMIT 1");
    (void)rows;
    if (s == NULL) {
        return store_db_fail(db, "be searched for upkeep", error);
    }
    store_bind_int(s, 1, upkeep->floor_ns[STORE_UPKEEP_LATE]);
    store_bind_int(s, 2, upkeep->round_ns - upkeep->options.settle_ns);
    enum deft_status status = upkeep_row(db, s, 2, found, out_again, error);
    if (status != DEFT_OK || !*out_again) {
        return status;
    }
    upkeep->floor_ns[STORE_UPKEEP_LATE] = found[1];
    status = store_history_read(db, found[0], &history, error);
    if (status == DEFT_OK) {
        status = store_history_unroll(db, &history, error);
    }
    return status == DEFT_OK ? store_history_write(db, &history, error) : status;
}

static enum deft_status upkeep_roll_one(const struct store_upkeep *upkeep, struct store_db *db,
                                        int64_t incarnation, unsigned rows, unsigned *out_rows,
                                        int *out_more, struct deft_error *error) {
    struct store_history history;
    enum deft_status status = store_history_read(db, incarnation, &history, error);
    int64_t rolled_to = status == DEFT_OK ? history.rolled_to : 0;
    if (status == DEFT_OK) {
        status = store_history_roll(db, &history, upkeep->round_ns - upkeep->options.settle_ns,
                                    rows, out_rows, error);
    }
    if (status != DEFT_OK || history.rolled_to == rolled_to) { /* it waits for what is to come */
        return status;
    }
    *out_more = *out_rows >= rows;
    return store_history_write(db, &history, error);
}

static enum deft_status upkeep_roll(struct store_upkeep *upkeep, struct store_db *db, unsigned rows,
                                    int *out_again, struct deft_error *error) {
    return upkeep_visit(upkeep, db,
                        "SELECT incarnation FROM upkeep WHERE newest > rolled_to"
                        " AND incarnation > ?1 ORDER BY incarnation LIMIT 1",
                        upkeep_roll_one, rows, out_again, error);
}

/* --- age and number -----------------------------------------------------------------------------
 */

/* The oldest incarnation whose history is older than its job wants it to be: incarnation, oldest
 * row, and before when rows go. ?1: what has been tried; ?2: now; ?3: the age for all jobs. */
#define UPKEEP_AGED(column, age)                                                                   \
    "SELECT u.incarnation, u." column ", ?2 - coalesce(k." age ", ?3) FROM upkeep u"               \
    " JOIN incarnations i ON i.id = u.incarnation LEFT JOIN job_keep k ON k.job = i.job"           \
    " WHERE u." column " > ?1"                                                                     \
    " AND u." column " < ?2 - min(?3, coalesce((SELECT min(" age ") FROM job_keep), ?3))"          \
    " AND u." column " < ?2 - coalesce(k." age ", ?3) ORDER BY u." column " LIMIT 1"
/* The same of an agent's events: its name is the fourth column. */
#define UPKEEP_AGED_EVENTS                                                                         \
    "SELECT a.incarnation, a.events_ns, ?2 - coalesce(k.logs_ns, ?3), a.agent FROM agents a"       \
    " JOIN incarnations i ON i.id = a.incarnation LEFT JOIN job_keep k ON k.job = i.job"           \
    " WHERE a.events_ns > ?1"                                                                      \
    " AND a.events_ns < ?2 - min(?3, coalesce((SELECT min(logs_ns) FROM job_keep), ?3))"           \
    " AND a.events_ns < ?2 - coalesce(k.logs_ns, ?3) ORDER BY a.events_ns LIMIT 1"

/* The three kinds of history, and events. */
enum upkeep_kind { UPKEEP_OF_RAW, UPKEEP_OF_MINUTES, UPKEEP_OF_HOURS, UPKEEP_OF_EVENTS };

struct upkeep_victim {
    enum upkeep_kind kind;
    int64_t incarnation;
    int64_t oldest_ns;
    int64_t before_ns;
    char agent[WIRE_ID_BYTES];
};

static enum deft_status upkeep_trim(struct store_db *db, const struct upkeep_victim *victim,
                                    unsigned rows, unsigned *out_rows, struct deft_error *error) {
    struct store_history history;
    int64_t before_ns = victim->before_ns;
    *out_rows = 0;
    if (victim->kind == UPKEEP_OF_EVENTS) {
        return store_logs_trim(db, victim->incarnation, victim->agent, before_ns, rows, out_rows,
                               error);
    }
    enum deft_status status = store_history_read(db, victim->incarnation, &history, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (victim->kind == UPKEEP_OF_RAW) {
        status = store_history_trim_raw(db, &history, before_ns, INT64_MAX, rows, out_rows, error);
    } else if (victim->kind == UPKEEP_OF_MINUTES) {
        status = store_history_trim_minutes(db, &history, before_ns, rows, out_rows, error);
    } else {
        status = store_history_trim_hours(db, &history, before_ns, rows, out_rows, error);
    }
    return status == DEFT_OK ? store_history_write(db, &history, error) : status;
}

static enum deft_status upkeep_victim_row(struct store_db *db, sqlite3_stmt *s,
                                          struct upkeep_victim *out, int *out_found,
                                          struct deft_error *error) {
    int code = sqlite3_step(s);
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        return store_db_fail(db, "be searched for upkeep", error);
    }
    *out_found = code == SQLITE_ROW;
    if (code == SQLITE_ROW) {
        out->incarnation = sqlite3_column_int64(s, 0);
        out->oldest_ns = sqlite3_column_int64(s, 1);
        out->before_ns = sqlite3_column_int64(s, 2);
        if (sqlite3_column_count(s) > 3) {
            (void)snprintf(out->agent, sizeof(out->agent), "%s", store_db_text(s, 3));
        }
    }
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

/* The oldest of one kind that is beyond its age goes; when nothing of it can, it is passed over. */
static enum deft_status upkeep_aged(struct store_upkeep *upkeep, struct store_db *db,
                                    const char *sql, enum upkeep_kind kind, int64_t age_ns,
                                    unsigned rows, int *out_again, struct deft_error *error) {
    struct upkeep_victim victim = {.kind = kind};
    unsigned n_rows = 0;
    sqlite3_stmt *s = upkeep->resting ? NULL : store_db_statement(db, sql);
    *out_again = 0;
    if (s == NULL) {
        return upkeep->resting ? DEFT_OK : store_db_fail(db, "be searched for upkeep", error);
    }
    int64_t *floor_ns = &upkeep->floor_ns[upkeep->task];
    store_bind_int(s, 1, *floor_ns);
    store_bind_int(s, 2, upkeep->round_ns);
    store_bind_int(s, 3, age_ns);
    enum deft_status status = upkeep_victim_row(db, s, &victim, out_again, error);
    if (status != DEFT_OK || !*out_again) {
        return status;
    }
    int64_t before_ns = *floor_ns;
    *floor_ns = victim.oldest_ns;
    status = upkeep_trim(db, &victim, rows, &n_rows, error);
    if (status == DEFT_OK && n_rows > 0) {
        *floor_ns = before_ns;
    }
    return status;
}

static enum deft_status upkeep_raw(struct store_upkeep *upkeep, struct store_db *db, unsigned rows,
                                   int *out_again, struct deft_error *error) {
    return upkeep_aged(upkeep, db, UPKEEP_AGED("raw_ns", "raw_ns"), UPKEEP_OF_RAW,
                       upkeep->options.keep.raw_ns, rows, out_again, error);
}

static enum deft_status upkeep_minutes(struct store_upkeep *upkeep, struct store_db *db,
                                       unsigned rows, int *out_again, struct deft_error *error) {
    return upkeep_aged(upkeep, db, UPKEEP_AGED("minutes_ns", "minutes_ns"), UPKEEP_OF_MINUTES,
                       upkeep->options.keep.minutes_ns, rows, out_again, error);
}

static enum deft_status upkeep_hours(struct store_upkeep *upkeep, struct store_db *db,
                                     unsigned rows, int *out_again, struct deft_error *error) {
    return upkeep_aged(upkeep, db, UPKEEP_AGED("hours_ns", "hours_ns"), UPKEEP_OF_HOURS,
                       upkeep->options.keep.hours_ns, rows, out_again, error);
}

static enum deft_status upkeep_events(struct store_upkeep *upkeep, struct store_db *db,
                                      unsigned rows, int *out_again, struct deft_error *error) {
    return upkeep_aged(upkeep, db, UPKEEP_AGED_EVENTS, UPKEEP_OF_EVENTS,
                       upkeep->options.keep.logs_ns, rows, out_again, error);
}

/* Iterations with rows beyond the number a job may have: of its oldest incarnation. */
static enum deft_status upkeep_count_one(const struct store_upkeep *upkeep, struct store_db *db,
                                         int64_t incarnation, unsigned rows, unsigned *out_rows,
                                         int *out_more, struct deft_error *error) {
    int64_t found[3] = {0};
    int is_found = 0;
    struct store_history history;
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT sum(u.n_raw), min(u.incarnation) FILTER (WHERE u.n_raw > 0),"
            " coalesce((SELECT raw_iterations FROM job_keep k WHERE k.job = i.job), ?2)"
            " FROM incarnations i JOIN upkeep u ON u.incarnation = i.id"
            " WHERE i.job = (SELECT job FROM incarnations WHERE id = ?1)");
    if (s == NULL) {
        return store_db_fail(db, "be searched for upkeep", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_int(s, 2, upkeep->options.keep.raw_iterations);
    enum deft_status status = upkeep_row(db, s, 3, found, &is_found, error);
    if (status != DEFT_OK || found[0] <= found[2]) {
        return status;
    }
    status = store_history_read(db, found[1], &history, error);
    if (status == DEFT_OK) {
        status = store_history_trim_raw(db, &history, INT64_MAX, found[0] - found[2], rows,
                                        out_rows, error);
        *out_more = *out_rows > 0;
    }
    return status == DEFT_OK ? store_history_write(db, &history, error) : status;
}

static enum deft_status upkeep_count(struct store_upkeep *upkeep, struct store_db *db,
                                     unsigned rows, int *out_again, struct deft_error *error) {
    return upkeep_visit(upkeep, db,
                        "SELECT incarnation FROM upkeep WHERE raw_ns IS NOT NULL"
                        " AND incarnation > ?1 ORDER BY incarnation LIMIT 1",
                        upkeep_count_one, rows, out_again, error);
}

/* --- jobs that are gone -------------------------------------------------------------------------
 */

static enum deft_status upkeep_expire(struct store_upkeep *upkeep, struct store_db *db,
                                      unsigned rows, int *out_again, struct deft_error *error) {
    char job[WIRE_ID_BYTES] = "";
    (void)rows;
    *out_again = 0;
    sqlite3_stmt *s =
        upkeep->resting
            ? NULL
            : store_db_statement(
                  db, "SELECT j.id, j.updated_ns FROM jobs j LEFT JOIN job_keep k ON k.job = j.id"
                      " WHERE j.state IN ('finished', 'failed', 'lost') AND j.updated_ns > ?1"
                      " AND j.updated_ns < ?2 - coalesce(k.jobs_ns, ?3)"
                      " ORDER BY j.updated_ns LIMIT 1");
    if (s == NULL) {
        return upkeep->resting ? DEFT_OK : store_db_fail(db, "be searched for upkeep", error);
    }
    store_bind_int(s, 1, upkeep->floor_ns[STORE_UPKEEP_EXPIRE]);
    store_bind_int(s, 2, upkeep->round_ns);
    store_bind_int(s, 3, upkeep->options.keep.jobs_ns);
    int code = sqlite3_step(s);
    if (code != SQLITE_ROW) {
        return code == SQLITE_DONE ? DEFT_OK : store_db_fail(db, "be searched for upkeep", error);
    }
    (void)snprintf(job, sizeof(job), "%s", store_db_text(s, 0));
    int64_t updated_ns = sqlite3_column_int64(s, 1);
    (void)sqlite3_reset(s);
    *out_again = 1;
    enum deft_status status = store_remove_mark(db, job, NULL, error);
    upkeep->floor_ns[STORE_UPKEEP_EXPIRE] = status == DEFT_OK ? updated_ns - 1 : updated_ns;
    return status;
}

static enum deft_status upkeep_remove(struct store_upkeep *upkeep, struct store_db *db,
                                      unsigned rows, int *out_again, struct deft_error *error) {
    (void)upkeep;
    return store_remove_some(db, rows, out_again, error);
}

/* --- size ---------------------------------------------------------------------------------------
 */

#define UPKEEP_OLDEST(column)                                                                      \
    "SELECT incarnation, " column ", 9223372036854775807 FROM upkeep WHERE " column " > ?1"        \
    " ORDER BY " column " LIMIT 1"
#define UPKEEP_OLDEST_EVENTS                                                                       \
    "SELECT incarnation, events_ns, 9223372036854775807, agent FROM agents WHERE events_ns > ?1"   \
    " ORDER BY events_ns LIMIT 1"

/* The oldest of all rows goes first, be it of ranks or events. Then minutes, then hours. */
static enum deft_status upkeep_pick(struct store_upkeep *upkeep, struct store_db *db,
                                    struct upkeep_victim *out, int *out_found,
                                    struct deft_error *error) {
    static const struct {
        enum upkeep_kind kind;
        const char *sql;
    } kinds[] = {{UPKEEP_OF_RAW, UPKEEP_OLDEST("raw_ns")},
                 {UPKEEP_OF_EVENTS, UPKEEP_OLDEST_EVENTS},
                 {UPKEEP_OF_MINUTES, UPKEEP_OLDEST("minutes_ns")},
                 {UPKEEP_OF_HOURS, UPKEEP_OLDEST("hours_ns")}};
    enum deft_status status = DEFT_OK;
    *out_found = 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]) && status == DEFT_OK; i++) {
        struct upkeep_victim victim = {.kind = kinds[i].kind};
        int is_found = 0;
        if (*out_found && kinds[i].kind != UPKEEP_OF_EVENTS) {
            break;
        }
        sqlite3_stmt *s = store_db_statement(db, kinds[i].sql);
        if (s == NULL) {
            return store_db_fail(db, "be searched for upkeep", error);
        }
        store_bind_int(s, 1, upkeep->press_floor_ns[victim.kind]);
        status = upkeep_victim_row(db, s, &victim, &is_found, error);
        if (status == DEFT_OK && is_found && (!*out_found || victim.oldest_ns < out->oldest_ns)) {
            *out = victim;
            *out_found = 1;
        }
    }
    return status;
}

/* The last resort: the job that has been gone for longest. */
static enum deft_status upkeep_press_jobs(struct store_db *db, int *out_again,
                                          struct deft_error *error) {
    char job[WIRE_ID_BYTES] = "";
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT id FROM jobs WHERE state IN ('finished', 'failed')"
                               " ORDER BY updated_ns LIMIT 1");
    *out_again = 0;
    if (s == NULL) {
        return store_db_fail(db, "be searched for upkeep", error);
    }
    int code = sqlite3_step(s);
    if (code != SQLITE_ROW) {
        return code == SQLITE_DONE ? DEFT_OK : store_db_fail(db, "be searched for upkeep", error);
    }
    (void)snprintf(job, sizeof(job), "%s", store_db_text(s, 0));
    (void)sqlite3_reset(s);
    *out_again = 1;
    return store_remove_mark(db, job, NULL, error);
}

struct upkeep_size {
    int64_t pages;
    int64_t free_pages;
    int64_t page_bytes;
};

static enum deft_status upkeep_measure(struct store_db *db, struct upkeep_size *out,
                                       struct deft_error *error) {
    enum deft_status status = store_db_int(db, "PRAGMA page_count", &out->pages, error);
    if (status == DEFT_OK) {
        status = store_db_int(db, "PRAGMA freelist_count", &out->free_pages, error);
    }
    return status == DEFT_OK ? store_db_int(db, "PRAGMA page_size", &out->page_bytes, error)
                             : status;
}

static enum deft_status upkeep_press(struct store_upkeep *upkeep, struct store_db *db,
                                     unsigned rows, int *out_again, struct deft_error *error) {
    struct upkeep_size size = {0};
    struct upkeep_victim victim = {.kind = UPKEEP_OF_RAW};
    int64_t max_bytes = upkeep->options.max_bytes;
    unsigned n_rows = 0;
    *out_again = 0;
    enum deft_status status = max_bytes > 0 ? upkeep_measure(db, &size, error) : DEFT_OK;
    int64_t used_bytes = (size.pages - size.free_pages) * size.page_bytes;
    if (status != DEFT_OK || max_bytes == 0) {
        return status;
    }
    if (used_bytes > max_bytes / 16 * STORE_UPKEEP_PRESS_16TH) {
        upkeep->pressed = 1;
    } else if (used_bytes <= max_bytes / 16 * STORE_UPKEEP_EASE_16TH) {
        upkeep->pressed = 0;
    }
    if (!upkeep->pressed) {
        return DEFT_OK;
    }
    status = upkeep_pick(upkeep, db, &victim, out_again, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (!*out_again) {
        /* What is being removed already frees its pages first. */
        status = store_remove_some(db, rows, out_again, error);
        return status == DEFT_OK && !*out_again ? upkeep_press_jobs(db, out_again, error) : status;
    }
    int64_t *floor_ns = &upkeep->press_floor_ns[victim.kind];
    int64_t before_ns = *floor_ns;
    *floor_ns = victim.oldest_ns;
    status = upkeep_trim(db, &victim, rows, &n_rows, error);
    if (status == DEFT_OK && n_rows > 0) {
        *floor_ns = before_ns;
    }
    return status;
}

/* Gives pages back to the file system: a file that was made without the means (schema 1 and 2)
 * keeps its size until `db compact`. */
static enum deft_status upkeep_vacuum(struct store_upkeep *upkeep, struct store_db *db,
                                      unsigned rows, int *out_again, struct deft_error *error) {
    struct upkeep_size size = {0};
    int64_t mode = 0;
    char sql[64];
    int64_t max_bytes = upkeep->options.max_bytes;
    *out_again = 0;
    enum deft_status status = store_db_int(db, "PRAGMA auto_vacuum", &mode, error);
    if (status == DEFT_OK) {
        status = upkeep_measure(db, &size, error);
    }
    int too_large = max_bytes > 0 && size.pages * size.page_bytes > max_bytes;
    if (status != DEFT_OK || mode != 2 || size.free_pages == 0 ||
        (!too_large && (size.free_pages < UPKEEP_FREE_PAGES || size.free_pages < size.pages / 4))) {
        return status;
    }
    *out_again = 1;
    (void)snprintf(sql, sizeof(sql), "PRAGMA incremental_vacuum(%u)",
                   rows / UPKEEP_ROWS_PER_PAGE + 1);
    return store_db_exec(db, sql, error);
}

/* --- rounds -------------------------------------------------------------------------------------
 */

static const upkeep_fn upkeep_tasks[STORE_UPKEEP_TASKS] = {
    [STORE_UPKEEP_LATE] = upkeep_late,       [STORE_UPKEEP_ROLL] = upkeep_roll,
    [STORE_UPKEEP_COUNT] = upkeep_count,     [STORE_UPKEEP_RAW] = upkeep_raw,
    [STORE_UPKEEP_MINUTES] = upkeep_minutes, [STORE_UPKEEP_HOURS] = upkeep_hours,
    [STORE_UPKEEP_EVENTS] = upkeep_events,   [STORE_UPKEEP_EXPIRE] = upkeep_expire,
    [STORE_UPKEEP_REMOVE] = upkeep_remove,   [STORE_UPKEEP_PRESS] = upkeep_press,
    [STORE_UPKEEP_VACUUM] = upkeep_vacuum,
};

/* A failed transaction is over; whether SQLite has ended it itself does not matter. */
static enum deft_status upkeep_end(struct store_db *db, enum deft_status status,
                                   struct deft_error *error) {
    store_db_reset(db); /* one that still reads would keep the log from being applied */
    if (status == DEFT_OK) {
        status = store_db_exec(db, "COMMIT", error);
    }
    if (status != DEFT_OK) {
        (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    }
    return status;
}

enum deft_status store_upkeep_slice(struct store_upkeep *upkeep, struct store_db *db,
                                    int64_t now_ns, unsigned rows, int *out_more,
                                    struct deft_error *error) {
    int again = 0;
    struct deft_error why = {0};
    if (upkeep->round_ns == 0) {
        upkeep->round_ns = now_ns;
        upkeep->task = 0;
        upkeep->cursor = -1;
        memset(upkeep->floor_ns, 0, sizeof(upkeep->floor_ns));
        memset(upkeep->press_floor_ns, 0, sizeof(upkeep->press_floor_ns));
    }
    enum deft_status status = store_db_exec(db, "BEGIN IMMEDIATE", &why);
    if (status == DEFT_OK) {
        status = upkeep_tasks[upkeep->task](upkeep, db, rows, &again, &why);
        status = upkeep_end(db, status, &why);
    }
    if (status == DEFT_NOT_FOUND) { /* a row that others should refer to: 'db check' tells */
        status = DEFT_OK;
    }
    /* The tasks that search remember what they have tried; the others have failed as a whole. */
    int searches = upkeep->task != STORE_UPKEEP_REMOVE && upkeep->task != STORE_UPKEEP_VACUUM;
    if (!again || (status != DEFT_OK && !searches)) {
        upkeep->task++;
        upkeep->cursor = -1;
    }
    int damaged = (why.backend_code & 0xff) == SQLITE_CORRUPT;
    if (upkeep->task == STORE_UPKEEP_TASKS || (status != DEFT_OK && !damaged)) {
        upkeep->round_ns = 0;
    }
    *out_more = upkeep->round_ns != 0;
    if (status != DEFT_OK && error != NULL) {
        *error = why;
    }
    return status;
}
