/* The timeline: hand-computed steps, bounds that nothing beats, and what must not matter. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/simulate.h>

#include "sched_support.h"
#include "testing.h"

#define MS INT64_C(1000000)

static void simulate_policy(const struct dsched_profile *profile, const char *name,
                            struct dsched_report *out, enum dsched_rule *out_rule) {
    struct dsched_outcome outcome = {0};
    struct dsched_error error = {.text = ""};
    const struct dsched_policy *policy = dsched_policy_find(name);
    assert_non_null(policy);
    if (policy->simulate(profile, NULL, NULL, &outcome, &error) != DSCHED_OK) {
        fail_msg("%s: %s", name, error.text);
    }
    *out = outcome.report;
    *out_rule = outcome.rule;
}

static void simulate(const struct dsched_profile *profile, const struct dsched_plan *plan,
                     uint32_t jitter_ppm, struct dsched_report *out) {
    struct dsched_error error = {.text = ""};
    if (dsched_simulate_plan(profile, plan, jitter_ppm, NULL, NULL, out, &error) != DSCHED_OK) {
        fail_msg("%s", error.text);
    }
}

/* DDP makes two buckets: t2 (1.2 MB) and t1 with t0 (28 MB). */
static void hand_profile(struct dsched_profile *out) {
    support_profile(out, 3, 1);
    out->tensors[0].elements = 2000000;
    out->tensors[1].elements = 5000000;
    out->tensors[2].elements = 300000;
    out->tensors[0].backward_ns = 5 * MS;
    out->tensors[1].backward_ns = 20 * MS;
    out->tensors[2].backward_ns = 10 * MS;
    out->tensors[1].forward_ns = 15 * MS;
    support_sum(out);
    out->optimizer_ns = 1 * MS;
    out->links[0].alpha_ns = 1 * MS;
}

static void wfbp_matches_a_hand_computed_step(void **unused) {
    struct dsched_profile profile;
    struct dsched_report report;
    enum dsched_rule rule;
    (void)unused;
    hand_profile(&profile);
    simulate_policy(&profile, "wfbp", &report, &rule);
    /* forward 15, last bucket ready at 35 of backward, 1 + 28 on the link, optimizer 1 */
    assert_int_equal(report.step_ns, 80 * MS);
    assert_int_equal(report.exposed_ns, 29 * MS);
    assert_int_equal(report.exposed_boundary_ns, 29 * MS);
    assert_int_equal(report.exposed_forward_ns, 0);
    assert_int_equal(report.link_busy_ppm[0], 312 * 1000000 / 800);
    assert_int_equal(report.ops_per_step_milli, 2000);
    assert_int_equal(report.updates_per_step_ppm, 1000000);
    assert_int_equal(report.pending_bytes, 4 * 7300000);
    assert_int_equal(rule, DSCHED_EXACT);
    dsched_profile_done(&profile);
}

static void contention_stretches_overlapped_compute(void **unused) {
    struct dsched_profile profile;
    struct dsched_report report;
    enum dsched_rule rule;
    (void)unused;
    hand_profile(&profile);
    profile.links[0].contention_ppm = 1500000;
    simulate_policy(&profile, "wfbp", &report, &rule);
    /* 2.2 ms of overlap do the work of 2.2 / 1.5 ms: backward ends 0.7333.. ms later */
    assert_in_range(report.step_ns, 80 * MS + 733333, 80 * MS + 733336);
    assert_int_equal(report.exposed_ns, 29 * MS);
    dsched_profile_done(&profile);
}

static void serial_is_compute_plus_communication(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 100; i++) {
        struct dsched_profile profile;
        struct support_table owned;
        struct dsched_plan plan;
        struct dsched_report report;
        enum dsched_rule rule;
        int64_t link_ns = 0;
        support_random(&seed, 20 + (uint32_t)testing_random_below(&seed, 300), &profile);
        support_table(&profile, &owned);
        assert_int_equal(
            dsched_plan_ddp(&owned.table, UINT64_C(1) << 20, UINT64_C(25) << 20, &plan), DSCHED_OK);
        for (uint32_t b = 0; b < plan.n_buckets; b++) {
            /* buckets of one dtype: bytes by walking the tensors from the output side */
            uint64_t at = 0;
            uint32_t t = profile.n_tensors;
            while (at < plan.buckets[b].end) {
                at += profile.tensors[--t].elements;
            }
            link_ns +=
                dsched_link_ns(&profile.links[0], (plan.buckets[b].end - plan.buckets[b].begin) *
                                                      dsched_dtype_bytes(profile.tensors[t].dtype));
        }
        simulate_policy(&profile, "serial", &report, &rule);
        assert_int_equal(report.step_ns, support_compute_ns(&profile) + link_ns);
        assert_int_equal(report.exposed_ns, link_ns);
        dsched_plan_done(&plan);
        support_table_done(&owned);
        dsched_profile_done(&profile);
    }
}

