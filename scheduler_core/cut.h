/* Ways to cut the gradient space into buckets. */
#ifndef CUT_H
#define CUT_H

#include "layout.h"

/* Fuses small tensors and splits large ones to about `target_bytes` a bucket, all on link 0.
 * DSCHED_LIMIT when that takes more than `max_buckets`. */
DSCHED_NODISCARD enum dsched_status cut_by_bytes(const struct space *space, uint64_t target_bytes,
                                                 uint32_t max_buckets, struct layout *out,
                                                 struct dsched_error *error);
/* The cut at ends of tensors, or of parts, with a link for every bucket, that is best for a goal: a
 * label search over which neighbours share a bucket and where each bucket goes (docs/planner.md).
 */
enum cut_kind {
    CUT_LANDING, /* the last bucket lands as early as possible after the begin of backward */
    CUT_WORK,    /* the busiest link has as little to do as possible */
    CUT_LATE,    /* the fewest elements land after `deadline_ns`, none after `limit_ns` */
};
struct cut_goal {
    enum cut_kind kind;
    uint32_t n_labels;   /* pieces * pieces * labels per piece: bounds the time; few pieces are
                            solved exactly */
    uint64_t part_bytes; /* tensors of twice this and more are cut too; 0: none is */
    uint32_t only_link;  /* 1 + the link that takes everything; 0: all links */
    uint32_t slow_ppm;   /* by which readiness is late, for links that slow backward down */
    uint32_t jitter_ppm; /* by which communication is stretched */
    int64_t deadline_ns; /* from the begin of backward; CUT_LATE only */
    int64_t limit_ns;
    int64_t known; /* ns or elements that a layout at hand reaches; INT64_MAX: none */
};
/* *out_bound: no cut at the ends of the pieces that were looked at does better. DSCHED_INFEASIBLE
 * when nothing better than `known` was found (*out_bound is valid); DSCHED_LIMIT when dtypes
 * alternate too often. */
DSCHED_NODISCARD enum dsched_status cut_by_search(const struct dsched_profile *profile,
                                                  const struct space *space,
                                                  const struct cut_goal *goal, struct layout *out,
                                                  int64_t *out_bound, struct dsched_error *error);

#endif
