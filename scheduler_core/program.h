/* A plan as a program of the timeline. */
#ifndef PROGRAM_H
#define PROGRAM_H

#include "space.h"
#include "timeline.h"

/* When the buckets of a generation become ready in its last iteration. */
enum program_ready {
    PROGRAM_READY_DURING_BACKWARD, /* each as its gradients are */
    PROGRAM_READY_AFTER_BACKWARD,  /* all at once: no overlap with backward */
    PROGRAM_READY_AFTER_OPTIMIZER, /* all at once: what is sent is the optimizer's change */
};
enum program_ready program_ready_of(enum dsched_rule rule);

/* What a link does in one cycle, in order. */
struct program_lane {
    uint32_t n_ops;
    uint32_t *ops; /* [n_ops] index g * n_buckets + b */
    int64_t *due;  /* [cycle] ops that must have landed at this boundary, relative to the cycle */
    uint64_t started; /* since the start */
    uint64_t landed;
};

struct program {
    const struct dsched_profile *profile;
    const struct dsched_plan *plan;
    enum program_ready ready;
    uint32_t cycle;      /* iterations */
    int64_t *op_ns;      /* [ops per cycle] */
    uint64_t *bytes;     /* [n_buckets] */
    uint32_t *last;      /* [n_generations] last iteration within the cycle */
    int32_t *ends;       /* [cycle] generation that ends with this iteration, or -1 */
    uint32_t n_cuts;     /* pieces of a backward stage that ends a generation */
    int64_t *cut_ns;     /* [n_cuts] work of each */
    uint32_t *cut_ready; /* [n_cuts] buckets ready after each */
    struct program_lane lanes[DSCHED_MAX_LINKS];

    uint64_t iteration; /* of the segment that comes next */
    uint32_t stage;     /* within the iteration */
    int is_cycle_end;
    uint64_t boundary;      /* the next one to pass */
    uint64_t n_ready;       /* whole generations ready since the start */
    uint32_t n_ready_extra; /* buckets of the generation after those */
    /* [ops per cycle] largest number of boundaries from the end of its generation to the first one
     * that an op, once landed, could have met without a wait; NULL: not wanted. */
    uint32_t *landing;
};

extern const struct timeline_program program_ops;

DSCHED_NODISCARD enum dsched_status
program_init(struct program *program, const struct dsched_profile *profile,
             const struct space *space, const struct dsched_plan *plan, enum program_ready ready,
             struct dsched_error *error);
void program_done(struct program *program);
/* Back to the drained start. */
void program_rewind(struct program *program);

#endif
