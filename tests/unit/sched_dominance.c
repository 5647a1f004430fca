/* What must not make a planned step worse, and how plans follow the clock. All with the planner's
 * default tolerance: the choice may give that much away for milder statistics. */
#include <stdlib.h>
#include <string.h>

#include <dsched/planner.h>

#include "sched_support.h"
#include "testing.h"

#define N_ROUNDS 60

/* What a plan may lose to its tolerance, and to cuts that no two profiles share. */
#define SLACK_PPM 3000u

struct round {
    struct dsched_profile profile;
    struct dsched_planner_options options;
};

static int64_t step_ns(const struct round *round) {
    struct dsched_solution solution;
    struct dsched_error error = {.text = ""};
    int64_t ns;
    if (dsched_solve(&round->profile, &round->options, &solution, &error) != DSCHED_OK) {
        fail_msg("%s", error.text);
    }
    ns = solution.report.step_ns;
    dsched_solution_done(&solution);
    return ns;
}

static void assert_not_worse(const struct round *round, int64_t before_ns, const char *change,
                             int i) {
    int64_t after_ns = step_ns(round);
    double most = 1 + (round->options.tolerance_ppm + SLACK_PPM) * 1e-6;
    if ((double)after_ns > (double)before_ns * most) {
        fail_msg("round %d: %s made the step %.4f longer", i, change,
                 (double)after_ns / (double)before_ns - 1);
    }
}

/* Links do not slow compute down here: a link that does is not always a gain. */
static void random_round(uint64_t *seed, struct round *out) {
    support_random(seed, 20 + (uint32_t)testing_random_below(seed, 300), &out->profile);
    for (uint32_t l = 0; l < out->profile.n_links; l++) {
        out->profile.links[l].contention_ppm = 1000000;
    }
    dsched_planner_defaults(&out->options);
    out->options.rules = (uint32_t)testing_random_below(seed, 16);
    out->options.max_merge = 1 + (uint32_t)testing_random_below(seed, 5);
    out->options.max_delay = (uint32_t)testing_random_below(seed, 5);
    out->options.jitter_ppm = 0;
}

static void each_round(void (*check)(uint64_t *seed, struct round *round, int i)) {
    uint64_t seed = testing_seed();
    for (int i = 0; i < N_ROUNDS; i++) {
        struct round round;
        random_round(&seed, &round);
        check(&seed, &round, i);
        dsched_profile_done(&round.profile);
    }
}

static void check_another_link(uint64_t *seed, struct round *round, int i) {
    struct dsched_profile *profile = &round->profile;
    int64_t before_ns = step_ns(round);
    struct dsched_link *links = realloc(profile->links, (profile->n_links + 1) * sizeof(*links));
    assert_non_null(links);
    profile->links = links;
    links[profile->n_links] = links[0];
    links[profile->n_links].bytes_per_s =
        1 + (int64_t)testing_random_below(seed, 2 * (uint64_t)links[0].bytes_per_s);
    profile->n_links++;
    assert_not_worse(round, before_ns, "another link", i);
}

static void check_a_faster_link(uint64_t *seed, struct round *round, int i) {
    uint64_t l = testing_random_below(seed, round->profile.n_links);
    int64_t before_ns = step_ns(round);
    round->profile.links[l].bytes_per_s *= 1 + (int64_t)testing_random_below(seed, 4);
    assert_not_worse(round, before_ns, "a faster link", i);
}

static void check_less_latency(uint64_t *seed, struct round *round, int i) {
    uint64_t l = testing_random_below(seed, round->profile.n_links);
    int64_t before_ns = step_ns(round);
    round->profile.links[l].alpha_ns /= 1 + (int64_t)testing_random_below(seed, 9);
    assert_not_worse(round, before_ns, "less latency", i);
}

static void check_more_merging(uint64_t *seed, struct round *round, int i) {
    int64_t before_ns = step_ns(round);
    round->options.max_merge += 1 + (uint32_t)testing_random_below(seed, 12);
    assert_not_worse(round, before_ns, "more merging", i);
}

static void check_more_delay(uint64_t *seed, struct round *round, int i) {
    int64_t before_ns = step_ns(round);
    round->options.max_delay += 1 + (uint32_t)testing_random_below(seed, 12);
    assert_not_worse(round, before_ns, "more delay", i);
}

