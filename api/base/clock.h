/* Time, in integer nanoseconds. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_timespec_ns(const struct timespec *t) {
    return (int64_t)t->tv_sec * INT64_C(1000000000) + t->tv_nsec;
}
/* CLOCK_MONOTONIC: for durations and deadlines. */
static inline int64_t clock_monotonic_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return clock_timespec_ns(&t);
}
/* CLOCK_REALTIME: for people and databases only. */
static inline int64_t clock_wall_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_REALTIME, &t);
    return clock_timespec_ns(&t);
}

#endif
