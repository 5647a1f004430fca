#include "store_world.h"

#include <dirent.h>
#include <math.h>
#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "testing.h"

static void open_store(struct store_world *world) {
    struct deft_error error = {0};
    if (store_open_with(world->path, &world->options, &world->store, &error) != DEFT_OK) {
        fail_msg("the store did not open: %s", error.text);
    }
}

void store_world_start(struct store_world *world) {
    /* In memory, where that is to be had: these tests commit thousands of times. */
    (void)snprintf(world->dir, sizeof(world->dir), "%s/deft-store-test-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    assert_non_null(mkdtemp(world->dir));
    (void)snprintf(world->path, sizeof(world->path), "%s/deft.db", world->dir);
    store_defaults(&world->options);
    world->options.pause_ns = 0;
    open_store(world);
}

void store_world_restart(struct store_world *world) {
    store_close(world->store);
    open_store(world);
}

void store_world_remove_files(const struct store_world *world) {
    DIR *dir = opendir(world->dir);
    assert_non_null(dir);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        if (entry->d_name[0] != '.') {
            assert_int_equal(unlinkat(dirfd(dir), entry->d_name, 0), 0);
        }
    }
    (void)closedir(dir);
}

void store_world_stop(struct store_world *world) {
    store_close(world->store);
    store_world_remove_files(world);
    assert_int_equal(rmdir(world->dir), 0);
}

static void run_write(struct store_world *world, struct store_write *write) {
    struct deft_error error = {0};
    if (store_run(world->store, write, &error) != DEFT_OK) {
        fail_msg("the write failed: %s", error.text);
    }
}

int64_t store_world_register(struct store_world *world, const char *job, const char *key,
                             uint32_t n_ranks, int64_t now_ns) {
    struct wire_registration registration = {.agent = "a", .n_ranks = n_ranks, .table_hash = 7};
    struct store_register write;
    (void)snprintf(registration.key, sizeof(registration.key), "%s", key);
    store_register_init(&write);
    write.job = job;
    write.registration = &registration;
    write.registration_text = "{}";
    write.mode = "observe";
    write.limits = (struct wire_limits){
        .max_merge = 3, .max_delay = 8, .epsilon = 0.01, .min_progress = 0.5, .loss_floor = NAN};
    write.now_ns = now_ns;
    run_write(world, &write.write);
    return write.incarnation;
}

void store_world_end(struct store_world *world, const char *job, int64_t incarnation,
                     int64_t now_ns) {
    struct store_change change;
    store_change_init(&change);
    change.incarnation = incarnation;
    change.job = job;
    change.state = "finished";
    change.now_ns = now_ns;
    run_write(world, &change.write);
}

struct wire_iteration store_world_row(uint32_t rank, uint64_t iteration, uint64_t plan_seq) {
    uint64_t mixed = iteration * 7 + (uint64_t)rank * 13 + plan_seq * 5;
    return (struct wire_iteration){.rank = rank,
                                   .iteration = iteration,
                                   .plan_seq = plan_seq,
                                   .forward_ns = (int64_t)(100 + mixed % 17),
                                   .backward_ns = (int64_t)(200 + mixed % 31),
                                   .exposed_ns = (int64_t)(mixed % 11),
                                   .optimizer_ns = (int64_t)(10 + mixed % 3),
                                   .runtime_ns = (int64_t)(mixed % 2),
                                   .step_ns = (int64_t)(mixed % 19 == 0 ? 0 : 400 + mixed % 97),
                                   .bytes = mixed,
                                   .loss = mixed % 5 == 0 ? NAN : (double)(mixed % 64) / 8,
                                   .grad_sq_local = mixed % 3 == 0 ? NAN : (double)(mixed % 9),
                                   .grad_sq_mean = (double)(mixed % 4),
                                   .change_sq_local = NAN,
                                   .learning_rate = 0.125,
                                   .updates = (uint32_t)(mixed % 2),
                                   .merge = 1};
}

