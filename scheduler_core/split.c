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
