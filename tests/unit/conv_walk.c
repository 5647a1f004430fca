/* The random walk with rebound, and what it admits. */
#include <math.h>
#include <string.h>

#include <dsched/convergence.h>

#include "conv_support.h"
#include "testing.h"

static void the_mean_is_that_of_a_folded_normal(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    const int n = 40000;
    for (int round = 0; round < 30; round++) {
        double x = 2 * conv_uniform(&state);
        double mu = 2 * conv_uniform(&state);
        double sigma = 0.05 + conv_uniform(&state);
        double sum = 0;
        for (int i = 0; i < n; i++) {
            sum += fabs(x - mu + sigma * conv_normal(&state));
        }
        assert_true(fabs(dsched_walk_mean(x, mu, sigma) - sum / n) < 5 * sigma / sqrt(n));
    }
    assert_true(dsched_walk_mean(3, 1, 0) == 2);
    assert_true(dsched_walk_mean(1, 3, 0) == 2);
    assert_true(fabs(dsched_walk_mean(1, 1, 1) - sqrt(2 / 3.14159265358979323846)) < 1e-12);
}

static double ratio(const struct dsched_walk *walk, uint32_t merge, double delay_frac) {
    double out = NAN;
    struct dsched_error error;
    assert_int_equal(dsched_walk_ratio(walk, merge, delay_frac, &out, &error), DSCHED_OK);
    return out;
}

static struct dsched_walk sample_walk(uint64_t *state) {
    return (struct dsched_walk){.excess = 3 * conv_uniform(state),
                                .drift = 0.02 * conv_uniform(state),
                                .deviation = 0.05 * conv_uniform(state),
                                .n_iterations = 1 + (uint32_t)testing_random_below(state, 500),
                                .scaling =
                                    (enum dsched_walk_scaling)testing_random_below(state, 3)};
}

static void ratios_keep_their_order(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 300; round++) {
        struct dsched_walk walk = sample_walk(&state);
        uint32_t merge = 1 + (uint32_t)testing_random_below(&state, DSCHED_MAX_MERGE);
        double last = INFINITY;
        assert_true(ratio(&walk, 1, 1) == 1);
        for (int quarters = 0; quarters <= 4; quarters++) {
            double now = ratio(&walk, merge, quarters / 4.0);
            assert_true(isfinite(now) && now >= 0);
            /* Far above 0 only drift counts: less of it leaves more loss. */
            if (walk.excess > walk.n_iterations * walk.drift + 1) {
                assert_true(now <= last * (1 + 1e-9));
            }
            last = now;
        }
    }
}

/* Without noise the walk is a straight line: sums lose nothing, means a factor k of the way. */
static void straight_lines_have_closed_ratios(void **unused) {
    (void)unused;
    for (uint32_t k = 1; k <= 8; k++) {
        struct dsched_walk walk = {.excess = 10, .drift = 0.01, .n_iterations = 841};
        double updates = ceil(841.0 / k);
        assert_true(fabs(ratio(&walk, k, 1) - (10 - updates * 0.01) / (10 - 8.41)) < 1e-6);
        assert_true(fabs(ratio(&walk, k, 0.5) - (10 - updates * 0.005) / (10 - 8.41)) < 1e-6);
        walk.scaling = DSCHED_WALK_SUM;
        assert_true(fabs(ratio(&walk, k, 1) - 1) < 1e-9);
    }
    struct dsched_walk still = {.n_iterations = 5};
    assert_true(ratio(&still, 3, 0) == 1);
}

/* One merged update from 0, without drift, is the mean of one folded normal. */
static void merging_scales_the_deviation(void **unused) {
    (void)unused;
    for (uint32_t k = 2; k <= 16; k++) {
        struct dsched_walk walk = {.deviation = 0.3, .n_iterations = k};
        const double scaled[] = {0.3 / sqrt(k), 0.3 * sqrt(k), 0.3};
        double exact = 0;
        for (uint32_t i = 0; i < k; i++) {
            exact = dsched_walk_mean(exact, 0, 0.3);
        }
        for (int scaling = DSCHED_WALK_MEAN; scaling <= DSCHED_WALK_SQRT; scaling++) {
            walk.scaling = (enum dsched_walk_scaling)scaling;
            double expected = dsched_walk_mean(0, 0, scaled[scaling]) / exact;
            assert_true(fabs(ratio(&walk, k, 1) / expected - 1) < 1e-9);
        }
    }
}

static struct dsched_admission_inputs sample_inputs(uint64_t *state) {
    struct dsched_admission_inputs in = {.walk = sample_walk(state), .max_merge = 16};
    in.efficiency = (struct dsched_efficiency_inputs){
        .rule = (enum dsched_rule)testing_random_below(state, DSCHED_N_RULES),
        .optimizer = (enum dsched_optimizer_class)testing_random_below(state, 3),
        .delay = (uint32_t)testing_random_below(state, 3),
        .momentum = 0.9 * conv_uniform(state),
        .batch_samples = 64,
        .noise_samples = 2000 * conv_uniform(state),
        .rate_curvature = 0.2 * conv_uniform(state),
        .measured_frac = DSCHED_UNKNOWN};
    in.epsilon_frac = 0.5 * conv_uniform(state);
    in.floor_frac = conv_uniform(state);
    return in;
}

