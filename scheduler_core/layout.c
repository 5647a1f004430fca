#include "layout.h"

#include "contended.h"
#include "muldiv.h"
#include "refuse.h"

#include <stdlib.h>
#include <string.h>

enum dsched_status layout_init(struct layout *layout, uint32_t n_buckets,
                               struct dsched_error *error) {
    struct layout made = {.n_buckets = n_buckets, .n_links = 1};
    made.buckets = calloc(n_buckets, sizeof(*made.buckets));
    made.links = calloc(n_buckets, sizeof(*made.links));
    if (made.buckets == NULL || made.links == NULL) {
        layout_done(&made);
        return refuse_memory(error, "a layout of buckets");
    }
    *layout = made;
    return DSCHED_OK;
}

void layout_done(struct layout *layout) {
    if (layout == NULL) {
        return;
    }
    free(layout->buckets);
    free(layout->links);
    memset(layout, 0, sizeof(*layout));
}

enum dsched_status layout_copy(const struct layout *layout, struct layout *out,
                               struct dsched_error *error) {
    struct layout made = {0};
    enum dsched_status status = layout_init(&made, layout->n_buckets, error);
    if (status != DSCHED_OK) {
        return status;
    }
    memcpy(made.buckets, layout->buckets, layout->n_buckets * sizeof(*made.buckets));
    memcpy(made.links, layout->links, layout->n_buckets * sizeof(*made.links));
    *out = made;
    return DSCHED_OK;
}

/* Sums saturate here: hostile profiles have 16,384 buckets of 10^15 ns. */
#define MOST_NS (INT64_MAX / 4)

static int64_t plus(int64_t a_ns, int64_t b_ns) {
    return a_ns > MOST_NS - b_ns ? MOST_NS : a_ns + b_ns;
}

static int64_t later(int64_t a_ns, int64_t b_ns) {
    return a_ns > b_ns ? a_ns : b_ns;
}

/* A link that never rests slows compute down all the time: what it does in `work_ns` hides under
 * work_ns / contention of compute. */
static void add_link(struct layout *layout, const struct dsched_link *link, int64_t work_ns) {
    uint64_t contention_ppm = link->contention_ppm > MULDIV_PPM ? link->contention_ppm : MULDIV_PPM;
    int64_t load_ns = (int64_t)muldiv_up((uint64_t)work_ns, MULDIV_PPM, contention_ppm, INT64_MAX);
    layout->work_ns = later(layout->work_ns, work_ns);
    layout->load_ns = later(layout->load_ns, load_ns);
}

enum dsched_status layout_measure(struct layout *layout, const struct dsched_profile *profile,
                                  const struct space *space, struct dsched_error *error) {
    int64_t works_ns[DSCHED_MAX_LINKS] = {0};
    int64_t free_ns[DSCHED_MAX_LINKS] = {0};
    int64_t *ready_ns = calloc(layout->n_buckets, sizeof(*ready_ns));
    uint64_t *bytes = calloc(layout->n_buckets, sizeof(*bytes));
    enum dsched_status status = DSCHED_OK;
    if (ready_ns == NULL || bytes == NULL) {
        status = refuse_memory(error, "a layout of buckets");
        goto done;
    }
    space_measure(space, layout->buckets, layout->n_buckets, ready_ns, bytes);
    layout->n_links = 1;
    layout->work_ns = 0;
    layout->load_ns = 0;
    layout->finish_ns = profile->backward_ns;
    for (uint32_t b = 0; b < layout->n_buckets; b++) {
        uint32_t l = layout->links[b];
        int64_t ns = dsched_link_ns(&profile->links[l], bytes[b]);
        works_ns[l] = plus(works_ns[l], ns);
        free_ns[l] = plus(later(free_ns[l], ready_ns[b]), ns);
        layout->n_links = l >= layout->n_links ? l + 1 : layout->n_links;
    }
    layout->slow_ns = contended_slow_ns(profile, works_ns);
    layout->spread_slow_ns = layout->slow_ns;
    for (uint32_t l = 0; l < layout->n_links; l++) {
        add_link(layout, &profile->links[l], works_ns[l]);
        layout->finish_ns = later(layout->finish_ns, free_ns[l]);
    }
done:
    free(ready_ns);
    free(bytes);
    return status;
}
