/* What a boundary does under averaged (docs/update-rules.md). With w this rank's parameters, a the
 * anchor, D its change in a generation and M the mean of all ranks' changes:
 *   the generation ends:  D = w - a - (changes still in flight);  all-reduce D / n_ranks
 *   its mean has landed:  a += M;  w += M - D
 * The anchor is moved by landed means alone, in the same order on all ranks: it is bit-equal.
 * A rank whose change is not finite poisons the first element of every bucket concerned, which the
 * sum shows to all ranks: no pass over landed data is needed to find out. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/kernels.h"
#include "runtime/runtime.h"

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

/* Some rank's share is not finite: every rank drops the generation in this bucket and goes on from
 * the anchor. Changes in flight were relative to weights that are gone, so they count as zero here.
 */
static void averaged_drop(struct deft_runtime *rt, const struct engine_op *op) {
    struct engine *engine = rt->engine;
    const struct engine_bucket *bucket = &engine->buckets[op->bucket];
    for (uint32_t p = 0; p < bucket->n_pieces; p++) {
        const struct engine_piece *piece = &engine->pieces[bucket->first_piece + p];
        size_t n_bytes = (size_t)piece->n * dsched_dtype_bytes(bucket->dtype);
        memcpy(averaged_weights(rt, piece), engine->anchor + piece->flat_bytes, n_bytes);
        for (uint32_t l = 0; l < engine->n_lanes; l++) {
            if (engine->lanes[l].ops[op->bucket].in_flight) {
                memset(engine->lanes[l].own + piece->flat_bytes, 0, n_bytes);
            }
        }
    }
}

static void averaged_count(struct deft_runtime *rt, const struct engine_op *op, int bad) {
    /* Bucket 0 stands for its generation, so that counts are generations, not buckets. */
    if (op->bucket == 0) {
        rt->record.updates += !bad;
        rt->record.skipped += bad;
        rt->update.skipped += (uint32_t)bad;
        rt->update.merge = op->merged;
        rt->update.delay = (uint32_t)(rt->iteration - op->end_iteration);
    }
}

/* The changes of bucket `b` that stay in flight beside the one being captured: the first is
 * returned, the number of all goes to `*out_n`. */
static const uint8_t *averaged_older(const struct engine *engine, uint32_t b, uint32_t *out_n) {
    const uint8_t *first = NULL;
    *out_n = 0;
    for (uint32_t l = 0; l < engine->n_lanes; l++) {
        if (engine->lanes[l].ops[b].in_flight && (*out_n)++ == 0) {
            first = engine->lanes[l].own;
        }
    }
    return first;
}

/* More than one older change in flight: rare, so in passes of its own. Returns |own|^2. */
static double averaged_exclude_rest(const struct engine *engine, uint32_t b,
                                    const struct engine_piece *piece, const uint8_t *first,
                                    const struct kernels_averaged *at) {
    enum dsched_dtype dtype = engine->buckets[b].dtype;
    for (uint32_t l = 0; l < engine->n_lanes; l++) {
        const struct engine_lane *lane = &engine->lanes[l];
        if (lane->ops[b].in_flight && lane->own != first) {
            kernels_exclude(dtype, at->own, lane->own + piece->flat_bytes, piece->n);
        }
    }
    return kernels_copy(dtype, at->sum, at->own, piece->n, at->factor);
}

/* Lands `landing` (NULL: nothing) and captures the generation that ends (if `capture`) in bucket
 * `b`. */
static void averaged_work(struct deft_runtime *rt, uint32_t b, struct engine_op *landing,
                          int capture) {
    struct engine *engine = rt->engine;
    const struct engine_bucket *bucket = &engine->buckets[b];
    const struct engine_lane *from = NULL;
    struct engine_lane *into = engine_lane_of(engine, engine->generation);
    struct kernels_norms norms = {0, 0};
    uint32_t n_older = 0;
    double rest_own_sq = 0;
    if (landing != NULL) {
        int bad = kernels_is_poisoned(bucket->dtype, landing->link_op.data);
        from = engine_lane_of(engine, landing->generation);
        averaged_count(rt, landing, bad);
        boundary_retire(rt, landing);
        if (bad) {
            averaged_drop(rt, landing);
            from = NULL;
        }
    }
    const uint8_t *older = averaged_older(engine, b, &n_older);
    for (uint32_t p = 0; p < bucket->n_pieces && (from != NULL || capture); p++) {
        const struct engine_piece *piece = &engine->pieces[bucket->first_piece + p];
        size_t at_bytes = piece->flat_bytes;
        struct kernels_averaged at = {
            .w = averaged_weights(rt, piece),
            .a = engine->anchor + at_bytes,
            .landed = from != NULL ? from->flat + at_bytes : NULL,
            .landed_own = from != NULL ? from->own + at_bytes : NULL,
            .older = older != NULL ? older + at_bytes : NULL,
            .own = capture ? into->own + at_bytes : NULL,
            .sum = into->flat + at_bytes,
            .factor = 1.0 / (double)rt->options.n_ranks,
        };
        kernels_average(bucket->dtype, &at, piece->n, &norms);
        if (capture && n_older > 1) {
            rest_own_sq += averaged_exclude_rest(engine, b, piece, older, &at);
        }
    }
    if (from != NULL) {
        boundary_add(&rt->record.grad_sq_mean, norms.landed_sq);
        boundary_add(&rt->record.change_sq_local, landing->own_sq);
    }
    if (capture) { /* maybe in the place of the one that has landed */
        into->ops[b].own_sq = n_older > 1 ? rest_own_sq : norms.own_sq;
        if (engine->gen_bad || !isfinite(norms.own_sq)) {
            kernels_poison(bucket->dtype, into->ops[b].link_op.data);
        }
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

static int averaged_is_due(const struct deft_runtime *rt, const struct engine_op *op) {
    return op != NULL && op->end_iteration + op->delay <= rt->iteration;
}

/* One bucket: what is due lands, then the generation that ends here is captured and posted, so that
 * its link goes on while the next bucket is worked on. */
static enum deft_status averaged_bucket(struct deft_runtime *rt, uint32_t b, int ends,
                                        struct deft_error *error) {
    struct engine *engine = rt->engine;
    struct engine_op *op = engine_oldest(engine, b);
    if (!averaged_is_due(rt, op)) {
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

enum deft_status averaged_boundary(struct deft_runtime *rt, struct deft_error *error) {
    struct engine *engine = rt->engine;
    int ends = engine->gen_iter + 1 == engine->plan.merge[engine->gen_index];
    enum deft_status status = DEFT_OK;
    engine->gen_bad |= rt->own_bad;
    for (uint32_t b = 0; b < engine->plan.n_buckets && status == DEFT_OK; b++) {
        status = averaged_bucket(rt, b, ends, error);
    }
    /* Delay 0: what was just posted is due already. */
    for (uint32_t b = 0; b < engine->plan.n_buckets && ends && status == DEFT_OK; b++) {
        struct engine_op *op = engine_oldest(engine, b);
        if (averaged_is_due(rt, op)) {
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
