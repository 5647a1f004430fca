/* Lower bounds of communication time that plans, policies and the planner are measured against. */
#ifndef SPLIT_H
#define SPLIT_H

#include <dsched/profile.h>

/* C: one all-reduce of `bytes` on one link, as one message. */
int64_t split_link_ns(const struct dsched_profile *profile, uint32_t link, uint64_t bytes);
/* S = 1 / sum(1 / C_l): the same divided over all links so that all end together. Rounded down. */
int64_t split_all_ns(const struct dsched_profile *profile, uint64_t bytes);

/* Time per byte of the message whose bytes move fastest, whatever its size, as a fraction. */
struct split_rate {
    uint64_t ns;
    uint64_t bytes; /* > 0 */
};
struct split_rate split_best_rate(const struct dsched_link *link);
/* What `bytes` take at that rate, rounded down: a share of any message takes at least that. */
int64_t split_least_ns(struct split_rate rate, uint64_t bytes);
/* What all links together take at least, however `bytes` are cut and shared. */
int64_t split_floor_ns(const struct dsched_profile *profile, uint64_t bytes);

#endif
