/* What a job's stream of training losses says: where the loss is, how it moves, and whether it can
 * be trusted at all.
 *
 * Pure, like convergence.h: no memory, clock or state but the struct that is passed in; a zeroed
 * struct is fresh. One value per iteration, the mean over the ranks of single batches. All of it is
 * ours but where a source is named. */
#ifndef DSCHED_LOSS_H
#define DSCHED_LOSS_H

#include <stdint.h>

#include <dsched/convergence.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What a stream is, by what was seen of it lately. In every state but FINE the guard has nothing to
 * judge by, and the name goes into the decision. */
enum dsched_loss_state {
    DSCHED_LOSS_ABSENT = 0,    /* none was ever given */
    DSCHED_LOSS_FINE = 1,      /* moves as losses of batches do */
    DSCHED_LOSS_FEW = 2,       /* too few for a word, since the start, a restart or a pause */
    DSCHED_LOSS_CONSTANT = 3,  /* the same value over and over: a placeholder, or a frozen job */
    DSCHED_LOSS_SPARSE = 4,    /* far fewer values than iterations, e.g. one per epoch */
    DSCHED_LOSS_MISSING = 5,   /* came, and has stopped coming */
    DSCHED_LOSS_BROKEN = 6,    /* given, and not finite or beyond DSCHED_MAX_MEASURED */
    DSCHED_LOSS_UNSETTLED = 7, /* jumped up, by itself or at a restart, and has not come back */
    DSCHED_LOSS_STEPPED = 8, /* the same value for many iterations, then another: a validation loss
                                or an average over an epoch in place of the batch's */
};
#define DSCHED_N_LOSS_STATES 9u
/* "absent", "fine", ...; NULL for a foreign value. */
const char *dsched_loss_state_name(enum dsched_loss_state state);

#define DSCHED_LOSS_WINDOW 128u
/* No job makes as many iterations in a pause; a window of such leaps is still exact in doubles. */
#define DSCHED_LOSS_MAX_LEAP (UINT64_C(1) << 40)
/* Fewer losses than this are FEW: the slope of 32 has an error of 1 % of the spread. */
#define DSCHED_LOSS_MIN 32u
/* A state gives way to a better one (few, then fine, are the best) this many iterations after the
 * last sign of it, to a worse one at once. A better one that did not last eight times as long
 * doubles the hold, up to DSCHED_LOSS_MAX_HOLD; one that did takes it back to the least. A stream
 * that looks sound and broken in turn therefore ends as broken, and but for the first few times
 * better turns to worse at most once in 256 iterations, whatever comes. */
#define DSCHED_LOSS_MIN_HOLD 32u
#define DSCHED_LOSS_MAX_HOLD 1024u

struct dsched_loss {
    uint64_t n_iterations; /* seen, with a loss or without */
    uint64_t n_given;
    uint64_t n_broken; /* given, not finite */
    uint64_t last_iteration;
    uint64_t last_given; /* iteration of the newest that was given */
    int newest_broken;
    int has_lowest;
    double lowest; /* of the medians of three finite ones in a row: one wild value is no floor */
    /* How they come. */
    double log_gap; /* smoothed logarithm of the iterations between two that were given */
    uint32_t n_gaps;
    uint32_t n_same;  /* finite ones since they last changed */
    uint32_t stretch; /* the longest finished row of the same value, while rows last */
    uint32_t n_compared;
    double repeats; /* smoothed share of those that equal the one before */
    /* Where the loss was while all was well, and whether it is far above now. */
    int has_reference;
    double reference;
    double reference_spread;
    uint32_t high; /* the newest eight, a bit each: above the reference */
    int has_jumped;
    uint32_t n_jumped; /* losses since */
    /* What was made of it. */
    enum dsched_loss_state state;
    enum dsched_loss_state verdict;      /* on the newest iteration alone */
    uint64_t seen[DSCHED_N_LOSS_STATES]; /* n_iterations at the newest verdict of each kind */
    uint64_t better_since;
    int has_worsened; /* since then */
    uint32_t hold;
    uint32_t n_window; /* newest finite ones, at most DSCHED_LOSS_WINDOW */
    uint32_t at;
    struct {
        double loss;
        uint64_t iteration;
    } window[DSCHED_LOSS_WINDOW]; /* a ring */
};

enum dsched_loss_given {
    DSCHED_LOSS_NOT_GIVEN = 0,
    DSCHED_LOSS_GIVEN =
        1, /* a value that is not finite, or beyond DSCHED_MAX_MEASURED, is broken */
};
/* Once per iteration, in order. Iterations that are left out count as without a loss. One that does
 * not come after the last (a restart) or DSCHED_LOSS_MAX_LEAP after it, or the first loss after a
 * long pause, starts the window over. */
