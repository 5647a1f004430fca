/* What-if changes of a profile, and the window of a simulation that a picture shows. */
#include <stdlib.h>
#include <string.h>

#include <dsched/whatif.h>
#include <dsched/window.h>

#include "sched_support.h"
#include "testing.h"

#define N_ROUNDS 50

static void must(enum dsched_status status, const struct dsched_error *error) {
    if (status != DSCHED_OK) {
        fail_msg("%s: %s", dsched_status_name(status), error->text);
    }
}

static void sample_link(struct dsched_link *link, uint64_t *state) {
    uint64_t bytes = 1 + testing_random_below(state, 4096);
    int64_t ns = 1 + (int64_t)testing_random_below(state, 100000);
    link->n_samples = 1 + (uint32_t)testing_random_below(state, 8);
    link->samples = calloc(link->n_samples, sizeof(*link->samples));
    assert_non_null(link->samples);
    for (uint32_t i = 0; i < link->n_samples; i++) {
        link->samples[i] = (struct dsched_sample){.bytes = bytes, .ns = ns};
        bytes *= 2 + testing_random_below(state, 4);
        ns += (int64_t)testing_random_below(state, 1000000);
    }
}

/* A random profile of 2..33 ranks, of which some links are measured tables. */
static void make(uint64_t *state, struct dsched_profile *out) {
    support_random(state, 50 + (uint32_t)testing_random_below(state, 250), out);
    out->world_size = 2 + (uint32_t)testing_random_below(state, 32);
    for (uint32_t l = 0; l < out->n_links; l++) {
        if (testing_random_below(state, 2) == 0) {
            sample_link(&out->links[l], state);
        }
    }
}

static const uint64_t sizes[] = {1, 4096, 1 << 20, 25 << 20, UINT64_C(1) << 30};
#define N_SIZES (sizeof(sizes) / sizeof(sizes[0]))

static void measure(const struct dsched_profile *profile, int64_t out[N_SIZES]) {
    for (size_t i = 0; i < N_SIZES; i++) {
        out[i] = dsched_link_ns(&profile->links[0], sizes[i]);
    }
}

static void the_same_world_changes_nothing(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < N_ROUNDS; round++) {
        struct dsched_profile profile;
        struct dsched_error error;
        make(&state, &profile);
        for (uint32_t l = 0; l < profile.n_links; l++) {
            struct dsched_link before = profile.links[l];
            struct dsched_sample samples[16] = {{0}};
            for (uint32_t i = 0; i < before.n_samples; i++) {
                samples[i] = before.samples[i];
            }
            must(dsched_whatif_world(&profile, profile.world_size, &error), &error);
            assert_int_equal(profile.links[l].alpha_ns, before.alpha_ns);
            assert_int_equal(profile.links[l].bytes_per_s, before.bytes_per_s);
            for (uint32_t i = 0; i < before.n_samples; i++) {
                assert_int_equal(profile.links[l].samples[i].bytes, samples[i].bytes);
                assert_int_equal(profile.links[l].samples[i].ns, samples[i].ns);
            }
        }
        dsched_profile_done(&profile);
    }
}

static void more_ranks_are_never_faster(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < N_ROUNDS; round++) {
        uint64_t seed = testing_random(&state);
        int64_t before[N_SIZES] = {0};
        for (uint32_t world = 2; world < 5000; world = world * 3 / 2 + 1) {
            uint64_t again = seed;
            struct dsched_profile profile;
            struct dsched_error error;
            int64_t now[N_SIZES];
            make(&again, &profile);
            must(dsched_whatif_world(&profile, world, &error), &error);
            assert_int_equal(profile.world_size, world);
            measure(&profile, now);
            for (size_t i = 0; i < N_SIZES; i++) {
                assert_true(now[i] >= before[i]);
                before[i] = now[i];
            }
            dsched_profile_done(&profile);
        }
    }
}

