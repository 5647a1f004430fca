/* What a job's stream of training losses says: where the loss is, how it moves, and whether it can
 * be trusted at all.
 *
 * Pure, like convergence.h: no memory, clock or state but the struct that is passed in; a zeroed
 * struct is fresh. One value per iteration, the mean over the ranks of single batches. */
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
    DSCHED_LOSS_FEW = 2,       /* too few for a word */
    DSCHED_LOSS_CONSTANT = 3,  /* the same value over and over: a placeholder, or a frozen job */
    DSCHED_LOSS_SPARSE = 4,    /* far fewer values than iterations, e.g. one per epoch */
    DSCHED_LOSS_MISSING = 5,   /* came, and has stopped coming */
    DSCHED_LOSS_BROKEN = 6,    /* the newest was given and is not finite */
    DSCHED_LOSS_UNSETTLED = 7, /* jumped since a restart or a pause and has not come back */
    DSCHED_LOSS_STEPPED = 8, /* the same value for many iterations, then another: a validation loss
                                or an average over an epoch in place of the batch's */
};
/* "absent", "fine", ...; NULL for a foreign value. */
const char *dsched_loss_state_name(enum dsched_loss_state state);

#define DSCHED_LOSS_WINDOW 128u

struct dsched_loss {
    uint64_t n_iterations; /* seen, with a loss or without */
    uint64_t n_given;
    uint64_t n_broken; /* given, not finite */
    uint64_t last_iteration;
    uint64_t last_given; /* n_iterations when the newest came */
    int newest_broken;
    double lowest;     /* of all finite ones */
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
/* Iterations that do not follow the last one (a restart) start the window over. */
void dsched_loss_add(struct dsched_loss *stream, uint64_t iteration, enum dsched_loss_given given,
                     double loss);

struct dsched_loss_estimate {
    enum dsched_loss_state state;
    double level;  /* robust mean of the newest losses, or DSCHED_UNKNOWN when n is 0 */
    double spread; /* robust deviation of a single loss around the trend; >= 0 */
    double slope;  /* per iteration, robust (Theil and Sen, of binned means) */
    double slope_error;
    double excess;    /* level above the floor: above 0, or above the lowest loss ever seen when
                         losses are negative; >= 0 */
    double drift;     /* mu of dsched_walk: max(0, -slope) */
    double deviation; /* sigma of dsched_walk: the deviation of the loss itself per iteration, the
                         batches' noise taken out: half the slope of the variogram
                         E (L(t + h) - L(t) - slope h)^2 = h sigma^2 + 2 var(batch), at least 0 */
    uint32_t n;
    char text[160]; /* one clause that names state and figures, for decisions */
};
/* `floor`: the least loss the job can reach, or DSCHED_UNKNOWN. */
void dsched_loss_get(const struct dsched_loss *stream, double floor,
                     struct dsched_loss_estimate *out);

#ifdef __cplusplus
}
#endif
#endif