static void check_more_memory(uint64_t *seed, struct round *round, int i) {
    struct support_table owned;
    uint64_t copies = 1 + testing_random_below(seed, 8);
    uint64_t bytes;
    int64_t before_ns;
    support_table(&round->profile, &owned);
    bytes = dsched_table_bytes(&owned.table);
    support_table_done(&owned);
    round->options.max_pending_bytes = copies * bytes;
    before_ns = step_ns(round);
    round->options.max_pending_bytes = testing_random_below(seed, 3) == 0
                                           ? 0
                                           : (copies + 1 + testing_random_below(seed, 3)) * bytes;
    assert_not_worse(round, before_ns, "more memory", i);
}

static void check_more_rules(uint64_t *seed, struct round *round, int i) {
    int64_t before_ns = step_ns(round);
    round->options.rules |= (uint32_t)testing_random_below(seed, 16);
    assert_not_worse(round, before_ns, "another rule", i);
}

/* Everything slower by one factor is the same plan, that much slower. Links take whole nanoseconds
 * per byte; what little is rounded still tips searches with a limit on their labels. */
static void check_scale(uint64_t *seed, struct round *round, int i) {
    static const int64_t ns_per_byte[] = {1, 2, 4, 5, 8, 10};
    struct dsched_profile *profile = &round->profile;
    int64_t factor = testing_random_below(seed, 2) == 0 ? 2 : 5;
    int64_t before_ns;
    double ratio;
    for (uint32_t l = 0; l < profile->n_links; l++) {
        profile->links[l].bytes_per_s = 1000000000 / ns_per_byte[testing_random_below(seed, 6)];
    }
    before_ns = step_ns(round);
    for (uint32_t t = 0; t < profile->n_tensors; t++) {
        profile->tensors[t].forward_ns *= factor;
        profile->tensors[t].backward_ns *= factor;
    }
    profile->forward_ns *= factor;
    profile->backward_ns *= factor;
    profile->optimizer_ns *= factor;
    for (uint32_t l = 0; l < profile->n_links; l++) {
        profile->links[l].alpha_ns *= factor;
        profile->links[l].bytes_per_s /= factor;
    }
    ratio = (double)step_ns(round) / ((double)before_ns * (double)factor);
    if (ratio < 0.98 || ratio > 1.02) {
        fail_msg("round %d: times %lld, the step is off by a factor of %.5f", i, (long long)factor,
                 ratio);
    }
}

static void check_wfbp(uint64_t *seed, struct round *round, int i) {
    struct dsched_outcome deft;
    struct dsched_outcome wfbp;
    (void)seed;
    (void)i;
    assert_int_equal(dsched_policy_find("deft")->simulate(&round->profile, NULL, NULL, &deft, NULL),
                     DSCHED_OK);
    assert_int_equal(dsched_policy_find("wfbp")->simulate(&round->profile, NULL, NULL, &wfbp, NULL),
                     DSCHED_OK);
    assert_true(deft.report.step_ns <= wfbp.report.step_ns);
}

static void another_link_is_never_worse(void **unused) {
    (void)unused;
    each_round(check_another_link);
}
static void a_faster_link_is_never_worse(void **unused) {
    (void)unused;
    each_round(check_a_faster_link);
}
static void less_latency_is_never_worse(void **unused) {
    (void)unused;
    each_round(check_less_latency);
}
static void more_merging_is_never_worse(void **unused) {
    (void)unused;
    each_round(check_more_merging);
}
static void more_delay_is_never_worse(void **unused) {
    (void)unused;
    each_round(check_more_delay);
}
static void more_memory_is_never_worse(void **unused) {
    (void)unused;
    each_round(check_more_memory);
}
static void more_rules_are_never_worse(void **unused) {
    (void)unused;
    each_round(check_more_rules);
}
static void times_scale(void **unused) {
    (void)unused;
    each_round(check_scale);
}
static void deft_is_never_slower_than_wfbp(void **unused) {
    (void)unused;
    each_round(check_wfbp);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(another_link_is_never_worse),
    cmocka_unit_test(a_faster_link_is_never_worse),
    cmocka_unit_test(less_latency_is_never_worse),
    cmocka_unit_test(more_merging_is_never_worse),
    cmocka_unit_test(more_delay_is_never_worse),
    cmocka_unit_test(more_memory_is_never_worse),
    cmocka_unit_test(more_rules_are_never_worse),
    cmocka_unit_test(times_scale),
    cmocka_unit_test(deft_is_never_slower_than_wfbp),
};
TESTING_MAIN(cases)
