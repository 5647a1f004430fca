/* A thousand agents come back at once after the controller has gone: all of them do, none is
 * starved, and what they are told by Retry-After they do. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "controller_child.h"
#include "load_fleet.h"
#include "testing.h"

#define N_AGENTS         1000
#define MOST_DESCRIPTORS UINT64_C(3000)

/* Each holds two connections, and so does the controller. */
static void raise_descriptors(void) {
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max < MOST_DESCRIPTORS) {
        testing_skip("a process may not hold 3,000 descriptors here");
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static void run(struct load_fleet *fleet, load_fleet_fn is_done, void *context, const char *what) {
    if (!load_fleet_run(fleet, clock_monotonic_ns() + testing_deadline_ns(120), is_done, context)) {
        struct load_figures figures;
        load_fleet_figures(fleet, &figures);
        fail_msg("it did not come to that: %s; %u agents stand", what, figures.n_ready);
    }
}

/* Every agent has got so many reports acknowledged. */
static int all_have(struct load_fleet *fleet, void *context) {
    return load_fleet_least_acknowledged(fleet) >= *(const uint64_t *)context;
}

static void come_back(const char *const *options, int is_limited) {
    struct load_options load = {.n_agents = N_AGENTS,
                                .n_large = 500,
                                .n_small = 20,
                                .interval_ns = INT64_C(2000000000),
                                .n_kept = N_AGENTS};
    struct controller c;
    struct load_figures before;
    struct load_figures after;
    uint64_t lost = 1;
    uint64_t twice = 1;
    uint64_t wanted = 1;
    raise_descriptors();
    controller_child_prepare(&c, options);
    controller_child_launch(&c);
    load.port = c.port;
    load.seed = testing_seed();
    load.log_fd = c.log_fd;
    load.ramp_ns = is_limited ? INT64_C(2000000000) : 0; /* else they come at once at first too */
    struct load_fleet *fleet = load_fleet_new(&load);
    assert_non_null(fleet);
    run(fleet, load_fleet_is_ready, NULL, "all agents stand");
    run(fleet, all_have, &wanted, "all agents have reported");
    load_fleet_figures(fleet, &before);
    (void)controller_child_halt(&c, SIGKILL);
    controller_child_launch(&c);
    load_fleet_move(fleet, c.port, c.log_fd);
    run(fleet, load_fleet_is_ready, NULL, "all agents stand again");
    wanted = load_fleet_most_acknowledged(fleet) + 1;
    run(fleet, all_have, &wanted, "all agents have reported again");
    load_fleet_drain(fleet);
    run(fleet, load_fleet_is_idle, NULL, "all reports are acknowledged");
    load_fleet_figures(fleet, &after);
    assert_int_equal(after.n_registered, before.n_registered); /* it knows them still */
    assert_int_equal(after.n_refused, 0);
    assert_true(after.n_opened >= before.n_opened + N_AGENTS);
    assert_true(!is_limited || after.n_busy > before.n_busy);
    int status = controller_child_halt(&c, SIGTERM);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    load_fleet_check(fleet, c.db, &lost, &twice);
    assert_int_equal(lost, 0);
    assert_int_equal(twice, 0);
    print_message("%" PRIu64 " reports acknowledged, %" PRIu64 " answers to come later\n",
                  after.n_acknowledged, after.n_busy);
    load_fleet_free(fleet);
    controller_child_clean(&c);
}

static void a_thousand_agents_return_at_once(void **unused) {
    (void)unused;
    come_back(NULL, 0);
}

/* Agents come from sixteen addresses, each of which may ask 40 times a second: 2,000 requests are
 * many more than that, so most are told to come later. */
static void a_limited_rate_starves_nobody(void **unused) {
    static const char *const options[] = {"--max-rate", "40", NULL};
    (void)unused;
    come_back(options, 1);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_thousand_agents_return_at_once),
    cmocka_unit_test(a_limited_rate_starves_nobody),
};
TESTING_MAIN(cases)
