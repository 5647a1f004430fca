/* The planner under a table of progress: what the choice promises whatever the table says. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/convergence.h>
#include <dsched/planner.h>

#include "sched_support.h"
#include "testing.h"
#include "wire/wire.h"

#define MS      INT64_C(1000000)
#define ONE_PPM 1000000u
/* Cuts that no two searches share. */
#define SLACK_PPM 3000u
/* What few offers lose to a search under the very limits that suit it: 4.4 % was seen. */
#define SEARCH_FRAC 0.06
#define MAX_BYTES   (1u << 18)

_Static_assert(DSCHED_MAX_MERGE == DSCHED_MAX_DELAY, "one loop fills both factors");

struct job {
    struct dsched_profile profile;
    struct dsched_planner_options options;
    struct dsched_progress table;
};

static struct dsched_solution *solve(const struct job *job) {
    struct dsched_error error = {.text = ""};
    struct dsched_solution *solution = calloc(1, sizeof(*solution));
    assert_non_null(solution);
    if (dsched_solve(&job->profile, &job->options, solution, &error) != DSCHED_OK) {
        fail_msg("%s", error.text);
    }
    return solution;
}

static void release(struct dsched_solution *solution) {
    dsched_solution_done(solution);
    free(solution);
}

/* What no prediction would say: rising here, falling there, and 0 now and then. */
static uint32_t random_ppm(uint64_t *seed) {
    return testing_random_below(seed, 5) == 0
               ? 0
               : 1 + (uint32_t)testing_random_below(seed, 3 * ONE_PPM / 2);
}

static void random_table(uint64_t *seed, struct dsched_progress *table) {
    for (uint32_t rule = 0; rule < DSCHED_N_RULES; rule++) {
        for (uint32_t merge = 0; merge <= DSCHED_MAX_MERGE; merge++) {
            table->merge_ppm[rule][merge] = random_ppm(seed);
        }
        for (uint32_t delay = 0; delay <= DSCHED_MAX_DELAY; delay++) {
            table->delay_ppm[rule][delay] = random_ppm(seed);
        }
    }
}

static void random_job(uint64_t *seed, struct job *out) {
    support_random(seed, 10 + (uint32_t)testing_random_below(seed, 400), &out->profile);
    dsched_planner_defaults(&out->options);
    out->options.rules = (uint32_t)testing_random_below(seed, 16);
    out->options.max_merge = 1 + (uint32_t)testing_random_below(seed, 9);
    out->options.max_delay = (uint32_t)testing_random_below(seed, 9);
    out->options.jitter_ppm = (uint32_t)testing_random_below(seed, 3) * 50000;
    out->options.progress = &out->table;
}

static void predict(const struct dsched_efficiency_inputs *inputs, struct job *job) {
    assert_int_equal(dsched_progress_predict(inputs, job->options.max_merge, job->options.max_delay,
                                             &job->table, NULL),
                     DSCHED_OK);
}

static void random_prediction(uint64_t *seed, struct job *job) {
    double edge = (double)testing_random_below(seed, 100) / 100;
    predict(
        &(struct dsched_efficiency_inputs){
            .optimizer = (enum dsched_optimizer_class)testing_random_below(seed, 3),
            .momentum = testing_random_below(seed, 2) == 0 ? 0 : 0.9,
            .batch_samples = 1000,
            .noise_samples = (double)testing_random_below(seed, 10000),
            .rate_curvature = testing_random_below(seed, 2) == 0 ? DSCHED_UNKNOWN : edge * edge,
            .measured_frac = DSCHED_UNKNOWN},
        job);
}

static double at(const uint32_t *ppm, double mean) {
    double low = floor(mean);
    double rest = mean - low;
    return ppm[(uint32_t)low] * (1 - rest) + (rest > 0 ? ppm[(uint32_t)low + 1] * rest : 0);
}

/* The progress of a plan, from its own orders. */
static double progress_of(const struct dsched_progress *table, const struct dsched_plan *plan) {
    size_t n_ops = (size_t)plan->n_generations * plan->n_buckets;
    if (plan->rule == DSCHED_EXACT) {
        return ONE_PPM;
    }
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        if (table->merge_ppm[plan->rule][plan->merge[g]] == 0) {
            return 0;
        }
    }
    for (size_t i = 0; i < n_ops; i++) {
        if (table->delay_ppm[plan->rule][plan->ops[i].delay] == 0) {
            return 0;
        }
    }
    return at(table->merge_ppm[plan->rule], (double)dsched_plan_cycle(plan) / plan->n_generations) *
           at(table->delay_ppm[plan->rule], plan->forecast.mean_delay_milli / 1e3) / 1e6;
}

