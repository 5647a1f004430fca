/* The peers' policies on random profiles: what their rules promise whatever the numbers. */
#include <stdlib.h>
#include <string.h>

#include <dsched/simulate.h>

#include "sched_support.h"
#include "testing.h"

#define MS          INT64_C(1000000)
#define PPM         INT64_C(1000000)
#define ONE_MESSAGE UINT64_MAX

static void run(const struct dsched_profile *profile, const struct dsched_policy *policy,
                dsched_span_fn on_span, void *context, struct dsched_outcome *out) {
    struct dsched_error error = {.text = ""};
    assert_non_null(policy);
    memset(out, 0, sizeof(*out));
    if (policy->simulate(profile, on_span, context, out, &error) != DSCHED_OK) {
        fail_msg("%s: %s", policy->name, error.text);
    }
}

static void run_by_name(const struct dsched_profile *profile, const char *name,
                        struct dsched_outcome *out) {
    run(profile, dsched_policy_find(name), NULL, NULL, out);
}

/* The first link as measured, from 4 kB to 64 MB: no straight line, and slow for small messages. */
static void measure_link(uint64_t *seed, struct dsched_profile *profile) {
    struct dsched_link *link = &profile->links[0];
    const uint32_t n = 8;
    struct dsched_sample *samples = calloc(n, sizeof(*samples));
    int64_t last_ns = 0;
    assert_non_null(samples);
    for (uint32_t i = 0; i < n; i++) {
        samples[i].bytes = UINT64_C(4096) << (2 * i);
        samples[i].ns = dsched_link_ns(link, samples[i].bytes);
        samples[i].ns += samples[i].ns * (int64_t)testing_random_below(seed, 100) / 100;
        samples[i].ns = samples[i].ns > last_ns ? samples[i].ns : last_ns;
        last_ns = samples[i].ns;
    }
    link->samples = samples;
    link->n_samples = n;
}

/* Coverage from 20 % to 320 %; compute is not slowed unless `is_contended`. */
static void random_profile(uint64_t *seed, int is_contended, struct dsched_profile *out) {
    support_random(seed, 20 + (uint32_t)testing_random_below(seed, 300), out);
    if (testing_random_below(seed, 4) == 0) {
        measure_link(seed, out);
    }
    for (uint32_t l = 0; l < out->n_links && !is_contended; l++) {
        out->links[l].contention_ppm = 1000000;
    }
}

/* What whole tensors, fused up to `limit_bytes`, take on the first link. */
static int64_t fused_ns(const struct dsched_profile *profile, uint64_t limit_bytes) {
    struct support_table owned;
    struct dsched_plan plan;
    int64_t link_ns = 0;
    uint64_t at = 0;
    uint32_t t = profile->n_tensors;
    support_table(profile, &owned);
    assert_int_equal(dsched_plan_ddp(&owned.table, limit_bytes, limit_bytes, &plan), DSCHED_OK);
    for (uint32_t b = 0; b < plan.n_buckets; b++) {
        while (at < plan.buckets[b].end) {
            at += profile->tensors[--t].elements;
        }
        link_ns +=
            dsched_link_ns(&profile->links[0], (plan.buckets[b].end - plan.buckets[b].begin) *
                                                   dsched_dtype_bytes(profile->tensors[t].dtype));
    }
    dsched_plan_done(&plan);
    support_table_done(&owned);
    return link_ns;
}

static int is_exact_peer(const struct dsched_policy *policy, const struct dsched_outcome *outcome) {
    return outcome->rule == DSCHED_EXACT && strcmp(policy->name, "deft") != 0;
}

