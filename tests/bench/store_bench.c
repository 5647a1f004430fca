/* Figures of the store alone: how fast it writes, how long an acknowledgement takes with and
 * without upkeep at work, how long queries and starts take beside a long history.
 *
 *   store_bench write DIR SECONDS           rows a second, one writer that is never idle
 *   store_bench ack DIR SECONDS RATE        acknowledgements at RATE reports a second
 *   store_bench long DIR ITERATIONS RANKS   queries and a restart, ITERATIONS of one job
 *
 * Each prints one line of JSON. DIR is a folder on the disk that is meant; it gets a database. */
#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/store.h"

#define NS_PER_S INT64_C(1000000000)
#define N_RANKS  8u
#define N_ITERS  2u
#define N_OPS    16u
#define N_JOBS   50

struct bench {
    char path[4096];
    struct store *store;
    int64_t ids[N_JOBS];
    uint64_t seq[N_JOBS];
    uint64_t iteration[N_JOBS];
};

static void must(enum deft_status status, const struct deft_error *error) {
    if (status != DEFT_OK) {
        (void)fprintf(stderr, "store_bench: %s\n", error->text);
        exit(1);
    }
}

static void remove_files(const struct bench *bench) {
    static const char *const suffixes[] = {"", "-wal", "-shm", ".lock"};
    for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
        char path[4200];
        (void)snprintf(path, sizeof(path), "%s%s", bench->path, suffixes[i]);
        (void)unlink(path);
    }
}

static int64_t register_job(struct bench *bench, const char *job) {
    struct wire_registration registration = {.agent = "a", .n_ranks = N_RANKS};
    struct store_register write;
    struct deft_error error = {0};
    (void)snprintf(registration.key, sizeof(registration.key), "start");
    store_register_init(&write);
    write.job = job;
    write.registration = &registration;
    write.registration_text = "{}";
    write.mode = "observe";
    write.limits = (struct wire_limits){.max_merge = 3, .loss_floor = NAN};
    write.now_ns = clock_wall_ns();
    must(store_run(bench->store, &write.write, &error), &error);
    return write.incarnation;
}

static void open_bench(struct bench *bench, const struct store_options *options) {
    struct deft_error error = {0};
    remove_files(bench);
    memset(bench->seq, 0, sizeof(bench->seq));
    memset(bench->iteration, 0, sizeof(bench->iteration));
    must(store_open_with(bench->path, options, &bench->store, &error), &error);
    for (int i = 0; i < N_JOBS; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "job-%d", i);
        bench->ids[i] = register_job(bench, name);
    }
}

/* --- reports ------------------------------------------------------------------------------------
 */

struct pending {
    struct store_report write; /* first */
    struct wire_iteration iterations[N_ITERS * N_RANKS];
    struct wire_op_summary ops[N_OPS];
    int64_t sent_ns;
    struct tally *tally;
};

/* Times of acknowledgements. */
struct tally {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    size_t n_open;
    size_t n_done;
    size_t n_failed;
    size_t capacity;
    double *ms;
};

static void acknowledged(struct store_write *write, enum deft_status status,
                         const struct deft_error *error) {
    struct pending *pending = (struct pending *)write;
    struct tally *tally = pending->tally;
    double ms = (double)(clock_monotonic_ns() - pending->sent_ns) / 1e6;
    (void)error;
    (void)pthread_mutex_lock(&tally->lock);
    tally->n_open--;
    tally->n_failed += status != DEFT_OK;
    if (tally->n_done < tally->capacity) {
        tally->ms[tally->n_done] = ms;
    }
    tally->n_done++;
    (void)pthread_cond_signal(&tally->changed);
    (void)pthread_mutex_unlock(&tally->lock);
    free(pending);
}

