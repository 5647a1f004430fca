/* A plan made ready to run on this rank: bucket geometry, memory for pending generations, op
 * states. Everything is allocated here, before the plan runs; the hot path only writes into it. */
#ifndef ENGINE_H
#define ENGINE_H

#include <stdint.h>

#include <dsched/plan.h>

#include "link/link.h"
#include "runtime/fuse.h"
#include "runtime/gradspace.h"

/* The part of one tensor that lies in one bucket. */
struct engine_piece {
    uint32_t tensor;
    uint64_t n;          /* elements */
    size_t tensor_bytes; /* offset inside the tensor */
    size_t flat_bytes;   /* offset inside a flat buffer */
};

struct engine_bucket {
    size_t offset_bytes; /* inside a flat buffer */
    uint64_t elements;
    enum dsched_dtype dtype;
    uint32_t first_piece;
    uint32_t n_pieces;
    uint32_t
        n_missing; /* tensors whose gradient has not come in this generation's last iteration */
};

/* Buckets a tensor lies in: [first, first + n). */
struct engine_extent {
    uint32_t first;
    uint32_t n;
};

/* The all-reduce of one bucket in one lane. */
struct engine_op {
    struct link_op link_op;
    enum dsched_dtype dtype;
    double landed_sq; /* |sum|^2, written when it lands; non-finite: skip. 0 on other devices */
    double own_sq;    /* averaged: |D|^2 of this rank's own change */
    uint64_t generation;
    uint64_t end_iteration; /* last iteration of its generation */
    uint32_t merged;        /* iterations in it: less than planned after a drain */
    uint32_t planned;       /* merge of the plan: what the factor was for */
    uint32_t bucket;
    uint8_t link;
    uint8_t delay;
    uint8_t in_flight;
    uint8_t is_ordered; /* the device waits for it already */
    uint8_t is_untold;  /* retired before its times were known: told when it is next posted */
};

/* Memory of one pending generation; generation g uses lane g % n_lanes. */
struct engine_lane {
    uint8_t *flat;         /* [space bytes]: gradients or changes, reduced in place */
    uint8_t *own;          /* [space bytes]: this rank's own change; averaged only */
    struct engine_op *ops; /* [n_buckets] */
};

struct engine {
    struct dsched_plan plan;
    uint64_t seq;
    uint64_t hash;
    int writes_back;
    struct device *device; /* of the space */
    struct fuse_limits limits;
    struct engine *fallback; /* what runs when the fuse blows; NULL: there is no fuse */
    uint32_t n_lanes;
    struct engine_lane *lanes;
    struct engine_bucket *buckets;
    struct engine_piece *pieces;
    struct engine_extent *extents;        /* [n_tensors] */
    uint8_t *anchor;                      /* [space bytes]; lookahead and averaged */
    struct engine_op **due;               /* [n_buckets]: what the present boundary applies */
    uint8_t *lane_bad;                    /* [n_lanes]: non-finite at the present boundary */
    uint8_t *previewed;                   /* [n_tensors]: working weights differ from the anchor */
    uint32_t next_post[DSCHED_MAX_LINKS]; /* first bucket not yet posted, per link */
    /* place in the cycle */
    uint32_t gen_index;  /* generation of the cycle that accumulates now */
    uint32_t gen_iter;   /* its iterations that are complete */
    uint64_t generation; /* counted from the last drain */
    int gen_bad;         /* averaged: this rank skipped a step in the generation */
    uint64_t pending_bytes;
};

/* `plan` must be valid for the space's table; it is copied. Touches all memory. No fuse is set.
 * `writes_back`: under exact and delayed landed averages go into the caller's own gradients. */
DEFT_NODISCARD enum deft_status engine_create(const struct dsched_plan *plan, uint64_t seq,
                                              const struct gradspace *space, int writes_back,
                                              struct engine **out, struct deft_error *error);
/* Sets a fuse and makes ready what runs when it blows: `exact`, under the same number. That is all
 * but a buffer, since the first of `engine`'s own is free by then: it costs no copy of the
 * gradients and nothing can fail at that moment. */
DEFT_NODISCARD enum deft_status engine_set_fuse(struct engine *engine,
                                                const struct fuse_limits *limits,
                                                const struct dsched_plan *exact,
                                                const struct gradspace *space, int writes_back,
                                                struct deft_error *error);
/* The fuse has blown and nothing is in flight: returns the exact engine, ready to run. What is left
 * of `engine` is good for engine_destroy only. */
struct engine *engine_leave(struct engine *engine);
/* Nothing may be in flight. Takes NULL. */
void engine_destroy(struct engine *engine);

/* Bytes engine_create would allocate for generations, anchors and working copies. */
uint64_t engine_bytes(const struct dsched_plan *plan, const struct gradspace *space);

/* The oldest op of `bucket` in flight, or NULL. */
struct engine_op *engine_oldest(const struct engine *engine, uint32_t bucket);
/* 1 when `op`, which may be NULL, is applied at the boundary of `iteration` or was before. */
int engine_is_due(const struct engine_op *op, uint64_t iteration);
struct engine_lane *engine_lane_of(const struct engine *engine, uint64_t generation);
/* 1 when any op is in flight or iterations have been accumulated. */
int engine_pending(const struct engine *engine);
/* Back to the start of the cycle; nothing is in flight. */
void engine_rewind(struct engine *engine);

#endif
