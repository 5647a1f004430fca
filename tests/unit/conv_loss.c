/* What a stream of losses says, on streams whose truth is known and on hostile ones. */
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <dsched/loss.h>

#include "conv_support.h"
#include "testing.h"

static struct dsched_loss_estimate get(const struct dsched_loss *stream) {
    struct dsched_loss_estimate estimate;
    dsched_loss_get(stream, DSCHED_UNKNOWN, &estimate);
    return estimate;
}

/* --- states ----------------------------------------------------------------------------------- */

struct change {
    enum dsched_loss_state last;
    int n;
    int was_better;
    int n_turns; /* for the worse, after the better */
};

static void add(struct dsched_loss *stream, struct change *change, uint64_t iteration, int is_given,
                double loss) {
    static const int ranks[DSCHED_N_LOSS_STATES] = {8, 7, 6, 4, 2, 1, 0, 5, 3};
    dsched_loss_add(stream, iteration, is_given ? DSCHED_LOSS_GIVEN : DSCHED_LOSS_NOT_GIVEN, loss);
    if (stream->state != change->last) {
        int is_better = ranks[stream->state] > ranks[change->last];
        change->n++;
        change->n_turns += !is_better && change->was_better;
        change->was_better = is_better;
        change->last = stream->state;
    }
}

/* A stream as a function of its iteration; NaN with is_given 0 is none. */
struct hostile {
    const char *name;
    double (*loss)(uint64_t t, uint64_t *state, int *is_given);
    enum dsched_loss_state state;
    int n_changes;     /* at most, in 4,000 iterations */
    const char *words; /* in the text */
};

static double hostile_sound(uint64_t t, uint64_t *state, int *is_given) {
    (void)is_given;
    return 2 + exp(-(double)t / 500) + 0.05 * conv_normal(state);
}
static double hostile_none(uint64_t t, uint64_t *state, int *is_given) {
    (void)t;
    (void)state;
    *is_given = 0;
    return (double)NAN;
}
static double hostile_nan(uint64_t t, uint64_t *state, int *is_given) {
    return t < 100 ? hostile_sound(t, state, is_given) : (double)NAN;
}
static double hostile_infinite(uint64_t t, uint64_t *state, int *is_given) {
    (void)state;
    (void)is_given;
    return t % 2 ? (double)INFINITY : -(double)INFINITY;
}
static double hostile_huge(uint64_t t, uint64_t *state, int *is_given) {
    (void)is_given;
    return (t % 2 ? 1e308 : -1e308) * conv_uniform(state);
}
static double hostile_negative(uint64_t t, uint64_t *state, int *is_given) {
    return hostile_sound(t, state, is_given) - 20;
}
static double hostile_constant(uint64_t t, uint64_t *state, int *is_given) {
    return t < 500 ? hostile_sound(t, state, is_given) : 2.5;
}
static double hostile_zero(uint64_t t, uint64_t *state, int *is_given) {
    (void)t;
    (void)state;
    (void)is_given;
    return 0;
}
static double hostile_missing(uint64_t t, uint64_t *state, int *is_given) {
    *is_given = t < 1000;
    return hostile_sound(t, state, is_given);
}
static double hostile_returning(uint64_t t, uint64_t *state, int *is_given) {
    *is_given = t < 1000 || t > 2500;
    return hostile_sound(t, state, is_given);
}
static double hostile_epoch(uint64_t t, uint64_t *state, int *is_given) {
    *is_given = t % 400 == 399;
    return hostile_sound(t, state, is_given);
}
static double hostile_logged(uint64_t t, uint64_t *state, int *is_given) {
    *is_given = t % 10 == 0;
    return hostile_sound(t, state, is_given);
}
/* Half precision overflows now and then while its scale is found, then no more. */
static double hostile_overflow(uint64_t t, uint64_t *state, int *is_given) {
    double loss = hostile_sound(t, state, is_given);
    return t < 40 || (t < 1000 && t % 7 == 0) ? (double)INFINITY : loss;
}
static double hostile_overflowing(uint64_t t, uint64_t *state, int *is_given) {
    return t % 50 == 0 ? (double)INFINITY : hostile_sound(t, state, is_given);
}
static double hostile_validation(uint64_t t, uint64_t *state, int *is_given) {
    (void)state;
    (void)is_given;
    return 2 + 1 / (1 + floor((double)t / 300));
}
/* As above, with the rows of a run whose epochs differ. */
static double hostile_averages(uint64_t t, uint64_t *state, int *is_given) {
    (void)state;
    (void)is_given;
    uint64_t n = t / 1000 * 7 + 20;
    return 3 - floor((double)t / (double)n) * 0.001;
}
static double hostile_placeholder(uint64_t t, uint64_t *state, int *is_given) {
    return t < 200 ? 0 : hostile_sound(t, state, is_given);
}
/* Single precision repeats seldom, half often: 8 bits of a loss of 2 are steps of 0.016. */
static double hostile_half(uint64_t t, uint64_t *state, int *is_given) {
    return round(hostile_sound(t, state, is_given) * 64) / 64;
}
static double hostile_rising(uint64_t t, uint64_t *state, int *is_given) {
    (void)is_given;
    return 2 + 0.0005 * (double)t + 0.05 * conv_normal(state);
}
static double hostile_wild(uint64_t t, uint64_t *state, int *is_given) {
    return hostile_sound(t, state, is_given) + (t % 61 == 0 ? 1e60 : 0);
}