static void no_policy_beats_the_bounds(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 60; i++) {
        struct dsched_profile profile;
        struct dsched_bounds bounds;
        struct dsched_report wfbp = {0};
        support_random(&seed, 20 + (uint32_t)testing_random_below(&seed, 300), &profile);
        assert_int_equal(dsched_bounds(&profile, &bounds, NULL), DSCHED_OK);
        assert_int_equal(bounds.deft_step_ns, support_compute_ns(&profile));
        for (uint32_t p = 0; dsched_policies[p] != NULL; p++) {
            struct dsched_report report;
            enum dsched_rule rule;
            int is_one_link = profile.n_links == 1 || strcmp(dsched_policies[p]->name, "deft") != 0;
            simulate_policy(&profile, dsched_policies[p]->name, &report, &rule);
            assert_true(report.step_ns >= bounds.deft_step_ns);
            /* S * u <= step, where u_max = T / S unless it is 1 */
            if (bounds.updates_per_step_ppm < 1000000) {
                assert_true((double)report.updates_per_step_ppm * (double)bounds.deft_step_ns <=
                            ((double)bounds.updates_per_step_ppm + 2) * (double)report.step_ns);
            }
            if (rule == DSCHED_EXACT && is_one_link) {
                assert_true(report.step_ns >= bounds.exact_step_ns);
            }
            if (strcmp(dsched_policies[p]->name, "wfbp") == 0) {
                wfbp = report;
            } else if (strcmp(dsched_policies[p]->name, "deft") == 0) {
                assert_true(report.step_ns <= wfbp.step_ns);
            }
        }
        dsched_profile_done(&profile);
    }
}

/* One link takes C = 18 ms, an iteration 10 ms. */
static void make_averaged(uint32_t merge, uint32_t delay, uint32_t n_generations,
                          const struct dsched_profile *profile, struct dsched_plan *out) {
    struct support_table owned;
    struct dsched_plan ddp;
    support_table(profile, &owned);
    assert_int_equal(dsched_plan_ddp(&owned.table, 1, 1, &ddp), DSCHED_OK);
    assert_int_equal(dsched_plan_init(out, ddp.n_buckets, n_generations), DSCHED_OK);
    memcpy(out->buckets, ddp.buckets, ddp.n_buckets * sizeof(*ddp.buckets));
    out->rule = DSCHED_AVERAGED;
    out->n_links = 1;
    for (uint32_t g = 0; g < n_generations; g++) {
        out->merge[g] = (uint16_t)merge;
        for (uint32_t b = 0; b < ddp.n_buckets; b++) {
            out->ops[(size_t)g * ddp.n_buckets + b].delay = (uint8_t)delay;
        }
    }
    dsched_plan_done(&ddp);
    support_table_done(&owned);
}

static void averaged_hides_what_fits_its_window(void **unused) {
    struct dsched_profile profile;
    struct dsched_plan plan;
    struct dsched_report report;
    int64_t compute_ns;
    int64_t link_ns = 0;
    (void)unused;
    support_even(10, 10 * MS, 18 * MS, &profile);
    compute_ns = support_compute_ns(&profile);
    link_ns = 10 * dsched_link_ns(&profile.links[0], 4 * profile.tensors[0].elements);
    make_averaged(2, 2, 1, &profile, &plan);
    simulate(&profile, &plan, 0, &report);
    assert_int_equal(report.step_ns, compute_ns);
    assert_int_equal(report.exposed_ns, 0);
    assert_int_equal(report.updates_per_step_ppm, 500000);
    assert_int_equal(report.mean_delay_milli, 2000);
    dsched_plan_done(&plan);
    make_averaged(1, 1, 1, &profile,
                  &plan); /* too much for one iteration: the link sets the step */
    simulate(&profile, &plan, 0, &report);
    assert_int_equal(report.step_ns, link_ns);
    dsched_plan_done(&plan);
    make_averaged(1, 0, 1, &profile, &plan); /* nothing overlaps */
    simulate(&profile, &plan, 0, &report);
    assert_int_equal(report.step_ns, compute_ns + link_ns);
    dsched_plan_done(&plan);
    dsched_profile_done(&profile);
}

