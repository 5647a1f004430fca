/* The planner against exact answers: a MILP solver on small instances, and every legal plan on tiny
 * ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/planner.h>

#include "sched_support.h"
#include "testing.h"
#ifdef DEFT_HAVE_GLPK
#include "cut.h"
#include "sched_milp.h"
#endif

#define MAX_TINY 4u

static void solve(const struct dsched_profile *profile,
                  const struct dsched_planner_options *options, struct dsched_solution *out) {
    struct dsched_error error = {.text = ""};
    if (dsched_solve(profile, options, out, &error) != DSCHED_OK) {
        fail_msg("%s", error.text);
    }
}

/* Communication takes 0.4 to 3 times the compute time on the first link; latency is a few percent
 * of that, more for some. */
static void random_small(uint64_t *seed, uint32_t n_tensors, uint32_t n_links,
                         struct dsched_profile *out) {
    uint64_t n_bytes = 0;
    int64_t compute_ns;
    int64_t link_ns;
    support_profile(out, n_tensors, n_links);
    for (uint32_t i = 0; i < n_tensors; i++) {
        uint64_t most = testing_random_below(seed, 4) == 0 ? 4000000 : 400000;
        out->tensors[i].elements = 1000 + testing_random_below(seed, most);
        out->tensors[i].forward_ns = (int64_t)testing_random_below(seed, 1000000);
        out->tensors[i].backward_ns = 1 + (int64_t)testing_random_below(seed, 2000000);
        n_bytes += out->tensors[i].elements * 4;
    }
    support_sum(out);
    out->optimizer_ns = (int64_t)testing_random_below(seed, 300000);
    compute_ns = support_compute_ns(out);
    link_ns = compute_ns * (40 + (int64_t)testing_random_below(seed, 260)) / 100;
    for (uint32_t l = 0; l < n_links; l++) {
        out->links[l].alpha_ns = (int64_t)testing_random_below(
            seed, (uint64_t)link_ns / (testing_random_below(seed, 3) == 0 ? 5 : 50) + 1);
        out->links[l].bytes_per_s = (int64_t)(n_bytes * 1000000000 / (uint64_t)link_ns) + 1;
        link_ns += link_ns * (int64_t)testing_random_below(seed, 200) / 100;
    }
}

#ifdef DEFT_HAVE_GLPK
static double gap_frac(int64_t ns, double best_ns) {
    return (double)ns / best_ns - 1;
}

/* Exact class: the step follows from the earliest landing. */
static double gap_of_exact(const struct dsched_profile *profile) {
    struct dsched_planner_options options;
    struct dsched_solution solution;
    int64_t landing_ns = milp_landing_ns(profile);
    int64_t exposed_ns = landing_ns > profile->backward_ns ? landing_ns - profile->backward_ns : 0;
    double gap;
    dsched_planner_defaults(&options);
    options.rules = 0;
    options.jitter_ppm = 0;
    options.tolerance_ppm = 0;
    solve(profile, &options, &solution);
    gap = gap_frac(solution.report.step_ns, (double)(support_compute_ns(profile) + exposed_ns));
    dsched_solution_done(&solution);
    return gap;
}

/* With merging and delay: the step is the compute time, or what the busiest link's least work takes
 * per iteration; with time to spare, updates are as frequent as that work allows. */
static double gap_of_merged(uint64_t *seed, const struct dsched_profile *profile) {
    struct dsched_planner_options options;
    struct dsched_solution solution;
    double work_ns = (double)milp_work_ns(profile);
    double compute_ns = (double)support_compute_ns(profile);
    double least_ns;
    double gap;
    dsched_planner_defaults(&options);
    options.rules =
        DSCHED_RULE_BIT(testing_random_below(seed, 2) == 0 ? DSCHED_AVERAGED : DSCHED_DELAYED);
    options.max_merge = 1 + (uint32_t)testing_random_below(seed, 4);
    options.jitter_ppm = 0;
    options.tolerance_ppm = 0;
    solve(profile, &options, &solution);
    least_ns = work_ns / options.max_merge;
    least_ns = least_ns < compute_ns ? compute_ns : least_ns;
    gap = gap_frac(solution.report.step_ns, least_ns);
    if (work_ns <= options.max_merge * compute_ns) {
        double updates = work_ns > compute_ns ? compute_ns / work_ns : 1;
        double got = solution.report.updates_per_step_ppm / 1e6;
        if (got < updates * 0.98) {
            fail_msg("%.4f updates per step, but %.4f are possible", got, updates);
        }
    }
    dsched_solution_done(&solution);
    return gap;
}
#endif

