#include <dsched/loss.h>

#include "loss_measure.h"
#include "tail.h"

#include <math.h>
#include <stdio.h>

/* More iterations than this between two losses, smoothed, are sparse; fewer than the second are no
 * longer. */
#define LOSS_SPARSE_GAP 16.0
#define LOSS_DENSE_GAP  12.0
/* Losses have stopped after so many iterations, and so many of the usual gaps. */
#define LOSS_MISSING_ITERATIONS 64.0
#define LOSS_MISSING_GAPS       8.0
/* How slowly the gap and the share of repeats follow. */
#define LOSS_GAP_MEMORY    8u
#define LOSS_GAP_STEP      1.0 /* of the logarithm, upwards */
#define LOSS_REPEAT_MEMORY 32u
/* A row of so many equal losses is constant. Losses in half precision repeat, but not that often.
 */
#define LOSS_CONSTANT 32u
/* A row that is remembered as a step, and how much longer the next may be to be one as well. */
#define LOSS_STRETCH        16u
#define LOSS_STRETCH_FACTOR 4u
/* Shares of repeats: from the first on it is stepped, below the second no longer, and below the
 * third earlier rows are forgotten. */
#define LOSS_STEPPED 0.75
#define LOSS_MOVES   0.5
#define LOSS_IS_FREE 0.1
/* Losses between two measurements of the reference. */
#define LOSS_REFERENCE_EVERY 16u
/* A jump: six of the newest eight are more than five deviations above the reference; it is over
 * when at most two are more than three above. Single wild losses are none, even of Cauchy's kind.
 */
#define LOSS_HIGH_BITS      0xffu
#define LOSS_HIGH_MANY      6
#define LOSS_HIGH_FEW       2
#define LOSS_HIGH_DEVIATION 5.0
#define LOSS_BACK_DEVIATION 3.0
/* Of the level: a job without noise does not jump when it rises a little. */
#define LOSS_LEAST_DEVIATION 0.004
/* Losses after which a higher level is taken for the new one. */
#define LOSS_SETTLED 1024u
/* A better state lasted: this many times the hold. */
#define LOSS_LASTED 8u
/* Of one figure against the ceiling. */
#define LOSS_FALSE_ALARM 1e-6

const char *dsched_loss_state_name(enum dsched_loss_state state) {
    switch (state) {
    case DSCHED_LOSS_ABSENT:
        return "absent";
    case DSCHED_LOSS_FINE:
        return "fine";
    case DSCHED_LOSS_FEW:
        return "few";
    case DSCHED_LOSS_CONSTANT:
        return "constant";
    case DSCHED_LOSS_SPARSE:
        return "sparse";
    case DSCHED_LOSS_MISSING:
        return "missing";
    case DSCHED_LOSS_BROKEN:
        return "broken";
    case DSCHED_LOSS_UNSETTLED:
        return "unsettled";
    case DSCHED_LOSS_STEPPED:
        return "stepped";
    }
    return NULL;
}

/* --- what comes in ---------------------------------------------------------------------------- */

static void loss_start_over(struct dsched_loss *stream) {
    stream->n_window = 0;
    stream->at = 0;
    stream->high = 0;
}

static double loss_missing_limit(const struct dsched_loss *stream) {
    double usual = stream->n_gaps > 0 ? LOSS_MISSING_GAPS * exp(stream->log_gap) : 0;
    return fmax(usual, LOSS_MISSING_ITERATIONS);
}

static int loss_is_sparse(const struct dsched_loss *stream) {
    double most =
        stream->verdict == DSCHED_LOSS_SPARSE ? log(LOSS_DENSE_GAP) : log(LOSS_SPARSE_GAP);
    return stream->n_gaps > 0 && stream->log_gap > most;
}