/* What is admitted keeps both limits, and what follows breaks the one that is named. */
static void an_admission_names_the_limit_it_met(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    unsigned seen = 0;
    for (int round = 0; round < 1000; round++) {
        struct dsched_admission_inputs in = sample_inputs(&state);
        struct dsched_admission a;
        struct dsched_error error;
        assert_int_equal(dsched_admit_merge(&in, &a, &error), DSCHED_OK);
        assert_true(a.merge <= in.max_merge);
        assert_true(strlen(a.text) > 20);
        assert_memory_equal(&a.inputs, &in, sizeof(in));
        if (a.merge > 0) {
            assert_true(a.walk_ratio <= 1 + in.epsilon_frac);
            assert_true(a.efficiency.progress_frac >= in.floor_frac);
        }
        switch (a.reason) {
        case DSCHED_ADMIT_ALL:
            assert_int_equal(a.merge, in.max_merge);
            assert_true(a.refused_ratio == DSCHED_UNKNOWN);
            break;
        case DSCHED_ADMIT_WALK:
            assert_true(a.refused_ratio > 1 + in.epsilon_frac);
            break;
        case DSCHED_ADMIT_PROGRESS:
            assert_true(a.refused_frac < in.floor_frac && a.refused_frac > 0);
            break;
        case DSCHED_ADMIT_UNSTABLE:
            assert_true(a.refused_frac == 0);
            break;
        }
        seen |= 1u << a.reason;
        struct dsched_admission again;
        assert_int_equal(dsched_admit_merge(&in, &again, &error), DSCHED_OK);
        assert_string_equal(again.text, a.text);
    }
    assert_int_equal(seen, 15);
}

static void senseless_walks_are_refused(void **unused) {
    (void)unused;
    static const double wild[] = {NAN, INFINITY, -1, 1e200};
    double out = 42;
    struct dsched_walk good = {.excess = 1, .drift = 0.1, .deviation = 1, .n_iterations = 10};
    struct dsched_error error;
    for (size_t i = 0; i < sizeof(wild) / sizeof(wild[0]); i++) {
        struct dsched_walk bad[3] = {good, good, good};
        bad[0].excess = wild[i];
        bad[1].drift = wild[i];
        bad[2].deviation = wild[i];
        for (int b = 0; b < 3; b++) {
            assert_int_equal(dsched_walk_ratio(&bad[b], 2, 1, &out, &error), DSCHED_INVALID);
        }
        assert_int_equal(dsched_walk_ratio(&good, 2, wild[i], &out, &error), DSCHED_INVALID);
    }
    assert_int_equal(dsched_walk_ratio(&good, 0, 1, &out, &error), DSCHED_INVALID);
    assert_int_equal(dsched_walk_ratio(&good, DSCHED_MAX_MERGE + 1, 1, &out, &error),
                     DSCHED_INVALID);
    good.n_iterations = 0;
    assert_int_equal(dsched_walk_ratio(&good, 1, 1, &out, &error), DSCHED_LIMIT);
    good.n_iterations = DSCHED_MAX_WALK_ITERATIONS + 1;
    assert_int_equal(dsched_walk_ratio(&good, 1, 1, &out, NULL), DSCHED_LIMIT);
    assert_true(out == 42);
    good.n_iterations = DSCHED_MAX_WALK_ITERATIONS;
    assert_int_equal(dsched_walk_ratio(&good, 1, 1, &out, &error), DSCHED_OK);
    uint64_t state = testing_seed();
    struct dsched_admission a = {.merge = 77};
    for (int i = 0; i < 5; i++) {
        struct dsched_admission_inputs in = sample_inputs(&state);
        in.max_merge = i == 0 ? 0 : i == 1 ? DSCHED_MAX_MERGE + 1 : 4;
        in.epsilon_frac = i == 2 ? NAN : 0;
        in.floor_frac = i == 3 ? 1.5 : 0;
        in.walk.excess = i == 4 ? -INFINITY : 1;
        assert_int_equal(dsched_admit_merge(&in, &a, &error), DSCHED_INVALID);
        assert_int_equal(a.merge, 77);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(the_mean_is_that_of_a_folded_normal),
    cmocka_unit_test(ratios_keep_their_order),
    cmocka_unit_test(straight_lines_have_closed_ratios),
    cmocka_unit_test(merging_scales_the_deviation),
    cmocka_unit_test(an_admission_names_the_limit_it_met),
    cmocka_unit_test(senseless_walks_are_refused),
};
TESTING_MAIN(cases)
