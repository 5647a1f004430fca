/* The planner: what it promises about every plan, and its choices where the right one is known. */
#include <stdlib.h>
#include <string.h>

#include <dsched/planner.h>

#include "sched_support.h"
#include "testing.h"

#define MS INT64_C(1000000)

static void solve(const struct dsched_profile *profile,
                  const struct dsched_planner_options *options, struct dsched_solution *out) {
    struct dsched_error error = {.text = ""};
    if (dsched_solve(profile, options, out, &error) != DSCHED_OK) {
        fail_msg("%s", error.text);
    }
}

static void random_options(uint64_t *seed, struct dsched_planner_options *out) {
    dsched_planner_defaults(out);
    out->rules = (uint32_t)testing_random_below(seed, 16);
    out->max_merge = 1 + (uint32_t)testing_random_below(seed, 9);
    out->max_delay = (uint32_t)testing_random_below(seed, 9);
    out->jitter_ppm = (uint32_t)testing_random_below(seed, 3) * 50000;
}

static void check_limits(const struct dsched_solution *solution,
                         const struct dsched_planner_options *options) {
    const struct dsched_plan *plan = &solution->plan;
    assert_true(plan->rule == DSCHED_EXACT || (options->rules & DSCHED_RULE_BIT(plan->rule)) != 0);
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        assert_true(plan->merge[g] <= options->max_merge);
    }
    assert_true(dsched_plan_max_delay(plan) <= options->max_delay);
    assert_true(options->max_pending_bytes == 0 ||
                solution->report.pending_bytes <= options->max_pending_bytes);
}

/* Each candidate says why it lost, and only one did not. */
static void check_verdicts(const struct dsched_solution *solution) {
    int64_t best_ns = INT64_MAX;
    for (uint32_t i = 0; i < solution->n_candidates; i++) {
        const struct dsched_candidate *item = &solution->candidates[i];
        assert_int_equal(item->verdict == DSCHED_CHOSEN, i == solution->chosen);
        assert_int_equal(item->verdict == DSCHED_TOO_LARGE, !item->feasible);
        assert_non_null(dsched_verdict_name(item->verdict));
        assert_true(item->gap_ppm <= 1000000);
        best_ns = item->feasible && item->margin_step_ns < best_ns ? item->margin_step_ns : best_ns;
    }
    for (uint32_t i = 0; i < solution->n_candidates; i++) {
        const struct dsched_candidate *item = &solution->candidates[i];
        const struct dsched_candidate *chosen = &solution->candidates[solution->chosen];
        assert_true(item->verdict != DSCHED_SLOWER || item->margin_step_ns > best_ns);
        assert_true(item->verdict != DSCHED_COSTLIER || item->rule != chosen->rule);
        assert_true(item->verdict != DSCHED_FEWER_UPDATES ||
                    item->report.updates_per_step_ppm <= chosen->report.updates_per_step_ppm);
    }
    assert_null(dsched_verdict_name((enum dsched_verdict)10));
}

static void check_figures(const struct dsched_profile *profile,
                          const struct dsched_solution *solution) {
    const struct dsched_plan *plan = &solution->plan;
    const struct dsched_candidate *chosen = &solution->candidates[solution->chosen];
    struct dsched_report report;
    assert_int_equal(dsched_simulate_plan(profile, plan, 0, NULL, NULL, &report, NULL), DSCHED_OK);
    support_same_report(&report, &solution->report);
    support_same_report(&report, &chosen->report);
    assert_int_equal(chosen->rule, plan->rule);
    assert_true(chosen->feasible);
    check_verdicts(solution);
    assert_int_equal(plan->forecast.step_ns, report.step_ns);
    assert_int_equal(plan->forecast.compute_ns, support_compute_ns(profile));
    assert_int_equal(plan->forecast.pending_bytes, report.pending_bytes);
    assert_true(solution->split_ns <= solution->link_ns);
}

static void every_solution_is_valid_and_as_forecast(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 150; i++) {
        struct dsched_profile profile;
        struct support_table owned;
        struct dsched_planner_options options;
        struct dsched_solution solution;
        struct dsched_error error = {.text = ""};
        support_random(&seed, 10 + (uint32_t)testing_random_below(&seed, 400), &profile);
        support_table(&profile, &owned);
        random_options(&seed, &options);
        solve(&profile, &options, &solution);
        if (dsched_plan_validate(&solution.plan, &owned.table, profile.n_links, &error) !=
            DSCHED_OK) {
            fail_msg("%s", error.text);
        }
        check_limits(&solution, &options);
        check_figures(&profile, &solution);
        dsched_solution_done(&solution);
        support_table_done(&owned);
        dsched_profile_done(&profile);
    }
}

