/* The controller under the load of many agents: nothing acknowledged is lost, nothing is there
 * twice, what an operator does reaches every agent of the job, and memory does not grow.
 *
 * DEFT_TEST_REPORTS: how many reports the memory is watched for, 20,100 without it. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "controller_child.h"
#include "load_fleet.h"
#include "testing.h"

/* Instrumented programs take many times as long for a report. */
#ifdef DEFT_LOAD_SANITIZED
#define N_AGENTS 100u
#define N_LARGE  20u
#define N_ROUNDS 1
#else
#define N_AGENTS 300u
#define N_LARGE  60u
#define N_ROUNDS 2
#endif

static struct load_fleet *start(struct controller *c, const struct load_options *options) {
    static const char *const of_controller[] = {"--warmup", "0", NULL};
    struct load_options own = *options;
    controller_child_prepare(c, of_controller);
    controller_child_launch(c);
    own.port = c->port;
    own.log_fd = c->log_fd;
    own.n_kept = own.n_agents - own.n_agents / 8;
    own.seed = testing_seed();
    struct load_fleet *fleet = load_fleet_new(&own);
    assert_non_null(fleet);
    return fleet;
}

static void run(struct load_fleet *fleet, load_fleet_fn is_done, const char *what) {
    if (!load_fleet_run(fleet, clock_monotonic_ns() + testing_deadline_ns(120), is_done, NULL)) {
        fail_msg("it did not come to that: %s", what);
    }
}

/* What is under way comes to its end, the controller ends, and the database has it all. */
static void expect_all(struct controller *c, struct load_fleet *fleet, uint64_t n_least) {
    struct load_figures figures;
    uint64_t lost = 1;
    uint64_t twice = 1;
    load_fleet_drain(fleet);
    run(fleet, load_fleet_is_idle, "all reports are acknowledged");
    load_fleet_figures(fleet, &figures);
    int status = controller_child_halt(c, SIGTERM);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    load_fleet_check(fleet, c->db, &lost, &twice);
    assert_int_equal(lost, 0);
    assert_int_equal(twice, 0);
    assert_int_equal(figures.n_refused, 0);
    assert_int_equal(figures.n_unpushed, 0);
    assert_int_equal(figures.n_broken, 0);
    assert_true(figures.n_acknowledged >= n_least);
    print_message("%" PRIu64 " reports acknowledged, %" PRIu64 " agents started anew\n",
                  figures.n_acknowledged, figures.n_starts);
    load_fleet_free(fleet);
    controller_child_clean(c);
}

static void nothing_is_lost_or_twice(void **unused) {
    /* A pace, since plans are counted in iterations: ranks that are done with hundreds of them
     * before a plan has arrived are not to be tuned. */
    const struct load_options options = {.n_agents = N_AGENTS,
                                         .n_large = N_LARGE,
                                         .n_small = 8,
                                         .interval_ns = INT64_C(500000000),
                                         .restart_every = 50};
    struct controller c;
    struct load_figures figures;
    struct load_fleet *fleet = start(&c, &options);
    (void)unused;
    run(fleet, load_fleet_is_ready, "all agents are registered and have their streams");
    for (int round = 0; round < N_ROUNDS; round++) {
        run(fleet, load_fleet_has_plan, "a plan is pushed to all agents of the job");
        load_fleet_call(fleet, "observe");
        run(fleet, load_fleet_is_pushed, "the exact plan and the mode are pushed");
        run(fleet, load_fleet_has_switched, "the ranks run the exact plan");
        load_fleet_call(fleet, "auto");
        run(fleet, load_fleet_is_pushed, "the mode is pushed");
    }
    load_fleet_figures(fleet, &figures);
    assert_int_equal(figures.n_pushes, N_ROUNDS);
    assert_true(figures.n_starts > 0);
    expect_all(&c, fleet, N_LARGE * UINT64_C(9)); /* no plan comes sooner */
}

/* --- memory -------------------------------------------------------------------------------------
 */

static uint64_t resident_kb(const struct controller *c) {
    char path[64];
    char line[256];
    uint64_t kb = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)c->pid);
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    while (fgets(line, sizeof(line), file) != NULL) {
        if (strncmp(line, "VmRSS:", 6) == 0) {
            kb = strtoull(line + 6, NULL, 10);
        }
    }
    (void)fclose(file);
    assert_true(kb > 0);
    return kb;
}

static int has_reached(struct load_fleet *fleet, void *context) {
    struct load_figures figures;
    load_fleet_figures(fleet, &figures);
    return figures.n_acknowledged >= *(const uint64_t *)context;
}

static void memory_stays_flat(void **unused) {
    /* What every start of a job and every connection costs is there after a tenth; what may still
     * come are pages of SQLite's caches. */
    enum { MOST_GROWTH_KB = 16384 };
    const struct load_options options = {.n_agents = 64, .n_large = 16, .n_small = 8};
    const char *text = getenv("DEFT_TEST_REPORTS");
    uint64_t n = text != NULL ? strtoull(text, NULL, 10) : UINT64_C(67) * N_AGENTS;
    uint64_t n_warm = n / 5;
    struct controller c;
    struct load_fleet *fleet = start(&c, &options);
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(120 + (int64_t)(n / 500));
    (void)unused;
    assert_true(load_fleet_run(fleet, until_ns, has_reached, &n_warm));
    uint64_t before_kb = resident_kb(&c);
    assert_true(load_fleet_run(fleet, until_ns, has_reached, &n));
    uint64_t after_kb = resident_kb(&c);
    print_message("%" PRIu64 " KiB after %" PRIu64 " reports, %" PRIu64 " KiB after %" PRIu64 "\n",
                  before_kb, n_warm, after_kb, n);
#ifndef DEFT_LOAD_SANITIZED
    assert_true(after_kb < before_kb + MOST_GROWTH_KB);
#endif
    expect_all(&c, fleet, n);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(nothing_is_lost_or_twice),
    cmocka_unit_test(memory_stays_flat),
};
TESTING_MAIN(cases)
