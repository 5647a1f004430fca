#include "layout.h"

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
    layout->finish_ns = profile->backward_ns;
    for (uint32_t b = 0; b < layout->n_buckets; b++) {
        uint32_t l = layout->links[b];
        int64_t ns = dsched_link_ns(&profile->links[l], bytes[b]);
        works_ns[l] += ns;
        free_ns[l] = (free_ns[l] > ready_ns[b] ? free_ns[l] : ready_ns[b]) + ns;
        layout->n_links = l >= layout->n_links ? l + 1 : layout->n_links;
        layout->work_ns = works_ns[l] > layout->work_ns ? works_ns[l] : layout->work_ns;
        layout->finish_ns = free_ns[l] > layout->finish_ns ? free_ns[l] : layout->finish_ns;
    }
done:
    free(ready_ns);
    free(bytes);
    return status;
}
