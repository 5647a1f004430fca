/* What a boundary does under averaged (docs/update-rules.md). With w this rank's parameters, a the
 * anchor, D its change in a generation and M the mean of all ranks' changes:
 *   the generation ends:  D = w - a - (changes still in flight);  all-reduce D / n_ranks
 *   its mean has landed:  a += M;  w += M - D
 * The anchor is moved by landed means alone, in the same order on all ranks: it is bit-equal.
 * A rank whose change is not finite poisons the first element of every bucket concerned, which the
 * sum shows to all ranks: no pass over landed data is needed to find out. */
#include <math.h>
#include <string.h>

#include "runtime/runtime.h"

_Static_assert(DEVICE_AVERAGED_MAX_OLDER >= DSCHED_MAX_DELAY, "a plan may have as many in flight");

static uint8_t *averaged_weights(const struct deft_runtime *rt, const struct engine_piece *piece) {
    return rt->space.tensors[piece->tensor].parameters + piece->tensor_bytes;
}

void averaged_save(const struct deft_runtime *rt, uint8_t *flat) {
    for (uint32_t i = 0; i < rt->space.n_tensors; i++) {
        const struct gradspace_tensor *tensor = &rt->space.tensors[i];
        rt->device->ops->move(rt->device, flat + tensor->offset_bytes, tensor->parameters,
                              (size_t)tensor->elements * dsched_dtype_bytes(tensor->dtype));
    }
}

void averaged_restore(const struct deft_runtime *rt, const uint8_t *flat) {
    for (uint32_t i = 0; i < rt->space.n_tensors; i++) {
        const struct gradspace_tensor *tensor = &rt->space.tensors[i];
        rt->device->ops->move(rt->device, tensor->parameters, flat + tensor->offset_bytes,
                              (size_t)tensor->elements * dsched_dtype_bytes(tensor->dtype));
    }
}

static void averaged_count(struct deft_runtime *rt, const struct engine_op *op, int bad) {
    rt->update.merge = op->merged;
    rt->update.delay = (uint32_t)(rt->iteration - op->end_iteration);
    if (!rt->device->ops->is_async) { /* else with the figures of the iteration */
        rt->record.updates += !bad;
        rt->record.skipped += bad;
        rt->update.skipped += (uint32_t)bad;
    }
}

/* The changes in the bucket of `piece` that stay in flight beside the one being captured. */
static void averaged_find_older(const struct engine *engine, uint32_t b,
                                const struct engine_piece *piece, struct device_averaged *at) {
    at->n_older = 0;
    for (uint32_t l = 0; l < engine->n_lanes; l++) {
        if (engine->lanes[l].ops[b].in_flight) {
            at->older[at->n_older++] = engine->lanes[l].own + piece->flat_bytes;
        }
    }
}

/* Takes in that `op` has landed. Returns 1 when some rank's share is not finite and every rank
 * drops it, as far as this thread can know. */
static int averaged_judge(struct deft_runtime *rt, struct engine_op *op) {
    /* Bucket 0 stands for its generation, so that counts are generations, not buckets. */
    int counts = op->bucket == 0;
    int bad =
        rt->device->ops->judge(rt->device, (enum deft_dtype)op->dtype, op->link_op.data, counts);
    if (counts) {
        averaged_count(rt, op, bad);
    }
    boundary_retire(rt, op);
    return bad;
}

/* Lands `landing` (NULL: nothing) and captures the generation that ends (if `capture`) in bucket
 * `b`. */
static void averaged_work(struct deft_runtime *rt, uint32_t b, struct engine_op *landing,
                          int capture) {
    struct engine *engine = rt->engine;
    const struct engine_bucket *bucket = &engine->buckets[b];
    enum deft_dtype dtype = (enum deft_dtype)bucket->dtype;
    const struct engine_lane *from =
        landing != NULL ? engine_lane_of(engine, landing->generation) : NULL;
    const struct engine_lane *into = engine_lane_of(engine, engine->generation);
    struct device_averaged_sums sums = {0, 0};
    struct device_averaged at = {.factor = 1.0 / (double)rt->options.n_ranks};
    if (landing != NULL) {
        at.is_dropped = averaged_judge(rt, landing);
    }
    for (uint32_t p = 0; p < bucket->n_pieces && (from != NULL || capture); p++) {
        const struct engine_piece *piece = &engine->pieces[bucket->first_piece + p];
        size_t at_bytes = piece->flat_bytes;
        at.w = averaged_weights(rt, piece);
        at.a = engine->anchor + at_bytes;
        at.landed = from != NULL ? from->flat + at_bytes : NULL;
        at.landed_own = from != NULL ? from->own + at_bytes : NULL;
        at.own = capture ? into->own + at_bytes : NULL;
        at.sum = capture ? into->flat + at_bytes : NULL;
        averaged_find_older(engine, b, piece, &at);
        rt->device->ops->average(rt->device, dtype, &at, piece->n, &sums);
    }
    if (from != NULL && !at.is_dropped && !rt->device->ops->is_async) {
        boundary_add(&rt->record.grad_sq_mean, sums.landed_sq);
        boundary_add(&rt->record.change_sq_local, landing->own_sq);
    }
    if (capture) { /* maybe in the place of the one that has landed */
        struct engine_op *op = &into->ops[b];
        op->own_sq = sums.own_sq;
        rt->device->ops->seal(rt->device, dtype, op->link_op.data,
                              engine->gen_bad || !isfinite(sums.own_sq));
    }
}

