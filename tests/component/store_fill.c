#include "store_fill.h"

#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

#define N_RANKS   2u
#define N_OFFSETS 700u

static void run_write(struct store_world *world, struct store_write *write) {
    struct deft_error error = {0};
    if (store_run(world->store, write, &error) != DEFT_OK) {
        fail_msg("the write failed: %s", error.text);
    }
}

static void send_report(struct store_world *world, int64_t id, uint64_t seq, uint64_t *seed,
                        int64_t now_ns) {
    struct wire_iteration rows[20 * N_RANKS];
    struct wire_op_summary ops[5];
    int64_t offsets[N_OFFSETS];
    struct wire_readiness readiness = {
        .rank = (uint32_t)(seq % N_RANKS), .iteration = seq, .n_offsets = N_OFFSETS};
    struct wire_event events[2] = {
        {.rank = 0, .kind = "dropped", .count = seq, .text = "caf\303\251"},
        {.rank = 1, .kind = "switched", .plan_seq = seq}};
    struct wire_report report = {.agent = "host-\"1\"",
                                 .seq = seq,
                                 .n_iterations = 20 * N_RANKS,
                                 .iterations = rows,
                                 .n_ops = 5,
                                 .ops = ops,
                                 .n_readiness = 1,
                                 .readiness = &readiness,
                                 .n_events = 2,
                                 .events = events};
    for (uint32_t i = 0; i < N_OFFSETS; i++) {
        offsets[i] = (int64_t)testing_random(seed);
    }
    readiness.offsets_ns = offsets;
    for (uint32_t i = 0; i < 20 * N_RANKS; i++) {
        rows[i] = store_world_row(i % N_RANKS, (seq - 1) * 20 + i / N_RANKS, seq / 3);
        rows[i].change_sq_local = (double)testing_random(seed) / 3e18;
    }
    for (uint32_t i = 0; i < 5; i++) {
        ops[i] = (struct wire_op_summary){.rank = i % N_RANKS,
                                          .bytes = 1024u << i,
                                          .count = 2,
                                          .min_ns = (int64_t)seq,
                                          .median_ns = (int64_t)testing_random_below(seed, 1000),
                                          .max_ns = 5000};
    }
    store_world_report(world, id, &report, now_ns);
}

static char *long_text(uint64_t *seed, size_t n_bytes) {
    char *text = malloc(n_bytes + 1);
    assert_non_null(text);
    for (size_t i = 0; i < n_bytes; i++) {
        text[i] = (char)(' ' + testing_random_below(seed, 95));
    }
    text[n_bytes] = '\0';
    return text;
}

static void decide(struct store_world *world, const char *job, int64_t id, uint64_t seq,
                   uint64_t *seed, int64_t now_ns) {
    const struct wire_decision decision = {.kind = "push",
                                           .iteration = seq * 20,
                                           .plan_seq = seq,
                                           .exact_step_ns = INT64_C(9007199254740993),
                                           .reason = "because\n\"it\" is \\ faster"};
    struct store_change change;
    char *plan = long_text(seed, 200 + testing_random_below(seed, 20000));
    char *solve = long_text(seed, testing_random_below(seed, 3000));
    store_change_init(&change);
    change.incarnation = id;
    change.job = job;
    change.decision = &decision;
    change.plan_seq = seq;
    change.plan_hash = testing_random(seed);
    change.plan = plan;
    change.solve = solve;
    change.max_loss = seq % 2 == 0 ? 2.5 : NAN;
    change.profile = plan;
    change.tuner = "{\"state\":{}}";
    change.now_ns = now_ns;
    run_write(world, &change.write);
    free(plan);
    free(solve);
}

static void end_start(struct store_world *world, const char *job, int64_t id, int64_t now_ns) {
    struct wire_event ends[2] = {{.rank = 0, .kind = "finished"}, {.rank = 1, .kind = "failed"}};
    struct wire_report report = {.agent = "other", .seq = 1, .n_events = 2, .events = ends};
    struct store_change change;
    store_world_report(world, id, &report, now_ns);
    store_change_init(&change);
    change.incarnation = id;
    change.job = job;
    change.state = "failed";
    change.now_ns = now_ns;
    run_write(world, &change.write);
}

int64_t store_fill_job(struct store_world *world, const char *job, uint64_t n_reports,
                       uint64_t seed, int64_t now_ns) {
    int64_t id = 0;
    struct store_keep_job keep;
    seed = seed == 0 ? 1 : seed;
    for (int start = 0; start < 2; start++) {
        char key[16];
        (void)snprintf(key, sizeof(key), "start-%d", start);
        id = store_world_register(world, job, key, N_RANKS, now_ns);
        for (uint64_t seq = 1; seq <= n_reports; seq++) {
            send_report(world, id, seq, &seed, now_ns + (int64_t)seq * 60 * STORE_WORLD_SECOND_NS);
            if (seq % 4 == 1) {
                decide(world, job, id, seq, &seed, now_ns);
            }
        }
        if (start == 0) {
            end_start(world, job, id, now_ns);
        }
    }
    store_keep_job_init(&keep);
    keep.job = job;
    keep.keep.raw_iterations = (int64_t)n_reports * 10; /* half of one start's */
    keep.keep.jobs_ns = STORE_FOR_EVER;
    run_write(world, &keep.write);
    store_world_tidy(world, now_ns + (int64_t)(n_reports + 3) * 60 * STORE_WORLD_SECOND_NS);
    return id;
}

/* --- sums ---------------------------------------------------------------------------------------
 */

static uint64_t mix(uint64_t sum, const char *text) {
    for (; *text != '\0'; text++) {
        sum = (sum ^ (uint8_t)*text) * UINT64_C(1099511628211);
    }
    return sum;
}

uint64_t store_fill_sum(const char *path) {
    sqlite3 *db = NULL;
    sqlite3_stmt *names = NULL;
    uint64_t sum = UINT64_C(14695981039346656037);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    assert_int_equal(
        sqlite3_prepare_v2(db,
                           "SELECT m.name, group_concat('quote(\"' || c.name || '\")', '||'',''||')"
                           " FROM (SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY"
                           " name) m, pragma_table_info(m.name) c GROUP BY m.name ORDER BY m.name",
                           -1, &names, NULL),
        SQLITE_OK);
    while (sqlite3_step(names) == SQLITE_ROW) {
        sqlite3_stmt *rows = NULL;
        char *sql = sqlite3_mprintf("SELECT %s FROM \"%w\" ORDER BY 1",
                                    sqlite3_column_text(names, 1), sqlite3_column_text(names, 0));
        assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &rows, NULL), SQLITE_OK);
        sqlite3_free(sql);
        sum = mix(sum, (const char *)sqlite3_column_text(names, 0));
        while (sqlite3_step(rows) == SQLITE_ROW) {
            sum = mix(sum, (const char *)sqlite3_column_text(rows, 0)) + 1;
        }
        assert_int_equal(sqlite3_finalize(rows), SQLITE_OK);
    }
    (void)sqlite3_finalize(names);
    (void)sqlite3_close(db);
    return sum;
}
