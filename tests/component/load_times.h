/* Many times and their quantiles: a histogram with steps of 0.1 ms up to 10 s. */
#ifndef LOAD_TIMES_H
#define LOAD_TIMES_H

#include <stdint.h>

#define LOAD_TIMES_STEP_NS INT64_C(100000)
#define LOAD_TIMES_STEPS   100000u

struct load_times {
    uint64_t n;
    int64_t most_ns;
    uint32_t counts[LOAD_TIMES_STEPS + 1]; /* the last: everything beyond */
};

void load_times_add(struct load_times *times, int64_t ns);
/* The upper end of the step that holds the quantile, in ms; NaN without any. */
double load_times_quantile_ms(const struct load_times *times, double q);

#endif