static void every_report_adds_up(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 60; i++) {
        struct dsched_profile profile;
        struct dsched_bounds bounds;
        int64_t compute_ns;
        random_profile(&seed, i % 3 == 0, &profile);
        compute_ns = support_compute_ns(&profile);
        assert_int_equal(dsched_bounds(&profile, &bounds, NULL), DSCHED_OK);
        for (uint32_t p = 0; dsched_policies[p] != NULL; p++) {
            struct dsched_outcome outcome;
            const struct dsched_report *report = &outcome.report;
            run(&profile, dsched_policies[p], NULL, NULL, &outcome);
            assert_true(report->step_ns >= compute_ns);
            assert_int_equal(report->exposed_ns,
                             report->exposed_forward_ns + report->exposed_boundary_ns);
            if (i % 3 != 0) { /* nothing slows compute: a step is compute and waiting */
                assert_in_range(report->step_ns - report->exposed_ns, compute_ns, compute_ns + 2);
            } else {
                assert_true(report->step_ns >= compute_ns + report->exposed_ns - 2);
            }
            if (is_exact_peer(dsched_policies[p], &outcome)) {
                assert_true(report->step_ns >= bounds.exact_step_ns);
                assert_int_equal(report->updates_per_step_ppm, PPM);
                assert_int_equal(report->max_delay, 0);
            }
            assert_true((outcome.rule == DSCHED_EXACT) <= (report->max_delay == 0));
            assert_true(report->link_busy_ppm[0] <= PPM);
            assert_true(memchr(outcome.note, '\0', sizeof(outcome.note)) != NULL);
        }
        dsched_profile_done(&profile);
    }
}

/* --- spans ------------------------------------------------------------------------------------ */

struct seen {
    int64_t begin_ns; /* of the newest span */
    int64_t compute_end_ns;
    int64_t link_end_ns[DSCHED_MAX_LINKS];
    uint64_t last_iteration;
    int64_t link_ns[DSCHED_MAX_LINKS]; /* of iteration 0 */
    uint32_t n_messages;               /* of iteration 0 */
    uint64_t n_bytes;                  /* of iteration 0 */
};

static void check_span(void *context, const struct dsched_span *span) {
    struct seen *seen = context;
    assert_true(span->end_ns > span->begin_ns);
    assert_true(span->begin_ns >= seen->begin_ns);
    seen->begin_ns = span->begin_ns;
    if (span->lane != DSCHED_LANE_LINK) {
        assert_int_equal(span->begin_ns, seen->compute_end_ns);
        seen->compute_end_ns = span->end_ns;
        seen->last_iteration = span->iteration;
        return;
    }
    assert_true(span->begin_ns >= seen->link_end_ns[span->link]);
    seen->link_end_ns[span->link] = span->end_ns;
    if (span->iteration == 0) {
        seen->link_ns[span->link] += span->end_ns - span->begin_ns;
        seen->n_messages++;
        seen->n_bytes += span->bytes;
    }
}

static void equal_input_gives_equal_output(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 30; i++) {
        struct dsched_profile profile;
        random_profile(&seed, 1, &profile);
        for (uint32_t p = 0; dsched_policies[p] != NULL; p++) {
            struct dsched_outcome first;
            struct dsched_outcome second;
            struct seen seen = {0};
            run(&profile, dsched_policies[p], NULL, NULL, &first);
            run(&profile, dsched_policies[p], check_span, &seen, &second);
            support_same_report(&first.report, &second.report);
            assert_int_equal(first.rule, second.rule);
            assert_string_equal(first.note, second.note);
            assert_true(seen.last_iteration >= 2 || seen.n_messages > 0);
        }
        dsched_profile_done(&profile);
    }
}

/* Layer by layer the picture begins with a forward, and a cycle is a step. */
static void pictures_show_the_step_that_is_reported(void **unused) {
    static const char *const names[] = {"bytescheduler", "us-byte", "dear"};
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 60; i++) {
        struct dsched_profile profile;
        random_profile(&seed, 1, &profile);
        for (size_t n = 0; n < sizeof(names) / sizeof(names[0]); n++) {
            struct seen seen = {0};
            struct dsched_outcome outcome;
            run(&profile, dsched_policy_find(names[n]), check_span, &seen, &outcome);
            assert_int_equal(seen.compute_end_ns, profile.forward_ns + 2 * outcome.report.step_ns);
            assert_int_equal(1000 * seen.n_messages, outcome.report.ops_per_step_milli);
            assert_int_equal(seen.link_ns[0] * PPM / outcome.report.step_ns,
                             outcome.report.link_busy_ppm[0]);
            /* DeAR moves each gradient twice */
            assert_int_equal(seen.n_bytes, (strcmp(names[n], "dear") == 0 ? 2 : 1) *
                                               outcome.report.pending_bytes);
        }
        dsched_profile_done(&profile);
    }
}

