#include "runtime/engine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/kernels.h"

static int engine_keeps_anchor(enum dsched_rule rule) {
    return rule == DSCHED_LOOKAHEAD || rule == DSCHED_AVERAGED;
}

uint64_t engine_bytes(const struct dsched_plan *plan, const struct gradspace *space) {
    struct dsched_table table = gradspace_table(space);
    return dsched_plan_pending_bytes(plan, &table);
}

/* Tensors in the order of the gradient space: reverse forward order. */
static uint32_t engine_tensor_at(const struct gradspace *space, uint32_t position) {
    return space->n_tensors - 1 - position;
}

/* Every bucket boundary and every tensor boundary starts a piece, so there are fewer than
 * n_buckets + n_tensors of them. */
static void engine_cut(struct engine *engine, const struct gradspace *space) {
    uint32_t n_pieces = 0;
    uint32_t position = 0;
    memset(engine->extents, 0, space->n_tensors * sizeof(*engine->extents));
    for (uint32_t b = 0; b < engine->plan.n_buckets; b++) {
        uint64_t begin = engine->plan.buckets[b].begin;
        uint64_t end = engine->plan.buckets[b].end;
        struct engine_bucket *bucket = &engine->buckets[b];
        bucket->elements = end - begin;
        bucket->first_piece = n_pieces;
        while (begin < end) {
            uint32_t id = engine_tensor_at(space, position);
            const struct gradspace_tensor *tensor = &space->tensors[id];
            uint64_t tensor_end = tensor->begin + tensor->elements;
            uint64_t stop = end < tensor_end ? end : tensor_end;
            size_t width = dsched_dtype_bytes(tensor->dtype);
            struct engine_piece *piece = &engine->pieces[n_pieces++];
            piece->tensor = id;
            piece->n = stop - begin;
            piece->tensor_bytes = (size_t)(begin - tensor->begin) * width;
            piece->flat_bytes = tensor->offset_bytes + piece->tensor_bytes;
            if (engine->extents[id].n++ == 0) {
                engine->extents[id].first = b;
            }
            bucket->dtype = tensor->dtype;
            begin = stop;
            position += stop == tensor_end;
        }
        bucket->n_pieces = n_pieces - bucket->first_piece;
        bucket->offset_bytes = engine->pieces[bucket->first_piece].flat_bytes;
    }
}

static void *engine_buffer(const struct engine *engine, size_t n_bytes) {
    return engine->device->ops->alloc(engine->device, n_bytes);
}

/* On the link's thread, while the data is still in its cache. */
static void engine_landed(struct link_op *link_op) {
    struct engine_op *op = link_op->owner;
    op->landed_sq = kernels_norm(op->dtype, link_op->data, link_op->elements);
}

/* Ops of a lane that has no memory yet. */
static int engine_make_ops(struct engine *engine, struct engine_lane *lane) {
    int is_async = engine->device->ops->is_async;
    lane->ops = calloc(engine->plan.n_buckets, sizeof(*lane->ops));
    if (lane->ops == NULL) {
        return 0;
    }
    for (uint32_t b = 0; b < engine->plan.n_buckets; b++) {
        struct engine_op *op = &lane->ops[b];
        op->bucket = b;
        op->dtype = engine->buckets[b].dtype;
        op->link_op.elements = engine->buckets[b].elements;
        op->link_op.dtype = (enum link_dtype)op->dtype;
        op->link_op.reduce = LINK_SUM;
        op->link_op.owner = op;
        /* Under averaged a mark in the data says what is bad; there, where averages are written
         * back, and on a device whose data no thread sees, norms are taken when it is used. */
        op->link_op.landed = engine->plan.rule == DSCHED_AVERAGED || engine->writes_back || is_async
                                 ? NULL
                                 : engine_landed;
        op->link_op.ready = engine->device->ops->mark_create(engine->device);
        if (is_async && op->link_op.ready == NULL) {
            return 0;
        }
    }
    return 1;
}

static void engine_place_lane(const struct engine *engine, struct engine_lane *lane,
                              uint8_t *flat) {
    lane->flat = flat;
    for (uint32_t b = 0; b < engine->plan.n_buckets; b++) {
        lane->ops[b].link_op.data = flat + engine->buckets[b].offset_bytes;
    }
}

/* Everything that does not grow with the model's size. */
static int engine_allocate(struct engine *engine, const struct gradspace *space) {
    uint32_t n_buckets = engine->plan.n_buckets;
    engine->buckets = calloc(n_buckets, sizeof(*engine->buckets));
    engine->pieces = calloc((size_t)n_buckets + space->n_tensors, sizeof(*engine->pieces));
    engine->extents = calloc(space->n_tensors, sizeof(*engine->extents));
    engine->due = calloc(n_buckets, sizeof(struct engine_op *));
    engine->lanes = calloc(engine->n_lanes, sizeof(*engine->lanes));
    engine->lane_bad = calloc(engine->n_lanes, 1);
    engine->previewed = calloc(space->n_tensors, 1);
    if (engine->buckets == NULL || engine->pieces == NULL || engine->extents == NULL ||
        engine->due == NULL || engine->lanes == NULL || engine->lane_bad == NULL ||
        engine->previewed == NULL) {
        return 0;
    }
    engine_cut(engine, space);
    for (uint32_t l = 0; l < engine->n_lanes; l++) {
        if (!engine_make_ops(engine, &engine->lanes[l])) {
            return 0;
        }
    }
    return 1;
}