static const struct hostile hostiles[] = {
    {"sound", hostile_sound, DSCHED_LOSS_FINE, 2, "falls by"},
    {"none", hostile_none, DSCHED_LOSS_ABSENT, 0, "no loss was ever given"},
    {"NaN", hostile_nan, DSCHED_LOSS_BROKEN, 3, "not finite"},
    {"infinite", hostile_infinite, DSCHED_LOSS_BROKEN, 1, "4000 of 4000"},
    {"1e308", hostile_huge, DSCHED_LOSS_BROKEN, 1, "not finite"},
    {"negative", hostile_negative, DSCHED_LOSS_FINE, 2, "the loss is -1"},
    {"constant", hostile_constant, DSCHED_LOSS_CONSTANT, 3, "the same 2.5 in 3500 iterations"},
    {"zero", hostile_zero, DSCHED_LOSS_CONSTANT, 2, "the same 0"},
    {"missing", hostile_missing, DSCHED_LOSS_MISSING, 3, "none in 3000 iterations"},
    {"returning", hostile_returning, DSCHED_LOSS_FINE, 5, "falls by"},
    {"per epoch", hostile_epoch, DSCHED_LOSS_SPARSE, 4, "one of 400 iterations"},
    {"logged", hostile_logged, DSCHED_LOSS_FINE, 2, "falls by"},
    {"overflow", hostile_overflow, DSCHED_LOSS_FINE, 3, "falls by"},
    {"overflowing", hostile_overflowing, DSCHED_LOSS_BROKEN, 8, "80 of 4000"},
    {"validation", hostile_validation, DSCHED_LOSS_STEPPED, 3, "the same for up to 300"},
    {"averages", hostile_averages, DSCHED_LOSS_STEPPED, 4, "unlike that of batches"},
    {"placeholder", hostile_placeholder, DSCHED_LOSS_FINE, 5, "falls by"},
    {"half", hostile_half, DSCHED_LOSS_FINE, 2, "falls by"},
    {"rising", hostile_rising, DSCHED_LOSS_FINE, 2, "falls by -"},
    {"wild", hostile_wild, DSCHED_LOSS_FINE, 2, "falls by"},
};

static void hostile_streams_are_named(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (size_t i = 0; i < sizeof(hostiles) / sizeof(hostiles[0]); i++) {
        const struct hostile *h = &hostiles[i];
        struct dsched_loss stream = {0};
        struct change change = {0};
        for (uint64_t t = 0; t < 4000; t++) {
            int is_given = 1;
            double loss = h->loss(t, &state, &is_given);
            add(&stream, &change, t, is_given, loss);
        }
        struct dsched_loss_estimate e = get(&stream);
        print_message("%s: %s after %d changes: %s\n", h->name, dsched_loss_state_name(e.state),
                      change.n, e.text);
        assert_int_equal(e.state, h->state);
        assert_true(change.n <= h->n_changes);
        assert_non_null(strstr(e.text, h->words));
        assert_true(strlen(e.text) < sizeof(e.text) - 1);
    }
}