#ifdef DEFT_HAVE_GLPK
/* What the search over whole tensors finds, and what it claims that none can beat. */
static void check_search(const struct dsched_profile *profile, enum cut_kind kind,
                         int64_t best_ns) {
    struct space space = {0};
    struct layout layout = {0};
    struct cut_goal goal = {.kind = kind, .n_labels = 32768, .known = INT64_MAX};
    int64_t bound_ns = -1;
    int64_t found_ns;
    assert_int_equal(space_init(&space, profile, NULL), DSCHED_OK);
    assert_int_equal(cut_by_search(profile, &space, &goal, &layout, &bound_ns, NULL), DSCHED_OK);
    assert_int_equal(layout_measure(&layout, profile, &space, NULL), DSCHED_OK);
    found_ns = kind == CUT_WORK ? layout.work_ns : layout.finish_ns;
    if (kind == CUT_LANDING && best_ns < profile->backward_ns) {
        best_ns = profile->backward_ns; /* finish_ns counts to the end of backward at least */
    }
    assert_in_range(found_ns, best_ns - 1, best_ns + 1); /* the solver computes in doubles */
    assert_true(bound_ns <= found_ns + 1);
    layout_done(&layout);
    space_done(&space);
}
#endif

/* The planner may split tensors, the solver may not, so on several links the planner is mostly
 * better than it. This compares like with like: the same cuts, the same optimum. */
static void search_equals_milp(void **unused) {
    (void)unused;
#ifdef DEFT_HAVE_GLPK
    uint64_t seed = testing_seed();
    for (int i = 0; i < 200; i++) {
        struct dsched_profile profile;
        uint32_t n_links = 1 + (uint32_t)testing_random_below(&seed, 3);
        uint32_t n_tensors = 2 + (uint32_t)testing_random_below(&seed, n_links == 3 ? 4 : 6);
        random_small(&seed, n_tensors, n_links, &profile);
        check_search(&profile, CUT_LANDING, milp_landing_ns(&profile));
        check_search(&profile, CUT_WORK, milp_work_ns(&profile));
        dsched_profile_done(&profile);
    }
#else
    testing_skip("GLPK (libglpk-dev) was not found");
#endif
}

static void within_half_a_percent_of_milp(void **unused) {
    (void)unused;
#ifdef DEFT_HAVE_GLPK
    enum { N_INSTANCES = 200 };
    uint64_t seed = testing_seed();
    double worst = 0;
    int n_better = 0;
    for (int i = 0; i < N_INSTANCES; i++) {
        struct dsched_profile profile;
        uint32_t n_links = 1 + (uint32_t)testing_random_below(&seed, 3);
        uint32_t n_tensors = 2 + (uint32_t)testing_random_below(&seed, n_links == 3 ? 4 : 6);
        double gaps[2];
        random_small(&seed, n_tensors, n_links, &profile);
        gaps[0] = gap_of_exact(&profile);
        gaps[1] = gap_of_merged(&seed, &profile);
        for (int k = 0; k < 2; k++) {
            worst = gaps[k] > worst ? gaps[k] : worst;
            n_better += gaps[k] < -1e-6;
            if (gaps[k] > 0.005) {
                fail_msg("instance %d (%u tensors, %u links), %s: %.4f above the optimum", i,
                         n_tensors, n_links, k == 0 ? "exact" : "merged", gaps[k]);
            }
        }
        dsched_profile_done(&profile);
    }
    (void)printf("oracle: instances=%d max_gap_frac=%.4f\n", N_INSTANCES, worst);
    (void)printf("oracle: %d of %d plans split tensors and beat the solver\n", n_better,
                 2 * N_INSTANCES);
#else
    testing_skip("GLPK (libglpk-dev) was not found");
#endif
}

/* --- every legal plan ------------------------------------------------------------------------- */

struct hunt {
    const struct dsched_profile *profile;
    const struct dsched_planner_options *options;
    struct support_table owned;
    int64_t best_ns;
};

static void try_plan(struct hunt *hunt, struct dsched_plan *plan) {
    struct dsched_report report;
    uint64_t most_bytes = hunt->options->max_pending_bytes;
    if (dsched_plan_validate(plan, &hunt->owned.table, hunt->profile->n_links, NULL) != DSCHED_OK ||
        (most_bytes > 0 && dsched_plan_pending_bytes(plan, &hunt->owned.table) > most_bytes)) {
        return;
    }
    assert_int_equal(dsched_simulate_plan(hunt->profile, plan, 0, NULL, NULL, &report, NULL),
                     DSCHED_OK);
    hunt->best_ns = report.step_ns < hunt->best_ns ? report.step_ns : hunt->best_ns;
}

/* Counts the delays of all ops through 0..max_delay, from op `i` on. */
static void try_delays(struct hunt *hunt, struct dsched_plan *plan, uint32_t i) {
    if (i == plan->n_buckets * plan->n_generations) {
        try_plan(hunt, plan);
        return;
    }
    for (uint32_t delay = 0; delay <= hunt->options->max_delay; delay++) {
        plan->ops[i].delay = (uint8_t)delay;
        try_delays(hunt, plan, i + 1);
        if (plan->rule == DSCHED_EXACT) {
            break;
        }
    }
}

static void try_links(struct hunt *hunt, struct dsched_plan *plan, uint32_t b) {
    if (b == plan->n_buckets) {
        try_delays(hunt, plan, 0);
        return;
    }
    for (uint32_t l = 0; l < hunt->profile->n_links; l++) {
        for (uint32_t g = 0; g < plan->n_generations; g++) {
            plan->ops[(size_t)g * plan->n_buckets + b].link = (uint8_t)l;
        }
        try_links(hunt, plan, b + 1);
    }
}

