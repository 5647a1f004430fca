/* What a job's gradients and losses say, and what plans may cost therefore. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "testing.h"
#include "tuning/quantify.h"

#define N_RANKS 4u
#define BATCH   256u

static uint64_t seed;

static double uniform(void) {
    return ((double)testing_random_below(&seed, 1u << 30) + 0.5) / (double)(1u << 30);
}

static double normal(void) {
    return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static void start(struct quantify *quantify) {
    const struct quantify_job job = {.n_ranks = N_RANKS,
                                     .optimizer = DSCHED_OPTIMIZER_SGD,
                                     .momentum = 0.9,
                                     .learning_rate = 0.05,
                                     .batch_samples = (uint64_t)N_RANKS * BATCH};
    struct wire_limits limits;
    quantify_default_limits(&limits);
    limits.max_merge = 8;
    quantify_init(quantify, &job, &limits);
    seed = testing_seed();
}

/* Gradients of `n` elements whose mean has the square norm `g2`, with noise of trace `trace` per
 * sample. */
static struct quantify_sample sample_of(uint64_t iteration, double g2, double trace) {
    enum { N = 40 };
    double mean[N] = {0};
    double q = 0;
    double deviation = sqrt(trace / BATCH / N);
    struct quantify_sample sample = {.iteration = iteration,
                                     .is_exact = 1,
                                     .merge = 1,
                                     .loss_given = DSCHED_LOSS_GIVEN,
                                     .change_sq_local = (double)NAN,
                                     .learning_rate = 0.05};
    for (uint32_t r = 0; r < N_RANKS; r++) {
        for (int i = 0; i < N; i++) {
            double g = sqrt(g2 / N) + deviation * normal();
            mean[i] += g / N_RANKS;
            q += g * g / N_RANKS;
        }
    }
    for (int i = 0; i < N; i++) {
        sample.grad_sq_mean += mean[i] * mean[i];
    }
    sample.grad_sq_local = q;
    return sample;
}

static void feed(struct quantify *quantify, int n, double trace, double slope) {
    for (int i = 0; i < n; i++) {
        struct quantify_sample sample = sample_of((uint64_t)i, 1, trace);
        sample.loss = 2 + slope * i + 0.02 * normal();
        quantify_add(quantify, &sample);
    }
}

static void the_noise_scale_is_found(void **unused) {
    (void)unused;
    for (unsigned scale = 100; scale <= 10000; scale *= 10) {
        double noise = scale;
        struct quantify quantify;
        struct dsched_noise_estimate estimate;
        double sum = 0;
        for (int run = 0; run < 10; run++) {
            start(&quantify);
            seed += (uint64_t)run * 7919;
            feed(&quantify, 200, noise, 0);
            quantify_noise(&quantify, &estimate);
            assert_true(estimate.is_known);
            sum += estimate.noise_samples / 10;
        }
        if (fabs(sum / noise - 1) > 0.1) {
            fail_msg("the noise scale is %g, found was %g", noise, sum);
        }
    }
}

/* Only exact iterations tell: under a plan the norms are of something else. */
static void iterations_under_plans_are_left_out(void **unused) {
    struct quantify quantify;
    struct dsched_noise_estimate estimate;
    (void)unused;
    start(&quantify);
    for (uint64_t i = 0; i < 100; i++) {
        struct quantify_sample sample = sample_of(i, 1, 1000);
        sample.is_exact = 0;
        quantify_add(&quantify, &sample);
        sample.is_exact = 1;
        sample.is_switch = 1;
        quantify_add(&quantify, &sample);
    }
    quantify_noise(&quantify, &estimate);
    assert_false(estimate.is_known);
}

