#include "spread.h"

#include "muldiv.h"
#include "refuse.h"

#include <dsched/planner.h>

#include <stdlib.h>

/* Windows and shares are searched to 2^-20 of their range. */
#define STEPS 20u
/* Per bucket: balances coarse layouts to a fraction of a percent in some 10 us. */
#define N_LABELS 8u

enum dsched_status spread_first_landed(const struct dsched_profile *profile,
                                       const struct space *space, struct layout *layout,
                                       struct dsched_error *error) {
    int64_t free_ns[DSCHED_MAX_LINKS] = {0};
    int64_t *ready_ns = calloc(layout->n_buckets, sizeof(*ready_ns));
    uint64_t *bytes = calloc(layout->n_buckets, sizeof(*bytes));
    enum dsched_status status = DSCHED_OK;
    if (ready_ns == NULL || bytes == NULL) {
        status = refuse_memory(error, "the spread over links");
        goto done;
    }
    space_measure(space, layout->buckets, layout->n_buckets, ready_ns, bytes);
    for (uint32_t b = 0; b < layout->n_buckets; b++) {
        int64_t best_ns = INT64_MAX;
        for (uint32_t l = 0; l < profile->n_links; l++) {
            int64_t begin_ns = free_ns[l] > ready_ns[b] ? free_ns[l] : ready_ns[b];
            int64_t landed_ns = begin_ns + dsched_link_ns(&profile->links[l], bytes[b]);
            if (landed_ns < best_ns) {
                best_ns = landed_ns;
                layout->links[b] = (uint8_t)l;
            }
        }
        free_ns[layout->links[b]] = best_ns;
    }
done:
    free(ready_ns);
    free(bytes);
    return status;
}

/* --- packing ---------------------------------------------------------------------------------- */

enum dsched_status spread_packed(const struct dsched_profile *profile, const struct space *space,
                                 struct layout *layout, struct dsched_error *error) {
    uint32_t n = layout->n_buckets;
    uint64_t *bytes = calloc(n, sizeof(*bytes));
    int64_t *costs_ns = calloc((size_t)n * profile->n_links, sizeof(*costs_ns));
    struct dsched_packing packing = {
        .n_buckets = n, .n_links = profile->n_links, .costs_ns = costs_ns, .n_labels = N_LABELS};
    int64_t work_ns;
    uint32_t gap_ppm;
    enum dsched_status status = DSCHED_NO_MEMORY;
    if (bytes != NULL && costs_ns != NULL) {
        space_measure(space, layout->buckets, n, NULL, bytes);
        for (uint32_t l = 0; l < profile->n_links; l++) {
            for (uint32_t b = 0; b < n; b++) {
                costs_ns[(size_t)l * n + b] = dsched_link_ns(&profile->links[l], bytes[b]);
            }
        }
        status = dsched_pack(&packing, layout->links, &work_ns, &gap_ppm);
    }
    if (status == DSCHED_LIMIT) {
        status = DSCHED_OK; /* sums of times overflow: a layout that nobody will choose */
    }
    if (status != DSCHED_OK) {
        (void)refuse(error, status, "the buckets could not be packed onto %u links",
                     profile->n_links);
    }
    free(bytes);
    free(costs_ns);
    return status;
}

/* --- splitting -------------------------------------------------------------------------------- */

/* Bytes of at most `most_bytes` that `link` moves within `window_ns`. */
static uint64_t bytes_within(const struct dsched_link *link, int64_t window_ns,
                             uint64_t most_bytes) {
    uint64_t low = 0;
    uint64_t high = most_bytes + 1;
    for (uint32_t step = 0; step < STEPS && high - low > 1; step++) {
        uint64_t middle = low + (high - low) / 2;
        if (dsched_link_ns(link, middle) <= window_ns) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return low;
}

/* What the secondary links should take of `bytes`, in ppm; the primary takes the rest. */
static void find_shares(const struct dsched_profile *profile, uint64_t bytes, uint32_t *out_ppm) {
    int64_t low_ns = 0;
    int64_t high_ns = dsched_link_ns(&profile->links[0], bytes);
    for (uint32_t step = 0; step < STEPS; step++) {
        int64_t window_ns = low_ns + (high_ns - low_ns) / 2;
        uint64_t moved = 0;
        for (uint32_t l = 0; l < profile->n_links; l++) {
            moved += bytes_within(&profile->links[l], window_ns, bytes);
        }
        if (moved >= bytes) {
            high_ns = window_ns;
        } else {
            low_ns = window_ns;
        }
    }
    for (uint32_t l = 1; l < profile->n_links; l++) {
        uint64_t moved = bytes_within(&profile->links[l], high_ns, bytes);
        out_ppm[l] = (uint32_t)muldiv_down(moved, MULDIV_PPM, bytes, MULDIV_PPM);
    }
}

enum dsched_status spread_split(const struct dsched_profile *profile, const struct space *space,
                                const struct layout *layout, struct layout *out,
                                struct dsched_error *error) {
    uint32_t shares_ppm[DSCHED_MAX_LINKS] = {0};
    struct layout made = {0};
    uint32_t n = 0;
    enum dsched_status status = layout_init(&made, layout->n_buckets * profile->n_links, error);
    if (status != DSCHED_OK) {
        return status;
    }
    find_shares(profile, space->n_bytes / layout->n_buckets + 1, shares_ppm);
    for (uint32_t b = 0; b < layout->n_buckets; b++) {
        uint64_t begin = layout->buckets[b].begin;
        uint64_t end = layout->buckets[b].end;
        uint64_t size = end - begin;
        for (uint32_t l = profile->n_links - 1; l > 0; l--) {
            uint64_t part = muldiv_down(size, shares_ppm[l], MULDIV_PPM, end - begin);
            if (part > 0 && part < end - begin) {
                made.links[n] = (uint8_t)l;
                made.buckets[n++] = (struct dsched_bucket){.begin = begin, .end = begin + part};
                begin += part;
            }
        }
        made.buckets[n++] = (struct dsched_bucket){.begin = begin, .end = end};
    }
    made.n_buckets = n;
    *out = made;
    return DSCHED_OK;
}
