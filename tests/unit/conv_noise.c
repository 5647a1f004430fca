/* Gradient noise, merge efficiency and disagreement against noisy quadratics. */
#include <math.h>
#include <string.h>

#include <dsched/convergence.h>

#include "conv_support.h"
#include "testing.h"

#define N_DIMENSIONS 16u
#define BATCH        8.0

/* n_parts gradients around `gradient`, of `part_samples` samples each, whose noise has the trace
 * `trace` per sample. */
static struct dsched_noise_part observe(const double *gradient, double trace, uint32_t n_parts,
                                        double part_samples, uint64_t *state) {
    struct dsched_noise_part part = {.n_parts = n_parts, .part_samples = part_samples};
    double deviation = sqrt(trace / N_DIMENSIONS / part_samples);
    double mean[N_DIMENSIONS] = {0};
    for (uint32_t i = 0; i < n_parts; i++) {
        for (uint32_t d = 0; d < N_DIMENSIONS; d++) {
            double g = gradient[d] + deviation * conv_normal(state);
            part.part_norm2 += g * g / n_parts;
            mean[d] += g / n_parts;
        }
    }
    for (uint32_t d = 0; d < N_DIMENSIONS; d++) {
        part.mean_norm2 += mean[d] * mean[d];
    }
    return part;
}

/* |gradient|^2 = 1, whatever the number of parts and their size in turn. */
static void estimates_are_within_10_percent(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    double gradient[N_DIMENSIONS];
    for (uint32_t d = 0; d < N_DIMENSIONS; d++) {
        gradient[d] = 1 / sqrt(N_DIMENSIONS);
    }
    for (int power = 1; power <= 4; power++) {
        double truth = pow(4, power);
        struct dsched_noise noise = {0};
        struct dsched_noise_estimate estimate;
        for (int i = 0; i < 4000; i++) {
            uint32_t n_parts = 2 + (uint32_t)testing_random_below(&state, 15);
            double samples = BATCH * (double)(1 + testing_random_below(&state, 4));
            struct dsched_noise_part part = observe(gradient, truth, n_parts, samples, &state);
            dsched_noise_add(&noise, &part, 2000);
        }
        dsched_noise_get(&noise, &estimate);
        assert_true(estimate.is_known);
        assert_true(fabs(estimate.gradient_norm2 - 1) < 0.1);
        assert_true(fabs(estimate.trace / truth - 1) < 0.1);
        assert_true(fabs(estimate.noise_samples / truth - 1) < 0.1);
        assert_true(fabs(estimate.noise_samples - truth) < 5 * estimate.error_samples);
        assert_true(estimate.error_samples < 0.1 * truth);
    }
}

/* The stated standard error is the spread of the estimate over repetitions. */
static void check_standard_error(uint32_t n_parts, double trace, uint64_t *state) {
    double gradient[N_DIMENSIONS] = {1};
    double sum = 0;
    double sum2 = 0;
    double stated2 = 0;
    const int n = 200;
    for (int round = 0; round < n; round++) {
        struct dsched_noise noise = {0};
        struct dsched_noise_estimate estimate;
        for (int i = 0; i < 300; i++) {
            struct dsched_noise_part part = observe(gradient, trace, n_parts, BATCH, state);
            dsched_noise_add(&noise, &part, 100);
        }
        dsched_noise_get(&noise, &estimate);
        assert_true(estimate.is_known);
        assert_true(estimate.n_effective > 150 && estimate.n_effective < 205);
        sum += estimate.noise_samples;
        sum2 += estimate.noise_samples * estimate.noise_samples;
        stated2 += estimate.error_samples * estimate.error_samples;
    }
    double spread = sqrt(sum2 / n - sum / n * (sum / n));
    double stated = sqrt(stated2 / n);
    assert_true(stated > 0.8 * spread && stated < 1.25 * spread);
}

/* Of few parts the two figures go against each other, and their covariance counts. */
static void the_standard_error_is_the_spread(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    check_standard_error(8, 20, &state);
    check_standard_error(2, 20, &state);
}

/* Gradients and noise fall alike a thousandfold, as they do early in training: the noise scale
 * stays where it is, and the estimate with it. Then it doubles, while the old gradients were the
 * larger ones: a plain mean would not see it for long. */
