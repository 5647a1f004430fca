/* Losses of any bits, in any order of iterations, through the stream and the drift test: states and
 * figures keep their ranges, and what the admission is given is legal. */
#include <math.h>
#include <string.h>

#include <dsched/loss.h>

#include "fuzzing.h"

struct bytes {
    const uint8_t *next;
    const uint8_t *end;
};

static uint8_t take(struct bytes *bytes) {
    return bytes->next < bytes->end ? *bytes->next++ : 0;
}

static uint64_t take_word(struct bytes *bytes) {
    uint64_t word = 0;
    for (int i = 0; i < 8; i++) {
        word = word << 8 | take(bytes);
    }
    return word;
}

static double take_double(struct bytes *bytes) {
    uint64_t word = take_word(bytes);
    double value;
    memcpy(&value, &word, sizeof(value));
    return value;
}

static int is_within(double value, double least) {
    return value >= least && value <= DSCHED_MAX_MEASURED;
}

static void check_estimate(const struct dsched_loss *stream, double floor) {
    struct dsched_loss_estimate e;
    struct dsched_walk walk;
    double ratio;
    dsched_loss_get(stream, floor, &e);
    fuzzing_require(dsched_loss_state_name(e.state) != NULL, "a state has a name");
    fuzzing_require(e.text[0] != '\0' && memchr(e.text, '\0', sizeof(e.text)) != NULL,
                    "a text ends");
    fuzzing_require(is_within(e.level, -DSCHED_MAX_MEASURED), "levels are measured");
    fuzzing_require(is_within(e.slope, -DSCHED_MAX_MEASURED), "slopes are measured");
    fuzzing_require(is_within(e.slope_error, 0), "errors are 0 or more");
    fuzzing_require(is_within(e.spread, 0) && is_within(e.batch, 0), "spreads are 0 or more");
    fuzzing_require(is_within(e.excess, 0) && is_within(e.drift, 0) && is_within(e.deviation, 0),
                    "walks are of figures of 0 or more");
    (void)dsched_loss_walk(&e, DSCHED_AVERAGED, 3, &walk);
    fuzzing_require(dsched_walk_ratio(&walk, 2, 1, &ratio, NULL) == DSCHED_OK && ratio >= 0,
                    "walks are legal");
    double ceiling = dsched_loss_ceiling(&e, 0.05, 4);
    fuzzing_require((ceiling == DSCHED_UNKNOWN && e.state != DSCHED_LOSS_FINE) ||
                        (ceiling >= e.level && ceiling <= DSCHED_MAX_MEASURED),
                    "ceilings are above the level");
}

static void check_drift(const struct dsched_drift *drift) {
    fuzzing_require(drift->result <= DSCHED_DRIFT_BROKEN, "a result is one of four");
    fuzzing_require(drift->triple_cusum >= 0 && drift->rise_cusum >= 0 &&
                        isfinite(drift->triple_cusum) && isfinite(drift->rise_cusum),
                    "sums are 0 or more");
    fuzzing_require(isfinite(drift->last_z) && isfinite(drift->drift_sum) &&
                        isfinite(drift->variance_sum) && isfinite(drift->norm_mean),
                    "figures are finite");
}

/* One iteration: a byte says how it follows the last, a second what its loss is. */
static void step(struct bytes *bytes, uint64_t *iteration, double *loss, struct dsched_loss *stream,
                 struct dsched_drift *drift) {
    uint8_t how = take(bytes);
    uint8_t what = take(bytes);
    if (how < 224) {
        *iteration += 1;
    } else if (how < 248) {
        *iteration += (uint64_t)(how % 8) * how;
    } else if (how < 252) {
        *iteration -= how;
    } else {
        *iteration = take_word(bytes);
    }
    if (what >= 248) {
        *loss = take_double(bytes);
    } else if (what >= 16) {
        *loss = *loss * (1 + (what - 132) * 1e-4);
    }
    enum dsched_loss_given given = what == 1 ? DSCHED_LOSS_NOT_GIVEN : DSCHED_LOSS_GIVEN;
    enum dsched_drift_label label = what == 2 ? DSCHED_DRIFT_PLAN : dsched_drift_wants(drift);
    double norm = what == 3 ? take_double(bytes) : DSCHED_UNKNOWN;
    dsched_loss_add(stream, *iteration, given, *loss);
    (void)dsched_drift_add(drift, label, *iteration, *loss, norm);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct bytes bytes = {.next = data, .end = data + size};
    struct dsched_loss stream = {0};
    struct dsched_drift_options options;
    struct dsched_drift drift;
    dsched_drift_defaults(&options);
    options.window_losses = 8 + take(&bytes) % 32;
    options.settle_losses = take(&bytes) % 16;
    if (dsched_drift_init(&drift, &options, NULL) != DSCHED_OK) {
        fuzzing_require(0, "options within their limits are taken");
    }
    double floor = take_double(&bytes);
    double loss = take_double(&bytes);
    uint64_t iteration = take_word(&bytes);
    for (uint32_t i = 0; bytes.next < bytes.end; i++) {
        step(&bytes, &iteration, &loss, &stream, &drift);
        check_drift(&drift);
        if (i % 32 == 0) {
            check_estimate(&stream, floor);
        }
    }
    check_estimate(&stream, floor);
    return 0;
}