/* How many are milder, or 4. */
static uint32_t class_of(enum dsched_rule rule) {
    static const enum dsched_rule by_cost[] = {DSCHED_EXACT, DSCHED_LOOKAHEAD, DSCHED_AVERAGED,
                                               DSCHED_DELAYED};
    uint32_t class = 0;
    while (class < 4 && by_cost[class] != rule) {
        class ++;
    }
    return class;
}

static int64_t least_cost(const struct dsched_solution *solution) {
    int64_t least_ns = INT64_MAX;
    for (uint32_t i = 0; i < solution->n_candidates; i++) {
        const struct dsched_candidate *item = &solution->candidates[i];
        least_ns = item->feasible && item->cost_ns < least_ns ? item->cost_ns : least_ns;
    }
    return least_ns;
}

/* Iterations of exact's progress per second. */
static double goodput(const struct dsched_candidate *item) {
    return item->margin_step_ns > 0 ? item->progress_ppm * 1e3 / (double)item->margin_step_ns : 0;
}

/* The longest step that is worth its cost. */
static int64_t fast_enough_ns(const struct dsched_solution *solution, double most_ns) {
    int64_t fast_ns = 0;
    for (uint32_t i = 0; i < solution->n_candidates; i++) {
        const struct dsched_candidate *item = &solution->candidates[i];
        if (item->feasible && (double)item->cost_ns <= most_ns && item->margin_step_ns > fast_ns) {
            fast_ns = item->margin_step_ns;
        }
    }
    return fast_ns;
}

/* One candidate against the chosen. */
static void check_candidate(const struct job *job, const struct dsched_candidate *item,
                            const struct dsched_candidate *chosen, double most_ns,
                            int64_t fast_ns) {
    if (item->rule == DSCHED_EXACT) {
        assert_int_equal(item->progress_ppm, ONE_PPM);
    } else if (job->table.merge_ppm[item->rule][item->max_merge] == 0 ||
               job->table.delay_ppm[item->rule][item->report.max_delay] == 0) {
        assert_int_equal(item->progress_ppm, 0);
    }
    if (item->progress_ppm == 0) {
        assert_true(item->cost_ns == INT64_MAX);
        assert_int_equal(item->verdict, item->feasible ? DSCHED_NO_PROGRESS : DSCHED_TOO_LARGE);
        return;
    }
    double cost_ns = (double)item->margin_step_ns * 1e6 / item->progress_ppm;
    assert_true((double)item->cost_ns >= cost_ns * (1 - 1e-12));
    assert_true((double)item->cost_ns <= cost_ns * (1 + 1e-12) + 1);
    assert_int_not_equal(item->verdict, DSCHED_NO_PROGRESS);
    if (item->feasible && (double)item->cost_ns > most_ns + 1) {
        assert_int_equal(item->verdict,
                         item->margin_step_ns <= fast_ns ? DSCHED_LESS_PROGRESS : DSCHED_SLOWER);
    } else if (item->feasible && (double)item->cost_ns <= most_ns) {
        assert_true(class_of(item->rule) >= class_of(chosen->rule));
    }
}

/* What holds under any table. */
static void check_solution(const struct job *job, const struct dsched_solution *solution) {
    const struct dsched_candidate *chosen = &solution->candidates[solution->chosen];
    double most_ns = (double)least_cost(solution) * (1 + job->options.tolerance_ppm * 1e-6);
    double frac = 1 + job->options.tolerance_ppm * 1e-6;
    /* rounded down three times, twice in a factor of up to 1.5 */
    assert_true(fabs(progress_of(&job->table, &solution->plan) - chosen->progress_ppm) < 4);
    assert_true(chosen->progress_ppm > 0);
    assert_true((double)chosen->cost_ns <= most_ns + 1);
    for (uint32_t i = 0; i < solution->n_candidates; i++) {
        const struct dsched_candidate *item = &solution->candidates[i];
        check_candidate(job, item, chosen, most_ns, fast_enough_ns(solution, most_ns));
        if (item->feasible) {
            assert_true(goodput(chosen) * frac >= goodput(item) * (1 - 1e-9));
        }
    }
}

