/* A policy that comes to a plan: what all of those have in common. */
#ifndef PLAN_RUN_H
#define PLAN_RUN_H

#include "../program.h"

/* Makes the policy's plan for a checked profile, with its rule, and says in `note` (of
 * sizeof(dsched_outcome.note), empty at first) what was tuned. */
typedef enum dsched_status (*plan_run_make)(const struct dsched_profile *profile,
                                            const struct space *space, struct dsched_plan *out,
                                            char *note, struct dsched_error *error);

/* Makes the plan and simulates it with its buckets ready as `ready` says. */
DSCHED_NODISCARD enum dsched_status plan_run(const struct dsched_profile *profile,
                                             plan_run_make make, enum program_ready ready,
                                             dsched_span_fn on_span, void *context,
                                             struct dsched_outcome *out,
                                             struct dsched_error *error);

/* Whole tensors in readiness order, closed when their bytes reach the limit, as an exact plan on
 * link 0 (dsched_plan_ddp), with a sentence on failure. */
DSCHED_NODISCARD enum dsched_status plan_run_fuse(const struct space *space, uint64_t first_bytes,
                                                  uint64_t later_bytes, struct dsched_plan *out,
                                                  struct dsched_error *error);
/* PyTorch DDP's limits. A plan_run_make. */
DSCHED_NODISCARD enum dsched_status plan_run_ddp(const struct dsched_profile *profile,
                                                 const struct space *space, struct dsched_plan *out,
                                                 char *note, struct dsched_error *error);

/* The same merge 1, delay and rule for all buckets of a plan of one generation. */
void plan_run_delay(struct dsched_plan *plan, uint32_t delay);

#endif
