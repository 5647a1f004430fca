/* Stability edges and delay efficiency against the recursions themselves. */
#include <math.h>
#include <string.h>

#include <dsched/convergence.h>

#include "conv_support.h"
#include "testing.h"

#define N_RANKS   3
#define MAX_DELAY 8u
#define PI        3.14159265358979323846

#define N_PAST 256u /* more than any delay of these tests */

/* One parameter per rank, gradient lambda * w with lambda = 1: the rate is s. */

/* Delayed with mean of merged gradients, as the runtime does it: each iteration takes a gradient,
 * a generation is applied `delay` boundaries after its last. */
static double run_delayed(double s, double m, uint32_t k, uint32_t delay, int n) {
    double due[N_PAST] = {0};
    double w = 1;
    double velocity = 0;
    double merged = 0;
    for (int t = 0; t < n && fabs(w) < 1e12; t++) {
        merged += w / k;
        if ((uint32_t)t % k == k - 1) {
            due[((uint32_t)t + delay) % N_PAST] = merged;
            merged = 0;
        }
        if ((uint32_t)t % k == (k - 1 + delay) % k && (uint32_t)t >= k - 1 + delay) {
            velocity = m * velocity + due[(uint32_t)t % N_PAST];
            w -= s * velocity;
        }
    }
    return fabs(w) + fabs(velocity) * s;
}

/* Anchor and velocity move by averages one boundary late; working weights add a preview made from
 * the rank's own gradient. Ranks have different optima, whose mean is 0. */
static double run_lookahead(double s, double m, int n) {
    static const double optimum[N_RANKS] = {1, 2, -3};
    double anchor = 1;
    double velocity = 0;
    double in_flight[N_RANKS] = {0};
    for (int t = 0; t < n && fabs(anchor) < 1e12; t++) {
        double working[N_RANKS];
        for (int r = 0; r < N_RANKS; r++) {
            working[r] = t == 0 ? anchor : anchor - s * (m * velocity + in_flight[r]);
        }
        if (t > 0) {
            double mean = (in_flight[0] + in_flight[1] + in_flight[2]) / N_RANKS;
            velocity = m * velocity + mean;
            anchor -= s * velocity;
        }
        for (int r = 0; r < N_RANKS; r++) {
            in_flight[r] = working[r] - optimum[r];
        }
    }
    return fabs(anchor) + s * fabs(velocity);
}

/* Averaged with own optimizer states; the first gradients tell the ranks apart. */
static double run_averaged(double s, double m, uint32_t k, uint32_t delay, int n) {
    double own[N_RANKS][N_PAST] = {{0}};
    double w[N_RANKS] = {1, 1, 1};
    static const double kick[N_RANKS] = {1, 2, -3};
    double velocity[N_RANKS] = {0};
    double change[N_RANKS] = {0};
    for (int t = 0; t < n && fabs(w[0]) < 1e12; t++) {
        uint32_t at = (uint32_t)t;
        int ends = at % k == k - 1;
        int lands = at >= k - 1 + delay && at % k == (k - 1 + delay) % k;
        double mean = 0;
        for (int r = 0; r < N_RANKS; r++) {
            velocity[r] = m * velocity[r] + w[r] + (t < 3 ? kick[r] : 0);
            w[r] -= s * velocity[r];
            change[r] -= s * velocity[r];
            if (ends) {
                own[r][(at + delay) % N_PAST] = change[r];
                change[r] = 0;
            }
            mean += own[r][at % N_PAST] / N_RANKS;
        }
        for (int r = 0; r < N_RANKS && lands; r++) {
            w[r] += mean - own[r][at % N_PAST];
        }
    }
    double size = 0;
    for (int r = 0; r < N_RANKS; r++) {
        size = fmax(size, fabs(w[r]) + s * fabs(velocity[r]));
    }
    return size;
}

/* Long runs at both sides of the edge: shrinking below, growing above. */
#define N_LONG 6000
#define assert_edge(run_below, run_above)                                                          \
    do {                                                                                           \
        assert_true((run_below) < 1e-2);                                                           \
        assert_true((run_above) > 1e2);                                                            \
    } while (0)

