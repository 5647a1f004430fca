/* The gradient space of a profile: what is ready when, output side first. */
#ifndef SPACE_H
#define SPACE_H

#include <dsched/plan.h>
#include <dsched/profile.h>

/* A tensor with elements, in gradient order. */
struct space_piece {
    uint64_t begin;
    uint64_t end;
    int64_t ready_ns; /* from the begin of backward */
    uint32_t element_bytes;
    uint8_t dtype;
};

struct space {
    struct dsched_table table; /* points into the two arrays below */
    uint64_t *elements;
    uint8_t *dtypes;
    uint32_t n_pieces;
    struct space_piece *pieces;
    uint64_t n_elements;
    uint64_t n_bytes;
};

/* The profile must have passed dsched_profile_check. */
DSCHED_NODISCARD enum dsched_status
space_init(struct space *space, const struct dsched_profile *profile, struct dsched_error *error);
void space_done(struct space *space); /* takes NULL and zeroed spaces */

/* Readiness and size of contiguous buckets that cover the space, each of one dtype. Either output
 * may be NULL. */
void space_measure(const struct space *space, const struct dsched_bucket *buckets,
                   uint32_t n_buckets, int64_t *out_ready_ns, uint64_t *out_bytes);

#endif
