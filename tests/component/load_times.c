#include "load_times.h"

#include <math.h>

void load_times_add(struct load_times *times, int64_t ns) {
    uint64_t step = ns > 0 ? (uint64_t)(ns / LOAD_TIMES_STEP_NS) : 0;
    times->counts[step < LOAD_TIMES_STEPS ? step : LOAD_TIMES_STEPS]++;
    times->most_ns = ns > times->most_ns ? ns : times->most_ns;
    times->n++;
}

double load_times_quantile_ms(const struct load_times *times, double q) {
    uint64_t wanted = (uint64_t)(q * (double)times->n);
    uint64_t seen = 0;
    for (uint32_t i = 0; i < LOAD_TIMES_STEPS; i++) {
        seen += times->counts[i];
        if (seen > wanted) {
            return (double)(i + 1) * (double)LOAD_TIMES_STEP_NS / 1e6;
        }
    }
    return times->n > 0 ? (double)times->most_ns / 1e6 : (double)NAN;
}
