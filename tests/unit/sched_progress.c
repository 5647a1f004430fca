/* The planner's table of progress against the predictions it is made of. */
#include <math.h>
#include <string.h>

#include <dsched/convergence.h>

#include "testing.h"

#define ONE_PPM  1000000u
#define MOST     12u  /* merges and delays */
#define NEAR_PPM 0.51 /* for each factor that is not 1 */
/* What the header allows where no product can be right, up to this merge and delay. */
#define APART      5e-3
#define APART_MOST 8u

static void random_inputs(uint64_t *seed, struct dsched_efficiency_inputs *out) {
    static const double momenta[] = {0, 0.5, 0.9, 0.99};
    *out = (struct dsched_efficiency_inputs){
        .optimizer = (enum dsched_optimizer_class)testing_random_below(seed, 3),
        .momentum = momenta[testing_random_below(seed, 4)],
        .batch_samples = DSCHED_UNKNOWN,
        .noise_samples = DSCHED_UNKNOWN,
        .rate_curvature = DSCHED_UNKNOWN,
        .measured_frac = DSCHED_UNKNOWN,
    };
    if (testing_random_below(seed, 2) == 0) {
        out->batch_samples = 1 + (double)testing_random_below(seed, 100000);
        out->noise_samples = (double)testing_random_below(seed, 1000000);
    }
    if (testing_random_below(seed, 3) > 0) {
        out->rate_curvature = exp((double)testing_random_below(seed, 1000) / 100 - 8);
    }
    if (testing_random_below(seed, 2) == 0) { /* where stable points are scattered */
        out->optimizer = DSCHED_OPTIMIZER_SGD;
        out->momentum = 0.9;
        out->rate_curvature = 0.03 + (double)testing_random_below(seed, 1000) / 4000;
    }
}

static double predicted(const struct dsched_efficiency_inputs *inputs, enum dsched_rule rule,
                        uint32_t merge, uint32_t delay) {
    struct dsched_efficiency_inputs in = *inputs;
    struct dsched_efficiency efficiency;
    in.rule = rule;
    in.merge = merge;
    in.delay = delay;
    assert_int_equal(dsched_efficiency_predict(&in, &efficiency, NULL), DSCHED_OK);
    return efficiency.progress_frac;
}

static double product(const struct dsched_progress *table, enum dsched_rule rule, uint32_t merge,
                      uint32_t delay) {
    return table->merge_ppm[rule][merge] / 1e6 * (table->delay_ppm[rule][delay] / 1e6);
}

/* Merges 1.. and delays 0.. without a 0 among them. */
struct extent {
    uint32_t n_merges;
    uint32_t n_delays;
};

static struct extent extent_of(const struct dsched_progress *table, enum dsched_rule rule,
                               uint32_t max_merge, uint32_t max_delay) {
    struct extent extent = {0};
    while (extent.n_merges < max_merge && table->merge_ppm[rule][extent.n_merges + 1] > 0) {
        extent.n_merges++;
    }
    while (extent.n_delays <= max_delay && table->delay_ppm[rule][extent.n_delays] > 0) {
        extent.n_delays++;
    }
    return extent;
}

static void assert_near(double ours, double theirs, double slack) {
    if (fabs(ours - theirs) > slack) {
        fail_msg("%.7f is not near %.7f", ours, theirs);
    }
}

/* Within the extent the product is what is predicted, as far as a product can be. */
static void check_point(const struct dsched_efficiency_inputs *inputs,
                        const struct dsched_progress *table, enum dsched_rule rule, uint32_t merge,
                        uint32_t delay) {
    double ours = product(table, rule, merge, delay);
    double theirs = predicted(inputs, rule, merge, delay);
    double near = (merge == 1 || delay == 0 ? 1e-6 : 2e-6) * NEAR_PPM;
    int is_sgd = inputs->optimizer == DSCHED_OPTIMIZER_SGD;
    if (rule == DSCHED_EXACT || (rule == DSCHED_DELAYED && (!is_sgd || merge == 1 || delay == 0))) {
        assert_near(ours, theirs, near);
    } else if (rule == DSCHED_DELAYED) {
        assert_true(ours <= theirs + near);
    } else if (ours > 0 && (merge > APART_MOST || delay > APART_MOST)) {
        assert_true(ours <= theirs * (1 + APART));
    } else if (ours > 0) {
        assert_near(ours, theirs, near + (merge == 1 || delay == 1 ? 0 : APART * theirs));
    } else {
        assert_true(is_sgd && (inputs->rate_curvature >= 0 ||
                               (rule == DSCHED_LOOKAHEAD && inputs->momentum > 0))); /* cut */
    }
    assert_true(theirs > 0 || ours == 0);
}

static int has_stable_merge(const struct dsched_efficiency_inputs *inputs, enum dsched_rule rule,
                            uint32_t merge, uint32_t n_delays) {
    int is_stable = 1;
    for (uint32_t delay = 0; delay < n_delays; delay++) {
        is_stable = is_stable && predicted(inputs, rule, merge, delay) > 0;
    }
    return is_stable;
}

