/* What losses are used for: the excess and the walk of the admission, the ceiling of a running
 * plan, and both tests of the guard together on streams that nothing is wrong with. */
#include <math.h>
#include <string.h>

#include <dsched/loss.h>

#include "conv_support.h"
#include "testing.h"

/* Losses that make up one figure of the fuse. */
#define N_VALUES 4u

static struct dsched_loss_estimate get(const struct dsched_loss *stream) {
    struct dsched_loss_estimate estimate;
    dsched_loss_get(stream, DSCHED_UNKNOWN, &estimate);
    return estimate;
}

static struct dsched_loss_estimate fine(uint64_t *state, double level, double noise) {
    struct dsched_loss stream = {0};
    for (uint64_t t = 0; t < 160; t++) {
        dsched_loss_add(&stream, t, DSCHED_LOSS_GIVEN, level + noise * conv_normal(state));
    }
    assert_int_equal(stream.state, DSCHED_LOSS_FINE);
    return get(&stream);
}

static void the_floor_is_what_is_known(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct dsched_loss positive = {0};
    struct dsched_loss negative = {0};
    struct dsched_loss_estimate e;
    double lowest = INFINITY;
    for (uint64_t t = 0; t < 500; t++) {
        double noise = 0.1 * conv_normal(&state);
        double loss = -30 - 0.01 * (double)(t < 250 ? t : 500 - t) + noise;
        dsched_loss_add(&positive, t, DSCHED_LOSS_GIVEN, 2 + noise);
        dsched_loss_add(&negative, t, DSCHED_LOSS_GIVEN, t == 100 ? -1e9 : loss);
        lowest = t == 100 ? lowest : fmin(lowest, loss);
    }
    e = get(&positive);
    assert_true(e.excess == e.level && fabs(e.level - 2) < 0.1);
    dsched_loss_get(&positive, 1.5, &e);
    assert_true(e.excess == e.level - 1.5);
    dsched_loss_get(&positive, 3, &e);
    assert_true(e.excess == 0);
    dsched_loss_get(&positive, (double)NAN, &e);
    assert_true(e.excess == e.level);
    e = get(&negative);
    /* The lowest median of three is some deviations above the lowest. */
    assert_true(e.excess > e.level - lowest - 0.1 && e.excess < e.level - lowest + 0.2);
    dsched_loss_get(&negative, -50, &e);
    assert_true(e.excess == e.level + 50);
}

static void the_walk_is_that_of_the_rule(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct dsched_loss_estimate e = fine(&state, 2, 0.1);
    e.drift = 0;
    static const enum dsched_walk_scaling scalings[DSCHED_N_RULES] = {
        DSCHED_WALK_MEAN, DSCHED_WALK_MEAN, DSCHED_WALK_MEAN, DSCHED_WALK_SUM};
    struct dsched_walk walk;
    for (int rule = 0; rule < (int)DSCHED_N_RULES; rule++) {
        assert_int_equal(dsched_loss_walk(&e, (enum dsched_rule)rule, 0, &walk), 1);
        assert_int_equal(walk.scaling, scalings[rule]);
        assert_int_equal(walk.n_iterations, DSCHED_DEFAULT_WALK_ITERATIONS);
        assert_true(walk.excess == e.excess && walk.drift == e.drift);
        assert_true(walk.deviation == e.deviation);
    }
    assert_int_equal(dsched_loss_walk(&e, DSCHED_EXACT, UINT32_MAX, &walk), 1);
    assert_int_equal(walk.n_iterations, DSCHED_MAX_WALK_ITERATIONS);
    e.excess = 2;
    e.drift = 0.01; /* half of the excess is gone after 100 */
    assert_int_equal(dsched_loss_walk(&e, DSCHED_EXACT, 0, &walk), 1);
    assert_int_equal(walk.n_iterations, 100);
    e.drift = 50;
    assert_int_equal(dsched_loss_walk(&e, DSCHED_EXACT, 0, &walk), 1);
    assert_int_equal(walk.n_iterations, 1);
}

/* Without losses the walk says nothing against a plan, and the admission has its other reasons. */
static void an_unknown_walk_admits(void **unused) {
    (void)unused;
    const struct dsched_loss stream = {0};
    struct dsched_loss_estimate e = get(&stream);
    struct dsched_admission_inputs inputs = {.efficiency = {.rule = DSCHED_AVERAGED,
                                                            .optimizer = DSCHED_OPTIMIZER_SGD,
                                                            .delay = 1,
                                                            .batch_samples = 256,
                                                            .noise_samples = 4096,
                                                            .rate_curvature = DSCHED_UNKNOWN,
                                                            .measured_frac = DSCHED_UNKNOWN},
                                             .max_merge = 4,
                                             .epsilon_frac = DSCHED_DEFAULT_EPSILON_FRAC,
                                             .floor_frac = DSCHED_DEFAULT_FLOOR_FRAC};
    struct dsched_admission admission;
    assert_int_equal(e.state, DSCHED_LOSS_ABSENT);
    assert_true(e.level == DSCHED_UNKNOWN && e.n == 0);
    assert_int_equal(dsched_loss_walk(&e, DSCHED_AVERAGED, 0, &inputs.walk), 0);
    assert_int_equal(dsched_admit_merge(&inputs, &admission, NULL), DSCHED_OK);
    assert_int_equal(admission.merge, 4);
    assert_true(admission.walk_ratio == 1);
}