static void plain_edges_have_a_closed_form(void **unused) {
    (void)unused;
    static const double known[] = {2, 1, 0.618, 0.445, 0.347};
    for (uint32_t tau = 0; tau <= DSCHED_MAX_DELAY; tau++) {
        double closed = 2 * sin(PI / (2 * (2 * tau + 1.0)));
        double edge = dsched_stability_edge(DSCHED_DELAYED, 0, 1, tau);
        assert_true(fabs(edge / closed - 1) < 1e-6);
        if (tau < 5) {
            assert_true(fabs(edge - known[tau]) < 1e-3);
        }
        assert_true(tau == 0 || fabs(dsched_stability_edge(DSCHED_AVERAGED, 0, 1, tau) - 1) < 1e-6);
    }
}

static void momentum_edges_of_one_boundary(void **unused) {
    (void)unused;
    for (int i = 0; i <= 33; i++) {
        double m = 0.03 * i;
        double exact = dsched_stability_edge(DSCHED_EXACT, m, 1, 0);
        assert_true(fabs(exact / (2 * (1 + m)) - 1) < 1e-6);
        assert_true(fabs(dsched_stability_edge(DSCHED_DELAYED, m, 1, 1) / (1 - m) - 1) < 1e-6);
        assert_true(fabs(dsched_stability_edge(DSCHED_LOOKAHEAD, m, 1, 1) - 1) < 1e-6);
        assert_true(fabs(dsched_stability_edge(DSCHED_LOOKAHEAD, m, 1, 0) / exact - 1) < 1e-9);
        assert_true(fabs(dsched_stability_edge(DSCHED_AVERAGED, m, 1, 1) / (1 + m) - 1) < 1e-6);
    }
}

static void delayed_edges_are_those_of_the_recursion(void **unused) {
    (void)unused;
    static const double momenta[] = {0, 0.5, 0.9};
    for (size_t i = 0; i < 3; i++) {
        for (uint32_t k = 1; k <= 4; k++) {
            for (uint32_t tau = 0; tau <= 4; tau++) {
                double m = momenta[i];
                double edge = dsched_stability_edge(DSCHED_DELAYED, m, k, tau);
                assert_true(edge > 0);
                assert_edge(run_delayed(0.96 * edge, m, k, tau, N_LONG * (int)k),
                            run_delayed(1.04 * edge, m, k, tau, N_LONG * (int)k));
            }
        }
    }
}

/* The anchor may look fine while ranks go apart: their sum cancels but for rounding. */
static void lookahead_edges_are_those_of_the_recursion(void **unused) {
    (void)unused;
    for (int i = 0; i <= 9; i++) {
        double m = 0.1 * i;
        double edge = dsched_stability_edge(DSCHED_LOOKAHEAD, m, 1, 1);
        assert_edge(run_lookahead(0.96 * edge, m, N_LONG), run_lookahead(1.04 * edge, m, N_LONG));
    }
}

static void averaged_edges_are_those_of_the_recursion(void **unused) {
    (void)unused;
    static const double momenta[] = {0, 0.5, 0.9};
    for (size_t i = 0; i < 3; i++) {
        for (uint32_t k = 1; k <= 4; k++) {
            for (uint32_t tau = 0; tau <= 2 * k + 1; tau++) {
                double m = momenta[i];
                double edge = dsched_stability_edge(DSCHED_AVERAGED, m, k, tau);
                /* Growth is (s - 1)^k per generation here: too slow to wait for near the edge. */
                int is_touch = m == 0 && k > 1;
                double below =
                    run_averaged((is_touch ? 0.8 : 0.96) * edge, m, k, tau, N_LONG * (int)k);
                double above = run_averaged(1.04 * edge, m, k, tau, N_LONG * (int)k);
                if (edge <= 0 || below > 1e-2 ||
                    (above < 1e2 && !(is_touch && fabs(edge - 1) < 1e-4))) {
                    fail_msg("m %g k %u tau %u: edge %g, below it %g, above it %g", m, k, tau, edge,
                             below, above);
                }
            }
        }
    }
}