/* --- one policy at a time --------------------------------------------------------------------- */

/* Two halves of each group make a whole all-reduce of it, to the nanosecond. */
static void halves_sum_to_an_all_reduce(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 60; i++) {
        struct dsched_profile profile;
        struct seen seen = {0};
        struct dsched_outcome outcome;
        char *end = NULL;
        uint64_t fusion_mb;
        random_profile(&seed, 0, &profile);
        run(&profile, dsched_policy_find("dear"), check_span, &seen, &outcome);
        assert_int_equal(strncmp(outcome.note, "fusion ", 7), 0);
        fusion_mb = strtoull(outcome.note + 7, &end, 10);
        assert_string_equal(end, " MB");
        assert_int_equal(seen.link_ns[0], fused_ns(&profile, fusion_mb * 1000000));
        assert_int_equal(seen.n_messages % 2, 0);
        dsched_profile_done(&profile);
    }
}

/* Each merge ends no later than its two messages would have, so groups are never slower than
 * single tensors. */
static void merged_groups_are_never_slower_than_tensors(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 200; i++) {
        struct dsched_profile profile;
        struct support_table owned;
        struct dsched_plan tensors;
        struct dsched_report report;
        struct dsched_outcome merged;
        random_profile(&seed, 0, &profile);
        support_table(&profile, &owned);
        assert_int_equal(dsched_plan_ddp(&owned.table, 1, 1, &tensors), DSCHED_OK);
        assert_int_equal(dsched_simulate_plan(&profile, &tensors, 0, NULL, NULL, &report, NULL),
                         DSCHED_OK);
        run_by_name(&profile, "mg-wfbp", &merged);
        assert_true(merged.report.step_ns <= report.step_ns);
        assert_true(merged.report.ops_per_step_milli <= report.ops_per_step_milli);
        dsched_plan_done(&tensors);
        support_table_done(&owned);
        dsched_profile_done(&profile);
    }
}

static int64_t longer(int64_t a, int64_t b) {
    return a > b ? a : b;
}

static void one_iteration_late_costs_the_longer_of_two(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 200; i++) {
        struct dsched_profile profile;
        struct support_table owned;
        struct dsched_outcome outcome;
        random_profile(&seed, 0, &profile);
        support_table(&profile, &owned);
        run_by_name(&profile, "pipesgd", &outcome);
        assert_int_equal(outcome.report.step_ns,
                         longer(support_compute_ns(&profile), fused_ns(&profile, ONE_MESSAGE)));
        assert_int_equal(outcome.report.mean_delay_milli, 1000);
        assert_int_equal(outcome.report.max_delay, 1);
        assert_int_equal(outcome.report.updates_per_step_ppm, PPM);
        assert_int_equal(outcome.report.pending_bytes, 2 * dsched_table_bytes(&owned.table));
        assert_int_equal(outcome.rule, DSCHED_DELAYED);
        support_table_done(&owned);
        dsched_profile_done(&profile);
    }
}

/* Being late for everything is allowed, so the step is that of the best fusion tried, up to the
 * tenth of a percent that no gradient is late for. */
static void partial_staleness_is_as_fast_as_full(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 100; i++) {
        struct dsched_profile profile;
        struct support_table owned;
        struct dsched_outcome outcome;
        int64_t least_ns;
        random_profile(&seed, 0, &profile);
        support_table(&profile, &owned);
        run_by_name(&profile, "sapipe", &outcome);
        least_ns = longer(support_compute_ns(&profile), fused_ns(&profile, UINT64_C(128) << 20));
        assert_true(outcome.report.step_ns <= least_ns + least_ns / 1000 + 1);
        assert_true(outcome.report.max_delay <= 1);
        assert_true(outcome.report.mean_delay_milli <= 1000);
        assert_int_equal(outcome.rule,
                         outcome.report.max_delay == 0 ? DSCHED_EXACT : DSCHED_DELAYED);
        assert_int_equal(outcome.report.pending_bytes,
                         (1 + outcome.report.max_delay) * dsched_table_bytes(&owned.table));
        support_table_done(&owned);
        dsched_profile_done(&profile);
    }
}