static void a_ceiling_needs_a_fine_stream(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct dsched_loss_estimate e = fine(&state, 2, 0.1);
    double last = INFINITY;
    for (uint32_t n = 1; n <= 4096; n *= 2) {
        double ceiling = dsched_loss_ceiling(&e, 0, n);
        assert_true(ceiling < last && ceiling > e.level);
        last = ceiling;
    }
    assert_true(dsched_loss_ceiling(&e, 0.5, 4096) == e.level * 1.5);
    assert_true(dsched_loss_ceiling(&e, 0.05, 0) == DSCHED_UNKNOWN);
    assert_true(dsched_loss_ceiling(&e, -0.1, 4) == DSCHED_UNKNOWN);
    assert_true(dsched_loss_ceiling(&e, 1.1, 4) == DSCHED_UNKNOWN);
    assert_true(dsched_loss_ceiling(&e, (double)NAN, 4) == DSCHED_UNKNOWN);
    for (int other = 0; other < (int)DSCHED_N_LOSS_STATES; other++) {
        e.state = (enum dsched_loss_state)other;
        int is_known = dsched_loss_ceiling(&e, 0.05, 4) != DSCHED_UNKNOWN;
        assert_int_equal(is_known, other == DSCHED_LOSS_FINE);
    }
}

/* Within 5 % of the level wherever the noise lets it; of the excess where losses are negative. */
static void a_ceiling_is_as_near_as_noise_permits(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 300; round++) {
        double noise = round % 3 ? 0.01 : 0.05;
        struct dsched_loss_estimate e = fine(&state, 1, noise);
        double above = dsched_loss_ceiling(&e, 0.05, N_VALUES) - e.level;
        assert_true(above >= 0.05 * e.level * (1 - 1e-9));
        assert_true(above < (round % 3 ? 0.055 : 0.3));
        e = fine(&state, -10, noise);
        above = dsched_loss_ceiling(&e, 0.05, N_VALUES) - e.level;
        assert_true(above > 2 * noise && above < 6 * noise);
    }
}

/* The stated rate is 1e-6 per figure, here of Laplace's noise, less of normal noise: 2,000,000
 * figures may see two of the first. The estimates' luck makes alarms come in bunches. */
static void ceilings_keep_the_stated_rate(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int kind = 0; kind < 2; kind++) {
        int n_alarms = 0;
        int n_near = 0;
        for (int round = 0; round < 2000; round++) {
            struct dsched_loss stream = {0};
            for (uint64_t t = 0; t < 128; t++) {
                double noise = kind ? conv_laplace(&state) : conv_normal(&state);
                dsched_loss_add(&stream, t, DSCHED_LOSS_GIVEN, 50 + noise);
            }
            struct dsched_loss_estimate e = get(&stream);
            double ceiling = dsched_loss_ceiling(&e, 0, N_VALUES);
            for (int figure = 0; figure < 1000; figure++) {
                double mean = 50;
                for (uint32_t i = 0; i < N_VALUES; i++) {
                    double noise = kind ? conv_laplace(&state) : conv_normal(&state);
                    mean += noise / N_VALUES;
                }
                n_alarms += mean > ceiling;
                n_near += mean - e.level > (ceiling - e.level) / 2;
            }
        }
        print_message("%d of 2,000,000, %d beyond half of the way\n", n_alarms, n_near);
        assert_true(n_alarms <= (kind ? 20 : 4));
        /* It is not far beyond what noise reaches. */
        assert_true(n_near > 20);
    }
}

/* --- divergence ------------------------------------------------------------------------------- */

#define N_MODES  8
#define MOMENTUM 0.9

/* A noisy quadratic under heavy-ball momentum above a floor of 1. */
struct job {
    double w[N_MODES];
    double velocity[N_MODES];
    double late[N_MODES];
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
        double gradient = job->w[d] / (1 << d) + 0.02 * conv_normal(state);
        job->velocity[d] = MOMENTUM * job->velocity[d] + (is_late ? job->late[d] : gradient);
        job->w[d] -= s * job->velocity[d];
        job->late[d] = gradient;
    }
}

/* Exact until 400, then delayed by one boundary at `growth` times its edge, under the ceiling that
 * was computed then. How far the loss without the batches' noise had got when a figure tripped. */