void store_world_report(struct store_world *world, int64_t incarnation,
                        const struct wire_report *report, int64_t now_ns) {
    struct store_report write;
    store_report_init(&write);
    write.incarnation = incarnation;
    write.report = *report;
    write.now_ns = now_ns;
    run_write(world, &write.write);
}

void store_world_iterations(struct store_world *world, int64_t incarnation, uint64_t seq,
                            uint32_t n_ranks, uint64_t first, uint32_t n, int64_t now_ns) {
    struct wire_report report = {.agent = "a", .seq = seq, .n_iterations = n * n_ranks};
    report.iterations = calloc((size_t)n * n_ranks, sizeof(*report.iterations));
    assert_non_null(report.iterations);
    for (uint32_t i = 0; i < n * n_ranks; i++) {
        report.iterations[i] = store_world_row(i % n_ranks, first + i / n_ranks, 0);
    }
    store_world_report(world, incarnation, &report, now_ns);
    free(report.iterations);
}

void store_world_tidy(struct store_world *world, int64_t now_ns) {
    struct deft_error error = {0};
    if (store_tidy(world->store, now_ns, &error) != DEFT_OK) {
        fail_msg("upkeep failed: %s", error.text);
    }
}

/* --- behind it ----------------------------------------------------------------------------------
 */

static sqlite3 *look(const struct store_world *world) {
    sqlite3 *db = NULL;
    assert_int_equal(
        sqlite3_open_v2(world->path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL),
        SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 60000);
    return db;
}

static char *print_sql(const char *format, va_list arguments) DEFT_PRINTF(1, 0);
static char *print_sql(const char *format, va_list arguments) {
    char *sql = NULL;
    assert_true(vasprintf(&sql, format, arguments) > 0);
    return sql;
}

int64_t store_world_int(const struct store_world *world, const char *format, ...) {
    va_list arguments;
    sqlite3_stmt *s = NULL;
    sqlite3 *db = look(world);
    va_start(arguments, format);
    char *sql = print_sql(format, arguments);
    va_end(arguments);
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK || sqlite3_step(s) != SQLITE_ROW) {
        fail_msg("'%s' gave nothing: %s", sql, sqlite3_errmsg(db));
    }
    int64_t value = sqlite3_column_int64(s, 0);
    (void)sqlite3_finalize(s);
    (void)sqlite3_close(db);
    free(sql);
    return value;
}

void store_world_sql(const struct store_world *world, const char *format, ...) {
    va_list arguments;
    sqlite3 *db = look(world);
    va_start(arguments, format);
    char *sql = print_sql(format, arguments);
    va_end(arguments);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("'%s' failed: %s", sql, sqlite3_errmsg(db));
    }
    (void)sqlite3_close(db);
    free(sql);
}

/* --- what it must come to -----------------------------------------------------------------------
 */

void store_world_remember(const struct store_world *world) {
    store_world_sql(
        world,
        "ATTACH '%s.all' AS everything;"
        "CREATE TABLE IF NOT EXISTS everything.rows AS SELECT * FROM iterations LIMIT 0;"
        "CREATE UNIQUE INDEX IF NOT EXISTS everything.rows_key"
        " ON rows (incarnation, iteration, rank);"
        "INSERT OR IGNORE INTO everything.rows SELECT * FROM iterations;",
        world->path);
}

