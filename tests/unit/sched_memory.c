/* Every allocation of the scheduling library fails once, one after the other: the call says so, has
 * written nothing, and leaks nothing (the sanitizers watch). */
#include <stdlib.h>
#include <string.h>

#include <dsched/planner.h>
#include <dsched/whatif.h>
#include <dsched/window.h>

#include "sched_support.h"
#include "testing.h"

/* The linker sends the library's calls here (--wrap). */
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);

static uint64_t countdown; /* the allocation that fails; 0: none */

static int is_failing(void) {
    return countdown > 0 && --countdown == 0;
}

void *__wrap_calloc(size_t n, size_t size) {
    return is_failing() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size) {
    return is_failing() ? NULL : __real_realloc(old, size);
}

/* Runs `call` with the 1st, 2nd, ... allocation failing until one run needs fewer. */
static void torture(enum dsched_status (*call)(const struct dsched_profile *profile,
                                               struct dsched_error *error),
                    const struct dsched_profile *profile) {
    uint64_t n = 0;
    enum dsched_status status;
    do {
        struct dsched_error error = {.text = ""};
        countdown = ++n;
        status = call(profile, &error);
        if (countdown > 0) {
            assert_int_equal(status, DSCHED_OK); /* not one allocation failed */
        } else {
            assert_int_equal(status, DSCHED_NO_MEMORY);
            assert_true(strlen(error.text) > 0);
        }
    } while (countdown == 0);
    countdown = 0;
    assert_true(n > 5);
}

static enum dsched_status call_solve(const struct dsched_profile *profile,
                                     struct dsched_error *error) {
    struct dsched_planner_options options;
    struct dsched_solution solution;
    enum dsched_status status;
    memset(&solution, 0x55, sizeof(solution));
    dsched_planner_defaults(&options);
    options.max_merge = 1;
    status = dsched_solve(profile, &options, &solution, error);
    if (status == DSCHED_OK) {
        dsched_solution_done(&solution);
    } else {
        assert_int_equal(solution.n_candidates, 0x55555555);
    }
    return status;
}

static void count_span(void *context, const struct dsched_span *span) {
    (void)span;
    ++*(uint64_t *)context;
}

static enum dsched_status call_policies(const struct dsched_profile *profile,
                                        struct dsched_error *error) {
    enum dsched_status status = DSCHED_OK;
    for (uint32_t p = 0; status == DSCHED_OK && dsched_policies[p] != NULL; p++) {
        struct dsched_outcome outcome = {.report.step_ns = -1};
        uint64_t n_spans = 0;
        status = dsched_policies[p]->simulate(profile, count_span, &n_spans, &outcome, error);
        assert_true((status == DSCHED_OK) == (outcome.report.step_ns != -1));
        assert_true((status == DSCHED_OK) == (n_spans > 0));
    }
    return status;
}

/* A changed profile of its own, and a picture of it. */
static enum dsched_status call_whatif(const struct dsched_profile *unused,
                                      struct dsched_error *error) {
    const struct dsched_link link = {.name = "added", .alpha_ns = 1000, .bytes_per_s = 1000000000};
    uint64_t saved = countdown;
    struct dsched_profile profile;
    struct dsched_window window = {0};
    struct dsched_outcome outcome;
    (void)unused;
    countdown = 0;
    support_even(6, 3000000, 2000000, &profile);
    profile.world_size = 4;
    countdown = saved;
    enum dsched_status status = dsched_whatif_world(&profile, 8, error);
    if (status == DSCHED_OK) {
        status = dsched_whatif_link(&profile, &link, error);
        assert_int_equal(profile.n_links, status == DSCHED_OK ? 2 : 1);
    }
    if (status == DSCHED_OK) {
        status = dsched_whatif_compute(&profile, 500000, error);
    }
    if (status == DSCHED_OK) {
        status = dsched_policy_find("wfbp")->simulate(&profile, dsched_window_add, &window,
                                                      &outcome, error);
    }
    if (status == DSCHED_OK) {
        status = dsched_window_close(&window, 2, outcome.report.step_ns, error);
    }
    dsched_window_done(&window);
    dsched_profile_done(&profile);
    return status;
}

static void any_allocation_may_fail(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    struct dsched_profile profile = {0};
    do { /* small: the time grows with the square of the number of allocations */
        dsched_profile_done(&profile);
        support_random(&seed, 150, &profile);
    } while (profile.n_links != 2 || profile.n_tensors > 8);
    torture(call_solve, &profile);
    torture(call_policies, &profile);
    torture(call_whatif, &profile);
    dsched_profile_done(&profile);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(any_allocation_may_fail),
};
TESTING_MAIN(cases)