static void shrinking_gradients_keep_their_noise_scale(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    double sums[2] = {0};
    const int n = 40;
    for (int round = 0; round < n; round++) {
        struct dsched_noise noise = {0};
        struct dsched_noise_estimate estimate;
        for (int i = 0; i < 600; i++) {
            double gradient[N_DIMENSIONS] = {0};
            double norm2 = pow(10, -i / 100.0);
            gradient[i % N_DIMENSIONS] = sqrt(norm2);
            double truth = i < 300 ? 8 : 16;
            struct dsched_noise_part part = observe(gradient, truth * norm2, 4, BATCH, &state);
            dsched_noise_add(&noise, &part, 50);
            dsched_noise_get(&noise, &estimate);
            if (i == 299 || i == 599) {
                assert_true(estimate.is_known);
                sums[i / 300] += estimate.noise_samples / truth / n;
            }
        }
    }
    assert_true(fabs(sums[0] - 1) < 0.1);
    assert_true(fabs(sums[1] - 1) < 0.1);
}

/* A stream that was 0, and one single large norm, do not decide for the rest. */
static void jumps_count_for_little(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    double gradient[N_DIMENSIONS] = {1};
    struct dsched_noise noise = {0};
    struct dsched_noise_estimate estimate;
    const struct dsched_noise_part zero = {.n_parts = 4, .part_samples = BATCH};
    for (int i = 0; i < 400; i++) {
        struct dsched_noise_part part = observe(gradient, 8, 4, BATCH, &state);
        part.part_norm2 *= i == 200 ? 1e12 : 1; /* all of it noise */
        dsched_noise_add(&noise, i < 50 ? &zero : &part, 1e6);
    }
    dsched_noise_get(&noise, &estimate);
    assert_true(estimate.is_known && fabs(estimate.noise_samples / 8 - 1) < 0.5);
}

static void too_little_is_unknown(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    double gradient[N_DIMENSIONS] = {1};
    double none[N_DIMENSIONS] = {0};
    struct dsched_noise noise = {0};
    struct dsched_noise_estimate estimate;
    dsched_noise_get(&noise, &estimate);
    assert_false(estimate.is_known);
    for (int i = 0; i < 7; i++) {
        struct dsched_noise_part part = observe(gradient, 1, 4, BATCH, &state);
        dsched_noise_add(&noise, &part, 100);
    }
    dsched_noise_get(&noise, &estimate);
    assert_false(estimate.is_known);
    memset(&noise, 0, sizeof(noise));
    for (int i = 0; i < 100; i++) {
        struct dsched_noise_part part = observe(gradient, 1, 1, BATCH, &state);
        dsched_noise_add(&noise, &part, 100);
    }
    dsched_noise_get(&noise, &estimate);
    assert_false(estimate.is_known);
    assert_int_equal(noise.n_single, 100);
    int n_known = 0;
    for (int round = 0; round < 100; round++) {
        memset(&noise, 0, sizeof(noise));
        for (int i = 0; i < 50; i++) {
            struct dsched_noise_part part = observe(none, 1, 4, BATCH, &state);
            dsched_noise_add(&noise, &part, 100);
        }
        dsched_noise_get(&noise, &estimate);
        n_known += estimate.is_known;
    }
    assert_true(n_known <= 10); /* two standard errors: about 2 of 100 */
}

static void hostile_norms_are_counted_and_change_nothing(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    static const double wild[] = {NAN, INFINITY, -INFINITY, -1, 1e300, 2e100};
    double gradient[N_DIMENSIONS] = {1};
    struct dsched_noise noise = {0};
    struct dsched_noise before;
    uint64_t n_wild = 0;
    for (int i = 0; i < 100; i++) {
        struct dsched_noise_part part = observe(gradient, 5, 4, BATCH, &state);
        dsched_noise_add(&noise, &part, i % 2 ? NAN : 20);
        before = noise;
        for (size_t w = 0; w < sizeof(wild) / sizeof(wild[0]); w++) {
            struct dsched_noise_part bad[3] = {part, part, part};
            bad[0].part_norm2 = wild[w];
            bad[1].mean_norm2 = wild[w];
            bad[2].part_samples = wild[w];
            for (int b = 0; b < 3; b++) {
                dsched_noise_add(&noise, &bad[b], 20);
                n_wild++;
            }
        }
        before.n_broken = n_wild;
        assert_memory_equal(&noise, &before, sizeof(noise));
    }
    struct dsched_noise_part zero = {.n_parts = 3, .part_samples = 1};
    struct dsched_noise_estimate estimate;
    for (int i = 0; i < 100; i++) {
        dsched_noise_add(&noise, &zero, 1);
    }
    dsched_noise_get(&noise, &estimate);
    assert_true(isfinite(estimate.noise_samples) && isfinite(estimate.error_samples));
}

/* Iterations until the loss of a quadratic has fallen by 10^4 in mean logarithm, per iteration of
 * the rate. Noise follows |G|^2, so that B_noise stays; the rate is the best one for the batch. */