/* The states between start and end are those that one would name. */
static void a_jump_is_waited_for(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 50; round++) {
        struct dsched_loss stream = {0};
        struct change change = {0};
        uint64_t restart = round % 2 ? 700 : 1001; /* back, or on without a seam */
        uint64_t spike = 100 + testing_random_below(&state, 200);
        for (uint64_t t = 0; t < 1001; t++) {
            add(&stream, &change, t, 1, 2 + 0.05 * conv_normal(&state));
        }
        assert_int_equal(stream.state, DSCHED_LOSS_FINE);
        for (uint64_t t = 0; t < spike; t++) {
            add(&stream, &change, restart + t, 1, 3 + 0.1 * conv_normal(&state));
            assert_true(t < 8 || stream.state == DSCHED_LOSS_UNSETTLED);
        }
        struct dsched_loss_estimate e = get(&stream);
        assert_non_null(strstr(e.text, "jumped from "));
        for (uint64_t t = spike; t < spike + 200; t++) {
            add(&stream, &change, restart + t, 1, 2 + 0.05 * conv_normal(&state));
        }
        e = get(&stream);
        assert_int_equal(e.state, DSCHED_LOSS_FINE);
        assert_true(fabs(e.level - 2) < 0.1);
        assert_true(change.n <= 6);
    }
}

/* Another task, or another data set: the new level is taken for the usual one in the end. */
static void a_level_that_stays_is_taken(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct dsched_loss stream = {0};
    struct change change = {0};
    for (uint64_t t = 0; t < 4000; t++) {
        add(&stream, &change, t, 1, (t < 1000 ? 2 : 3) + 0.05 * conv_normal(&state));
        assert_true(t < 1010 || t > 2000 || stream.state == DSCHED_LOSS_UNSETTLED);
    }
    assert_int_equal(stream.state, DSCHED_LOSS_FINE);
    assert_int_equal(change.n, 5);
}

static void restarts_and_pauses_start_over(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct dsched_loss stream = {0};
    struct change change = {0};
    for (uint64_t t = 0; t < 200; t++) {
        add(&stream, &change, t, 1, 2 + 0.05 * conv_normal(&state));
    }
    assert_int_equal(stream.n_window, DSCHED_LOSS_WINDOW);
    add(&stream, &change, 210, 1, 2);
    assert_int_equal(stream.n_window, DSCHED_LOSS_WINDOW); /* some were left out */
    add(&stream, &change, 150, 1, 2);
    assert_int_equal(stream.n_window, 1);
    assert_int_equal(stream.state, DSCHED_LOSS_FEW);
    for (uint64_t t = 151; t < 200; t++) {
        add(&stream, &change, t, 1, 2 + 0.05 * conv_normal(&state));
    }
    assert_int_equal(stream.n_window, 50);
    add(&stream, &change, UINT64_MAX, 1, 2);
    assert_int_equal(stream.n_window, 1);
    add(&stream, &change, 0, 1, 2);
    assert_int_equal(stream.n_window, 1);
    add(&stream, &change, 0, 0, 0);
    assert_int_equal(stream.n_window, 0);
    assert_int_equal(stream.n_iterations, 200 + 2 + 49 + 3);
}

/* A plan that did harm was left: its losses are neither in the level nor in the spread. */
static void what_is_forgotten_does_not_count(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct dsched_loss stream = {0};
    struct change change = {0};
    dsched_loss_forget(&stream);
    assert_int_equal(stream.state, DSCHED_LOSS_ABSENT);
    for (uint64_t t = 0; t < 400; t++) {
        double noise = t < 300 ? 0.05 : 0.4;
        add(&stream, &change, t, 1, 2 + noise * conv_normal(&state));
    }
    assert_true(get(&stream).spread > 0.2);
    dsched_loss_forget(&stream);
    assert_int_equal(stream.state, DSCHED_LOSS_FEW);
    assert_int_equal(get(&stream).n, 0);
    for (uint64_t t = 400; t < 400 + DSCHED_LOSS_MIN; t++) {
        add(&stream, &change, t, 1, 2 + 0.05 * conv_normal(&state));
    }
    assert_int_equal(stream.state, DSCHED_LOSS_FINE);
    assert_true(get(&stream).spread < 0.1);
}