static int engine_allocate_buffers(struct engine *engine, const struct gradspace *space) {
    for (uint32_t l = 0; l < engine->n_lanes; l++) {
        struct engine_lane *lane = &engine->lanes[l];
        uint8_t *flat = engine_buffer(engine, space->n_bytes);
        if (flat == NULL) {
            return 0;
        }
        engine_place_lane(engine, lane, flat);
        lane->own =
            engine->plan.rule == DSCHED_AVERAGED ? engine_buffer(engine, space->n_bytes) : NULL;
        if (engine->plan.rule == DSCHED_AVERAGED && lane->own == NULL) {
            return 0;
        }
    }
    if (engine_keeps_anchor(engine->plan.rule)) {
        engine->anchor = engine_buffer(engine, space->n_bytes);
        return engine->anchor != NULL;
    }
    return 1;
}

/* Without buffers. NULL: no memory. */
static struct engine *engine_make(const struct dsched_plan *plan, uint64_t seq,
                                  const struct gradspace *space, int writes_back) {
    struct engine *engine = calloc(1, sizeof(*engine));
    if (engine != NULL) {
        engine->device = space->device; /* first, for engine_destroy */
    }
    if (engine != NULL && dsched_plan_copy(plan, &engine->plan) == DSCHED_OK) {
        engine->seq = seq;
        engine->hash = dsched_plan_hash(plan);
        engine->writes_back =
            writes_back && (plan->rule == DSCHED_EXACT || plan->rule == DSCHED_DELAYED);
        engine->limits = (struct fuse_limits){.max_loss = NAN, .max_grad_sq = NAN};
        engine->n_lanes = dsched_plan_slots(plan);
        engine->pending_bytes = engine_bytes(plan, space);
        if (engine_allocate(engine, space)) {
            return engine;
        }
    }
    engine_destroy(engine);
    return NULL;
}

static enum deft_status engine_refuse(const struct dsched_plan *plan, struct deft_error *error) {
    return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a plan of %u buckets",
                     plan->n_buckets);
}

enum deft_status engine_create(const struct dsched_plan *plan, uint64_t seq,
                               const struct gradspace *space, int writes_back, struct engine **out,
                               struct deft_error *error) {
    struct engine *engine = engine_make(plan, seq, space, writes_back);
    if (engine == NULL) {
        return engine_refuse(plan, error);
    }
    if (!engine_allocate_buffers(engine, space)) {
        engine_destroy(engine);
        return deft_fail(error, DEFT_NO_MEMORY, 0,
                         "no memory for %llu bytes of pending generations",
                         (unsigned long long)engine_bytes(plan, space));
    }
    *out = engine;
    return DEFT_OK;
}

enum deft_status engine_set_fuse(struct engine *engine, const struct fuse_limits *limits,
                                 const struct dsched_plan *exact, const struct gradspace *space,
                                 int writes_back, struct deft_error *error) {
    engine->limits = *limits;
    engine->fallback = engine_make(exact, engine->seq, space, writes_back);
    return engine->fallback != NULL ? DEFT_OK : engine_refuse(exact, error);
}

struct engine *engine_leave(struct engine *engine) {
    struct engine *exact = engine->fallback;
    engine_place_lane(exact, &exact->lanes[0], engine->lanes[0].flat); /* the only one it has */
    engine->lanes[0].flat = NULL;
    engine->fallback = NULL;
    return exact;
}

void engine_destroy(struct engine *engine) {
    if (engine == NULL) {
        return;
    }
    engine_destroy(engine->fallback); /* which has none itself */
    for (uint32_t l = 0; engine->lanes != NULL && l < engine->n_lanes; l++) {
        struct engine_lane *lane = &engine->lanes[l];
        engine->device->ops->release(engine->device, lane->flat);
        engine->device->ops->release(engine->device, lane->own);
        for (uint32_t b = 0; lane->ops != NULL && b < engine->plan.n_buckets; b++) {
            engine->device->ops->mark_destroy(engine->device, lane->ops[b].link_op.ready);
        }
        free(lane->ops);
    }
    free(engine->lanes);
    free(engine->buckets);
    free(engine->pieces);
    free(engine->extents);
    engine->device->ops->release(engine->device, engine->anchor);
    free((void *)engine->due);
    free(engine->lane_bad);
    free(engine->previewed);
    dsched_plan_done(&engine->plan);
    free(engine);
}

struct engine_lane *engine_lane_of(const struct engine *engine, uint64_t generation) {
    return &engine->lanes[generation % engine->n_lanes];
}

struct engine_op *engine_oldest(const struct engine *engine, uint32_t bucket) {
    struct engine_op *oldest = NULL;
    for (uint32_t l = 0; l < engine->n_lanes; l++) {
        struct engine_op *op = &engine->lanes[l].ops[bucket];
        if (op->in_flight && (oldest == NULL || op->generation < oldest->generation)) {
            oldest = op;
        }
    }
    return oldest;
}

int engine_is_due(const struct engine_op *op, uint64_t iteration) {
    return op != NULL && op->end_iteration + op->delay <= iteration;
}

int engine_pending(const struct engine *engine) {
    for (uint32_t b = 0; b < engine->plan.n_buckets; b++) {
        if (engine_oldest(engine, b) != NULL) {
            return 1;
        }
    }
    return engine->gen_iter > 0;
}

void engine_rewind(struct engine *engine) {
    engine->gen_index = 0;
    engine->gen_iter = 0;
    engine->generation = 0;
    engine->gen_bad = 0;
    memset(engine->next_post, 0, sizeof(engine->next_post));
}
