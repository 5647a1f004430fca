/* The layouts among which the planner chooses. */
#ifndef LAYOUTS_H
#define LAYOUTS_H

#include "layout.h"

#include <dsched/planner.h>

/* 15 sizes in up to 4 spreads, DDP's, one for each goal of a search; where links slow compute down,
 * 6 sizes on each link alone and in 2 spreads, and 2 searches for each link. */
#define LAYOUTS_MAX 144u

struct layouts {
    const struct dsched_planner_options *options;
    uint32_t n;
    struct layout items[LAYOUTS_MAX]; /* measured; the first is PyTorch DDP's when there is one */
    int has_ddp;
    int is_contended;    /* links slow compute down */
    uint32_t least_late; /* the layout that delays the fewest elements; LAYOUTS_MAX: none */
    /* No cut at ends of tensors, small ones taken together, lands earlier, or gives the busiest
     * link less. */
    int64_t landing_bound_ns;
    int64_t work_bound_ns;
};

/* Always at least one. DSCHED_LIMIT when even one bucket per run of equal dtype is too many. */
DSCHED_NODISCARD enum dsched_status layouts_init(struct layouts *layouts,
                                                 const struct dsched_profile *profile,
                                                 const struct space *space,
                                                 const struct dsched_planner_options *options,
                                                 struct dsched_error *error);
/* How much earlier a layout could land at best, or how much less its busiest link could do. */
uint32_t layouts_landing_gap_ppm(const struct layouts *layouts, const struct layout *layout);
uint32_t layouts_work_gap_ppm(const struct layouts *layouts, const struct layout *layout);
void layouts_done(struct layouts *layouts);

#endif