static void the_choice_keeps_its_promises_under_any_table(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 150; i++) {
        struct job job;
        random_job(&seed, &job);
        if (testing_random_below(&seed, 2) == 0) {
            random_prediction(&seed, &job);
        } else {
            random_table(&seed, &job.table);
        }
        struct dsched_solution *solution = solve(&job);
        check_solution(&job, solution);
        release(solution);
        dsched_profile_done(&job.profile);
    }
}

/* Each merged iteration and each boundary of delay keeps this share of the progress. */
static void falling_table(double merge_frac, double delay_frac, struct dsched_progress *table) {
    double merged = 1;
    double delayed = 1;
    for (uint32_t k = 0; k <= DSCHED_MAX_MERGE; k++) {
        for (uint32_t rule = 0; rule < DSCHED_N_RULES; rule++) {
            table->merge_ppm[rule][k] = (uint32_t)(1e6 * merged);
            table->delay_ppm[rule][k] = (uint32_t)(1e6 * delayed);
        }
        merged *= k == 0 ? 1 : merge_frac;
        delayed *= delay_frac;
    }
}

/* No progress from `first` on, as beyond an edge of stability. */
static void end_delays(uint32_t first, struct dsched_progress *table) {
    for (uint32_t rule = 0; rule < DSCHED_N_RULES; rule++) {
        for (uint32_t delay = first; delay <= DSCHED_MAX_DELAY; delay++) {
            table->delay_ppm[rule][delay] = 0;
        }
    }
}

/* 1 - 0.0 to 1 - most_percent. */
static double random_share(uint64_t *seed, uint32_t most_percent) {
    return 1 - (double)testing_random_below(seed, 10 * most_percent + 1) / 1000;
}

static void equal_input_gives_equal_bytes(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 20; i++) {
        struct job job;
        random_job(&seed, &job);
        random_table(&seed, &job.table);
        struct dsched_solution *one = solve(&job);
        struct dsched_solution *two = solve(&job);
        size_t n = dsched_plan_encode(&one->plan, NULL, 0);
        uint8_t *bytes = malloc(2 * n);
        assert_non_null(bytes);
        assert_int_equal(dsched_plan_encode(&two->plan, NULL, 0), n);
        (void)dsched_plan_encode(&one->plan, bytes, n);
        (void)dsched_plan_encode(&two->plan, bytes + n, n);
        assert_memory_equal(bytes, bytes + n, n);
        assert_int_equal(one->n_candidates, two->n_candidates);
        for (uint32_t c = 0; c < one->n_candidates; c++) {
            assert_int_equal(one->candidates[c].progress_ppm, two->candidates[c].progress_ppm);
            assert_int_equal(one->candidates[c].cost_ns, two->candidates[c].cost_ns);
            assert_int_equal(one->candidates[c].verdict, two->candidates[c].verdict);
        }
        free(bytes);
        release(one);
        release(two);
        dsched_profile_done(&job.profile);
    }
}

/* Without a price the step is what counts, give or take the tolerance; more plans are tried. */
static void a_table_that_prices_nothing_costs_nothing(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 150; i++) {
        struct job job;
        random_job(&seed, &job);
        falling_table(1, 1, &job.table);
        double most = 1 + (job.options.tolerance_ppm + SLACK_PPM) * 1e-6;
        struct dsched_solution *priced = solve(&job);
        job.options.progress = NULL;
        struct dsched_solution *plain = solve(&job);
        const struct dsched_candidate *ours = &priced->candidates[priced->chosen];
        const struct dsched_candidate *theirs = &plain->candidates[plain->chosen];
        assert_int_equal(ours->cost_ns, ours->margin_step_ns);
        assert_true((double)ours->margin_step_ns <= (double)theirs->margin_step_ns * most);
        for (uint32_t c = 0; c < plain->n_candidates; c++) {
            assert_int_equal(plain->candidates[c].progress_ppm, ONE_PPM);
            assert_int_equal(plain->candidates[c].cost_ns, plain->candidates[c].margin_step_ns);
            assert_true(plain->candidates[c].verdict < DSCHED_NO_PROGRESS);
        }
        release(priced);
        release(plain);
        dsched_profile_done(&job.profile);
    }
}

