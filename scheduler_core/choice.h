/* Which candidate becomes the plan. */
#ifndef CHOICE_H
#define CHOICE_H

#include "candidates.h"

/* Updates per iteration are as uncertain as the jitter margin: a fraction of it is no gain. */
uint32_t choice_updates_slack_ppm(const struct candidates *candidates);

/* The mildest class within the tolerance of the least cost wins; in it, after one another, more
 * updates, less delay, fewer ops, less cost. Writes the verdict of every candidate.
 * DSCHED_INFEASIBLE when none keeps the limits. */
DSCHED_NODISCARD enum dsched_status choice_make(struct candidates *candidates, uint32_t *out,
                                                struct dsched_error *error);

#endif