/* Iterations, of the slowest rank; and the roll-ups that count: hours, and minutes behind them. */
static const char views[] =
    "CREATE TEMP VIEW per AS SELECT incarnation, iteration, max(plan_seq) AS plan_seq,"
    " nullif(max(step_ns), 0) AS step_ns, max(forward_ns) AS forward_ns,"
    " max(backward_ns) AS backward_ns, max(exposed_ns) AS exposed_ns,"
    " max(optimizer_ns) AS optimizer_ns, max(runtime_ns) AS runtime_ns, max(updates) AS updates,"
    " count(loss) AS n_loss, total(loss) AS loss, min(loss) AS loss_min, max(loss) AS loss_max,"
    " count(grad_sq_local) AS n_local, total(grad_sq_local) AS local,"
    " count(grad_sq_mean) AS n_mean, total(grad_sq_mean) AS mean,"
    " count(change_sq_local) AS n_change, total(change_sq_local) AS change,"
    " count(learning_rate) AS n_rate, total(learning_rate) AS rate"
    " FROM everything.rows GROUP BY incarnation, iteration;"
    "CREATE TEMP VIEW runs AS SELECT r.* FROM rollups r JOIN upkeep u USING (incarnation)"
    " WHERE r.period_s = 3600 OR r.first > u.hours_to;"
    "CREATE TEMP VIEW sums AS SELECT r.incarnation, r.period_s, r.first, count(*) AS n,"
    " count(p.step_ns) AS n_steps, total(p.step_ns) AS step, min(p.step_ns) AS step_min,"
    " max(p.step_ns) AS step_max, total(p.forward_ns) AS forward, total(p.backward_ns) AS backward,"
    " total(p.exposed_ns) AS exposed, total(p.optimizer_ns) AS optimizer,"
    " total(p.runtime_ns) AS runtime, sum(p.updates) AS updates, sum(p.n_loss) AS n_loss,"
    " total(p.loss) AS loss, min(p.loss_min) AS loss_min, max(p.loss_max) AS loss_max,"
    " sum(n_local) AS n_local, total(local) AS local, sum(n_mean) AS n_mean, total(mean) AS mean,"
    " sum(n_change) AS n_change, total(change) AS change, sum(n_rate) AS n_rate,"
    " total(rate) AS rate, min(p.plan_seq) AS plan_min, max(p.plan_seq) AS plan_max,"
    " min(p.iteration) AS low, max(p.iteration) AS high"
    " FROM rollups r JOIN per p ON p.incarnation = r.incarnation"
    " AND p.iteration BETWEEN r.first AND r.last GROUP BY 1, 2, 3;";