static void equal_input_gives_equal_bytes(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 20; i++) {
        struct dsched_profile profile;
        struct dsched_planner_options options;
        struct dsched_solution solutions[2];
        uint8_t *bytes[2];
        size_t n[2];
        support_random(&seed, 10 + (uint32_t)testing_random_below(&seed, 400), &profile);
        random_options(&seed, &options);
        for (int k = 0; k < 2; k++) {
            memset(&solutions[k], 0x55 * (k + 1), sizeof(solutions[k])); /* must not matter */
            solve(&profile, &options, &solutions[k]);
            n[k] = dsched_plan_encode(&solutions[k].plan, NULL, 0);
            bytes[k] = malloc(n[k]);
            assert_non_null(bytes[k]);
            (void)dsched_plan_encode(&solutions[k].plan, bytes[k], n[k]);
        }
        assert_int_equal(n[0], n[1]);
        assert_memory_equal(bytes[0], bytes[1], n[0]);
        for (int k = 0; k < 2; k++) {
            free(bytes[k]);
            dsched_solution_done(&solutions[k]);
        }
        dsched_profile_done(&profile);
    }
}

static void little_communication_stays_exact(void **unused) {
    struct dsched_profile profile;
    struct dsched_planner_options options;
    struct dsched_solution solution;
    (void)unused;
    support_even(20, 100 * MS, 5 * MS, &profile);
    dsched_planner_defaults(&options);
    solve(&profile, &options, &solution);
    assert_int_equal(solution.plan.rule, DSCHED_EXACT);
    assert_true(solution.report.step_ns * 100 <= support_compute_ns(&profile) * 101);
    dsched_solution_done(&solution);
    dsched_profile_done(&profile);
}

static void coverage_of_1_8_is_averaged_over_two(void **unused) {
    struct dsched_profile profile;
    struct dsched_planner_options options;
    struct dsched_solution solution;
    struct dsched_report late;
    (void)unused;
    support_even(20, 100 * MS, 180 * MS, &profile);
    dsched_planner_defaults(&options);
    solve(&profile, &options, &solution);
    assert_in_range(solution.coverage_ppm, 1799000, 1801000);
    assert_int_equal(solution.plan.rule, DSCHED_AVERAGED);
    assert_int_equal(solution.candidates[solution.chosen].max_merge, 2);
    assert_true(solution.report.step_ns * 100 <= support_compute_ns(&profile) * 101);
    assert_true(solution.report.updates_per_step_ppm >= 500000);
    /* the margin is real: with 5 % slower communication the step is the same */
    assert_int_equal(
        dsched_simulate_plan(&profile, &solution.plan, options.jitter_ppm, NULL, NULL, &late, NULL),
        DSCHED_OK);
    assert_int_equal(late.step_ns, solution.report.step_ns);
    dsched_solution_done(&solution);
    dsched_profile_done(&profile);
}

/* Most of the space is ready last, as with tied embeddings: only that is delayed. */
static void only_late_buckets_look_ahead(void **unused) {
    struct dsched_profile profile;
    struct dsched_planner_options options;
    struct dsched_solution solution;
    uint32_t n_fresh = 0;
    uint32_t n_late = 0;
    (void)unused;
    support_even(20, 100 * MS, 40 * MS, &profile);
    profile.tensors[0].elements *= 20;
    dsched_planner_defaults(&options);
    solve(&profile, &options, &solution);
    assert_int_equal(solution.plan.rule, DSCHED_LOOKAHEAD);
    assert_int_equal(solution.report.step_ns, support_compute_ns(&profile));
    for (uint32_t b = 0; b < solution.plan.n_buckets; b++) {
        n_fresh += solution.plan.ops[b].delay == 0;
        n_late += solution.plan.ops[b].delay == 1;
    }
    assert_true(n_fresh > 0);
    assert_true(n_late > 0);
    dsched_solution_done(&solution);
    dsched_profile_done(&profile);
}