/* Only one rule may merge, since a milder one may take the place of the other with more. */
static void dearer_merging_never_merges_more(void **unused) {
    uint64_t seed = testing_seed();
    int n_less = 0;
    (void)unused;
    for (int i = 0; i < 200; i++) {
        struct job job;
        uint32_t before;
        random_job(&seed, &job);
        job.options.rules &= ~DSCHED_RULE_BIT(
            testing_random_below(&seed, 2) == 0 ? DSCHED_DELAYED : DSCHED_AVERAGED);
        double merge_frac = random_share(&seed, 20);
        double delay_frac = random_share(&seed, 10);
        falling_table(merge_frac, delay_frac, &job.table);
        struct dsched_solution *solution = solve(&job);
        before = solution->candidates[solution->chosen].max_merge;
        release(solution);
        falling_table(merge_frac * random_share(&seed, 30), delay_frac, &job.table);
        solution = solve(&job);
        assert_true(solution->candidates[solution->chosen].max_merge <= before);
        n_less += solution->candidates[solution->chosen].max_merge < before;
        release(solution);
        dsched_profile_done(&job.profile);
    }
    assert_true(n_less > 0);
}

/* The best cost under tighter limits. */
static int64_t least_within(const struct job *job, enum dsched_rule rule, uint32_t max_merge,
                            uint32_t max_delay) {
    struct job less = *job;
    less.options.progress = &job->table;
    less.options.rules = job->options.rules & DSCHED_RULE_BIT(rule);
    less.options.max_merge = max_merge;
    less.options.max_delay = max_delay;
    struct dsched_solution *solution = solve(&less);
    int64_t least_ns = least_cost(solution);
    release(solution);
    return least_ns;
}

/* Whatever goodput would pick under some limit is there, or nearly, under a wider one. Links that
 * slow compute down are left out: no bound is claimed for them. */
static void what_tighter_limits_find_is_found(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 60; i++) {
        struct job job;
        random_job(&seed, &job);
        for (uint32_t l = 0; l < job.profile.n_links; l++) {
            job.profile.links[l].contention_ppm = ONE_PPM;
        }
        falling_table(random_share(&seed, 20), random_share(&seed, 20), &job.table);
        if (testing_random_below(&seed, 2) == 0) {
            end_delays(1 + (uint32_t)testing_random_below(&seed, 3), &job.table);
        }
        struct dsched_solution *solution = solve(&job);
        double most_ns = (double)least_cost(solution);
        release(solution);
        for (int k = 0; k < 12; k++) {
            enum dsched_rule rule = (enum dsched_rule)testing_random_below(&seed, DSCHED_N_RULES);
            uint32_t merge = 1 + (uint32_t)testing_random_below(&seed, job.options.max_merge);
            uint32_t delay = (uint32_t)testing_random_below(&seed, job.options.max_delay + 1);
            double least_ns = (double)least_within(&job, rule, merge, delay);
            double slack = rule == DSCHED_EXACT ? 0 : SEARCH_FRAC;
            if (most_ns > least_ns * (1 + slack)) {
                fail_msg("round %d: %s, merge %u, delay %u cost %.4f less", i,
                         dsched_rule_name(rule), merge, delay, 1 - least_ns / most_ns);
            }
        }
        dsched_profile_done(&job.profile);
    }
}

/* Where nothing else is worth its price, exact is not searched less for being slower. */
static void exact_is_as_good_as_alone(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 60; i++) {
        struct job job;
        random_job(&seed, &job);
        job.options.rules = 15;
        falling_table(0.01, 0.01, &job.table);
        struct dsched_solution *solution = solve(&job);
        assert_true(least_cost(solution) <= least_within(&job, DSCHED_EXACT, 1, 0));
        release(solution);
        dsched_profile_done(&job.profile);
    }
}

/* --- choices that are known ------------------------------------------------------------------- */

static void even_job(int64_t communication_ns, struct job *out) {
    support_even(20, 100 * MS, communication_ns, &out->profile);
    dsched_planner_defaults(&out->options);
    out->options.progress = &out->table;
}
static void assert_none_is_repeated(const struct dsched_solution *solution) {
    for (uint32_t i = 0; i < solution->n_candidates; i++) {
        for (uint32_t j = 0; j < i; j++) {
            const struct dsched_candidate *a = &solution->candidates[i];
            const struct dsched_candidate *b = &solution->candidates[j];
            assert_true(a->rule != b->rule || a->margin_step_ns != b->margin_step_ns ||
                        a->report.updates_per_step_ppm != b->report.updates_per_step_ppm ||
                        a->report.mean_delay_milli != b->report.mean_delay_milli ||
                        a->report.ops_per_step_milli != b->report.ops_per_step_milli);
        }
    }
}

