#include "layouts.h"

#include "baselines/policies.h"
#include "cut.h"
#include "refuse.h"
#include "spread.h"

#include <string.h>

/* Absolute sizes follow what links amortise, relative ones what a stage can hold. */
#define LEAST_BYTES (UINT64_C(256) << 10)
#define MOST_BYTES  (UINT64_C(64) << 20)
#define MOST_PARTS  32u
/* Packing is for layouts that are coarse enough to need it; finer ones balance by themselves. */
#define MAX_PACKED_BUCKETS 64u

void layouts_done(struct layouts *layouts) {
    for (uint32_t i = 0; i < layouts->n; i++) {
        layout_done(&layouts->items[i]);
    }
    memset(layouts, 0, sizeof(*layouts));
}

/* Takes over `layout`, also on failure. */
static enum dsched_status add(struct layouts *layouts, const struct dsched_profile *profile,
                              const struct space *space, struct layout *layout,
                              struct dsched_error *error) {
    enum dsched_status status = DSCHED_OK;
    if (layouts->n < LAYOUTS_MAX) {
        status = layout_measure(layout, profile, space, error);
    }
    if (layouts->n == LAYOUTS_MAX || status != DSCHED_OK) {
        layout_done(layout);
        return status;
    }
    layouts->items[layouts->n++] = *layout;
    memset(layout, 0, sizeof(*layout));
    return DSCHED_OK;
}

enum spread { SPREAD_NONE, SPREAD_FIRST_LANDED, SPREAD_PACKED, SPREAD_SPLIT, N_SPREADS };

static enum dsched_status add_spread(struct layouts *layouts, const struct dsched_profile *profile,
                                     const struct space *space, const struct layout *cut,
                                     enum spread spread, struct dsched_error *error) {
    struct layout layout = {0};
    enum dsched_status status = spread == SPREAD_SPLIT
                                    ? spread_split(profile, space, cut, &layout, error)
                                    : layout_copy(cut, &layout, error);
    if (status == DSCHED_OK && spread == SPREAD_FIRST_LANDED) {
        status = spread_first_landed(profile, space, &layout, error);
    }
    if (status == DSCHED_OK && spread == SPREAD_PACKED) {
        status = spread_packed(profile, space, &layout, error);
    }
    if (status != DSCHED_OK) {
        layout_done(&layout);
        return status;
    }
    return add(layouts, profile, space, &layout, error);
}

/* A cut in every spread that makes sense for it. Takes over `cut`. */
static enum dsched_status add_cut(struct layouts *layouts, const struct dsched_profile *profile,
                                  const struct space *space, struct layout *cut,
                                  struct dsched_error *error) {
    enum dsched_status status = DSCHED_OK;
    int n_spreads = profile->n_links == 1 ? 1 : N_SPREADS;
    for (int spread = 0; status == DSCHED_OK && spread < n_spreads; spread++) {
        if ((spread == SPREAD_PACKED && cut->n_buckets > MAX_PACKED_BUCKETS) ||
            (spread == SPREAD_SPLIT && cut->n_buckets * profile->n_links > LAYOUT_MAX_BUCKETS)) {
            continue;
        }
        status = add_spread(layouts, profile, space, cut, (enum spread)spread, error);
    }
    layout_done(cut);
    return status;
}

static enum dsched_status add_ddp(struct layouts *layouts, const struct dsched_profile *profile,
                                  const struct space *space, struct dsched_error *error) {
    struct dsched_plan plan = {0};
    struct layout layout = {0};
    enum dsched_status status =
        dsched_plan_ddp(&space->table, POLICIES_DDP_FIRST_BYTES, POLICIES_DDP_LATER_BYTES, &plan);
    if (status == DSCHED_LIMIT) {
        return DSCHED_OK;
    }
    if (status != DSCHED_OK) {
        return refuse_memory(error, "DDP's buckets");
    }
    status = layout_init(&layout, plan.n_buckets, error);
    if (status == DSCHED_OK) {
        memcpy(layout.buckets, plan.buckets, plan.n_buckets * sizeof(*plan.buckets));
        status = add(layouts, profile, space, &layout, error);
        layouts->has_ddp = status == DSCHED_OK;
    }
    dsched_plan_done(&plan);
    return status;
}

static enum dsched_status add_boundary(struct layouts *layouts,
                                       const struct dsched_profile *profile,
                                       const struct space *space, struct dsched_error *error) {
    struct layout cut = {0};
    enum dsched_status status = cut_for_boundary(profile, space, &cut, error);
    if (status == DSCHED_LIMIT) {
        return DSCHED_OK;
    }
    return status == DSCHED_OK ? add_cut(layouts, profile, space, &cut, error) : status;
}

static enum dsched_status add_sizes(struct layouts *layouts, const struct dsched_profile *profile,
                                    const struct space *space, struct dsched_error *error) {
    uint64_t last = 0;
    for (uint64_t bytes = MOST_BYTES; bytes >= LEAST_BYTES; bytes /= 2) {
        struct layout cut = {0};
        enum dsched_status status = cut_by_bytes(space, bytes, LAYOUT_MAX_BUCKETS, &cut, NULL);
        if (status == DSCHED_LIMIT) {
            break; /* smaller sizes need even more buckets */
        }
        if (status != DSCHED_OK) {
            return refuse_memory(error, "a layout of buckets");
        }
        if (cut.n_buckets == last) {
            layout_done(&cut);
            continue;
        }
        last = cut.n_buckets;
        status = add_cut(layouts, profile, space, &cut, error);
        if (status != DSCHED_OK) {
            return status;
        }
    }
    return DSCHED_OK;
}

static enum dsched_status add_parts(struct layouts *layouts, const struct dsched_profile *profile,
                                    const struct space *space, struct dsched_error *error) {
    for (uint32_t n_parts = 1; n_parts <= MOST_PARTS; n_parts *= 2) {
        struct layout cut = {0};
        /* The whole must fit whatever the dtypes; a finer cut is optional. */
        uint32_t max_buckets = n_parts == 1 ? DSCHED_MAX_BUCKETS : LAYOUT_MAX_BUCKETS;
        uint64_t bytes = (space->n_bytes + n_parts - 1) / n_parts;
        enum dsched_status status = cut_by_bytes(space, bytes, max_buckets, &cut, error);
        if (status == DSCHED_LIMIT && n_parts > 1) {
            return DSCHED_OK;
        }
        if (status == DSCHED_OK) {
            status = add_cut(layouts, profile, space, &cut, error);
        }
        if (status != DSCHED_OK) {
            return status;
        }
    }
    return DSCHED_OK;
}

enum dsched_status layouts_init(struct layouts *layouts, const struct dsched_profile *profile,
                                const struct space *space, struct dsched_error *error) {
    enum dsched_status status;
    memset(layouts, 0, sizeof(*layouts));
    status = add_ddp(layouts, profile, space, error);
    if (status == DSCHED_OK) {
        status = add_boundary(layouts, profile, space, error);
    }
    if (status == DSCHED_OK) {
        status = add_parts(layouts, profile, space, error);
    }
    if (status == DSCHED_OK) {
        status = add_sizes(layouts, profile, space, error);
    }
    if (status != DSCHED_OK) {
        layouts_done(layouts);
    }
    return status;
}
