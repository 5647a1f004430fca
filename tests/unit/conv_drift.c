/* The drift test of the guard on streams whose truth is known. */
#include <math.h>
#include <string.h>

#include <dsched/convergence.h>

#include "conv_support.h"
#include "testing.h"

static struct dsched_drift start(void) {
    struct dsched_drift_options options;
    struct dsched_drift drift;
    struct dsched_error error;
    dsched_drift_defaults(&options);
    assert_int_equal(dsched_drift_init(&drift, &options, &error), DSCHED_OK);
    return drift;
}

/* A loss that falls as training goes on, convex, with noise; `trend` 0: flat. */
static double sound_loss(double trend, double noise, uint64_t t, uint64_t *state) {
    return 1 + trend * exp(-(double)t / 3000) + noise * conv_normal(state);
}

static enum dsched_drift_result feed(struct dsched_drift *drift, uint64_t t, double loss) {
    return dsched_drift_add(drift, dsched_drift_wants(drift), t, loss, DSCHED_UNKNOWN);
}

/* The stated rate is 3 per 10,000 windows, so 1,000 streams of 60 windows may see 18 alarms. */
static void false_alarms_keep_the_stated_rate(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    const int n_streams = 1000;
    const uint64_t n_windows = 60;
    int n_alarms = 0;
    int n_fine = 0;
    for (int s = 0; s < n_streams; s++) {
        struct dsched_drift drift = start();
        for (uint64_t t = 0; t < n_windows * 36; t++) {
            (void)feed(&drift, t, sound_loss(s % 2, 0.02, t, &state));
        }
        n_alarms += drift.result == DSCHED_DRIFT_DRIFTING;
        n_fine += drift.result == DSCHED_DRIFT_FINE;
        assert_true(drift.result != DSCHED_DRIFT_BROKEN);
    }
    print_message("alarms %d, fine %d of %d\n", n_alarms, n_fine, n_streams);
    assert_true(n_alarms <= 18);
    assert_true(n_fine > 800);
}

/* Noise that is not normal, or not independent: the header says what is promised. */
static void other_noise_keeps_the_rate_too(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    int n_alarms[2] = {0};
    for (int s = 0; s < 1000; s++) {
        struct dsched_drift drift = start();
        double slow = 0;
        for (uint64_t t = 0; t < 60 * UINT64_C(36); t++) {
            slow = 0.5 * slow + sqrt(0.75) * conv_normal(&state);
            (void)feed(&drift, t, 2 + 0.05 * (s % 2 ? slow : conv_laplace(&state)));
        }
        n_alarms[s % 2] += drift.result == DSCHED_DRIFT_DRIFTING;
    }
    print_message("Laplace %d, correlated %d of 500\n", n_alarms[0], n_alarms[1]);
    assert_true(n_alarms[0] <= 9 + 6);
    assert_true(n_alarms[1] <= 2 * 9 + 12);
}

/* Under the plan the loss grows by a factor per iteration, under exact it stays; the alarm comes
 * before it is 5 % above the reference. Noise of 1 %. */
static void divergence_is_seen_before_5_percent(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    int n_late = 0;
    int n = 0;
    for (int strength = 0; strength < 7; strength++) {
        double growth = 0.0005 * pow(1.5, strength);
        for (int round = 0; round < 50; round++, n++) {
            struct dsched_drift drift = start();
            double harm = 0;
            for (uint64_t t = 0; drift.result < DSCHED_DRIFT_DRIFTING && t < 100000; t++) {
                if (dsched_drift_wants(&drift) == DSCHED_DRIFT_PLAN) {
                    harm += growth;
                }
                (void)feed(&drift, t, sound_loss(1, 0.01, t, &state) * exp(harm));
            }
            assert_int_equal(drift.result, DSCHED_DRIFT_DRIFTING);
            n_late += exp(harm) > 1.05;
        }
    }
    print_message("%d of %d late\n", n_late, n);
    assert_true(n_late * 20 <= n);
}

#define N_MODES 8