static int has_stable_delay(const struct dsched_efficiency_inputs *inputs, enum dsched_rule rule,
                            uint32_t delay, uint32_t n_merges) {
    int is_stable = 1;
    for (uint32_t merge = 1; merge <= n_merges; merge++) {
        is_stable = is_stable && predicted(inputs, rule, merge, delay) > 0;
    }
    return is_stable;
}

/* No merge and no delay more than is cut could be kept, and beyond them there is nothing. */
static void check_extent(const struct dsched_efficiency_inputs *inputs,
                         const struct dsched_progress *table, enum dsched_rule rule,
                         uint32_t max_merge, uint32_t max_delay) {
    struct extent extent = extent_of(table, rule, max_merge, max_delay);
    if (predicted(inputs, rule, 1, 0) > 0) {
        assert_true(extent.n_merges > 0 && extent.n_delays > 0);
        assert_true(extent.n_merges == max_merge ||
                    !has_stable_merge(inputs, rule, extent.n_merges + 1, extent.n_delays));
        assert_true(extent.n_delays > max_delay ||
                    !has_stable_delay(inputs, rule, extent.n_delays, extent.n_merges));
    }
    for (uint32_t merge = extent.n_merges + 1; merge <= DSCHED_MAX_MERGE; merge++) {
        assert_int_equal(table->merge_ppm[rule][merge], 0);
    }
    for (uint32_t delay = extent.n_delays; delay <= DSCHED_MAX_DELAY; delay++) {
        assert_int_equal(table->delay_ppm[rule][delay], 0);
    }
}

static void the_table_is_what_is_predicted(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 300; i++) {
        struct dsched_efficiency_inputs inputs;
        struct dsched_progress table;
        struct dsched_progress again;
        uint32_t max_merge = 1 + (uint32_t)testing_random_below(&seed, MOST);
        uint32_t max_delay = (uint32_t)testing_random_below(&seed, MOST + 1);
        random_inputs(&seed, &inputs);
        memset(&table, 0x55, sizeof(table));
        memset(&again, 0xAA, sizeof(again));
        assert_int_equal(dsched_progress_predict(&inputs, max_merge, max_delay, &table, NULL),
                         DSCHED_OK);
        assert_int_equal(dsched_progress_predict(&inputs, max_merge, max_delay, &again, NULL),
                         DSCHED_OK);
        assert_memory_equal(&table, &again, sizeof(table));
        for (uint32_t rule = 0; rule < DSCHED_N_RULES; rule++) {
            check_extent(&inputs, &table, (enum dsched_rule)rule, max_merge, max_delay);
            for (uint32_t merge = 1; merge <= max_merge; merge++) {
                for (uint32_t delay = 0; delay <= max_delay; delay++) {
                    check_point(&inputs, &table, (enum dsched_rule)rule, merge, delay);
                }
            }
        }
    }
}

static void check_refused(const struct dsched_efficiency_inputs *inputs, uint32_t max_merge,
                          uint32_t max_delay, const char *text) {
    struct dsched_error error = {.text = ""};
    struct dsched_progress table;
    struct dsched_progress before;
    memset(&table, 0x55, sizeof(table));
    before = table;
    assert_int_equal(dsched_progress_predict(inputs, max_merge, max_delay, &table, &error),
                     DSCHED_INVALID);
    assert_non_null(strstr(error.text, text));
    assert_memory_equal(&table, &before, sizeof(table));
}

static void limits_of_the_table_are_checked(void **unused) {
    uint64_t seed = testing_seed();
    struct dsched_efficiency_inputs inputs;
    struct dsched_progress table;
    (void)unused;
    random_inputs(&seed, &inputs);
    assert_int_equal(
        dsched_progress_predict(&inputs, DSCHED_MAX_MERGE, DSCHED_MAX_DELAY, &table, NULL),
        DSCHED_OK);
    assert_int_equal(table.delay_ppm[DSCHED_EXACT][DSCHED_MAX_DELAY], ONE_PPM);
    check_refused(&inputs, 0, 8, "merge of 1..64 and a largest delay of 0..64, not 0 and 8");
    check_refused(&inputs, DSCHED_MAX_MERGE + 1, 8, "not 65 and 8");
    check_refused(&inputs, 8, DSCHED_MAX_DELAY + 1, "not 8 and 65");
    inputs.measured_frac = 0.5;
    check_refused(&inputs, 8, 8, "one measurement of 0.5");
    inputs.measured_frac = DSCHED_UNKNOWN;
    inputs.momentum = 1;
    check_refused(&inputs, 8, 8, "momentum");
    inputs.momentum = NAN;
    check_refused(&inputs, 8, 8, "momentum");
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(the_table_is_what_is_predicted),
    cmocka_unit_test(limits_of_the_table_are_checked),
};
TESTING_MAIN(cases)