/* A gap is averaged by its logarithm: one pause does not make a stream sparse. */
static void loss_take_gap(struct dsched_loss *stream, uint64_t iteration) {
    if (stream->n_given > 1 && iteration > stream->last_given) {
        double gap = (double)(iteration - stream->last_given);
        int is_pause = gap > loss_missing_limit(stream);
        stream->n_gaps += stream->n_gaps < LOSS_GAP_MEMORY;
        double step = (log(gap) - stream->log_gap) / stream->n_gaps;
        stream->log_gap += stream->n_gaps > 1 ? fmin(step, LOSS_GAP_STEP) : step;
        if (is_pause && !loss_is_sparse(stream)) {
            loss_start_over(stream);
        }
    }
    stream->last_given = iteration;
}

static void loss_take_repeat(struct dsched_loss *stream, double loss) {
    uint32_t newest = (stream->at + DSCHED_LOSS_WINDOW - 1) % DSCHED_LOSS_WINDOW;
    if (stream->n_window == 0) {
        stream->n_same = 1;
        return;
    }
    int is_same = stream->window[newest].loss == loss;
    stream->n_compared += stream->n_compared < LOSS_REPEAT_MEMORY;
    stream->repeats += ((double)is_same - stream->repeats) / stream->n_compared;
    if (is_same) {
        stream->n_same += stream->n_same < UINT32_MAX;
        return;
    }
    if (stream->n_same >= LOSS_STRETCH && stream->n_same > stream->stretch) {
        stream->stretch = stream->n_same;
    } else if (stream->repeats < LOSS_IS_FREE) {
        stream->stretch = 0;
    }
    stream->n_same = 1;
}

static void loss_take_lowest(struct dsched_loss *stream) {
    if (stream->n_window < 3) {
        return;
    }
    double last[3];
    for (uint32_t i = 0; i < 3; i++) {
        last[i] =
            stream->window[(stream->at + DSCHED_LOSS_WINDOW - 1 - i) % DSCHED_LOSS_WINDOW].loss;
    }
    double median = fmax(fmin(last[0], last[1]), fmin(fmax(last[0], last[1]), last[2]));
    stream->lowest = stream->has_lowest ? fmin(stream->lowest, median) : median;
    stream->has_lowest = 1;
}

static void loss_take_jump(struct dsched_loss *stream, double loss) {
    if (!stream->has_reference) {
        return;
    }
    double deviation =
        fmax(stream->reference_spread, LOSS_LEAST_DEVIATION * fabs(stream->reference));
    double most = deviation * (stream->has_jumped ? LOSS_BACK_DEVIATION : LOSS_HIGH_DEVIATION);
    stream->high = (stream->high << 1 | (loss > stream->reference + most)) & LOSS_HIGH_BITS;
    int n_high = 0;
    for (uint32_t bits = stream->high; bits != 0; bits &= bits - 1) {
        n_high++;
    }
    if (!stream->has_jumped) {
        stream->has_jumped = n_high >= LOSS_HIGH_MANY;
        stream->n_jumped = 0;
        return;
    }
    stream->n_jumped++;
    if (n_high <= LOSS_HIGH_FEW) {
        stream->has_jumped = 0;
    } else if (stream->n_jumped >= LOSS_SETTLED) {
        stream->has_jumped = 0;
        stream->has_reference = 0;
    }
}

static void loss_push(struct dsched_loss *stream, uint64_t iteration, double loss) {
    loss_take_repeat(stream, loss);
    stream->window[stream->at].loss = loss;
    stream->window[stream->at].iteration = iteration;
    stream->at = (stream->at + 1) % DSCHED_LOSS_WINDOW;
    stream->n_window += stream->n_window < DSCHED_LOSS_WINDOW;
    loss_take_lowest(stream);
    loss_take_jump(stream, loss);
}

/* --- what it is ------------------------------------------------------------------------------- */