/* A noisy quadratic under heavy-ball momentum 0.9, whose steepest curvature times the rate is `s`:
 * under exact stable below 3.8, with one boundary of delay below 0.1. */
struct job {
    double w[N_MODES];
    double velocity[N_MODES];
    double late[N_MODES]; /* the gradient of the iteration before */
};

static double job_loss(const struct job *job) {
    double loss = 1;
    for (int d = 0; d < N_MODES; d++) {
        loss += job->w[d] * job->w[d] / (2 << d);
    }
    return loss;
}

static void job_step(struct job *job, double s, int is_late, uint64_t *state) {
    for (int d = 0; d < N_MODES; d++) {
        double gradient = job->w[d] / (1 << d) + 0.05 * conv_normal(state);
        job->velocity[d] = 0.9 * job->velocity[d] + (is_late ? job->late[d] : gradient);
        job->w[d] -= s * job->velocity[d];
        job->late[d] = gradient;
    }
}

/* At `growth` times the edge of the delayed rule: how far the true loss went above that of a twin
 * that only ever runs exact, before the test spoke. */
static double job_excess(double growth, uint64_t *state) {
    double s = growth * dsched_stability_edge(DSCHED_DELAYED, 0.9, 1, 1);
    struct job tuned = {.w = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}};
    struct job exact = tuned;
    struct dsched_drift drift = start();
    double worst = 0;
    for (uint64_t t = 0; drift.result < DSCHED_DRIFT_DRIFTING && t < 20000; t++) {
        uint64_t twin = *state;
        double norm2 = 0;
        enum dsched_drift_label label = dsched_drift_wants(&drift);
        job_step(&exact, s, 0, &twin);
        job_step(&tuned, s, label == DSCHED_DRIFT_PLAN, state);
        for (int d = 0; d < N_MODES; d++) {
            norm2 += tuned.late[d] * tuned.late[d];
        }
        worst = fmax(worst, job_loss(&tuned) / job_loss(&exact));
        (void)dsched_drift_add(&drift, label, t, job_loss(&tuned) + 0.005 * conv_normal(state),
                               sqrt(norm2));
    }
    assert_true(drift.result >= DSCHED_DRIFT_DRIFTING);
    return worst - 1;
}

/* Beyond twice the edge the loss may double within a few iterations, and it takes two losses far
 * above the noise, or four clearly above, to tell: then 5 % cannot be kept. */
static void a_job_beyond_the_edge_is_stopped(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    int n_late[2] = {0};
    double worst = 0;
    const int n = 300;
    for (int round = 0; round < n; round++) {
        double excess = job_excess(1.25 + round % 6 * 0.5, &state);
        n_late[round % 6 >= 2] += excess > 0.05;
        worst = fmax(worst, excess);
    }
    print_message("above 5 %%: %d of %d below twice the edge, %d of %d beyond, worst %.1f %%\n",
                  n_late[0], n / 3, n_late[1], n * 2 / 3, 100 * worst);
    assert_true(n_late[0] * 10 <= n / 3 * 3);
    assert_true(n_late[1] * 4 <= n * 2 / 3 * 3);
    assert_true(worst < 1);
}

/* Averaged and lookahead take their losses off the mean of the ranks: a little higher, for as long
 * as the plan runs. */
static void a_difference_within_epsilon_is_no_drift(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    int n_alarms = 0;
    for (int s = 0; s < 200; s++) {
        struct dsched_drift drift = start();
        for (uint64_t t = 0; t < 60 * UINT64_C(36); t++) {
            double higher = dsched_drift_wants(&drift) == DSCHED_DRIFT_PLAN ? 0.004 : 0;
            (void)feed(&drift, t, 1 + higher + 0.01 * conv_normal(&state));
        }
        n_alarms += drift.result == DSCHED_DRIFT_DRIFTING;
    }
    print_message("%d alarms\n", n_alarms);
    assert_true(n_alarms <= 12);
}