static void without_merging_the_links_set_the_step(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (uint32_t n_links = 1; n_links <= 4; n_links++) {
        struct dsched_profile profile;
        struct dsched_planner_options options;
        struct dsched_solution solution;
        int64_t ideal_ns;
        support_profile(&profile, 40, n_links);
        for (uint32_t i = 0; i < 40; i++) {
            profile.tensors[i].elements = 1 + testing_random_below(&seed, 2000000);
            profile.tensors[i].forward_ns = 1 * MS;
            profile.tensors[i].backward_ns = 2 * MS;
        }
        support_sum(&profile);
        for (uint32_t l = 0; l < n_links; l++) {
            profile.links[l].bytes_per_s = 500000000 / (l + 1);
        }
        dsched_planner_defaults(&options);
        options.max_merge = 1;
        options.jitter_ppm = 0;
        solve(&profile, &options, &solution);
        ideal_ns = solution.split_ns > support_compute_ns(&profile) ? solution.split_ns
                                                                    : support_compute_ns(&profile);
        assert_true(solution.report.step_ns * 100 <= ideal_ns * 102);
        assert_true(n_links == 1 || solution.plan.n_links > 1);
        dsched_solution_done(&solution);
        dsched_profile_done(&profile);
    }
}

/* Every cut at tensor ends, tried one by one. */
static void exact_cut_equals_brute_force(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 20; i++) {
        uint32_t n = 2 + (uint32_t)testing_random_below(&seed, 7);
        struct dsched_profile profile;
        struct dsched_planner_options options;
        struct dsched_solution solution;
        int64_t best_ns = INT64_MAX;
        uint32_t n_cuts = 1;
        support_profile(&profile, n, 1);
        for (uint32_t t = 0; t < n; t++) {
            n_cuts *= t > 0 ? 2 : 1;
            profile.tensors[t].elements = 50000 + testing_random_below(&seed, 500000);
            profile.tensors[t].backward_ns = (int64_t)testing_random_below(&seed, 3000000);
        }
        support_sum(&profile);
        profile.forward_ns = 2 * MS;
        profile.links[0].alpha_ns = (int64_t)testing_random_below(&seed, 1000000);
        for (uint32_t cuts = 0; cuts < n_cuts; cuts++) {
            struct dsched_plan plan;
            struct dsched_report report;
            uint64_t begin = 0;
            uint64_t end = 0;
            uint32_t b = 0;
            assert_int_equal(dsched_plan_init(&plan, 1 + (uint32_t)__builtin_popcount(cuts), 1),
                             DSCHED_OK);
            plan.n_links = 1;
            plan.merge[0] = 1;
            for (uint32_t t = n; t-- > 0;) {
                end += profile.tensors[t].elements;
                if (t == 0 || (2 * cuts >> t & 1u) != 0) {
                    plan.buckets[b++] = (struct dsched_bucket){begin, end};
                    begin = end;
                }
            }
            assert_int_equal(dsched_simulate_plan(&profile, &plan, 0, NULL, NULL, &report, NULL),
                             DSCHED_OK);
            best_ns = report.step_ns < best_ns ? report.step_ns : best_ns;
            dsched_plan_done(&plan);
        }
        dsched_planner_defaults(&options);
        options.rules = 0;
        options.jitter_ppm = 0;
        options.tolerance_ppm = 0;
        solve(&profile, &options, &solution);
        /* a step longer by up to 0.1 % is taken when it needs fewer ops */
        assert_true(solution.report.step_ns <= best_ns + best_ns / 1000);
        dsched_solution_done(&solution);
        dsched_profile_done(&profile);
    }
}

static void memory_limit_is_kept_or_infeasible(void **unused) {
    struct dsched_profile profile;
    struct dsched_planner_options options;
    struct dsched_solution solution;
    struct dsched_error error;
    uint64_t size = UINT64_C(20) * 250000 * 4;
    (void)unused;
    support_even(20, 100 * MS, 180 * MS, &profile);
    dsched_planner_defaults(&options);
    for (uint64_t copies = 1; copies <= 6; copies++) {
        options.max_pending_bytes = copies * size;
        solve(&profile, &options, &solution);
        assert_true(solution.report.pending_bytes <= options.max_pending_bytes);
        assert_true(copies > 1 || solution.plan.rule == DSCHED_EXACT);
        dsched_solution_done(&solution);
    }
    options.max_pending_bytes = size - 1;
    assert_int_equal(dsched_solve(&profile, &options, &solution, &error), DSCHED_INFEASIBLE);
    assert_non_null(strstr(error.text, "max_pending_bytes"));
    dsched_profile_done(&profile);
}