void dsched_loss_add(struct dsched_loss *stream, uint64_t iteration, enum dsched_loss_given given,
                     double loss);

/* Starts the window over, for a caller that knows what is in it to be of no use: losses under a
 * plan that did harm widen the spread, and with it the next ceiling, until the window has passed
 * them. Where the loss was before is kept, so one that has not come back is UNSETTLED. */
void dsched_loss_forget(struct dsched_loss *stream);

struct dsched_loss_estimate {
    enum dsched_loss_state state;
    double level;  /* robust mean of the newest 32 losses, moved along the slope to the newest; or
                      DSCHED_UNKNOWN when n is 0. Standard error 0.19 spread */
    double spread; /* robust deviation of a single loss around the trend; >= 0. Relative standard
                      error 7 % for 128 losses of normal noise, 10 % for Laplace's */
    double batch;  /* of it, what differs from batch to batch and therefore averages out; the whole
                      spread unless the rest is more than chance explains */
    double slope;  /* per iteration, robust (Theil and Sen, of binned means). For 128 losses of
                      independent noise its standard error is 0.0026 spread */
    double slope_error; /* its standard error, from the scatter of the bins. A walk of the loss
                           itself adds 1.2 deviation^2 / iterations of the window to its square */
    double excess;      /* level above the floor: above 0, or, when losses are negative, above the
                           lowest ever seen minus the spread; >= 0 */
    double drift;       /* mu of dsched_walk: max(0, -slope). Biased up where slope is mostly noise:
                           by 0.4 slope_error when there is none */
    double deviation;   /* sigma of dsched_walk: the deviation of the loss itself per iteration, the
                           batches' noise taken out: from the slope of the variogram
                           E (L(t + h) - L(t) - slope h)^2 = h sigma^2 + 2 batch^2, at least 0.
                           A window of 128 says little of it: deviation^2 is unbiased within 10 %,
                           but has a relative standard error of 25 % far above batch, 40 % at
                           batch, 55 %, 80 % and 130 % where it is a fifth, a twentieth and a
                           hundredth of batch^2. Without any walk the deviation comes out as 0 half
                           the time, and nearly always below 0.15 batch */
    uint32_t n;
    char text[160]; /* one clause that names state and figures, for decisions */
};
/* `floor`: the least loss the job can reach, or DSCHED_UNKNOWN. Some 30 microseconds. */
void dsched_loss_get(const struct dsched_loss *stream, double floor,
                     struct dsched_loss_estimate *out);

/* Iterations to look ahead when none are given. */
#define DSCHED_DEFAULT_WALK_ITERATIONS 1000u
/* The walk of dsched_admit_merge under `rule`: a merged update of delayed is a mean, one of
 * averaged the sum of its steps. `n_iterations` 0: the default; more than
 * DSCHED_MAX_WALK_ITERATIONS count as that, and so do those in which the drift would take more than
 * half of the excess away. Returns 1; 0 when the state is not FINE, with a walk of zeros, whose
 * ratio is 1 at every merge: nothing is known against a plan, so the caller must have another
 * reason to run it. */
int dsched_loss_walk(const struct dsched_loss_estimate *estimate, enum dsched_rule rule,
                     uint32_t n_iterations, struct dsched_walk *out);

/* The mean of `n_values` losses in a row above which a running plan must be left at once,
 *   level + max(epsilon max(level, excess), z sqrt(batch^2 (1/n + 1/32) + 2 (spread^2 - batch^2))),
 * the second being what noise reaches: 1/32 is the error of the level, and what does not average
 * out counts in full, now and then. z = (4.75 + 11 / (n + 1.4)) (1 + 8 / losses of the estimate) is
 * the quantile of 1e-6 for the mean of n Laplace variables, to 5 %, with room for the error of the
 * spread. So a figure of a stationary stream whose noise is no heavier than Laplace's is above the
 * ceiling with a probability of some 1e-6, and of less with normal noise. With n = 4 the epsilon
 * decides up to a spread of epsilon / 4 of the level.
 * DSCHED_UNKNOWN (compare with ==: losses may be negative) when the state is not FINE, n is 0 or
 * epsilon is not within 0..1. */
double dsched_loss_ceiling(const struct dsched_loss_estimate *estimate, double epsilon_frac,
                           uint32_t n_values);

#ifdef __cplusplus
}
#endif
#endif
