/* What an all-reduce of some size takes on a link: its samples, joined by lines. */
#include "muldiv.h"

#include <dsched/profile.h>

#define NS_PER_S UINT64_C(1000000000)

static int64_t capped(int64_t base_ns, uint64_t more_ns) {
    uint64_t total_ns = (uint64_t)base_ns + more_ns;
    return total_ns > (uint64_t)DSCHED_MAX_TIME_NS ? DSCHED_MAX_TIME_NS : (int64_t)total_ns;
}

/* On the line through two samples. A curve that falls (noise of a measurement) is followed between
 * samples but never extrapolated downwards. */
static int64_t on_segment(const struct dsched_sample *left, const struct dsched_sample *right,
                          uint64_t bytes) {
    uint64_t width = right->bytes - left->bytes;
    uint64_t offset = bytes - left->bytes;
    if (right->ns >= left->ns) {
        uint64_t rise = (uint64_t)(right->ns - left->ns);
        return capped(left->ns, muldiv_up(offset, rise, width, (uint64_t)DSCHED_MAX_TIME_NS));
    }
    if (offset >= width) {
        return right->ns;
    }
    return left->ns - (int64_t)muldiv_down(offset, (uint64_t)(left->ns - right->ns), width,
                                           (uint64_t)DSCHED_MAX_TIME_NS);
}

static int64_t on_samples(const struct dsched_sample *samples, uint32_t n, uint64_t bytes) {
    uint32_t low = 0;
    uint32_t high = n - 1;
    if (bytes <= samples[0].bytes) {
        return samples[0].ns; /* latency rules below the smallest measured size */
    }
    if (n == 1) {
        return (int64_t)muldiv_up((uint64_t)samples[0].ns, bytes, samples[0].bytes,
                                  (uint64_t)DSCHED_MAX_TIME_NS);
    }
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (samples[middle].bytes < bytes) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return on_segment(&samples[low], &samples[high], bytes);
}

int64_t dsched_link_ns(const struct dsched_link *link, uint64_t bytes) {
    if (bytes == 0) {
        return 0;
    }
    if (link->n_samples > 0) {
        return on_samples(link->samples, link->n_samples, bytes);
    }
    return capped(link->alpha_ns, muldiv_up(bytes, NS_PER_S, (uint64_t)link->bytes_per_s,
                                            (uint64_t)DSCHED_MAX_TIME_NS));
}