/* Averaged over two takes five copies with its longest delays; with three, it waits for nothing
 * either, since all of a generation lands while the next one runs. */
static void less_memory_means_fewer_slots(void **unused) {
    struct dsched_profile profile;
    struct dsched_planner_options options;
    struct dsched_solution solution;
    uint64_t size = UINT64_C(20) * 250000 * 4;
    (void)unused;
    support_even(20, 100 * MS, 180 * MS, &profile);
    dsched_planner_defaults(&options);
    solve(&profile, &options, &solution);
    assert_int_equal(solution.report.pending_bytes, 5 * size);
    dsched_solution_done(&solution);
    options.max_pending_bytes = 3 * size;
    solve(&profile, &options, &solution);
    assert_int_equal(solution.plan.rule, DSCHED_AVERAGED);
    assert_int_equal(dsched_plan_slots(&solution.plan), 1);
    assert_true(solution.report.step_ns * 100 <= support_compute_ns(&profile) * 101);
    dsched_solution_done(&solution);
    dsched_profile_done(&profile);
}

static void options_are_checked(void **unused) {
    struct dsched_profile profile;
    struct dsched_planner_options options;
    struct dsched_solution solution;
    (void)unused;
    support_even(4, 100 * MS, 50 * MS, &profile);
    dsched_planner_defaults(&options);
    options.max_merge = 0;
    assert_int_equal(dsched_solve(&profile, &options, &solution, NULL), DSCHED_INVALID);
    options.max_merge = DSCHED_MAX_MERGE + 1;
    assert_int_equal(dsched_solve(&profile, &options, &solution, NULL), DSCHED_INVALID);
    options.max_merge = DSCHED_MAX_MERGE;
    options.max_delay = DSCHED_MAX_DELAY + 1;
    assert_int_equal(dsched_solve(&profile, &options, &solution, NULL), DSCHED_INVALID);
    options.max_delay = DSCHED_MAX_DELAY;
    options.rules = 16;
    assert_int_equal(dsched_solve(&profile, &options, &solution, NULL), DSCHED_INVALID);
    options.rules = 15;
    options.jitter_ppm = 1000001;
    assert_int_equal(dsched_solve(&profile, &options, &solution, NULL), DSCHED_INVALID);
    options.jitter_ppm = 1000000;
    solve(&profile, &options, &solution);
    dsched_solution_done(&solution);
    dsched_solution_done(NULL);
    dsched_profile_done(&profile);
}

/* Every dtype change forces a bucket: many are planned, too many are refused. */
static void alternating_dtypes_hit_the_limit(void **unused) {
    struct dsched_profile profile;
    struct dsched_planner_options options;
    struct dsched_solution solution;
    struct dsched_error error;
    (void)unused;
    support_profile(&profile, DSCHED_MAX_BUCKETS + 1, 2);
    for (uint32_t i = 0; i < profile.n_tensors; i++) {
        profile.tensors[i].elements = 1000;
        profile.tensors[i].dtype = i % 2 == 0 ? DSCHED_F32 : DSCHED_BF16;
        profile.tensors[i].backward_ns = 1000;
    }
    support_sum(&profile);
    dsched_planner_defaults(&options);
    assert_int_equal(dsched_solve(&profile, &options, &solution, &error), DSCHED_LIMIT);
    assert_non_null(strstr(error.text, "16385 buckets"));
    profile.n_tensors = 2000;
    solve(&profile, &options, &solution);
    assert_int_equal(solution.plan.n_buckets, 2000);
    dsched_solution_done(&solution);
    dsched_profile_done(&profile);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_solution_is_valid_and_as_forecast),
    cmocka_unit_test(equal_input_gives_equal_bytes),
    cmocka_unit_test(little_communication_stays_exact),
    cmocka_unit_test(coverage_of_1_8_is_averaged_over_two),
    cmocka_unit_test(only_late_buckets_look_ahead),
    cmocka_unit_test(without_merging_the_links_set_the_step),
    cmocka_unit_test(exact_cut_equals_brute_force),
    cmocka_unit_test(memory_limit_is_kept_or_infeasible),
    cmocka_unit_test(less_memory_means_fewer_slots),
    cmocka_unit_test(options_are_checked),
    cmocka_unit_test(alternating_dtypes_hit_the_limit),
};
TESTING_MAIN(cases)
