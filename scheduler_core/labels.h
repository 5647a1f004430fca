/* Packing as a search over labels: which neighbours share a bucket, and which link each bucket
 * takes.
 *
 * A label says, for a prefix of the pieces, when each link is free again and how much value has
 * landed late. A label that is nowhere better than another of its prefix is dropped, and so is one
 * whose lower bound is not below the best known result. What is left is exact until more labels
 * than `width` are wanted for one prefix; then those with the highest bound go, and the least bound
 * among them limits how far the result can be from the optimum. */
#ifndef LABELS_H
#define LABELS_H

#include <stdint.h>

#include <dsched/limits.h>
#include <dsched/status.h>

/* All arrays have [n] entries, those by link [n_links * n], link-major. Times >= 0; the sum of all
 * costs and of the latest readiness must stay below INT64_MAX / 2. */
struct labels_problem {
    uint32_t n;
    uint32_t n_links;
    uint32_t width; /* labels per prefix, > 0 */
    /* A link takes its buckets in order, each from when its last piece is ready. Never falls. */
    const int64_t *ready_ns;
    /* First piece that may share a bucket with this one; never falls. */
    const uint32_t *fuse_from;
    /* What a piece takes at least, in whatever bucket it is. */
    const int64_t *least_ns;
    /* Time of pieces first..last as one bucket; never below the sum of their least_ns. */
    int64_t (*cost)(const void *context, uint32_t first, uint32_t last, uint32_t link);
    const void *context;
    /* NULL: the last bucket shall land as early as possible. Otherwise the value of the buckets
     * that land after `deadline_ns` shall be least, and none may land after `limit_ns`. */
    const int64_t *values;
    int64_t deadline_ns;
    int64_t limit_ns;
    int64_t known; /* a result that can be had anyway: only better ones are searched for */
};

struct labels_packing {
    int is_better;  /* 0: nothing better than `known` was found, the arrays are untouched */
    int64_t result; /* landing time or late value; `known` when nothing better was found */
    int64_t bound;  /* no packing has less */
    uint32_t n_buckets;
    uint32_t *last; /* [n] last piece of each bucket; the caller's array */
    uint8_t *links; /* [n] link of each bucket; the caller's array */
};

DSCHED_NODISCARD enum dsched_status labels_search(const struct labels_problem *problem,
                                                  struct labels_packing *packing);

#endif