/* Polynomials made from random roots. */
static void roots_inside_are_told_from_roots_outside(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 3000; round++) {
        double c[DSCHED_MAX_DEGREE + 1] = {1};
        uint32_t degree = 0;
        uint32_t n_pairs = 1 + (uint32_t)testing_random_below(&state, 5);
        double largest = 0;
        for (uint32_t p = 0; p < n_pairs; p++) {
            double radius = 0.3 + 0.8 * conv_uniform(&state);
            double angle = PI * conv_uniform(&state);
            double linear = -2 * radius * cos(angle);
            largest = fmax(largest, radius);
            for (uint32_t i = degree + 3; i-- > 0;) {
                c[i] = (i <= degree ? c[i] * radius * radius : 0) +
                       (i >= 1 && i <= degree + 1 ? c[i - 1] * linear : 0) +
                       (i >= 2 ? c[i - 2] : 0);
            }
            degree += 2;
        }
        if (fabs(largest - 1) > 1e-3) {
            assert_int_equal(dsched_stability_inside(c, degree), largest < 1);
        }
    }
    double bad[3] = {NAN, 0, 1};
    double flat[3] = {0.1, 0.1, 0};
    assert_false(dsched_stability_inside(bad, 2));
    assert_false(dsched_stability_inside(flat, 2));
    assert_false(dsched_stability_inside(bad, DSCHED_MAX_DEGREE + 1));
    assert_true(dsched_stability_inside(flat, 0));
}

static struct dsched_efficiency predict(const struct dsched_efficiency_inputs *inputs) {
    struct dsched_efficiency out;
    struct dsched_error error;
    assert_int_equal(dsched_efficiency_predict(inputs, &out, &error), DSCHED_OK);
    return out;
}

static void efficiency_falls_with_merge_and_delay(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 300; round++) {
        struct dsched_efficiency_inputs in = {
            .rule = (enum dsched_rule)testing_random_below(&state, DSCHED_N_RULES),
            .optimizer = (enum dsched_optimizer_class)testing_random_below(&state, 3),
            .merge = 1 + (uint32_t)testing_random_below(&state, DSCHED_MAX_MERGE - 1),
            .delay = (uint32_t)testing_random_below(&state, DSCHED_MAX_DELAY),
            .momentum = 0.95 * conv_uniform(&state),
            .batch_samples = 1 + 1000 * conv_uniform(&state),
            .noise_samples = round % 3 == 0 ? NAN : 10000 * conv_uniform(&state),
            .rate_curvature = round % 2 == 0 ? DSCHED_UNKNOWN : conv_uniform(&state),
            .measured_frac = DSCHED_UNKNOWN};
        struct dsched_efficiency now = predict(&in);
        assert_true(now.progress_frac >= 0 && now.progress_frac <= 1);
        if (in.rule == DSCHED_EXACT) {
            assert_true(now.progress_frac == 1);
            continue;
        }
        in.merge++;
        assert_true(predict(&in).merge_frac <= now.merge_frac);
        in.merge--;
        if (in.merge == 1) {
            in.delay++;
            assert_true(predict(&in).delay_frac <= now.delay_frac);
        }
        in.measured_frac = 0.75;
        assert_true(predict(&in).progress_frac == 0.75);
    }
}

static void nothing_known_keeps_delayed_out(void **unused) {
    (void)unused;
    struct dsched_efficiency_inputs in = {.rule = DSCHED_DELAYED,
                                          .optimizer = DSCHED_OPTIMIZER_SGD,
                                          .merge = 1,
                                          .delay = 1,
                                          .batch_samples = 64,
                                          .noise_samples = DSCHED_UNKNOWN,
                                          .rate_curvature = DSCHED_UNKNOWN,
                                          .measured_frac = DSCHED_UNKNOWN};
    for (int i = 0; i <= 11; i++) {
        in.momentum = 0.09 * i;
        assert_true(predict(&in).progress_frac == 0 && predict(&in).is_prior);
    }
    in.momentum = 0.9;
    in.rate_curvature = 0.05; /* edges: 0.1 delayed, 3.8 exact */
    assert_true(fabs(predict(&in).delay_frac - 0.5 / (1 - 0.05 / 3.8)) < 1e-6);
    assert_false(predict(&in).is_prior);
    in.optimizer = DSCHED_OPTIMIZER_ADAM;
    assert_true(predict(&in).delay_frac == DSCHED_PRIOR_ADAM_FRAC);
    in.delay = 2;
    assert_true(predict(&in).delay_frac == 0);
    in.measured_frac = 0.9;
    assert_true(predict(&in).delay_frac == 0.9);
}