/* Each counts what must not be there. */
static const struct {
    const char *what;
    const char *sql;
} rules[] = {
    {"roll-ups that are not the sums of their rows",
     "SELECT count(*) FROM rollups r LEFT JOIN sums s USING (incarnation, period_s, first) WHERE"
     " (r.n_iterations, r.n_steps, r.step_ns, r.step_min_ns, r.step_max_ns, r.forward_ns,"
     " r.backward_ns, r.exposed_ns, r.optimizer_ns, r.runtime_ns, r.updates, r.n_losses, r.loss,"
     " r.loss_min, r.loss_max, r.n_grad_sq_local, r.grad_sq_local, r.n_grad_sq_mean,"
     " r.grad_sq_mean, r.n_change_sq_local, r.change_sq_local, r.n_learning_rate, r.learning_rate,"
     " r.plan_seq, r.plan_seq, r.first, r.last) IS NOT"
     " (s.n, s.n_steps, s.step, s.step_min, s.step_max, s.forward, s.backward, s.exposed,"
     " s.optimizer, s.runtime, s.updates, s.n_loss, s.loss, s.loss_min, s.loss_max, s.n_local,"
     " s.local, s.n_mean, s.mean, s.n_change, s.change, s.n_rate, s.rate, s.plan_min, s.plan_max,"
     " s.low, s.high)"},
    {"iterations that roll-ups count never or twice",
     "SELECT count(*) FROM per p JOIN upkeep u USING (incarnation) WHERE p.iteration <= u.rolled_to"
     " AND (SELECT count(*) FROM runs r WHERE r.incarnation = p.incarnation"
     " AND p.iteration BETWEEN r.first AND r.last) <> 1"},
    {"roll-ups of what is not rolled up yet",
     "SELECT count(*) FROM rollups r JOIN upkeep u USING (incarnation) WHERE r.last > u.rolled_to"},
    {"wrong numbers of iterations",
     "SELECT count(*) FROM upkeep u WHERE (n_rolled, n_raw, newest) IS NOT (SELECT"
     " count(*) FILTER (WHERE p.iteration <= u.rolled_to),"
     " count(*) FILTER (WHERE p.iteration BETWEEN u.raw_from AND u.rolled_to), max(p.iteration)"
     " FROM per p WHERE p.incarnation = u.incarnation)"},
    {"rows that should have gone or stayed",
     "SELECT count(*) FROM everything.rows e JOIN upkeep u USING (incarnation) WHERE"
     " (e.iteration >= u.raw_from) <> EXISTS (SELECT 1 FROM iterations i WHERE"
     " (i.incarnation, i.iteration, i.rank) = (e.incarnation, e.iteration, e.rank))"},
    {"periods that do not begin with their minute or hour",
     "SELECT count(*) FROM rollups WHERE received_ns % (period_s * 1000000000) <> 0"},
    {"periods that run backwards",
     "SELECT count(*) FROM (SELECT received_ns - lag(received_ns) OVER (PARTITION BY incarnation,"
     " period_s ORDER BY first) AS step FROM rollups) WHERE step < 0"},
    {"gaps inside of roll-ups",
     "SELECT count(*) FROM (SELECT p.iteration - lag(p.iteration) OVER (PARTITION BY r.incarnation,"
     " r.period_s, r.first ORDER BY p.iteration) AS step FROM rollups r JOIN per p ON"
     " p.incarnation = r.incarnation AND p.iteration BETWEEN r.first AND r.last) WHERE step > 61"},
    {"wrong marks of the oldest", "SELECT count(*) FROM upkeep u WHERE"
                                  " (raw_ns IS NULL) <> NOT EXISTS (SELECT 1 FROM iterations i"
                                  "  WHERE i.incarnation = u.incarnation)"
                                  " OR minutes_ns IS NOT (SELECT min(received_ns) FROM rollups r"
                                  "  WHERE r.incarnation = u.incarnation AND period_s = 60)"
                                  " OR hours_ns IS NOT (SELECT min(received_ns) FROM rollups r"
                                  "  WHERE r.incarnation = u.incarnation AND period_s = 3600)"},
};

void store_world_check(const struct store_world *world) {
    char *attach = sqlite3_mprintf("ATTACH %Q || '.all' AS everything", world->path);
    sqlite3 *db = look(world);
    assert_int_equal(sqlite3_exec(db, attach, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, views, NULL, NULL, NULL), SQLITE_OK);
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        sqlite3_stmt *s = NULL;
        if (sqlite3_prepare_v2(db, rules[i].sql, -1, &s, NULL) != SQLITE_OK ||
            sqlite3_step(s) != SQLITE_ROW) {
            fail_msg("%s: %s", rules[i].what, sqlite3_errmsg(db));
        }
        if (sqlite3_column_int64(s, 0) != 0) {
            fail_msg("%s: %lld", rules[i].what, (long long)sqlite3_column_int64(s, 0));
        }
        (void)sqlite3_finalize(s);
    }
    (void)sqlite3_close(db);
    sqlite3_free(attach);
}

char *store_world_series(struct store_world *world, int64_t incarnation, uint64_t from, uint64_t to,
                         uint64_t points) {
    const struct store_range range = {.from = from, .to = to, .points = points};
    struct json_out out = {0};
    struct deft_error error = {0};
    char *text = NULL;
    json_out_begin_object(&out, NULL);
    if (store_print_iterations(world->store, incarnation, &range, &out, &error) != DEFT_OK) {
        fail_msg("the series was not printed: %s", error.text);
    }
    json_out_end_object(&out);
    assert_int_equal(json_out_finish(&out, &text, &error), DEFT_OK);
    return text;
}