/* The rate drops by a factor somewhere in a triple, and the loss with it. */
static void a_step_of_the_schedule_is_no_drift(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    int n_alarms = 0;
    for (int s = 0; s < 200; s++) {
        struct dsched_drift drift = start();
        uint64_t step = 500 + testing_random_below(&state, 500);
        for (uint64_t t = 0; t < 1500; t++) {
            (void)feed(&drift, t, (t < step ? 1 : 0.7) + 0.01 * conv_normal(&state));
        }
        n_alarms += drift.result == DSCHED_DRIFT_DRIFTING;
    }
    print_message("%d alarms\n", n_alarms);
    assert_true(n_alarms <= 12);
}

/* A glitch of one iteration, however large. */
static void one_wild_loss_is_no_drift(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    int n_alarms = 0;
    for (int s = 0; s < 200; s++) {
        struct dsched_drift drift = start();
        uint64_t glitch = 36 + testing_random_below(&state, 36);
        double height = pow(10, 6 * conv_uniform(&state) - 2);
        for (uint64_t t = 0; t < 216; t++) {
            double loss = sound_loss(0, 0.01, t, &state);
            (void)feed(&drift, t, t == glitch ? loss + height : loss);
        }
        n_alarms += drift.result == DSCHED_DRIFT_DRIFTING;
    }
    print_message("%d alarms\n", n_alarms);
    assert_true(n_alarms <= 8);
}

static void a_clear_improvement_is_fine(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct dsched_drift drift = start();
    double gain = 0;
    for (uint64_t t = 0; t < 900; t++) {
        gain += dsched_drift_wants(&drift) == DSCHED_DRIFT_PLAN ? 0.0002 : 0;
        (void)feed(&drift, t, sound_loss(0, 0.01, t, &state) - gain);
    }
    assert_int_equal(drift.result, DSCHED_DRIFT_FINE);
    assert_int_equal(drift.n_triples, 900 / (3 * 36));
}

static void what_is_not_finite_is_broken_at_once(void **unused) {
    (void)unused;
    static const double wild[] = {NAN, INFINITY, -INFINITY, 1e200};
    uint64_t state = testing_seed();
    for (size_t i = 0; i < 2 * sizeof(wild) / sizeof(wild[0]); i++) {
        struct dsched_drift drift = start();
        uint64_t t = 0;
        while (dsched_drift_wants(&drift) == DSCHED_DRIFT_EXACT) {
            (void)feed(&drift, t, sound_loss(0, 0.01, t, &state));
            t++;
        }
        double loss = i % 2 ? wild[i / 2] : 1;
        double norm = i % 2 ? 1 : wild[i / 2];
        assert_int_equal(dsched_drift_add(&drift, DSCHED_DRIFT_PLAN, t, loss, norm),
                         DSCHED_DRIFT_BROKEN);
        assert_int_equal(feed(&drift, t + 1, 1), DSCHED_DRIFT_BROKEN);
    }
}

static void a_jump_of_the_norm_is_broken(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int jumps = 0; jumps < 2; jumps++) {
        struct dsched_drift drift = start();
        for (uint64_t t = 0; t < 40; t++) {
            enum dsched_drift_label label = dsched_drift_wants(&drift);
            (void)dsched_drift_add(&drift, label, t, sound_loss(0, 0.01, t, &state), 2);
        }
        assert_int_equal(dsched_drift_wants(&drift), DSCHED_DRIFT_PLAN);
        enum dsched_drift_result result =
            dsched_drift_add(&drift, DSCHED_DRIFT_PLAN, 40, 1, jumps ? 10.1 : 9.9);
        assert_int_equal(result, jumps ? DSCHED_DRIFT_BROKEN : DSCHED_DRIFT_UNDECIDED);
    }
}

static void another_label_or_time_starts_over(void **unused) {
    (void)unused;
    struct dsched_drift drift = start();
    for (uint64_t t = 0; t < 20; t++) {
        (void)feed(&drift, t, 1);
    }
    (void)dsched_drift_add(&drift, DSCHED_DRIFT_PLAN, 20, 1, DSCHED_UNKNOWN);
    assert_int_equal(drift.n_restarts, 1);
    assert_int_equal(drift.fits[0].n, 0);
    (void)feed(&drift, 5, 1);
    assert_int_equal(drift.n_restarts, 2);
    (void)feed(&drift, 6, NAN);
    assert_int_equal(drift.n_restarts, 3);
    assert_int_equal(drift.result, DSCHED_DRIFT_UNDECIDED);
    assert_int_equal(feed(&drift, UINT64_MAX, 1), DSCHED_DRIFT_UNDECIDED);
    assert_int_equal(drift.n_restarts, 4);
}