static void price_of(const struct quantify *quantify, uint32_t rules, struct quantify_price *out) {
    struct deft_error error = {0};
    if (quantify_price(quantify, rules | DSCHED_RULE_BIT(DSCHED_EXACT), out, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    assert_true(out->text[0] != '\0');
}

static void rules_that_cannot_run_cost_everything(void **unused) {
    struct quantify quantify;
    struct quantify_price price;
    (void)unused;
    start(&quantify);
    feed(&quantify, 200, 1000, 0);
    price_of(&quantify, DSCHED_RULE_BIT(DSCHED_AVERAGED), &price);
    assert_int_equal(quantify_progress_ppm(&price, DSCHED_EXACT, 1, 0), 1000000);
    assert_int_equal(quantify_progress_ppm(&price, DSCHED_LOOKAHEAD, 1, 1), 0);
    assert_int_equal(quantify_progress_ppm(&price, DSCHED_DELAYED, 1, 1), 0);
    assert_true(quantify_progress_ppm(&price, DSCHED_AVERAGED, 1, 1) > 900000);
    assert_int_equal(price.max_merge, 8);
    for (uint32_t k = 2; k <= 8; k++) { /* more is never cheaper */
        assert_true(quantify_progress_ppm(&price, DSCHED_AVERAGED, k, 1) <=
                    quantify_progress_ppm(&price, DSCHED_AVERAGED, k - 1, 1));
    }
    price_of(&quantify, 0, &price);
    assert_int_equal(price.max_merge, 1);
}

/* delayed with half the steps loses half of a falling loss, which the walk does not admit. */
static void delayed_is_refused_while_the_loss_falls(void **unused) {
    struct quantify quantify;
    struct quantify_price price;
    (void)unused;
    start(&quantify);
    feed(&quantify, 200, 1000, -0.004);
    price_of(&quantify, DSCHED_RULE_BIT(DSCHED_DELAYED), &price);
    assert_int_equal(quantify_progress_ppm(&price, DSCHED_DELAYED, 2, 1), 0);
    assert_non_null(strstr(price.text, "delayed"));
}

/* Ranks that pull apart while the loss falls steeply: large merges are refused, with the reason. */
static void disagreement_bounds_the_merge(void **unused) {
    struct quantify quantify;
    struct quantify_price price;
    (void)unused;
    start(&quantify);
    feed(&quantify, 200, 1000, -0.008);
    for (uint64_t i = 200; i < 300; i++) {
        struct quantify_sample sample = sample_of(i, 1, 1000);
        sample.is_exact = 0;
        sample.merge = 2;
        sample.loss = 0.4 - 0.001 * (double)(i - 200) + 0.02 * normal();
        sample.change_sq_local = 4; /* the ranks agree on a quarter of what they do */
        sample.grad_sq_mean = 1.01 + 0.02 * uniform();
        quantify_add(&quantify, &sample);
    }
    price_of(&quantify, DSCHED_RULE_BIT(DSCHED_AVERAGED), &price);
    assert_true(price.max_merge < 8);
    if (strstr(price.text, "disagree") == NULL) {
        fail_msg("%s", price.text);
    }
}

static void fuses_need_figures(void **unused) {
    struct quantify quantify;
    double loss;
    double grad_sq;
    (void)unused;
    start(&quantify);
    quantify_fuse(&quantify, &loss, &grad_sq);
    assert_true(isnan(loss) && isnan(grad_sq));
    feed(&quantify, 200, 100, 0);
    quantify_fuse(&quantify, &loss, &grad_sq);
    assert_true(loss > 2 && loss < 2.2);
    /* |g_r|^2 is about 1 + 100 / 256; its 25-fold is allowed. */
    assert_true(grad_sq > 25 && grad_sq < 50);
    /* Ranks take no limit that is not above 0. */
    struct quantify negative;
    start(&negative);
    for (int i = 0; i < 200; i++) {
        struct quantify_sample below = sample_of((uint64_t)i, 1, 100);
        below.loss = -3 + 0.02 * normal();
        quantify_add(&negative, &below);
    }
    quantify_fuse(&negative, &loss, &grad_sq);
    assert_true(isnan(loss) && grad_sq > 25);
    /* A job whose losses overflow under exact cannot be judged by that. */
    struct quantify_sample sample = sample_of(200, 1, 100);
    sample.loss = (double)INFINITY;
    quantify_add(&quantify, &sample);
    assert_true(quantify_breaks_by_itself(&quantify));
    feed(&quantify, 200, 100, 0);
    quantify_fuse(&quantify, &loss, &grad_sq);
    assert_true(isnan(loss));
}

static void hostile_figures_are_no_figures(void **unused) {
    static const double bad[] = {NAN, INFINITY, -INFINITY, -1, 1e300, 0};
    struct quantify quantify;
    struct quantify_price price;
    (void)unused;
    start(&quantify);
    for (uint64_t i = 0; i < 500; i++) {
        struct quantify_sample sample = {
            .iteration = testing_random(&seed) % 1000,
            .is_exact = (int)(i % 2),
            .merge = (uint32_t)testing_random_below(&seed, 70),
            .loss_given = (enum dsched_loss_given)(i % 3 > 0),
            .loss = bad[testing_random_below(&seed, 6)],
            .grad_sq_local = bad[testing_random_below(&seed, 6)],
            .grad_sq_mean = bad[testing_random_below(&seed, 6)],
            .change_sq_local = bad[testing_random_below(&seed, 6)],
            .learning_rate = bad[testing_random_below(&seed, 6)],
        };
        quantify_add(&quantify, &sample);
        price_of(&quantify, DSCHED_RULE_BIT(DSCHED_N_RULES) - 1, &price);
        assert_int_equal(quantify_progress_ppm(&price, DSCHED_EXACT, 1, 0), 1000000);
        (void)quantify_rate_rises(&quantify);
        assert_false(quantify_loss_rises(&quantify) && isnan(quantify.smoothed));
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(the_noise_scale_is_found),
    cmocka_unit_test(iterations_under_plans_are_left_out),
    cmocka_unit_test(rules_that_cannot_run_cost_everything),
    cmocka_unit_test(delayed_is_refused_while_the_loss_falls),
    cmocka_unit_test(disagreement_bounds_the_merge),
    cmocka_unit_test(fuses_need_figures),
    cmocka_unit_test(hostile_figures_are_no_figures),
};
TESTING_MAIN(cases)
