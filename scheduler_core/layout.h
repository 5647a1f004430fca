/* A layout: how the gradient space is cut into buckets and which link each bucket uses. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include "space.h"

/* The planner does not look at layouts of more buckets: on any link that is worth using, the
 * latency of that many messages outweighs what a finer grain hides. */
#define LAYOUT_MAX_BUCKETS 512u

struct layout {
    uint32_t n_buckets;
    uint32_t n_links; /* 1 + the largest link in use */
    struct dsched_bucket *buckets;
    uint8_t *links;  /* [n_buckets] */
    int64_t work_ns; /* per generation, of the link that works longest */
    int64_t load_ns; /* least compute time that hides a generation: work_ns, less what links that
                        slow compute down stretch it by */
    int64_t slow_ns; /* per generation, by which such links stretch compute if all start at once */
    int64_t spread_slow_ns; /* the same if they start as buckets become ready */
    int64_t finish_ns; /* from the begin of backward until all has landed, links idle at first */
};

/* Zeroed buckets, all on link 0. */
DSCHED_NODISCARD enum dsched_status layout_init(struct layout *layout, uint32_t n_buckets,
                                                struct dsched_error *error);
void layout_done(struct layout *layout);
DSCHED_NODISCARD enum dsched_status layout_copy(const struct layout *layout, struct layout *out,
                                                struct dsched_error *error);
/* Fills n_links and all figures from buckets and links. */
DSCHED_NODISCARD enum dsched_status layout_measure(struct layout *layout,
                                                   const struct dsched_profile *profile,
                                                   const struct space *space,
                                                   struct dsched_error *error);

#endif