/* Constants, steps, gaps, one value per epoch: decisions, never a NaN. */
static void hostile_streams_stay_finite(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 400; round++) {
        struct dsched_drift drift = start();
        uint64_t t = testing_random(&state) >> (11 + testing_random_below(&state, 50));
        double scale = pow(10, 200 * conv_uniform(&state) - 100);
        uint64_t kind = testing_random_below(&state, 6);
        uint64_t gap = 1 + testing_random_below(&state, 5000);
        for (int i = 0; i < 500; i++) {
            double loss = kind == 0   ? scale
                          : kind == 1 ? 0
                          : kind == 2 ? scale * (double)(i % 2)
                          : kind == 3 ? scale * conv_normal(&state)
                          : kind == 4 ? scale * (double)(testing_random_below(&state, 50) == 0)
                                      : -scale;
            enum dsched_drift_label label = testing_random_below(&state, 300) == 0
                                                ? DSCHED_DRIFT_PLAN
                                                : dsched_drift_wants(&drift);
            double norm = testing_random_below(&state, 2) ? DSCHED_UNKNOWN : fabs(loss);
            if (kind == 3) {
                norm = 0;
            }
            (void)dsched_drift_add(&drift, label, t, loss, norm);
            t += gap;
            assert_true(isfinite(drift.triple_cusum) && isfinite(drift.rise_cusum));
            assert_true(isfinite(drift.last_z) && isfinite(drift.drift_sum));
            assert_true(isfinite(drift.variance_sum) && isfinite(drift.norm_mean));
        }
        if (kind == 0 || kind == 1 || kind == 5) {
            assert_true(drift.result <= DSCHED_DRIFT_FINE);
        }
    }
}

static void senseless_options_are_refused(void **unused) {
    (void)unused;
    struct dsched_drift drift = {.n_triples = 42};
    for (int i = 0; i < 7; i++) {
        struct dsched_drift_options options;
        struct dsched_error error = {{0}};
        dsched_drift_defaults(&options);
        options.window_losses = i == 0 ? 7 : i == 1 ? DSCHED_MAX_WINDOW_LOSSES + 1 : 32;
        options.settle_losses = i == 2 ? DSCHED_MAX_WINDOW_LOSSES + 1 : 0;
        options.epsilon_frac = i == 3 ? 0 : i == 4 ? NAN : 0.01;
        options.false_alarm_frac = i == 5 ? 0 : i == 6 ? 0.2 : 0.001;
        assert_int_equal(dsched_drift_init(&drift, &options, &error),
                         i < 3 ? DSCHED_LIMIT : DSCHED_INVALID);
        assert_true(strlen(error.text) > 20 && drift.n_triples == 42);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(false_alarms_keep_the_stated_rate),
    cmocka_unit_test(other_noise_keeps_the_rate_too),
    cmocka_unit_test(divergence_is_seen_before_5_percent),
    cmocka_unit_test(a_job_beyond_the_edge_is_stopped),
    cmocka_unit_test(a_difference_within_epsilon_is_no_drift),
    cmocka_unit_test(a_step_of_the_schedule_is_no_drift),
    cmocka_unit_test(one_wild_loss_is_no_drift),
    cmocka_unit_test(a_clear_improvement_is_fine),
    cmocka_unit_test(what_is_not_finite_is_broken_at_once),
    cmocka_unit_test(a_jump_of_the_norm_is_broken),
    cmocka_unit_test(another_label_or_time_starts_over),
    cmocka_unit_test(hostile_streams_stay_finite),
    cmocka_unit_test(senseless_options_are_refused),
};
TESTING_MAIN(cases)