/* Two ranks to four: half as many bytes again, three times the rounds. */
static void a_ring_scales_latency_and_bandwidth_apart(void **unused) {
    (void)unused;
    struct dsched_profile profile;
    struct dsched_error error;
    struct dsched_sample samples[] = {{1000, 200}, {2000, 1200}, {4000, 3200}};
    support_profile(&profile, 1, 2);
    profile.tensors[0].elements = 1;
    profile.forward_ns = 1000;
    profile.world_size = 2;
    profile.links[0].alpha_ns = 1000;
    profile.links[0].bytes_per_s = 3000000;
    profile.links[1].n_samples = 3;
    profile.links[1].samples = malloc(sizeof(samples));
    assert_non_null(profile.links[1].samples);
    memcpy(profile.links[1].samples, samples, sizeof(samples));
    must(dsched_whatif_world(&profile, 4, &error), &error);
    assert_int_equal(profile.links[0].alpha_ns, 3000);
    assert_int_equal(profile.links[0].bytes_per_s, 2000000);
    assert_int_equal(profile.links[1].samples[0].ns, 600);
    assert_int_equal(profile.links[1].samples[1].ns, 600 + 1500);
    assert_int_equal(profile.links[1].samples[2].ns, 600 + 4500);
    dsched_profile_done(&profile);
}

static void a_world_without_a_ring_is_refused(void **unused) {
    (void)unused;
    const uint32_t worlds[] = {0, 1, DSCHED_MAX_WORLD + 1};
    struct dsched_profile profile;
    struct dsched_error error;
    support_profile(&profile, 2, 1);
    profile.tensors[0].elements = 1;
    profile.forward_ns = 1000;
    profile.world_size = 8;
    for (size_t i = 0; i < sizeof(worlds) / sizeof(worlds[0]); i++) {
        assert_int_equal(dsched_whatif_world(&profile, worlds[i], &error), DSCHED_INVALID);
        assert_non_null(strstr(error.text, "a ring has 2..1000000"));
        assert_int_equal(profile.world_size, 8);
    }
    must(dsched_whatif_world(&profile, DSCHED_MAX_WORLD, &error), &error);
    profile.world_size = 1;
    assert_int_equal(dsched_whatif_world(&profile, 4, &error), DSCHED_INVALID);
    assert_non_null(strstr(error.text, "at least 2 ranks"));
    profile.world_size = 2;
    profile.links[0].alpha_ns = DSCHED_MAX_TIME_NS / 2;
    assert_int_equal(dsched_whatif_world(&profile, 16, &error), DSCHED_INVALID);
    assert_int_equal(profile.links[0].alpha_ns, DSCHED_MAX_TIME_NS / 2);
    dsched_profile_done(&profile);
}

static void compute_scales_and_stays_consistent(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    const uint64_t factors[] = {1, 333333, 1000000, 1000001, 7654321, UINT64_C(1000000000)};
    for (int round = 0; round < N_ROUNDS; round++) {
        uint64_t seed = testing_random(&state);
        int64_t before_ns = 0;
        for (size_t i = 0; i < sizeof(factors) / sizeof(factors[0]); i++) {
            uint64_t again = seed;
            struct dsched_profile profile;
            struct dsched_error error;
            make(&again, &profile);
            int64_t compute_ns = support_compute_ns(&profile);
            int64_t first_ns = profile.tensors[0].backward_ns;
            /* The profile's own check is part of the call: tensors never sum to more. */
            must(dsched_whatif_compute(&profile, factors[i], &error), &error);
            int64_t scaled_ns = support_compute_ns(&profile);
            assert_true(scaled_ns >= before_ns);
            if (factors[i] == 1000000) {
                assert_int_equal(scaled_ns, compute_ns);
                assert_int_equal(profile.tensors[0].backward_ns, first_ns);
            }
            before_ns = scaled_ns;
            dsched_profile_done(&profile);
        }
    }
}

static void compute_beyond_the_limits_is_refused(void **unused) {
    (void)unused;
    struct dsched_profile profile;
    struct dsched_error error;
    support_even(4, 1000000, 1000000, &profile);
    int64_t before_ns = profile.backward_ns;
    assert_int_equal(dsched_whatif_compute(&profile, 0, &error), DSCHED_INVALID);
    assert_int_equal(dsched_whatif_compute(&profile, DSCHED_MAX_COMPUTE_PPM + 1, &error),
                     DSCHED_INVALID);
    must(dsched_whatif_compute(&profile, DSCHED_MAX_COMPUTE_PPM, &error), &error);
    assert_int_equal(profile.backward_ns, before_ns * 1000000);
    before_ns = profile.backward_ns;
    assert_int_equal(dsched_whatif_compute(&profile, DSCHED_MAX_COMPUTE_PPM, &error),
                     DSCHED_INVALID);
    assert_int_equal(profile.backward_ns, before_ns);
    dsched_profile_done(&profile);
}