/* Momentum lifts exact's edge and averaged's, and leaves lookahead's at 1. A rate that is known to
 * be below is allowed, as is any without momentum. */
static void momentum_refuses_lookahead_unless_the_curvature_is_known(void **unused) {
    (void)unused;
    for (int i = 0; i < 20; i++) {
        struct dsched_efficiency_inputs in = {.rule = DSCHED_LOOKAHEAD,
                                              .optimizer = DSCHED_OPTIMIZER_SGD,
                                              .merge = 1,
                                              .delay = 1,
                                              .momentum = 0.05 * i,
                                              .batch_samples = DSCHED_UNKNOWN,
                                              .noise_samples = DSCHED_UNKNOWN,
                                              .rate_curvature = DSCHED_UNKNOWN,
                                              .measured_frac = DSCHED_UNKNOWN};
        struct dsched_efficiency unknown = predict(&in);
        assert_true((unknown.delay_frac > 0) == (i == 0));
        assert_true(unknown.is_prior);
        in.rate_curvature = 0.9;
        assert_true(fabs(1 / predict(&in).delay_frac - 1 - 0.02 * (1 + in.momentum)) < 1e-6);
        in.rate_curvature = 1.1;
        assert_true(predict(&in).delay_frac == 0);
        in.rate_curvature = DSCHED_UNKNOWN;
        in.rule = DSCHED_AVERAGED;
        double averaged = predict(&in).delay_frac;
        assert_true(averaged > 0.98);
        in.optimizer = DSCHED_OPTIMIZER_ADAM;
        assert_true(predict(&in).delay_frac == averaged);
        in.rule = DSCHED_LOOKAHEAD;
        assert_true(predict(&in).delay_frac == averaged);
    }
}

static void senseless_inputs_are_refused(void **unused) {
    (void)unused;
    struct dsched_efficiency_inputs good = {.rule = DSCHED_DELAYED, .merge = 1};
    struct dsched_efficiency out = {.progress_frac = 42};
    for (int i = 0; i < 6; i++) {
        struct dsched_efficiency_inputs in = good;
        struct dsched_error error = {{0}};
        in.rule = i == 0 ? (enum dsched_rule)9 : in.rule;
        in.merge = i == 1 ? 0 : i == 2 ? DSCHED_MAX_MERGE + 1 : 1;
        in.delay = i == 3 ? DSCHED_MAX_DELAY + 1 : 0;
        in.momentum = i == 4 ? 1 : i == 5 ? NAN : 0;
        assert_int_equal(dsched_efficiency_predict(&in, &out, &error), DSCHED_INVALID);
        assert_true(strlen(error.text) > 20 && out.progress_frac == 42);
        assert_true(dsched_stability_edge(in.rule, in.momentum, in.merge, in.delay) == 0);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(plain_edges_have_a_closed_form),
    cmocka_unit_test(momentum_edges_of_one_boundary),
    cmocka_unit_test(delayed_edges_are_those_of_the_recursion),
    cmocka_unit_test(lookahead_edges_are_those_of_the_recursion),
    cmocka_unit_test(averaged_edges_are_those_of_the_recursion),
    cmocka_unit_test(roots_inside_are_told_from_roots_outside),
    cmocka_unit_test(efficiency_falls_with_merge_and_delay),
    cmocka_unit_test(nothing_known_keeps_delayed_out),
    cmocka_unit_test(momentum_refuses_lookahead_unless_the_curvature_is_known),
    cmocka_unit_test(senseless_inputs_are_refused),
};
TESTING_MAIN(cases)