/* Two behaviours in turn, for as long as it takes to look cured or not. */
static double flap_loss(uint64_t kind, uint64_t *iteration, uint64_t period, double *held,
                        int *is_given, uint64_t *state) {
    double loss = 2 + 0.05 * conv_normal(state);
    ++*iteration;
    switch (kind) {
    case 0:
        return (double)NAN;
    case 1:
        return 3;
    case 2:
        *is_given = 0;
        return loss;
    case 3:
        *is_given = *iteration % (period * 20) == 0;
        return loss;
    case 4:
        return 10 + loss;
    case 5:
        *held = *iteration % period == 0 ? loss : *held;
        return *held;
    case 6:
        *iteration -= *iteration > 20 && testing_random_below(state, 10) == 0 ? 20 : 0;
        return loss;
    case 7:
        *iteration += testing_random_below(state, UINT64_C(1) << testing_random_below(state, 14));
        return loss;
    default:
        return loss;
    }
}

static void states_do_not_flap(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    const int n = 6000;
    int most_turns = 0;
    int most = 0;
    for (int round = 0; round < 300; round++) {
        struct dsched_loss stream = {0};
        struct change change = {0};
        uint64_t kinds[2];
        uint64_t lengths[2];
        for (int i = 0; i < 2; i++) {
            kinds[i] = testing_random_below(&state, 10);
            lengths[i] =
                1 + testing_random_below(&state, UINT64_C(1) << testing_random_below(&state, 11));
        }
        uint64_t period = 1 + testing_random_below(&state, 50);
        uint64_t left = lengths[0];
        uint64_t iteration = 0;
        double held = 1;
        int now = 0;
        for (int t = 0; t < n; t++, left--) {
            if (left == 0) {
                now = !now;
                left =
                    round % 2 ? lengths[now] : 1 + testing_random_below(&state, 2 * lengths[now]);
            }
            int is_given = 1;
            double loss = flap_loss(kinds[now], &iteration, period, &held, &is_given, &state);
            add(&stream, &change, iteration, is_given, loss);
        }
        most = change.n > most ? change.n : most;
        most_turns = change.n_turns > most_turns ? change.n_turns : most_turns;
    }
    print_message("%d changes, %d turns in %d iterations at most\n", most, most_turns, n);
    assert_true(most_turns <= 8 + n / 256);
    assert_true(most <= 4 * (8 + n / 256));
}

/* --- figures ---------------------------------------------------------------------------------- */

struct moments {
    double n;
    double sum;
    double square;
};

static void moment(struct moments *m, double value) {
    m->n++;
    m->sum += value;
    m->square += value * value;
}
static double mean_of(const struct moments *m) {
    return m->sum / m->n;
}
static double deviation_of(const struct moments *m) {
    return sqrt(fmax(m->square / m->n - mean_of(m) * mean_of(m), 0));
}

/* Level, slope and spread are unbiased and as exact as the header says. */
static void figures_are_as_exact_as_stated(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int kind = 0; kind < 2; kind++) {
        struct moments level = {0};
        struct moments slope = {0};
        struct moments stated = {0};
        struct moments spread = {0};
        int n_slow = 0;
        for (int round = 0; round < 1500; round++) {
            struct dsched_loss stream = {0};
            for (uint64_t t = 0; t < 150; t++) {
                double noise = kind ? conv_laplace(&state) : conv_normal(&state);
                dsched_loss_add(&stream, t, DSCHED_LOSS_GIVEN, 9 - 0.01 * (double)t + noise);
            }
            struct dsched_loss_estimate e = get(&stream);
            moment(&level, e.level - (9 - 1.49));
            moment(&slope, e.slope + 0.01);
            moment(&stated, e.slope_error);
            moment(&spread, e.spread);
            n_slow += e.batch < e.spread;
            assert_true(e.drift == fmax(-e.slope, 0) && e.n == DSCHED_LOSS_WINDOW);
        }
        print_message("level %.3f +- %.3f, slope %.5f +- %.5f (stated %.5f), spread %.3f +- %.3f\n",
                      mean_of(&level), deviation_of(&level), mean_of(&slope), deviation_of(&slope),
                      mean_of(&stated), mean_of(&spread), deviation_of(&spread));
        assert_true(fabs(mean_of(&level)) < 0.03 && fabs(deviation_of(&level) - 0.20) < 0.03);
        assert_true(fabs(mean_of(&slope)) < 3e-4 && fabs(deviation_of(&slope) - 0.0025) < 4e-4);
        assert_true(fabs(mean_of(&stated) - 0.0027) < 3e-4);
        assert_true(fabs(mean_of(&spread) - 1) < 0.05);
        assert_true(deviation_of(&spread) < (kind ? 0.11 : 0.08));
        assert_true(n_slow < 1500 / 50);
    }
}