static int loss_is_stepped(const struct dsched_loss *stream) {
    if (stream->n_same >= LOSS_CONSTANT) {
        return stream->stretch > 0 && stream->n_same / LOSS_STRETCH_FACTOR <= stream->stretch;
    }
    double least = stream->verdict == DSCHED_LOSS_STEPPED ? LOSS_MOVES : LOSS_STEPPED;
    return stream->n_compared >= LOSS_REPEAT_MEMORY - 1 && stream->repeats >= least;
}

static enum dsched_loss_state loss_look(const struct dsched_loss *stream) {
    if (stream->n_given == 0) {
        return DSCHED_LOSS_ABSENT;
    }
    if (stream->newest_broken) {
        return DSCHED_LOSS_BROKEN;
    }
    if ((double)(stream->last_iteration - stream->last_given) > loss_missing_limit(stream)) {
        return DSCHED_LOSS_MISSING;
    }
    if (loss_is_sparse(stream)) {
        return DSCHED_LOSS_SPARSE;
    }
    if (loss_is_stepped(stream)) {
        return DSCHED_LOSS_STEPPED;
    }
    if (stream->n_same >= LOSS_CONSTANT) {
        return DSCHED_LOSS_CONSTANT;
    }
    if (stream->has_jumped) {
        return DSCHED_LOSS_UNSETTLED;
    }
    return stream->n_window < DSCHED_LOSS_MIN ? DSCHED_LOSS_FEW : DSCHED_LOSS_FINE;
}

/* What these leave in the window is no loss of a batch, or not of the job as it is now. */
static int loss_spoils(enum dsched_loss_state state) {
    return state == DSCHED_LOSS_CONSTANT || state == DSCHED_LOSS_STEPPED ||
           state == DSCHED_LOSS_UNSETTLED || state == DSCHED_LOSS_SPARSE;
}

/* Worst first. */
static const enum dsched_loss_state loss_ranks[] = {
    DSCHED_LOSS_BROKEN,  DSCHED_LOSS_MISSING,  DSCHED_LOSS_SPARSE,
    DSCHED_LOSS_STEPPED, DSCHED_LOSS_CONSTANT, DSCHED_LOSS_UNSETTLED,
    DSCHED_LOSS_FEW,     DSCHED_LOSS_FINE,     DSCHED_LOSS_ABSENT};

static int loss_rank(enum dsched_loss_state state) {
    int rank = 0;
    while (loss_ranks[rank] != state) {
        rank++;
    }
    return rank;
}

/* The worst verdict that is recent enough. */
static enum dsched_loss_state loss_held(const struct dsched_loss *stream) {
    int rank = 0;
    for (; loss_ranks[rank] != stream->verdict; rank++) {
        enum dsched_loss_state state = loss_ranks[rank];
        /* Few losses become enough by their number alone, unless better states do not last. */
        uint32_t hold =
            state == DSCHED_LOSS_FEW ? stream->hold - DSCHED_LOSS_MIN_HOLD : stream->hold;
        if (stream->seen[state] > 0 && stream->n_iterations - stream->seen[state] < hold) {
            break;
        }
    }
    return loss_ranks[rank];
}

static void loss_judge(struct dsched_loss *stream) {
    enum dsched_loss_state verdict = loss_look(stream);
    if (loss_spoils(stream->verdict) &&
        (verdict == DSCHED_LOSS_FINE || verdict == DSCHED_LOSS_FEW)) {
        loss_start_over(stream);
        verdict = DSCHED_LOSS_FEW;
    }
    stream->verdict = verdict;
    if (verdict == DSCHED_LOSS_ABSENT) {
        return;
    }
    stream->seen[verdict] = stream->n_iterations;
    if (stream->hold < DSCHED_LOSS_MIN_HOLD) {
        stream->hold = DSCHED_LOSS_MIN_HOLD;
    }
    enum dsched_loss_state state = loss_held(stream);
    int better = loss_rank(state) - loss_rank(stream->state);
    if (better > 0) {
        stream->better_since = stream->n_iterations;
        stream->has_worsened = 0;
    } else if (better < 0 && stream->state != DSCHED_LOSS_ABSENT && !stream->has_worsened) {
        uint64_t lasted = stream->n_iterations - stream->better_since;
        uint32_t twice =
            stream->hold < DSCHED_LOSS_MAX_HOLD / 2 ? 2 * stream->hold : DSCHED_LOSS_MAX_HOLD;
        stream->hold =
            lasted >= (uint64_t)LOSS_LASTED * stream->hold ? DSCHED_LOSS_MIN_HOLD : twice;
        stream->has_worsened = 1;
    }
    stream->state = state;
}