/* Two iterations hide what takes 1.8 of them. Where the second one hardly counts, one iteration
 * that waits is better; late by a boundary, as long as that is cheap. */
static void a_dear_merge_is_waited_for_instead(void **unused) {
    struct job job;
    (void)unused;
    even_job(180 * MS, &job);
    falling_table(0.95, 0.99, &job.table);
    struct dsched_solution *solution = solve(&job);
    assert_int_equal(solution->plan.rule, DSCHED_AVERAGED);
    assert_int_equal(solution->candidates[solution->chosen].max_merge, 2);
    release(solution);
    falling_table(0.3, 0.99, &job.table);
    solution = solve(&job);
    assert_int_equal(solution->plan.rule, DSCHED_LOOKAHEAD);
    assert_none_is_repeated(solution);
    release(solution);
    falling_table(0.3, 0.5, &job.table);
    solution = solve(&job);
    assert_int_equal(solution->plan.rule, DSCHED_EXACT);
    release(solution);
    dsched_profile_done(&job.profile);
}

/* One boundary is cheap and two are not: what takes 1.8 iterations is waited for after the first.
 */
static void a_dear_delay_is_waited_for_instead(void **unused) {
    struct job job;
    (void)unused;
    even_job(180 * MS, &job);
    falling_table(0.99, 0.5, &job.table);
    job.table.delay_ppm[DSCHED_AVERAGED][1] = 950000;
    struct dsched_solution *solution = solve(&job);
    assert_int_equal(solution->plan.rule, DSCHED_AVERAGED);
    assert_int_equal(dsched_plan_max_delay(&solution->plan), 1);
    check_solution(&job, solution);
    release(solution);
    dsched_profile_done(&job.profile);
}

/* Merging that is late has no progress, so that what merges has to wait; nothing that is late is
 * chosen, fast as it may be. */
static void delays_without_progress_are_never_chosen(void **unused) {
    struct job job;
    uint32_t n_refused = 0;
    (void)unused;
    even_job(400 * MS, &job);
    falling_table(0.99, 0, &job.table);
    struct dsched_solution *solution = solve(&job);
    assert_int_equal(dsched_plan_max_delay(&solution->plan), 0);
    assert_int_equal(solution->plan.rule, DSCHED_AVERAGED);
    assert_int_equal(solution->plan.merge[0], job.options.max_merge);
    check_solution(&job, solution);
    for (uint32_t c = 0; c < solution->n_candidates; c++) {
        n_refused += solution->candidates[c].verdict == DSCHED_NO_PROGRESS;
    }
    assert_true(n_refused > 0);
    release(solution);
    dsched_profile_done(&job.profile);
}

/* A little merging is best where one iteration waits long and the second one hardly counts. */
static void a_mixture_of_merges_is_offered(void **unused) {
    struct job job;
    double best = 0;
    uint32_t best_updates_ppm = 0;
    (void)unused;
    even_job(180 * MS, &job);
    falling_table(0.6, 0, &job.table);
    struct dsched_solution *solution = solve(&job);
    for (uint32_t c = 0; c < solution->n_candidates; c++) {
        const struct dsched_candidate *item = &solution->candidates[c];
        if (item->rule == DSCHED_AVERAGED && goodput(item) > best) {
            best = goodput(item);
            best_updates_ppm = item->report.updates_per_step_ppm;
        }
    }
    assert_in_range(best_updates_ppm, ONE_PPM / 2 + 1, ONE_PPM - 1);
    release(solution);
    dsched_profile_done(&job.profile);
}

