/* A plan on a profile whose gradient space is known already: what the public simulator, the
 * policies and the planner share. */
#ifndef SIMULATION_H
#define SIMULATION_H

#include "program.h"

struct simulation {
    const struct dsched_profile *profile; /* checked */
    const struct space *space;
    const struct dsched_plan *plan; /* valid */
    enum program_ready ready;
    uint32_t jitter_ppm;
};

DSCHED_NODISCARD enum dsched_status simulation_run(const struct simulation *simulation,
                                                   dsched_span_fn on_span, void *context,
                                                   struct dsched_report *out,
                                                   struct dsched_error *error);

/* For each op of the cycle, the fewest boundaries after the end of its generation at which it has
 * landed without a wait, in the steady state. Meaningful when the plan's own delays are so large
 * that boundaries do not wait. `out_delays` has [n_generations * n_buckets]. */
DSCHED_NODISCARD enum dsched_status simulation_landing(const struct simulation *simulation,
                                                       uint32_t *out_delays,
                                                       struct dsched_error *error);

#endif