/* Where the loss is, for jumps to come. */
static void loss_refer(struct dsched_loss *stream) {
    struct loss_figures figures;
    if (stream->verdict != DSCHED_LOSS_FINE || stream->at % LOSS_REFERENCE_EVERY != 0) {
        return;
    }
    loss_measure(stream, &figures);
    stream->reference = figures.level;
    stream->reference_spread = figures.spread;
    stream->has_reference = 1;
}

void dsched_loss_add(struct dsched_loss *stream, uint64_t iteration, enum dsched_loss_given given,
                     double loss) {
    int is_sound = isfinite(loss) && fabs(loss) <= DSCHED_MAX_MEASURED;
    if (stream->n_iterations > 0 && (iteration <= stream->last_iteration ||
                                     iteration - stream->last_iteration > DSCHED_LOSS_MAX_LEAP)) {
        loss_start_over(stream);
        stream->last_given = iteration;
    }
    stream->n_iterations++;
    stream->last_iteration = iteration;
    if (given == DSCHED_LOSS_GIVEN) {
        stream->n_given++;
        stream->newest_broken = !is_sound;
        loss_take_gap(stream, iteration);
        if (is_sound) {
            loss_push(stream, iteration, loss);
        } else {
            stream->n_broken++;
        }
    }
    loss_judge(stream);
    if (given == DSCHED_LOSS_GIVEN && is_sound) {
        loss_refer(stream);
    }
}

void dsched_loss_forget(struct dsched_loss *stream) {
    loss_start_over(stream);
    loss_judge(stream);
}

/* --- what it says ----------------------------------------------------------------------------- */

static void loss_explain(const struct dsched_loss *stream, struct dsched_loss_estimate *e) {
    unsigned long long n_given = stream->n_given;
    unsigned long long n_broken = stream->n_broken;
    unsigned long long since = stream->last_iteration - stream->last_given;
    char *text = e->text;
    size_t size = sizeof(e->text);
    switch (e->state) {
    case DSCHED_LOSS_ABSENT:
        (void)snprintf(text, size, "no loss was ever given in %llu iterations",
                       (unsigned long long)stream->n_iterations);
        return;
    case DSCHED_LOSS_FINE:
        (void)snprintf(text, size,
                       "the loss is %.5g, falls by %.3g (+- %.2g) an iteration, and differs by "
                       "%.3g from batch to batch, in the newest %u",
                       e->level, -e->slope, e->slope_error, e->spread, e->n);
        return;
    case DSCHED_LOSS_FEW:
        (void)snprintf(text, size, "too few losses yet: %u since the start, a restart or a pause",
                       e->n);
        return;
    case DSCHED_LOSS_CONSTANT:
        (void)snprintf(text, size, "the loss was the same %.5g in %u iterations", e->level,
                       stream->n_same);
        return;
    case DSCHED_LOSS_SPARSE:
        (void)snprintf(text, size, "a loss is given in one of %.3g iterations only",
                       exp(stream->log_gap));
        return;
    case DSCHED_LOSS_MISSING:
        (void)snprintf(text, size, "losses stopped: none in %llu iterations after %llu", since,
                       n_given);
        return;
    case DSCHED_LOSS_BROKEN:
        (void)snprintf(
            text, size,
            "%llu of %llu losses are not finite or beyond 1e100, the newest of them lately",
            n_broken, n_given);
        return;
    case DSCHED_LOSS_UNSETTLED:
        (void)snprintf(text, size,
                       "the loss jumped from %.5g to %.5g and has not been back for long",
                       stream->reference, e->level);
        return;
    case DSCHED_LOSS_STEPPED:
        (void)snprintf(
            text, size,
            "the loss stays the same for up to %u iterations and then steps, unlike that "
            "of batches",
            stream->stretch > stream->n_same ? stream->stretch : stream->n_same);
        return;
    }
}