/* A queue that grows by a hair each iteration is seen although the cycles simulated end before the
 * first wait. */
static void slow_growth_of_a_queue_is_seen(void **unused) {
    struct dsched_profile profile;
    struct dsched_plan plan;
    struct dsched_report report;
    int64_t link_ns;
    (void)unused;
    support_even(10, 10 * MS, 10 * MS + 20000, &profile);
    link_ns = 10 * dsched_link_ns(&profile.links[0], 4 * profile.tensors[0].elements);
    assert_true(link_ns > support_compute_ns(&profile));
    make_averaged(1, DSCHED_MAX_DELAY, 1, &profile, &plan);
    simulate(&profile, &plan, 0, &report);
    assert_int_equal(report.step_ns, link_ns);
    assert_int_equal(report.exposed_ns, link_ns - support_compute_ns(&profile));
    dsched_plan_done(&plan);
    dsched_profile_done(&profile);
}

/* The same cycle written twice is the same schedule. */
static void length_of_the_cycle_does_not_matter(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 60; i++) {
        struct dsched_profile profile;
        struct support_table owned;
        struct dsched_plan plan;
        struct dsched_plan twice;
        struct dsched_report once_report;
        struct dsched_report twice_report;
        support_random(&seed, 20 + (uint32_t)testing_random_below(&seed, 200), &profile);
        support_table(&profile, &owned);
        support_random_plan(&seed, &owned.table, (enum dsched_rule)testing_random_below(&seed, 4),
                            profile.n_links, &plan);
        assert_int_equal(dsched_plan_init(&twice, plan.n_buckets, 2 * plan.n_generations),
                         DSCHED_OK);
        twice.rule = plan.rule;
        twice.n_links = plan.n_links;
        memcpy(twice.buckets, plan.buckets, plan.n_buckets * sizeof(*plan.buckets));
        for (uint32_t g = 0; g < twice.n_generations; g++) {
            twice.merge[g] = plan.merge[g % plan.n_generations];
            memcpy(&twice.ops[(size_t)g * plan.n_buckets],
                   dsched_plan_op(&plan, g % plan.n_generations, 0),
                   plan.n_buckets * sizeof(*plan.ops));
        }
        simulate(&profile, &plan, 0, &once_report);
        simulate(&profile, &twice, 0, &twice_report);
        assert_true(llabs(once_report.step_ns - twice_report.step_ns) <= 1);
        assert_int_equal(once_report.mean_delay_milli, twice_report.mean_delay_milli);
        assert_int_equal(once_report.updates_per_step_ppm, twice_report.updates_per_step_ppm);
        assert_int_equal(once_report.pending_bytes, twice_report.pending_bytes);
        dsched_plan_done(&plan);
        dsched_plan_done(&twice);
        support_table_done(&owned);
        dsched_profile_done(&profile);
    }
}

static void more_jitter_is_never_faster(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 60; i++) {
        struct dsched_profile profile;
        struct support_table owned;
        struct dsched_plan plan;
        int64_t last_ns = 0;
        support_random(&seed, 20 + (uint32_t)testing_random_below(&seed, 200), &profile);
        for (uint32_t l = 0; l < profile.n_links; l++) {
            profile.links[l].contention_ppm = 1000000;
        }
        support_table(&profile, &owned);
        support_random_plan(&seed, &owned.table, (enum dsched_rule)testing_random_below(&seed, 4),
                            profile.n_links, &plan);
        for (uint32_t jitter_ppm = 0; jitter_ppm <= 1000000; jitter_ppm += 125000) {
            struct dsched_report report;
            simulate(&profile, &plan, jitter_ppm, &report);
            assert_true(report.step_ns >= last_ns);
            last_ns = report.step_ns;
        }
        dsched_plan_done(&plan);
        support_table_done(&owned);
        dsched_profile_done(&profile);
    }
}