static void a_link_is_changed_by_name_or_added(void **unused) {
    (void)unused;
    struct dsched_link link = {.name = "new", .alpha_ns = 7, .bytes_per_s = 11};
    struct dsched_profile profile;
    struct dsched_error error;
    uint64_t state = testing_seed();
    support_profile(&profile, 2, 1);
    profile.tensors[0].elements = 1;
    profile.forward_ns = 1000;
    sample_link(&profile.links[0], &state);
    profile.links[0].contention_ppm = 1250000;
    must(dsched_whatif_link(&profile, &link, &error), &error);
    assert_int_equal(profile.n_links, 2);
    assert_string_equal(profile.links[1].name, "new");
    assert_int_equal(profile.links[1].contention_ppm, 1000000);
    memcpy(link.name, profile.links[0].name, sizeof(link.name));
    must(dsched_whatif_link(&profile, &link, &error), &error);
    assert_int_equal(profile.n_links, 2);
    assert_int_equal(profile.links[0].alpha_ns, 7);
    assert_int_equal(profile.links[0].n_samples, 0);
    assert_int_equal(profile.links[0].contention_ppm, 1250000);
    link.contention_ppm = 1500000;
    must(dsched_whatif_link(&profile, &link, &error), &error);
    assert_int_equal(profile.links[0].contention_ppm, 1500000);
    link.bytes_per_s = 0;
    assert_int_equal(dsched_whatif_link(&profile, &link, &error), DSCHED_INVALID);
    assert_int_equal(profile.links[0].bytes_per_s, 11);
    dsched_profile_done(&profile);
}

static void a_ninth_link_is_refused(void **unused) {
    (void)unused;
    struct dsched_link link = {.name = "ninth", .bytes_per_s = 1};
    struct dsched_profile profile;
    struct dsched_error error;
    support_profile(&profile, 2, DSCHED_MAX_LINKS);
    profile.tensors[0].elements = 1;
    profile.forward_ns = 1000;
    assert_int_equal(dsched_whatif_link(&profile, &link, &error), DSCHED_LIMIT);
    assert_int_equal(profile.n_links, DSCHED_MAX_LINKS);
    dsched_profile_done(&profile);
}

/* --- the window ------------------------------------------------------------------------------- */

static void a_window_holds_the_last_iterations_of_a_plan(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < N_ROUNDS; round++) {
        struct dsched_profile profile;
        struct dsched_error error;
        struct dsched_window window = {0};
        struct dsched_plan plan;
        struct dsched_report report;
        struct support_table table;
        make(&state, &profile);
        support_table(&profile, &table);
        support_random_plan(&state, &table.table, DSCHED_AVERAGED, profile.n_links, &plan);
        must(dsched_simulate_plan(&profile, &plan, 0, dsched_window_add, &window, &report, &error),
             &error);
        assert_int_equal(report.cycle, dsched_plan_cycle(&plan));
        must(dsched_window_close(&window, 2 * report.cycle, report.step_ns, &error), &error);
        assert_int_equal(window.n_iterations, 2 * report.cycle);
        int64_t compute_ns = 0;
        for (uint32_t i = 0; i < window.n_spans; i++) {
            const struct dsched_span *span = &window.spans[i];
            assert_true(span->end_ns > window.begin_ns && span->begin_ns < window.end_ns);
            assert_true(i == 0 || span->begin_ns >= span[-1].begin_ns);
            if (span->lane == DSCHED_LANE_LINK) {
                const struct dsched_bucket *bucket = &plan.buckets[span->bucket];
                assert_true(span->bytes >= bucket->end - bucket->begin);
            } else {
                compute_ns += span->end_ns - span->begin_ns;
            }
        }
        /* Compute and waiting fill the window without a gap. */
        assert_int_equal(compute_ns, window.end_ns - window.begin_ns);
        dsched_window_done(&window);
        support_table_done(&table);
        dsched_plan_done(&plan);
        dsched_profile_done(&profile);
    }
}

