/* A profile as it would be elsewhere: on other links, with more or fewer ranks, with faster or
 * slower compute. Each function checks its result and leaves the profile as it was on failure. */
#ifndef DSCHED_WHATIF_H
#define DSCHED_WHATIF_H

#include <stdint.h>

#include <dsched/profile.h>
#include <dsched/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Parts per million of --scale-compute: a million times faster to a million times slower. */
#define DSCHED_MIN_COMPUTE_PPM UINT64_C(1)
#define DSCHED_MAX_COMPUTE_PPM UINT64_C(1000000000000)
/* Ranks of --world. The largest clusters have tens of thousands; a ring of a million takes longer
 * for its latencies than any step. */
#define DSCHED_MAX_WORLD 1000000u

/* Gives the link named `link->name` another curve, alpha_ns and bytes_per_s in place of samples, or
 * adds a link of that name behind the others. `link->contention_ppm` 0 keeps the old contention
 * (of a new link: none). `link->samples` must be NULL. DSCHED_LIMIT when there are
 * DSCHED_MAX_LINKS already. */
DSCHED_NODISCARD enum dsched_status dsched_whatif_link(struct dsched_profile *profile,
                                                       const struct dsched_link *link,
                                                       struct dsched_error *error);

/* Every link as a ring of `world` ranks, from a profile of W. A ring all-reduce of S bytes takes
 * 2 (W - 1) rounds of S / W bytes (Patarasuk and Yuan, 2009), so the time per byte changes by
 * ((N - 1) / N) / ((W - 1) / W) and the latency by (N - 1) / (W - 1). Of samples, the time of the
 * smallest one is taken for the latency. Rounded up. DSCHED_INVALID when N or W is 1: one rank
 * all-reduces nothing. */
DSCHED_NODISCARD enum dsched_status dsched_whatif_world(struct dsched_profile *profile,
                                                        uint32_t world, struct dsched_error *error);

/* All compute times, stages, optimizer and tensors, multiplied by `factor_ppm` / 1,000,000. Stages
 * are rounded up and tensors down, so that these never sum to more than those. */
DSCHED_NODISCARD enum dsched_status dsched_whatif_compute(struct dsched_profile *profile,
                                                          uint64_t factor_ppm,
                                                          struct dsched_error *error);

#ifdef __cplusplus
}
#endif
#endif