/* --- spans ------------------------------------------------------------------------------------ */

struct lanes {
    int64_t last_begin_ns;
    int64_t compute_end_ns;
    int64_t link_end_ns[DSCHED_MAX_LINKS];
    uint64_t last_iteration;
    uint64_t n_link_spans;
};

static void check_span(void *context, const struct dsched_span *span) {
    struct lanes *lanes = context;
    assert_true(span->begin_ns >= lanes->last_begin_ns);
    assert_true(span->end_ns > span->begin_ns);
    lanes->last_begin_ns = span->begin_ns;
    if (span->lane == DSCHED_LANE_LINK) {
        assert_true(span->begin_ns >= lanes->link_end_ns[span->link]);
        lanes->link_end_ns[span->link] = span->end_ns;
        lanes->n_link_spans++;
    } else {
        /* compute and its waits leave no gap */
        assert_int_equal(span->begin_ns, lanes->compute_end_ns);
        lanes->compute_end_ns = span->end_ns;
        lanes->last_iteration = span->iteration;
    }
}

static void spans_are_ordered_and_do_not_overlap(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 60; i++) {
        struct dsched_profile profile;
        struct support_table owned;
        struct dsched_plan plan;
        struct dsched_report report;
        struct lanes lanes = {0};
        support_random(&seed, 20 + (uint32_t)testing_random_below(&seed, 200), &profile);
        support_table(&profile, &owned);
        support_random_plan(&seed, &owned.table, (enum dsched_rule)testing_random_below(&seed, 4),
                            profile.n_links, &plan);
        assert_int_equal(
            dsched_simulate_plan(&profile, &plan, 0, check_span, &lanes, &report, NULL), DSCHED_OK);
        assert_true(lanes.last_iteration + 1 >= UINT64_C(2) * dsched_plan_cycle(&plan));
        assert_true(lanes.n_link_spans >= plan.n_buckets);
        dsched_plan_done(&plan);
        support_table_done(&owned);
        dsched_profile_done(&profile);
    }
}

static void bad_input_is_refused(void **unused) {
    struct dsched_profile profile;
    struct dsched_plan plan;
    struct dsched_report report;
    struct dsched_error error;
    (void)unused;
    support_even(4, 10 * MS, 5 * MS, &profile);
    make_averaged(1, 1, 1, &profile, &plan);
    assert_int_equal(dsched_simulate_plan(&profile, &plan, 1000001, NULL, NULL, &report, &error),
                     DSCHED_INVALID);
    assert_non_null(strstr(error.text, "jitter_ppm"));
    plan.n_links = 2;
    assert_int_equal(dsched_simulate_plan(&profile, &plan, 0, NULL, NULL, &report, &error),
                     DSCHED_INVALID);
    plan.n_links = 1;
    profile.links[0].bytes_per_s = 1; /* 10^15 ns an op: the sum leaves what is allowed */
    profile.tensors[0].elements = DSCHED_MAX_ELEMENTS / 2;
    plan.buckets[3].end = plan.buckets[3].begin + DSCHED_MAX_ELEMENTS / 2;
    profile.world_size = 0;
    assert_int_equal(dsched_simulate_plan(&profile, &plan, 0, NULL, NULL, &report, &error),
                     DSCHED_INVALID);
    profile.world_size = 1;
    assert_int_equal(dsched_simulate_plan(&profile, &plan, 0, NULL, NULL, &report, &error),
                     DSCHED_OK);
    assert_true(report.step_ns >= DSCHED_MAX_TIME_NS);
    assert_null(dsched_policy_find("fastest"));
    dsched_plan_done(&plan);
    dsched_profile_done(&profile);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(wfbp_matches_a_hand_computed_step),
    cmocka_unit_test(contention_stretches_overlapped_compute),
    cmocka_unit_test(serial_is_compute_plus_communication),
    cmocka_unit_test(no_policy_beats_the_bounds),
    cmocka_unit_test(averaged_hides_what_fits_its_window),
    cmocka_unit_test(slow_growth_of_a_queue_is_seen),
    cmocka_unit_test(length_of_the_cycle_does_not_matter),
    cmocka_unit_test(more_jitter_is_never_faster),
    cmocka_unit_test(spans_are_ordered_and_do_not_overlap),
    cmocka_unit_test(bad_input_is_refused),
};
TESTING_MAIN(cases)