/* Extremes stay figures: 10^-6 of 10^-6 is too little progress to be told from none. */
static void extreme_prices_do_not_overflow(void **unused) {
    static const uint32_t extremes[] = {1, 1000, 1000000000, UINT32_MAX};
    struct job job;
    (void)unused;
    support_even(4, 3 * DSCHED_MAX_TIME_NS / 4, DSCHED_MAX_TIME_NS / 2, &job.profile);
    dsched_planner_defaults(&job.options);
    job.options.rules = 15;
    job.options.progress = &job.table;
    for (size_t m = 0; m < sizeof(extremes) / sizeof(extremes[0]); m++) {
        for (size_t d = 0; d < sizeof(extremes) / sizeof(extremes[0]); d++) {
            for (uint32_t rule = 0; rule < DSCHED_N_RULES; rule++) {
                for (uint32_t k = 0; k <= DSCHED_MAX_MERGE; k++) {
                    job.table.merge_ppm[rule][k] = extremes[m];
                    job.table.delay_ppm[rule][k] = extremes[d];
                }
            }
            struct dsched_solution *solution = solve(&job);
            assert_true(solution->candidates[solution->chosen].cost_ns > 0);
            assert_true(extremes[m] > 1000 || extremes[d] > 1000 ||
                        solution->plan.rule == DSCHED_EXACT);
            for (uint32_t c = 0; c < solution->n_candidates; c++) {
                const struct dsched_candidate *item = &solution->candidates[c];
                assert_int_equal(item->progress_ppm == 0, item->verdict == DSCHED_NO_PROGRESS);
            }
            release(solution);
        }
    }
    dsched_profile_done(&job.profile);
}

/* --- workloads -------------------------------------------------------------------------------- */

static void load(const char *path, struct dsched_profile *out) {
    static char text[MAX_BYTES];
    struct deft_error error = {0};
    FILE *file = fopen(path, "re");
    assert_non_null(file);
    size_t n = fread(text, 1, sizeof(text), file);
    (void)fclose(file);
    assert_true(n < sizeof(text));
    assert_int_equal(wire_profile_decode(text, n, out, &error), DEFT_OK);
}

/* Noisy gradients are cheap to merge, and an edge of stability is kept away from. */
static void check_workload(struct job *job) {
    struct dsched_efficiency_inputs inputs = {.optimizer = DSCHED_OPTIMIZER_SGD,
                                              .momentum = 0.9,
                                              .batch_samples = 1024,
                                              .noise_samples = 1024,
                                              .rate_curvature = DSCHED_UNKNOWN,
                                              .measured_frac = DSCHED_UNKNOWN};
    double before = 0;
    job->options.progress = &job->table;
    job->options.rules = 15;
    for (int i = 0; i < 4; i++) {
        predict(&inputs, job);
        struct dsched_solution *solution = solve(job);
        check_solution(job, solution);
        double best = 1 / (double)least_cost(solution);
        assert_true(best >= before * (1 - 1e-9));
        before = best;
        inputs.noise_samples *= 8;
        release(solution);
    }
    inputs.rate_curvature = 1.95; /* beyond averaged at any delay but 0, and lookahead */
    predict(&inputs, job);
    struct dsched_solution *solution = solve(job);
    check_solution(job, solution);
    assert_int_equal(dsched_plan_max_delay(&solution->plan), 0);
    release(solution);
}

static void workloads_keep_the_promises(void **unused) {
    static const char *const models[] = {"gpt2-124m", "resnet101", "vgg19"};
    static const uint32_t coverages[] = {60, 100, 160, 300};
    const char *shared = testing_shared_dir();
    (void)unused;
    if (shared == NULL) {
        testing_skip("DEFT_SHARED_DIR names no folder with workloads");
    }
    for (size_t i = 0; i < 12; i++) {
        struct job job;
        char path[512];
        (void)snprintf(path, sizeof(path), "%s/workloads/%s_cr%03u_l2.json", shared, models[i % 3],
                       coverages[i / 3]);
        load(path, &job.profile);
        dsched_planner_defaults(&job.options);
        check_workload(&job);
        dsched_profile_done(&job.profile);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(the_choice_keeps_its_promises_under_any_table),
    cmocka_unit_test(equal_input_gives_equal_bytes),
    cmocka_unit_test(a_table_that_prices_nothing_costs_nothing),
    cmocka_unit_test(dearer_merging_never_merges_more),
    cmocka_unit_test(what_tighter_limits_find_is_found),
    cmocka_unit_test(exact_is_as_good_as_alone),
    cmocka_unit_test(a_dear_merge_is_waited_for_instead),
    cmocka_unit_test(a_dear_delay_is_waited_for_instead),
    cmocka_unit_test(delays_without_progress_are_never_chosen),
    cmocka_unit_test(a_mixture_of_merges_is_offered),
    cmocka_unit_test(extreme_prices_do_not_overflow),
    cmocka_unit_test(workloads_keep_the_promises),
};
TESTING_MAIN(cases)