/* Whatever a policy's cycle is: of what repeats, each iteration's share is there, no more, no less.
 */
static void a_window_is_what_repeats_for_every_policy(void **unused) {
    (void)unused;
    for (int64_t percent = 40; percent <= 280; percent += 60) {
        for (size_t p = 0; dsched_policies[p] != NULL; p++) {
            struct dsched_profile profile;
            struct dsched_error error;
            struct dsched_window window = {0};
            struct dsched_outcome outcome;
            support_even(12, 30000000, 300000 * percent, &profile);
            must(dsched_policies[p]->simulate(&profile, dsched_window_add, &window, &outcome,
                                              &error),
                 &error);
            int64_t n = 2 * (int64_t)(outcome.report.cycle > 0 ? outcome.report.cycle : 1);
            must(dsched_window_close(&window, (uint32_t)n, outcome.report.step_ns, &error), &error);
            int64_t exposed_ns = 0;
            int64_t stages_ns = 0;
            for (uint32_t i = 0; i < window.n_spans; i++) {
                const struct dsched_span *span = &window.spans[i];
                int64_t ns = span->end_ns - span->begin_ns;
                exposed_ns += span->lane == DSCHED_LANE_EXPOSED ? ns : 0;
                stages_ns += span->lane < DSCHED_LANE_EXPOSED ? ns : 0;
            }
            /* Per iteration figures are rounded up to whole nanoseconds. */
            if (exposed_ns > n * outcome.report.exposed_ns ||
                exposed_ns < n * (outcome.report.exposed_ns - 2) ||
                stages_ns != n * support_compute_ns(&profile)) {
                fail_msg("%s at %lld %%: %lld ns exposed and %lld ns of stages in %lld iterations, "
                         "of which one has %lld and %lld",
                         dsched_policies[p]->name, (long long)percent, (long long)exposed_ns,
                         (long long)stages_ns, (long long)n, (long long)outcome.report.exposed_ns,
                         (long long)support_compute_ns(&profile));
            }
            dsched_window_done(&window);
            dsched_profile_done(&profile);
        }
    }
}

static void a_window_is_bounded(void **unused) {
    (void)unused;
    struct dsched_window window = {0};
    struct dsched_error error;
    assert_int_equal(dsched_window_close(&window, 2, 1, &error), DSCHED_INVALID);
    for (uint32_t i = 0; i < DSCHED_MAX_RECORDED_SPANS + 10; i++) {
        struct dsched_span span = {.lane = i % 2 == 0 ? DSCHED_LANE_FORWARD : DSCHED_LANE_LINK,
                                   .iteration = i / 100000,
                                   .begin_ns = i,
                                   .end_ns = (int64_t)i + 1};
        dsched_window_add(&window, &span);
    }
    assert_int_equal(window.n_spans, DSCHED_MAX_RECORDED_SPANS);
    must(dsched_window_close(&window, 2, 100000, &error), &error);
    assert_int_equal(window.n_iterations, 2);
    assert_int_equal(window.n_spans, DSCHED_MAX_WINDOW_SPANS);
    assert_true(window.is_cut);
    assert_int_equal(window.end_ns, window.begin_ns + DSCHED_MAX_WINDOW_SPANS);
    dsched_window_done(&window);
    dsched_window_done(NULL);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(the_same_world_changes_nothing),
    cmocka_unit_test(more_ranks_are_never_faster),
    cmocka_unit_test(a_ring_scales_latency_and_bandwidth_apart),
    cmocka_unit_test(a_world_without_a_ring_is_refused),
    cmocka_unit_test(compute_scales_and_stays_consistent),
    cmocka_unit_test(compute_beyond_the_limits_is_refused),
    cmocka_unit_test(a_link_is_changed_by_name_or_added),
    cmocka_unit_test(a_ninth_link_is_refused),
    cmocka_unit_test(a_window_holds_the_last_iterations_of_a_plan),
    cmocka_unit_test(a_window_is_what_repeats_for_every_policy),
    cmocka_unit_test(a_window_is_bounded),
};
TESTING_MAIN(cases)