static enum deft_status averaged_post(struct deft_runtime *rt, uint32_t b, uint32_t merged,
                                      struct deft_error *error) {
    struct engine *engine = rt->engine;
    struct engine_op *op = &engine_lane_of(engine, engine->generation)->ops[b];
    enum deft_status status = gradients_post(rt, op, merged);
    if (status != DEFT_OK) {
        return failure_from_link(rt, &rt->links[op->link], status, error);
    }
    return DEFT_OK;
}

/* One bucket: what is due lands, then the generation that ends here is captured and posted, so that
 * its link goes on while the next bucket is worked on. */
static enum deft_status averaged_bucket(struct deft_runtime *rt, uint32_t b, int ends,
                                        struct deft_error *error) {
    struct engine *engine = rt->engine;
    struct engine_op *op = engine_oldest(engine, b);
    if (!engine_is_due(op, rt->iteration)) {
        op = NULL;
    } else {
        enum deft_status status = boundary_wait(rt, op, error);
        if (status != DEFT_OK) {
            return status;
        }
    }
    averaged_work(rt, b, op, ends);
    return ends ? averaged_post(rt, b, engine->plan.merge[engine->gen_index], error) : DEFT_OK;
}

void averaged_guard(const struct deft_runtime *rt) {
    struct device_averaged_gradient gradients[DEVICE_AVERAGED_MAX_GRADIENTS];
    const struct gradspace *space = &rt->space;
    int begins = rt->engine->gen_iter == 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < space->n_tensors; i++) {
        const struct gradspace_tensor *tensor = &space->tensors[i];
        if (rt->given[i] != NULL) {
            /* The caller's own memory, about to be handed back to it: it may be written to. */
            memcpy(&gradients[n].memory, &rt->given[i], sizeof(gradients[n].memory));
            gradients[n++].n_bytes = tensor->elements * dsched_dtype_bytes(tensor->dtype);
        }
        if (n == DEVICE_AVERAGED_MAX_GRADIENTS || i + 1 == space->n_tensors) {
            rt->device->ops->guard(rt->device, gradients, n, begins);
            begins = 0;
            n = 0;
        }
    }
}

enum deft_status averaged_boundary(struct deft_runtime *rt, struct deft_error *error) {
    struct engine *engine = rt->engine;
    int ends = engine->gen_iter + 1 == engine->plan.merge[engine->gen_index];
    enum deft_status status = passed_await(rt, error);
    engine->gen_bad |= rt->own_bad;
    for (uint32_t b = 0; b < engine->plan.n_buckets && status == DEFT_OK; b++) {
        status = averaged_bucket(rt, b, ends, error);
    }
    /* Delay 0: what was just posted is due already. */
    if (ends && status == DEFT_OK) {
        status = passed_await(rt, error);
    }
    for (uint32_t b = 0; b < engine->plan.n_buckets && ends && status == DEFT_OK; b++) {
        struct engine_op *op = engine_oldest(engine, b);
        if (engine_is_due(op, rt->iteration)) {
            status = boundary_wait(rt, op, error);
            if (status == DEFT_OK) {
                averaged_work(rt, b, op, 0);
            }
        }
    }
    if (ends) {
        engine->gen_bad = 0;
    }
    return status;
}

enum deft_status averaged_drain(struct deft_runtime *rt, struct deft_error *error) {
    struct engine *engine = rt->engine;
    enum deft_status status = DEFT_OK;
    /* All lanes may be taken, so what is in flight lands before a part of a generation is captured.
     */
    for (int part = 0; part < 2 && status == DEFT_OK; part++) {
        for (uint32_t b = 0; b < engine->plan.n_buckets && status == DEFT_OK; b++) {
            struct engine_op *op;
            while (status == DEFT_OK && (op = engine_oldest(engine, b)) != NULL) {
                status = boundary_wait(rt, op, error);
                if (status == DEFT_OK) {
                    averaged_work(rt, b, op, 0);
                }
            }
        }
        if (part == 0 && engine->gen_iter == 0) {
            break;
        }
        for (uint32_t b = 0; part == 0 && b < engine->plan.n_buckets && status == DEFT_OK; b++) {
            averaged_work(rt, b, NULL, 1);
            status = averaged_post(rt, b, engine->gen_iter, error);
        }
    }
    if (status == DEFT_OK) {
        averaged_restore(rt, engine->anchor);
        engine_rewind(engine);
        status = state_average(rt, error);
    }
    return status;
}