void dsched_loss_get(const struct dsched_loss *stream, double floor,
                     struct dsched_loss_estimate *out) {
    struct loss_figures figures;
    struct dsched_loss_estimate e = {
        .state = stream->state, .level = DSCHED_UNKNOWN, .n = stream->n_window};
    if (e.n > 0) {
        loss_measure(stream, &figures);
        double lowest = stream->has_lowest ? stream->lowest : figures.lowest;
        double least = lowest < 0 ? lowest - figures.spread : 0;
        if (isfinite(floor) && fabs(floor) <= DSCHED_MAX_MEASURED && floor != DSCHED_UNKNOWN) {
            least = floor;
        }
        e.level = figures.level;
        e.spread = figures.spread;
        e.batch = figures.batch;
        e.slope = figures.slope;
        e.slope_error = figures.slope_error;
        e.deviation = figures.deviation;
        e.drift = fmax(-figures.slope, 0);
        e.excess = fmin(fmax(e.level - least, 0), DSCHED_MAX_MEASURED);
    }
    loss_explain(stream, &e);
    *out = e;
}

/* --- what it is used for ---------------------------------------------------------------------- */

int dsched_loss_walk(const struct dsched_loss_estimate *estimate, enum dsched_rule rule,
                     uint32_t n_iterations, struct dsched_walk *out) {
    struct dsched_walk walk = {
        .n_iterations = n_iterations == 0 ? DSCHED_DEFAULT_WALK_ITERATIONS : n_iterations,
        .scaling = rule == DSCHED_AVERAGED ? DSCHED_WALK_SUM : DSCHED_WALK_MEAN};
    int is_known = estimate->state == DSCHED_LOSS_FINE;
    if (walk.n_iterations > DSCHED_MAX_WALK_ITERATIONS) {
        walk.n_iterations = DSCHED_MAX_WALK_ITERATIONS;
    }
    if (is_known) {
        walk.excess = estimate->excess;
        walk.drift = estimate->drift;
        walk.deviation = estimate->deviation;
        /* A drift does not last: losses fall ever more slowly. Half the way down is as far as it
         * says anything, and keeps the walk of exact off the floor. */
        double half = walk.drift > 0 ? walk.excess / (2 * walk.drift) : INFINITY;
        if (half < walk.n_iterations) {
            walk.n_iterations = half > 1 ? (uint32_t)half : 1;
        }
    }
    *out = walk;
    return is_known;
}

double dsched_loss_ceiling(const struct dsched_loss_estimate *estimate, double epsilon_frac,
                           uint32_t n_values) {
    double n = n_values;
    if (estimate->state != DSCHED_LOSS_FINE || estimate->n == 0 || n_values == 0 ||
        !(epsilon_frac >= 0 && epsilon_frac <= 1)) {
        return DSCHED_UNKNOWN;
    }
    double z = tail_reach(LOSS_FALSE_ALARM, n) * (1 + 8.0 / estimate->n);
    double batch2 = estimate->batch * estimate->batch;
    double slow2 = fmax(estimate->spread * estimate->spread - batch2, 0);
    double noise = z * sqrt(batch2 * (1 / n + 1 / 32.0) + 2 * slow2);
    double allowed = epsilon_frac * fmax(estimate->level, estimate->excess);
    return fmin(estimate->level + fmax(allowed, noise), DSCHED_MAX_MEASURED);
}