/* The variogram against a walk of known deviation under the noise of batches. */
static void deviation_is_that_of_the_walk(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    static const double ratios[] = {0.01, 0.05, 0.2, 1, 10, 1e6};
    static const double errors[] = {1.7, 1.0, 0.7, 0.48, 0.36, 0.33};
    for (size_t i = 0; i < sizeof(ratios) / sizeof(ratios[0]); i++) {
        struct moments variance = {0};
        const int n = 1200;
        for (int round = 0; round < n; round++) {
            struct dsched_loss stream = {0};
            double x = 5;
            for (uint64_t t = 0; t < 128; t++) {
                x += sqrt(ratios[i]) * conv_normal(&state) - 0.02;
                dsched_loss_add(&stream, t, DSCHED_LOSS_GIVEN,
                                x + (i % 2 ? conv_normal(&state) : conv_laplace(&state)));
            }
            struct dsched_loss_estimate e = get(&stream);
            assert_true(isfinite(e.deviation) && e.deviation >= 0 && e.batch <= e.spread);
            moment(&variance, e.deviation * e.deviation / ratios[i]);
        }
        double error = deviation_of(&variance);
        print_message("sigma^2 of %g: %.3f +- %.2f of it\n", ratios[i], mean_of(&variance), error);
        assert_true(fabs(mean_of(&variance) - 1) < 0.1 + 2.5 * error / sqrt(n));
        assert_true(error < errors[i]);
    }
}

static void noise_alone_is_no_walk(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    int n_zero = 0;
    int n_high = 0;
    for (int round = 0; round < 1000; round++) {
        struct dsched_loss stream = {0};
        for (uint64_t t = 0; t < 128; t++) {
            dsched_loss_add(&stream, t, DSCHED_LOSS_GIVEN, 5 + conv_normal(&state));
        }
        double deviation = get(&stream).deviation;
        n_zero += deviation == 0;
        n_high += deviation > 0.15;
    }
    print_message("%d of 1000 are 0, %d above 0.15\n", n_zero, n_high);
    assert_true(n_zero > 400 && n_high < 30);
}

/* Every window from one loss on, of every size of number. */
static void short_windows_are_sensible(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 2000; round++) {
        struct dsched_loss stream = {0};
        double scale = pow(10, 200 * conv_uniform(&state) - 101);
        uint64_t n = 1 + testing_random_below(&state, 48);
        uint64_t t = testing_random(&state) >> 1;
        double least = INFINITY;
        double most = -INFINITY;
        for (uint64_t i = 0; i < n; i++) {
            double loss = scale * conv_normal(&state);
            least = fmin(least, loss);
            most = fmax(most, loss);
            dsched_loss_add(&stream, t + i, DSCHED_LOSS_GIVEN, loss);
        }
        struct dsched_loss_estimate e = get(&stream);
        double width = most - least;
        assert_int_equal(e.state, n < DSCHED_LOSS_MIN ? DSCHED_LOSS_FEW : DSCHED_LOSS_FINE);
        assert_true(e.level >= least - width && e.level <= most + width);
        assert_true(e.spread >= 0 && e.spread <= 2 * width);
        assert_true(e.batch >= 0 && e.batch <= e.spread * (1 + 1e-9));
        assert_true(fabs(e.slope) <= 2 * width && e.slope_error >= 0);
        assert_true(isfinite(e.slope_error) && e.excess >= 0 && isfinite(e.excess));
        assert_true(e.deviation >= 0 && e.deviation <= 2 * width);
    }
}

/* Another unit of the loss, another origin of it and of time: the figures follow. */
static void figures_follow_the_unit(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 300; round++) {
        struct dsched_loss one = {0};
        struct dsched_loss other = {0};
        double unit = pow(10, 40 * conv_uniform(&state) - 20);
        double origin = unit * 100 * conv_normal(&state);
        uint64_t begin = testing_random(&state) >> 1;
        uint64_t gap = 1 + testing_random_below(&state, 8);
        double x = 0;
        for (uint64_t t = 0; t < 100; t++) {
            x += 0.3 * conv_normal(&state);
            double loss = x + conv_laplace(&state);
            dsched_loss_add(&one, t, DSCHED_LOSS_GIVEN, loss);
            dsched_loss_add(&other, begin + gap * t, DSCHED_LOSS_GIVEN, origin + unit * loss);
        }
        struct dsched_loss_estimate a = get(&one);
        struct dsched_loss_estimate b = get(&other);
        double g = (double)gap;
        assert_true(fabs((b.level - origin) / unit - a.level) < 1e-6);
        assert_true(fabs(b.spread / unit - a.spread) < 1e-6);
        assert_true(fabs(b.batch / unit - a.batch) < 1e-6);
        assert_true(fabs(b.slope * g / unit - a.slope) < 1e-6);
        assert_true(fabs(b.slope_error * g / unit - a.slope_error) < 1e-6);
        assert_true(fabs(b.deviation * sqrt(g) / unit - a.deviation) < 1e-4);
    }
}

