/* Ten million iterations of one job: what a query looks at does not grow with them. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_series.h"
#include "store_world.h"
#include "talk.h"
#include "testing.h"

#define N_ITERATIONS INT64_C(10000000)
#define N_RAW        INT64_C(200000)

/* Steps of SQLite's machine on the connections of this process, in hundreds: some tens per row. */
static int64_t n_steps;

static int count_steps(void *context) {
    (void)context;
    n_steps++;
    return 0;
}

static int watch(sqlite3 *db, const char **message, const void *api) {
    (void)message;
    (void)api;
    sqlite3_progress_handler(db, 100, count_steps, NULL);
    return SQLITE_OK;
}

/* A job that made one iteration a second, as upkeep would have left it: rows of the newest, minutes
 * of 90 days, hours of all that have no rows. */
static int64_t make_long(struct store_world *world) {
    store_world_start(world);
    int64_t id = store_world_register(world, "job", "start", 1, STORE_WORLD_BEGIN_NS);
    static const struct {
        int period_s;
        int64_t first;
        int64_t end;
    } parts[] = {{3600, 0, N_ITERATIONS - N_RAW},
                 {60, N_ITERATIONS - INT64_C(7776000), N_ITERATIONS}};
    for (size_t i = 0; i < 2; i++) {
        store_world_sql(
            world,
            "PRAGMA synchronous = OFF; WITH RECURSIVE m (i) AS (SELECT %lld / %d UNION ALL"
            " SELECT i + 1 FROM m WHERE (i + 1) * %d < %lld)"
            "INSERT INTO rollups SELECT %lld, %d, i * %d, min((i + 1) * %d, %lld) - 1,"
            " %lld + i * %d000000000, i %% 7, min((i + 1) * %d, %lld) - i * %d, 1, 5.0, 5, 5, 1.0,"
            " 1.0, 1.0, 1.0, 1.0, min((i + 1) * %d, %lld) - i * %d, 1, 2.5, 2.5, 2.5, 0, 0.0, 0, "
            "0.0,"
            " 0, 0.0, 0, 0.0 FROM m",
            (long long)parts[i].first, parts[i].period_s, parts[i].period_s,
            (long long)parts[i].end, (long long)id, parts[i].period_s, parts[i].period_s,
            parts[i].period_s, (long long)parts[i].end, (long long)STORE_WORLD_BEGIN_NS,
            parts[i].period_s, parts[i].period_s, (long long)parts[i].end, parts[i].period_s,
            parts[i].period_s, (long long)parts[i].end, parts[i].period_s);
    }
    store_world_sql(
        world,
        "PRAGMA synchronous = OFF; WITH RECURSIVE t (i) AS (SELECT %lld UNION ALL"
        " SELECT i + 1 FROM t WHERE i + 1 < %lld) INSERT INTO iterations SELECT %lld, i,"
        " 0, 1, 1, 1, 1, 1, 1, 5, 0, 2.5, NULL, NULL, 1, 0, 1, 0, NULL, NULL, %lld"
        " FROM t",
        (long long)(N_ITERATIONS - N_RAW), (long long)N_ITERATIONS, (long long)id,
        (long long)STORE_WORLD_BEGIN_NS);
    store_world_sql(
        world,
        "INSERT INTO upkeep (incarnation, newest, rolled_to, hours_to, raw_from,"
        " n_rolled, n_raw, raw_ns, minutes_ns, hours_ns) VALUES (%lld, %lld, %lld, %lld,"
        " %lld, %lld, %lld, 1, 1, 1)",
        (long long)id, (long long)(N_ITERATIONS - 1), (long long)(N_ITERATIONS - 1),
        (long long)(N_ITERATIONS - N_RAW - 1), (long long)(N_ITERATIONS - N_RAW),
        (long long)N_ITERATIONS, (long long)N_RAW);
    return id;
}

static int64_t sum_of(const char *text, const char *key) {
    char quoted[64];
    int64_t sum = 0;
    (void)snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    for (const char *at = text; (at = strstr(at, quoted)) != NULL; at++) {
        sum += (int64_t)talk_number(at, key);
    }
    return sum;
}

static void queries_do_not_grow_with_the_history(void **unused) {
    static const struct {
        int64_t from;
        int64_t to;
        uint64_t points;
    } queries[] = {
        {0, N_ITERATIONS, 1000},
        {0, N_ITERATIONS, 10000},
        {N_ITERATIONS / 3, N_ITERATIONS / 2, 1000},
        {N_ITERATIONS - N_RAW, N_ITERATIONS, 10000},
        {N_ITERATIONS - 60000, N_ITERATIONS, 10000},
        {N_ITERATIONS - 500, N_ITERATIONS, 1000},
        {1000, 2000, 1000},
    };
    struct store_world world;
    (void)unused;
    (void)sqlite3_auto_extension((void (*)(void))watch);
    int64_t id = make_long(&world);
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
        n_steps = 0;
        char *text = store_world_series(&world, id, (uint64_t)queries[i].from,
                                        (uint64_t)queries[i].to, queries[i].points);
        /* A row of either kind takes less than 60 steps. */
        if (n_steps * 100 > INT64_C(60) * (STORE_SERIES_MAX_ROWS + STORE_SERIES_MAX_MINUTES)) {
            fail_msg("query %zu took %lld steps", i, (long long)n_steps * 100);
        }
        int64_t n = sum_of(text, "n_iterations");
        int64_t end = queries[i].to < N_ITERATIONS ? queries[i].to + 1 : N_ITERATIONS;
        /* Hours at both ends may stand out. */
        assert_true(n >= end - queries[i].from && n < end - queries[i].from + 7200);
        assert_int_equal(sum_of(text, "updates"), n);
        free(text);
    }
    /* And a restart counts nothing. */
    struct store_incarnation left = {0};
    n_steps = 0;
    assert_int_equal(store_read_incarnation(world.store, id, &left, NULL), DEFT_OK);
    assert_int_equal(left.n_iterations, N_ITERATIONS);
    assert_true(n_steps < 10);
    store_incarnation_done(&left);
    store_world_stop(&world);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(queries_do_not_grow_with_the_history),
};
TESTING_MAIN(cases)