static void try_merges(struct hunt *hunt, enum dsched_rule rule, uint32_t cuts) {
    uint32_t max_merge =
        rule == DSCHED_AVERAGED || rule == DSCHED_DELAYED ? hunt->options->max_merge : 1;
    uint32_t n = hunt->profile->n_tensors;
    uint32_t n_buckets = 1 + (uint32_t)__builtin_popcount(cuts);
    /* one generation of each merge; and one and two taking turns, where that is quick */
    for (uint32_t k = 1; k <= max_merge + (max_merge > 1 && n_buckets == 1); k++) {
        struct dsched_plan plan;
        uint32_t n_generations = k > max_merge ? 2 : 1;
        uint64_t begin = 0;
        uint64_t end = 0;
        uint32_t b = 0;
        assert_int_equal(dsched_plan_init(&plan, n_buckets, n_generations), DSCHED_OK);
        plan.rule = rule;
        plan.n_links = hunt->profile->n_links;
        plan.merge[0] = (uint16_t)(n_generations == 2 ? 1 : k);
        plan.merge[n_generations - 1] = (uint16_t)(n_generations == 2 ? 2 : k);
        for (uint32_t t = n; t-- > 0;) {
            end += hunt->profile->tensors[t].elements;
            if (t == 0 || (2 * cuts >> t & 1u) != 0) {
                plan.buckets[b++] = (struct dsched_bucket){begin, end};
                begin = end;
            }
        }
        try_links(hunt, &plan, 0);
        dsched_plan_done(&plan);
    }
}

static void random_tiny_options(uint64_t *seed, const struct dsched_profile *profile,
                                struct dsched_planner_options *out) {
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        n_bytes += profile->tensors[i].elements * 4;
    }
    dsched_planner_defaults(out);
    out->rules = (uint32_t)testing_random_below(seed, 16);
    out->max_merge = 1 + (uint32_t)testing_random_below(seed, 3);
    out->max_delay = (uint32_t)testing_random_below(seed, profile->n_tensors < MAX_TINY ? 4 : 2);
    out->max_pending_bytes = testing_random_below(seed, 7) * n_bytes; /* 0: no limit */
    out->jitter_ppm = 0;
    out->tolerance_ppm = 0;
}

static void hunt_all(int is_contended, double most_gap_frac) {
    uint64_t seed = testing_seed();
    double worst = 0;
    for (int i = 0; i < 60; i++) {
        struct dsched_profile profile;
        struct dsched_planner_options options;
        struct dsched_solution solution;
        struct hunt hunt = {.profile = &profile, .options = &options, .best_ns = INT64_MAX};
        uint32_t n = i % 10 == 0 ? MAX_TINY : 2 + (uint32_t)testing_random_below(&seed, 2);
        double gap;
        random_small(&seed, n, 1 + (uint32_t)testing_random_below(&seed, 2), &profile);
        for (uint32_t l = 0; is_contended && l < profile.n_links; l++) {
            profile.links[l].contention_ppm += (uint32_t)testing_random_below(&seed, 500000);
        }
        random_tiny_options(&seed, &profile, &options);
        support_table(&profile, &hunt.owned);
        for (uint32_t rule = 0; rule < DSCHED_N_RULES; rule++) {
            for (uint32_t cuts = 0; cuts < 1u << (n - 1); cuts++) {
                if (rule == DSCHED_EXACT || (options.rules & DSCHED_RULE_BIT(rule)) != 0) {
                    try_merges(&hunt, (enum dsched_rule)rule, cuts);
                }
            }
        }
        solve(&profile, &options, &solution);
        gap = (double)solution.report.step_ns / (double)hunt.best_ns - 1;
        worst = gap > worst ? gap : worst;
        if (gap > most_gap_frac) {
            fail_msg(
                "profile %d (%u tensors, %u links, rules %#x, merge %u, delay %u, %llu bytes): "
                "%s takes %.4f longer than the best plan",
                i, n, profile.n_links, options.rules, options.max_merge, options.max_delay,
                (unsigned long long)options.max_pending_bytes, dsched_rule_name(solution.plan.rule),
                gap);
        }
        dsched_solution_done(&solution);
        support_table_done(&hunt.owned);
        dsched_profile_done(&profile);
    }
    (void)printf("every plan: max_gap_frac=%.4f\n", worst);
}

static void never_worse_than_any_plan_of_whole_tensors(void **unused) {
    (void)unused;
    hunt_all(0, 0.005);
}

/* When communication slows compute down, readiness depends on the plan: a heuristic only. */
static void contention_costs_a_tenth_at_most(void **unused) {
    (void)unused;
    hunt_all(1, 0.1);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(search_equals_milp),
    cmocka_unit_test(within_half_a_percent_of_milp),
    cmocka_unit_test(never_worse_than_any_plan_of_whole_tensors),
    cmocka_unit_test(contention_costs_a_tenth_at_most),
};
TESTING_MAIN(cases)
