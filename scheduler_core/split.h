/* Lower bounds of communication time that plans, policies and the planner are measured against. */
#ifndef SPLIT_H
#define SPLIT_H

#include <dsched/profile.h>

/* C: one all-reduce of `bytes` on one link, as one message. */
int64_t split_link_ns(const struct dsched_profile *profile, uint32_t link, uint64_t bytes);
/* S = 1 / sum(1 / C_l): the same divided over all links so that all end together. Rounded down. */
int64_t split_all_ns(const struct dsched_profile *profile, uint64_t bytes);

#endif
