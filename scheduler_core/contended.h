/* Links that slow compute down while they are busy. */
#ifndef CONTENDED_H
#define CONTENDED_H

#include "layout.h"

/* Whether any link does. */
int contended_any(const struct dsched_profile *profile);

/* Compute time lost when every link starts at once on its work of one generation: at any moment the
 * strongest slow-down of those still busy. `works_ns` has [n_links]. */
int64_t contended_slow_ns(const struct dsched_profile *profile, const int64_t *works_ns);

/* finish_ns and spread_slow_ns as simulated: communication during backward makes backward longer,
 * which no list of landing times knows. The layout has been measured. */
DSCHED_NODISCARD enum dsched_status contended_measure(const struct dsched_profile *profile,
                                                      const struct space *space,
                                                      struct layout *layout,
                                                      struct dsched_error *error);

/* Moves buckets between links, one by one, while that shortens the step that `n_merged` iterations
 * per generation come to: the busiest link's work, or the compute time with what it is slowed by.
 */
DSCHED_NODISCARD enum dsched_status contended_balance(const struct dsched_profile *profile,
                                                      const struct space *space, uint32_t n_merged,
                                                      struct layout *layout,
                                                      struct dsched_error *error);

#endif
