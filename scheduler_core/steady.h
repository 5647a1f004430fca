/* Runs a program until its cycles repeat, and measures what repeats. */
#ifndef STEADY_H
#define STEADY_H

#include "timeline.h"

/* Totals over `n_cycles` cycles of the steady state. */
struct steady {
    uint64_t first_cycle; /* cycles before the state that repeats: the prologue */
    uint64_t n_cycles;
    int is_periodic; /* 0: no repetition was found in the cycles allowed; totals are of the last
                        half of them */
    int64_t total_ns;
    int64_t compute_ns;
    int64_t exposed_forward_ns;
    int64_t exposed_boundary_ns;
    int64_t busy_ns[DSCHED_MAX_LINKS];
    uint64_t n_ops;
};

/* `timeline` is fresh. Afterwards it stands at the end of a cycle and may be run on. */
DSCHED_NODISCARD enum dsched_status steady_run(struct timeline *timeline, uint64_t ops_per_cycle,
                                               struct steady *out, struct dsched_error *error);

#endif