/* One link packs an iteration's worth per iteration, so as many are merged as its work takes; with
 * several links greed may waste some, but never more than the first link alone needs. */
static void merging_hides_everything(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 200; i++) {
        struct dsched_profile profile;
        struct support_table owned;
        struct dsched_outcome serial;
        struct dsched_outcome outcome;
        int64_t compute_ns;
        int64_t most;
        random_profile(&seed, 0, &profile);
        compute_ns = support_compute_ns(&profile);
        run_by_name(&profile, "serial", &serial); /* DDP's buckets, all of them exposed */
        most = (serial.report.exposed_ns + compute_ns - 1) / compute_ns;
        support_table(&profile, &owned);
        run_by_name(&profile, "deft-paper", &outcome);
        assert_true(outcome.report.max_delay >= 1);
        assert_true(outcome.report.max_delay <= most);
        if (profile.n_links == 1) {
            assert_int_equal(outcome.report.max_delay, most);
        }
        assert_int_equal(outcome.report.step_ns, compute_ns);
        assert_int_equal(outcome.report.exposed_ns, 0);
        assert_int_equal(outcome.report.mean_delay_milli, 1000 * outcome.report.max_delay);
        assert_in_range(outcome.report.updates_per_step_ppm * outcome.report.max_delay,
                        PPM - outcome.report.max_delay, PPM);
        assert_int_equal(outcome.report.pending_bytes, 2 * dsched_table_bytes(&owned.table));
        assert_int_equal(outcome.rule, DSCHED_DELAYED);
        support_table_done(&owned);
        dsched_profile_done(&profile);
    }
}

/* Layers of many parts on a link without latency: the smallest partition, one part at a time, is
 * all that ByteScheduler can hope for. */
static void us_byte_ties_ideal_bytescheduler(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 60; i++) {
        struct dsched_profile profile;
        struct dsched_outcome us_byte;
        struct dsched_outcome bytescheduler;
        support_profile(&profile, 2 + (uint32_t)testing_random_below(&seed, 20), 1);
        profile.links[0].alpha_ns = 0;
        profile.links[0].bytes_per_s = 1 + (int64_t)testing_random_below(&seed, 10000000000);
        for (uint32_t t = 0; t < profile.n_tensors; t++) {
            profile.tensors[t].elements = 20000000 + testing_random_below(&seed, 100000000);
            profile.tensors[t].forward_ns = (int64_t)testing_random_below(&seed, 300 * MS);
            profile.tensors[t].backward_ns = 2 * profile.tensors[t].forward_ns + 1;
        }
        support_sum(&profile);
        run_by_name(&profile, "us-byte", &us_byte);
        run_by_name(&profile, "bytescheduler", &bytescheduler);
        assert_true(us_byte.report.step_ns <=
                    bytescheduler.report.step_ns + bytescheduler.report.step_ns / 100);
        dsched_profile_done(&profile);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_report_adds_up),
    cmocka_unit_test(equal_input_gives_equal_output),
    cmocka_unit_test(pictures_show_the_step_that_is_reported),
    cmocka_unit_test(halves_sum_to_an_all_reduce),
    cmocka_unit_test(merged_groups_are_never_slower_than_tensors),
    cmocka_unit_test(one_iteration_late_costs_the_longer_of_two),
    cmocka_unit_test(partial_staleness_is_as_fast_as_full),
    cmocka_unit_test(merging_hides_everything),
    cmocka_unit_test(us_byte_ties_ideal_bytescheduler),
};
TESTING_MAIN(cases)