static void send_report(struct bench *bench, struct tally *tally, int job) {
    struct deft_error error = {0};
    struct pending *pending = calloc(1, sizeof(*pending));
    if (pending == NULL) {
        abort();
    }
    store_report_init(&pending->write);
    struct wire_report *report = &pending->write.report;
    report->agent[0] = 'a';
    report->seq = ++bench->seq[job];
    report->n_iterations = N_ITERS * N_RANKS;
    report->iterations = pending->iterations;
    report->n_ops = N_OPS;
    report->ops = pending->ops;
    for (uint32_t i = 0; i < N_ITERS * N_RANKS; i++) {
        pending->iterations[i] =
            (struct wire_iteration){.rank = i % N_RANKS,
                                    .iteration = bench->iteration[job] + i / N_RANKS,
                                    .forward_ns = 60000000 + i,
                                    .backward_ns = 120000000,
                                    .exposed_ns = 1000000,
                                    .optimizer_ns = 20000000,
                                    .step_ns = 200000000 + (int64_t)bench->seq[job],
                                    .loss = 2.5,
                                    .grad_sq_local = 1.25,
                                    .grad_sq_mean = 0.75,
                                    .change_sq_local = NAN,
                                    .learning_rate = 0.001,
                                    .updates = 1,
                                    .merge = 1};
    }
    for (uint32_t i = 0; i < N_OPS; i++) {
        pending->ops[i] = (struct wire_op_summary){.rank = i % N_RANKS,
                                                   .bytes = 1u << (16 + i / N_RANKS),
                                                   .count = 2,
                                                   .min_ns = 1000000,
                                                   .median_ns = 1200000,
                                                   .max_ns = 3000000};
    }
    bench->iteration[job] += N_ITERS;
    pending->write.incarnation = bench->ids[job];
    pending->write.now_ns = clock_wall_ns();
    pending->write.write.done = acknowledged;
    pending->write.write.n_bytes = sizeof(*pending);
    pending->tally = tally;
    pending->sent_ns = clock_monotonic_ns();
    (void)pthread_mutex_lock(&tally->lock);
    tally->n_open++;
    (void)pthread_mutex_unlock(&tally->lock);
    must(store_submit(bench->store, &pending->write.write, &error), &error);
}

