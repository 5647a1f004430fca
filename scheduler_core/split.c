#include "split.h"

#include "muldiv.h"

int64_t split_link_ns(const struct dsched_profile *profile, uint32_t link, uint64_t bytes) {
    return dsched_link_ns(&profile->links[link], bytes);
}

/* Two at a time, a * b / (a + b): with 50-bit times no denominator of several links overflows. */
int64_t split_all_ns(const struct dsched_profile *profile, uint64_t bytes) {
    uint64_t all_ns = (uint64_t)split_link_ns(profile, 0, bytes);
    for (uint32_t l = 1; l < profile->n_links; l++) {
        uint64_t link_ns = (uint64_t)split_link_ns(profile, l, bytes);
        all_ns =
            all_ns + link_ns == 0 ? 0 : muldiv_down(all_ns, link_ns, all_ns + link_ns, INT64_MAX);
    }
    return (int64_t)all_ns;
}

static struct split_rate cheaper(struct split_rate a, struct split_rate b) {
    return (muldiv_wide)a.ns * b.bytes <= (muldiv_wide)b.ns * a.bytes ? a : b;
}

/* On a piecewise linear curve ns / bytes is least at a sample or, beyond the last, tends to the
 * last slope. */
struct split_rate split_best_rate(const struct dsched_link *link) {
    const struct dsched_sample *samples = link->samples;
    uint32_t n = link->n_samples;
    struct split_rate best;
    if (n == 0) {
        return (struct split_rate){.ns = UINT64_C(1000000000),
                                   .bytes = (uint64_t)link->bytes_per_s};
    }
    best = (struct split_rate){.ns = (uint64_t)samples[0].ns, .bytes = samples[0].bytes};
    for (uint32_t i = 1; i < n; i++) {
        best = cheaper(best, (struct split_rate){(uint64_t)samples[i].ns, samples[i].bytes});
    }
    if (n > 1) {
        int64_t rise_ns = samples[n - 1].ns - samples[n - 2].ns;
        best = cheaper(best, (struct split_rate){rise_ns > 0 ? (uint64_t)rise_ns : 0,
                                                 samples[n - 1].bytes - samples[n - 2].bytes});
    }
    return best;
}

int64_t split_least_ns(struct split_rate rate, uint64_t bytes) {
    return (int64_t)muldiv_down(bytes, rate.ns, rate.bytes, (uint64_t)DSCHED_MAX_TIME_NS);
}

int64_t split_floor_ns(const struct dsched_profile *profile, uint64_t bytes) {
    uint64_t all_ns = 0;
    for (uint32_t l = 0; l < profile->n_links; l++) {
        uint64_t ns = (uint64_t)split_least_ns(split_best_rate(&profile->links[l]), bytes);
        if (ns == 0) {
            return 0;
        }
        all_ns = l == 0 ? ns : muldiv_down(all_ns, ns, all_ns + ns, INT64_MAX);
    }
    return (int64_t)all_ns;
}