static double job_trips_at(double growth, double noise, uint64_t *state) {
    double s = growth * dsched_stability_edge(DSCHED_DELAYED, MOMENTUM, 1, 1);
    struct job job = {.w = {0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8}};
    struct dsched_loss stream = {0};
    double ceiling = 0;
    double level = 0;
    double sum = 0;
    for (uint64_t t = 0; t < 20000; t++) {
        job_step(&job, s, t >= 400, state);
        double loss = job_loss(&job) + noise * conv_normal(state);
        dsched_loss_add(&stream, t, DSCHED_LOSS_GIVEN, loss);
        if (t == 399) {
            struct dsched_loss_estimate e = get(&stream);
            assert_int_equal(e.state, DSCHED_LOSS_FINE);
            ceiling = dsched_loss_ceiling(&e, 0.03, N_VALUES);
            level = e.level;
        }
        sum += loss;
        if (t % N_VALUES == N_VALUES - 1) {
            if (t >= 400 && sum / N_VALUES > ceiling) {
                return job_loss(&job) / level - 1;
            }
            sum = 0;
        }
    }
    return INFINITY;
}

/* Growth is exponential: a figure of four losses is over before it may have doubled once. */
static void divergence_trips_the_ceiling(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int strength = 0; strength < 4; strength++) {
        double growth = 1.05 + 0.15 * strength;
        double sum = 0;
        double worst = 0;
        int n_late = 0;
        for (int round = 0; round < 50; round++) {
            double excess = job_trips_at(growth, 0.005, &state);
            assert_true(isfinite(excess));
            sum += excess;
            worst = fmax(worst, excess);
            n_late += excess > 0.05;
        }
        print_message("%.2f of the edge: left at %.1f %% on average, at most %.1f %%, %d of 50 "
                      "above 5 %%\n",
                      growth, 2 * sum, 100 * worst, n_late);
        assert_true(worst < 0.15);
        assert_true(strength > 0 || n_late <= 10);
    }
}

/* --- the guard as a whole --------------------------------------------------------------------- */

enum stream_kind { FLAT, POWER };

/* Power law of time above a floor, or flat, with noise in proportion. */
static double sound_loss(enum stream_kind kind, int is_laplace, double noise, uint64_t t,
                         uint64_t *state) {
    double mean = kind == FLAT ? 2 : 0.5 + 4 / sqrt((double)t + 100);
    return mean * (1 + noise * (is_laplace ? conv_laplace(state) : conv_normal(state)));
}

/* 3,000 iterations of windows in turn exact, plan, exact, with a ceiling for each plan window.
 * Returns 1 when the plan, which does no harm, was left. */
static int guard_steps_back(enum stream_kind kind, int is_laplace, double noise, uint64_t *state) {
    struct dsched_drift_options options;
    struct dsched_drift drift;
    struct dsched_loss stream = {0};
    double ceiling = DSCHED_UNKNOWN;
    double sum = 0;
    uint32_t n = 0;
    dsched_drift_defaults(&options);
    assert_int_equal(dsched_drift_init(&drift, &options, NULL), DSCHED_OK);
    for (uint64_t t = 0; t < 3000; t++) {
        double loss = sound_loss(kind, is_laplace, noise, t, state);
        enum dsched_drift_label label = dsched_drift_wants(&drift);
        if (label == DSCHED_DRIFT_EXACT) {
            n = 0;
            sum = 0;
            ceiling = DSCHED_UNKNOWN;
        } else {
            if (n == 0) {
                struct dsched_loss_estimate e = get(&stream);
                ceiling = dsched_loss_ceiling(&e, 0.05, N_VALUES);
                assert_true(e.state == DSCHED_LOSS_FINE && ceiling > e.level);
            }
            sum += loss;
            n++;
            if (n % N_VALUES == 0) {
                if (sum / N_VALUES > ceiling) {
                    return 1;
                }
                sum = 0;
            }
        }
        dsched_loss_add(&stream, t, DSCHED_LOSS_GIVEN, loss);
        if (dsched_drift_add(&drift, label, t, loss, DSCHED_UNKNOWN) == DSCHED_DRIFT_DRIFTING) {
            return 1;
        }
    }
    return 0;
}

/* At most 2 false step-backs in 50 runs of each kind. */
static void sound_runs_are_left_alone(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    static const double noises[] = {0.005, 0.02, 0.1};
    for (int kind = 0; kind < 4; kind++) {
        int n = 0;
        for (int run = 0; run < 50; run++) {
            n += guard_steps_back(kind / 2 ? POWER : FLAT, kind % 2, noises[run % 3], &state);
        }
        print_message("%s, %s: %d of 50\n", kind / 2 ? "power law" : "stationary",
                      kind % 2 ? "Laplace" : "normal", n);
        assert_true(n <= 2);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(the_floor_is_what_is_known),
    cmocka_unit_test(the_walk_is_that_of_the_rule),
    cmocka_unit_test(an_unknown_walk_admits),
    cmocka_unit_test(a_ceiling_needs_a_fine_stream),
    cmocka_unit_test(a_ceiling_is_as_near_as_noise_permits),
    cmocka_unit_test(ceilings_keep_the_stated_rate),
    cmocka_unit_test(divergence_trips_the_ceiling),
    cmocka_unit_test(sound_runs_are_left_alone),
};
TESTING_MAIN(cases)