static void await_open(struct tally *tally, size_t n) {
    (void)pthread_mutex_lock(&tally->lock);
    while (tally->n_open > n) {
        (void)pthread_cond_wait(&tally->changed, &tally->lock);
    }
    (void)pthread_mutex_unlock(&tally->lock);
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double quantile(struct tally *tally, double q) {
    size_t n = tally->n_done < tally->capacity ? tally->n_done : tally->capacity;
    qsort(tally->ms, n, sizeof(*tally->ms), by_value);
    return n > 0 ? tally->ms[(size_t)(q * (double)(n - 1))] : NAN;
}

static void make_tally(struct tally *tally) {
    memset(tally, 0, sizeof(*tally));
    (void)pthread_mutex_init(&tally->lock, NULL);
    (void)pthread_cond_init(&tally->changed, NULL);
    tally->capacity = 1 << 20;
    tally->ms = calloc(tally->capacity, sizeof(*tally->ms));
    if (tally->ms == NULL) {
        abort();
    }
}

/* --- write --------------------------------------------------------------------------------------
 */

static void bench_write(struct bench *bench, int64_t seconds) {
    struct store_options options;
    struct tally tally;
    store_defaults(&options);
    options.pause_ns = 0;
    open_bench(bench, &options);
    make_tally(&tally);
    int64_t begin_ns = clock_monotonic_ns();
    while (clock_monotonic_ns() < begin_ns + seconds * NS_PER_S) {
        await_open(&tally, 400);
        send_report(bench, &tally, (int)(tally.n_done % N_JOBS));
    }
    await_open(&tally, 0);
    double took_s = (double)(clock_monotonic_ns() - begin_ns) / 1e9;
    store_close(bench->store);
    (void)printf("{\"reports_per_s\":%.0f,\"rows_per_s\":%.0f,\"failed\":%zu}\n",
                 (double)tally.n_done / took_s,
                 (double)tally.n_done * (N_ITERS * N_RANKS + N_OPS) / took_s, tally.n_failed);
    free(tally.ms);
}

/* --- acknowledgements ---------------------------------------------------------------------------
 */

static void run_load(struct bench *bench, int64_t seconds, int64_t rate, const char *name,
                     const char *end) {
    struct tally tally;
    make_tally(&tally);
    int64_t begin_ns = clock_monotonic_ns();
    for (int64_t i = 0; i < rate * seconds; i++) {
        int64_t at_ns = begin_ns + i * NS_PER_S / rate;
        const struct timespec until = {.tv_sec = at_ns / NS_PER_S, .tv_nsec = at_ns % NS_PER_S};
        (void)clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
        send_report(bench, &tally, (int)(i % N_JOBS));
    }
    await_open(&tally, 0);
    (void)printf("\"%s\":{\"n\":%zu,\"ack_p50_ms\":%.2f,\"ack_p90_ms\":%.2f,\"ack_p99_ms\":%.2f,"
                 "\"ack_max_ms\":%.2f,\"failed\":%zu}%s",
                 name, tally.n_done, quantile(&tally, 0.5), quantile(&tally, 0.9),
                 quantile(&tally, 0.99), quantile(&tally, 1.0), tally.n_failed, end);
    (void)fflush(stdout);
    free(tally.ms);
}

static int64_t query_int(const struct bench *bench, const char *sql) {
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    int64_t value = -1;
    if (sqlite3_open(bench->path, &db) == SQLITE_OK &&
        sqlite3_prepare_v2(db, sql, -1, &s, NULL) == SQLITE_OK && sqlite3_step(s) == SQLITE_ROW) {
        value = sqlite3_column_int64(s, 0);
    }
    (void)sqlite3_finalize(s);
    (void)sqlite3_close(db);
    return value;
}

static void bench_ack(struct bench *bench, int64_t seconds, int64_t rate) {
    struct store_options options;
    struct deft_error error = {0};
    (void)printf("{\"rate\":%" PRId64 ",", rate);
    store_defaults(&options);
    options.pause_ns = 0;
    open_bench(bench, &options);
    run_load(bench, seconds, rate, "without_upkeep", ",");
    store_close(bench->store);
    /* All that comes is rolled up, and removed two seconds later. */
    options.pause_ns = NS_PER_S / 10;
    options.settle_ns = NS_PER_S;
    options.keep.raw_iterations = 20;
    open_bench(bench, &options);
    run_load(bench, seconds, rate, "steady_upkeep", ",");
    store_close(bench->store);
    /* And there is a year of it to be removed from the beginning. */
    options.pause_ns = 0;
    options.keep.raw_iterations = STORE_FOR_EVER;
    open_bench(bench, &options);
    struct tally tally;
    make_tally(&tally);
    for (int64_t i = 0; i < 150000; i++) {
        await_open(&tally, 1000);
        send_report(bench, &tally, (int)(i % N_JOBS));
    }
    await_open(&tally, 0);
    free(tally.ms);
    must(store_tidy(bench->store, clock_wall_ns() + 10 * NS_PER_S, &error), &error);
    int64_t before = query_int(bench, "SELECT count(*) FROM iterations");
    store_close(bench->store);
    options.pause_ns = NS_PER_S / 10;
    options.keep.raw_iterations = 20;
    must(store_open_with(bench->path, &options, &bench->store, &error), &error);
    run_load(bench, seconds, rate, "backlog", ",");
    int64_t after = query_int(bench, "SELECT count(*) FROM iterations");
    store_close(bench->store);
    (void)printf("\"rows_removed_per_s\":%.0f}\n",
                 ((double)(before - after) + (double)(seconds * rate) * N_ITERS * N_RANKS) /
                     (double)seconds);
}

/* --- a long history -----------------------------------------------------------------------------
 */

/* One statement with ?1, ?2 and ?3. */
static void run_sql(const struct bench *bench, const char *sql, int64_t a, int64_t b, int64_t c) {
    const int64_t arguments[3] = {a, b, c};
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    int failed = sqlite3_open(bench->path, &db) != SQLITE_OK ||
                 sqlite3_exec(db, "PRAGMA synchronous = OFF", NULL, NULL, NULL) != SQLITE_OK ||
                 sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK;
    for (int i = 0; i < 3 && i < sqlite3_bind_parameter_count(s); i++) {
        (void)sqlite3_bind_int64(s, i + 1, arguments[i]);
    }
    if (failed || sqlite3_step(s) != SQLITE_DONE) {
        (void)fprintf(stderr, "store_bench: %s\n", sqlite3_errmsg(db));
        exit(1);
    }
    (void)sqlite3_finalize(s);
    (void)sqlite3_close(db);
}

static double time_series(struct bench *bench, uint64_t from, uint64_t to, uint64_t points) {
    const struct store_range range = {.from = from, .to = to, .points = points};
    struct deft_error error = {0};
    struct json_out out = {0};
    int64_t begin_ns = clock_monotonic_ns();
    json_out_begin_object(&out, NULL);
    must(store_print_iterations(bench->store, bench->ids[0], &range, &out, &error), &error);
    json_out_done(&out);
    return (double)(clock_monotonic_ns() - begin_ns) / 1e6;
}

static void bench_long(struct bench *bench, int64_t n, int64_t n_ranks) {
    struct store_options options;
    struct store_incarnation left = {0};
    struct deft_error error = {0};
    store_defaults(&options);
    options.pause_ns = 0;
    open_bench(bench, &options);
    store_close(bench->store);
    int64_t id = bench->ids[0];
    int64_t n_raw = n < 200000 ? n : 200000;
    run_sql(
        bench,
        "PRAGMA synchronous = OFF; UPDATE incarnations SET n_ranks = %3$" PRId64
        " WHERE id = %1$" PRId64 "; WITH RECURSIVE m (i) AS (SELECT 0 UNION ALL"
        " SELECT i + 1 FROM m WHERE (i + 1) * 600 < %2$" PRId64 ")"
        "INSERT INTO rollups SELECT %1$" PRId64
        ", 60, i * 600, i * 600 + 599, 1700000000000000000 + i * 60000000000, i / 5000, 600, 600,"
        " 6e10, 99000000, 101000000, 3e10, 3e10, 1e9, 1e9, 1e6, 600, 600, 1500.0, 2.0, 3.0, 600,"
        " 600.0, 600, 300.0, 0, 0.0, 600, 0.6 FROM m",
        id, n, n_ranks);
    run_sql(
        bench,
        "PRAGMA synchronous = OFF; WITH RECURSIVE t (i) AS (SELECT %2$" PRId64 " UNION ALL"
        " SELECT i + 1 FROM t WHERE i + 1 < %3$" PRId64 "), r (rank) AS (SELECT 0 UNION ALL"
        " SELECT rank + 1 FROM r WHERE rank + 1 < (SELECT n_ranks FROM incarnations WHERE id ="
        " %1$" PRId64 ")) INSERT INTO iterations SELECT %1$" PRId64
        ", i, rank, 3, 50000000, 50000000, 1000000, 1000000, 1000, 100000000 + i %% 1000, 0, 2.5,"
        " 1.0, 0.5, 1, 0, 1, 0, NULL, 0.001, 1700000000000000000 + i * 100000000 FROM t, r",
        id, n - n_raw, n);
    run_sql(bench, "UPDATE incarnations SET n_ranks = ?3 WHERE id = ?1", id, n, n_ranks);
    run_sql(
        bench,
        "WITH RECURSIVE m (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM m"
        " WHERE (i + 1) * 600 < ?2) INSERT INTO rollups SELECT ?1, 60, i * 600, i * 600 + 599,"
        " 1700000000000000000 + i * 60000000000, i / 5000, 600, 600, 6e10, 99000000, 101000000,"
        " 3e10, 3e10, 1e9, 1e9, 1e6, 600, 600, 1500.0, 2.0, 3.0, 600, 600.0, 600, 300.0, 0, 0.0,"
        " 600, 0.6 FROM m",
        id, n, n_ranks);
    run_sql(
        bench,
        "WITH RECURSIVE t (i) AS (SELECT ?2 UNION ALL SELECT i + 1 FROM t WHERE i + 1 < ?3),"
        " r (rank) AS (SELECT 0 UNION ALL SELECT rank + 1 FROM r WHERE rank + 1 <"
        " (SELECT n_ranks FROM incarnations WHERE id = ?1)) INSERT INTO iterations SELECT ?1, i,"
        " rank, 3, 50000000, 50000000, 1000000, 1000000, 1000, 100000000 + i % 1000, 0, 2.5,"
        " 1.0, 0.5, 1, 0, 1, 0, NULL, 0.001, 1700000000000000000 + i * 100000000 FROM t, r",
        id, n - n_raw, n);
    run_sql(bench,
            "INSERT INTO upkeep (incarnation, newest, rolled_to, raw_from, n_rolled, n_raw, raw_ns,"
            " minutes_ns) VALUES (?1, ?2 - 1, ?2 - 1, ?3, ?2, ?2 - ?3, 1, 1)",
            id, n, n - n_raw);
    struct stat stat_of;
    (void)stat(bench->path, &stat_of);
    int64_t begin_ns = clock_monotonic_ns();
    must(store_open_with(bench->path, &options, &bench->store, &error), &error);
    double open_ms = (double)(clock_monotonic_ns() - begin_ns) / 1e6;
    begin_ns = clock_monotonic_ns();
    must(store_read_incarnation(bench->store, id, &left, &error), &error);
    double load_ms = (double)(clock_monotonic_ns() - begin_ns) / 1e6;
    uint64_t last = (uint64_t)n;
    (void)printf("{\"iterations\":%" PRId64 ",\"ranks\":%" PRId64 ",\"file_mb\":%.0f,"
                 "\"open_ms\":%.1f,\"load_ms\":%.1f,\"whole_ms\":%.1f,\"whole_again_ms\":%.1f,"
                 "\"half_ms\":%.1f,\"raw_10000_points_ms\":%.1f,\"raw_1000_iterations_ms\":%.1f,"
                 "\"old_1000_iterations_ms\":%.1f}\n",
                 n, n_ranks, (double)stat_of.st_size / 1e6, open_ms, load_ms,
                 time_series(bench, 0, last, 1000), time_series(bench, 0, last, 1000),
                 time_series(bench, last / 4, last * 3 / 4, 1000),
                 time_series(bench, last - 150000, last, 10000),
                 time_series(bench, last - 1000, last, 1000), time_series(bench, 5000, 6000, 1000));
    store_incarnation_done(&left);
    store_close(bench->store);
}

int main(int argc, char **argv) {
    static struct bench bench;
    if (argc < 4) {
        (void)fprintf(stderr, "usage: store_bench write|ack|long DIR ...\n");
        return 2;
    }
    (void)snprintf(bench.path, sizeof(bench.path), "%s/store_bench.db", argv[2]);
    int64_t first = strtoll(argv[3], NULL, 10);
    int64_t second = argc > 4 ? strtoll(argv[4], NULL, 10) : 0;
    if (strcmp(argv[1], "write") == 0) {
        bench_write(&bench, first);
    } else if (strcmp(argv[1], "ack") == 0) {
        bench_ack(&bench, first, second > 0 ? second : 500);
    } else {
        bench_long(&bench, first, second > 0 ? second : 1);
    }
    remove_files(&bench);
    return 0;
}