/* A wild loss, of whatever size, moves the figures by little. */
static void wild_losses_move_little(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 300; round++) {
        struct dsched_loss clean = {0};
        struct dsched_loss wild = {0};
        uint64_t at = testing_random_below(&state, 128);
        double height = pow(10, 98 * conv_uniform(&state)) * (round % 2 ? -1 : 1);
        for (uint64_t t = 0; t < 128; t++) {
            double loss = 5 - 0.01 * (double)t + 0.1 * conv_normal(&state);
            dsched_loss_add(&clean, t, DSCHED_LOSS_GIVEN, loss);
            dsched_loss_add(&wild, t, DSCHED_LOSS_GIVEN, t == at ? height : loss);
        }
        struct dsched_loss_estimate a = get(&clean);
        struct dsched_loss_estimate b = get(&wild);
        assert_true(fabs(a.level - b.level) < 0.05);
        assert_true(fabs(a.slope - b.slope) < 5e-4);
        assert_true(b.spread < 1.25 * a.spread && b.spread > 0.8 * a.spread);
        assert_true(b.deviation < 0.1);
        assert_true(fabs(a.excess - b.excess) < 0.1);
    }
}

/* --- any bits --------------------------------------------------------------------------------- */

static void any_bits_are_borne(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 500; round++) {
        struct dsched_loss stream = {0};
        uint64_t iteration = 0;
        for (int i = 0; i < 200; i++) {
            uint64_t bits = testing_random(&state);
            double loss;
            memcpy(&loss, &bits, sizeof(loss));
            iteration += testing_random(&state) >> testing_random_below(&state, 64);
            dsched_loss_add(&stream, iteration, (enum dsched_loss_given)(i % 5 != 0), loss);
        }
        struct dsched_loss_estimate e = get(&stream);
        struct dsched_walk walk;
        double ratio;
        assert_true(isfinite(e.level) && isfinite(e.slope) && isfinite(e.slope_error));
        assert_true(e.spread >= 0 && e.spread <= DSCHED_MAX_MEASURED);
        assert_true(e.deviation >= 0 && e.deviation <= DSCHED_MAX_MEASURED);
        assert_true(e.excess >= 0 && e.excess <= DSCHED_MAX_MEASURED);
        assert_non_null(dsched_loss_state_name(e.state));
        assert_true(strlen(e.text) > 10);
        (void)dsched_loss_walk(&e, DSCHED_AVERAGED, 10, &walk);
        assert_int_equal(dsched_walk_ratio(&walk, 2, 1, &ratio, NULL), DSCHED_OK);
    }
    for (int i = 0; i < (int)DSCHED_N_LOSS_STATES; i++) {
        assert_non_null(dsched_loss_state_name((enum dsched_loss_state)i));
    }
    assert_null(dsched_loss_state_name((enum dsched_loss_state)DSCHED_N_LOSS_STATES));
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(hostile_streams_are_named),
    cmocka_unit_test(a_jump_is_waited_for),
    cmocka_unit_test(a_level_that_stays_is_taken),
    cmocka_unit_test(restarts_and_pauses_start_over),
    cmocka_unit_test(what_is_forgotten_does_not_count),
    cmocka_unit_test(states_do_not_flap),
    cmocka_unit_test(figures_are_as_exact_as_stated),
    cmocka_unit_test(deviation_is_that_of_the_walk),
    cmocka_unit_test(noise_alone_is_no_walk),
    cmocka_unit_test(short_windows_are_sensible),
    cmocka_unit_test(figures_follow_the_unit),
    cmocka_unit_test(wild_losses_move_little),
    cmocka_unit_test(any_bits_are_borne),
};
TESTING_MAIN(cases)
