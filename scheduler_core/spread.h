/* Ways to spread the buckets of a layout over several links. */
#ifndef SPREAD_H
#define SPREAD_H

#include "layout.h"

/* Each bucket, in readiness order, goes where it lands first (list scheduling). */
DSCHED_NODISCARD enum dsched_status spread_first_landed(const struct dsched_profile *profile,
                                                        const struct space *space,
                                                        struct layout *layout,
                                                        struct dsched_error *error);
/* Links as knapsacks: the busiest one gets as little work as a packing can give it. Ignores
 * readiness. */
DSCHED_NODISCARD enum dsched_status spread_packed(const struct dsched_profile *profile,
                                                  const struct space *space, struct layout *layout,
                                                  struct dsched_error *error);
/* Splits every bucket of `layout` into one part per link, such that the parts of a mean bucket take
 * equally long. */
DSCHED_NODISCARD enum dsched_status spread_split(const struct dsched_profile *profile,
                                                 const struct space *space,
                                                 const struct layout *layout, struct layout *out,
                                                 struct dsched_error *error);

#endif
