/* Ways to cut the gradient space into buckets. All leave every bucket on link 0. */
#ifndef CUT_H
#define CUT_H

#include "layout.h"

/* Fuses small tensors and splits large ones to about `target_bytes` a bucket. DSCHED_LIMIT when
 * that takes more than `max_buckets`. */
DSCHED_NODISCARD enum dsched_status cut_by_bytes(const struct space *space, uint64_t target_bytes,
                                                 uint32_t max_buckets, struct layout *out,
                                                 struct dsched_error *error);
/* The cut at tensor ends whose last bucket lands first on link 0 (dynamic programming; exact up to
 * a fusion of tensors smaller than 1/192 of the space). DSCHED_LIMIT when dtypes alternate too
 * often. */
DSCHED_NODISCARD enum dsched_status cut_for_boundary(const struct dsched_profile *profile,
                                                     const struct space *space, struct layout *out,
                                                     struct dsched_error *error);

#endif
