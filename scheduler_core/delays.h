/* Delays: how many boundaries after its generation a bucket is applied. */
#ifndef DELAYS_H
#define DELAYS_H

#include "simulation.h"

/* The same delay everywhere. */
void delays_fill(struct dsched_plan *plan, uint32_t delay);

/* Gives each bucket the least delay, up to `max_delay`, at which it has landed without a wait when
 * communication takes simulation->jitter_ppm longer, then raises what the rules of plans demand.
 * `simulation->plan` is `plan`. */
DSCHED_NODISCARD enum dsched_status delays_find(const struct simulation *simulation,
                                                struct dsched_plan *plan, uint32_t max_delay,
                                                struct dsched_error *error);

/* Lowers delays until at most `n_slots` > 0 generations are alive at once (dsched_plan_slots); the
 * boundaries then wait. Rules that the plan obeys it keeps obeying. */
void delays_fit(struct dsched_plan *plan, uint32_t n_slots);

#endif