static double iterations_to_target(double truth, uint32_t k, struct dsched_noise *noise,
                                   uint64_t *state) {
    double w[N_DIMENSIONS];
    double batch = k * BATCH;
    double rate = 1 / (1 + truth / batch);
    double fallen = 0;
    double n = 0;
    for (uint32_t d = 0; d < N_DIMENSIONS; d++) {
        w[d] = 1;
    }
    while (fallen < log(1e4)) {
        double norm2 = 0;
        double next2 = 0;
        double expected = 0;
        for (uint32_t d = 0; d < N_DIMENSIONS; d++) {
            norm2 += w[d] * w[d];
        }
        struct dsched_noise_part part = observe(w, truth * norm2, 4, batch / 4, state);
        dsched_noise_add(noise, &part, 1e6);
        double deviation = sqrt(truth * norm2 / N_DIMENSIONS / batch);
        for (uint32_t d = 0; d < N_DIMENSIONS; d++) {
            w[d] -= rate * (w[d] + deviation * conv_normal(state));
            next2 += w[d] * w[d];
        }
        expected = log(norm2 / next2);
        fallen += expected;
        n += k;
        /* Back to a common scale: only ratios count. */
        for (uint32_t d = 0; d < N_DIMENSIONS; d++) {
            w[d] /= sqrt(next2 / N_DIMENSIONS);
        }
    }
    return n;
}

static void predicted_merge_efficiency_is_measured(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    const double truth = 30 * BATCH;
    struct dsched_noise noise = {0};
    struct dsched_noise_estimate estimate;
    double exact = 0;
    for (int round = 0; round < 40; round++) {
        exact += iterations_to_target(truth, 1, &noise, &state);
    }
    dsched_noise_get(&noise, &estimate);
    assert_true(estimate.is_known);
    for (uint32_t k = 2; k <= 4; k++) {
        struct dsched_noise other = {0};
        double merged = 0;
        for (int round = 0; round < 40; round++) {
            merged += iterations_to_target(truth, k, &other, &state);
        }
        double predicted = dsched_efficiency_merge(estimate.noise_samples, BATCH, k);
        assert_true(predicted < 0.98);
        assert_true(fabs(predicted / (exact / merged) - 1) < 0.1);
    }
}

/* rho at one merge predicts rho at another. */
static void disagreement_scales_with_merge(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    double step[N_DIMENSIONS] = {1};
    const uint32_t n_ranks = 4;
    struct dsched_disagreement seen = {0};
    struct dsched_disagreement_estimate estimate;
    dsched_disagreement_get(&seen, 1, 1, &estimate);
    assert_false(estimate.is_known);
    for (int i = 0; i < 3000; i++) {
        struct dsched_noise_part part = observe(step, 6, n_ranks, 2, &state);
        dsched_disagreement_add(&seen, part.part_norm2 * 4, part.mean_norm2 * 4, n_ranks, 2, 1e6);
    }
    double last = INFINITY;
    double last_lag = 0;
    for (uint32_t k = 1; k <= 8; k *= 2) {
        double apart = 0;
        double mean = 0;
        for (int i = 0; i < 2000; i++) {
            struct dsched_noise_part part = observe(step, 6, n_ranks, k, &state);
            apart += part.part_norm2 - part.mean_norm2;
            mean += part.mean_norm2;
        }
        dsched_disagreement_get(&seen, k, 0.5, &estimate);
        assert_true(estimate.is_known);
        assert_true(fabs(estimate.rho / sqrt(apart / mean) - 1) < 0.1);
        assert_true(estimate.rho < last && estimate.rho < estimate.unrelated_rho);
        assert_true(estimate.lag_generations > last_lag);
        last = estimate.rho;
        last_lag = estimate.lag_generations;
    }
    dsched_disagreement_add(&seen, NAN, 1, n_ranks, 1, 10);
    dsched_disagreement_add(&seen, 1, 1, n_ranks, 0, 10);
    assert_int_equal(seen.noise.n_broken, 2);
    dsched_disagreement_add(&seen, 1, 1, n_ranks + 1, 1, 10);
    assert_int_equal(seen.noise.n_used, 1);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(estimates_are_within_10_percent),
    cmocka_unit_test(the_standard_error_is_the_spread),
    cmocka_unit_test(shrinking_gradients_keep_their_noise_scale),
    cmocka_unit_test(jumps_count_for_little),
    cmocka_unit_test(too_little_is_unknown),
    cmocka_unit_test(hostile_norms_are_counted_and_change_nothing),
    cmocka_unit_test(predicted_merge_efficiency_is_measured),
    cmocka_unit_test(disagreement_scales_with_merge),
};
TESTING_MAIN(cases)
