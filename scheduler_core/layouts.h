/* The layouts among which the planner chooses. */
#ifndef LAYOUTS_H
#define LAYOUTS_H

#include "layout.h"

/* 15 sizes in up to 4 spreads, and the two special cuts. */
#define LAYOUTS_MAX 64u

struct layouts {
    uint32_t n;
    struct layout items[LAYOUTS_MAX]; /* measured; the first is PyTorch DDP's when there is one */
    int has_ddp;
};

/* Always at least one. DSCHED_LIMIT when even one bucket per run of equal dtype is too many. */
DSCHED_NODISCARD enum dsched_status layouts_init(struct layouts *layouts,
                                                 const struct dsched_profile *profile,
                                                 const struct space *space,
                                                 struct dsched_error *error);
void layouts_done(struct layouts *layouts);

#endif
