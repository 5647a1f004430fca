/* What a boundary does under averaged (docs/update-rules.md). With w this rank's parameters, a the
 * anchor, D its change in a generation and M the mean of all ranks' changes:
 *   the generation ends:  D = w - a - (changes still in flight);  all-reduce D / n_ranks
 *   its mean has landed:  a += M;  w += M - D
 * The anchor is moved by landed means alone, in the same order on all ranks: it is bit-equal. */
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
        memcpy(flat + tensor->offset_bytes, tensor->parameters,
               (size_t)tensor->elements * dsched_dtype_bytes(tensor->dtype));
    }
}

void averaged_restore(const struct deft_runtime *rt, const uint8_t *flat) {
    for (uint32_t i = 0; i < rt->space.n_tensors; i++) {
        const struct gradspace_tensor *tensor = &rt->space.tensors[i];
        memcpy(tensor->parameters, flat + tensor->offset_bytes,
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
    if (!bad) {
        rt->record.grad_sq_mean =
            (isnan(rt->record.grad_sq_mean) ? 0 : rt->record.grad_sq_mean) + op->landed_sq;
    }
}

static void averaged_land(struct deft_runtime *rt, struct engine_op *op) {
    struct engine *engine = rt->engine;
    const struct engine_bucket *bucket = &engine->buckets[op->bucket];
    struct engine_lane *lane = engine_lane_of(engine, op->generation);
    int bad = !isfinite(op->landed_sq);
    averaged_count(rt, op, bad);
    boundary_retire(rt, op);
    if (bad) {
        averaged_drop(rt, op);
        return;
    }
    for (uint32_t p = 0; p < bucket->n_pieces; p++) {
        const struct engine_piece *piece = &engine->pieces[bucket->first_piece + p];
        kernels_land(bucket->dtype, averaged_weights(rt, piece), engine->anchor + piece->flat_bytes,
                     lane->flat + piece->flat_bytes, lane->own + piece->flat_bytes, piece->n);
    }
}

static void averaged_capture(struct deft_runtime *rt, uint32_t b) {
    struct engine *engine = rt->engine;
    const struct engine_bucket *bucket = &engine->buckets[b];
    struct engine_lane *lane = engine_lane_of(engine, engine->generation);
    double factor = 1.0 / (double)rt->options.n_ranks;
    for (uint32_t p = 0; p < bucket->n_pieces; p++) {
        const struct engine_piece *piece = &engine->pieces[bucket->first_piece + p];
        uint8_t *own = lane->own + piece->flat_bytes;
        uint8_t *sum = lane->flat + piece->flat_bytes;
        int older = 0;
        kernels_capture(bucket->dtype, averaged_weights(rt, piece),
                        engine->anchor + piece->flat_bytes, own, sum, piece->n, factor);
        for (uint32_t l = 0; l < engine->n_lanes; l++) {
            if (engine->lanes[l].ops[b].in_flight) {
                kernels_exclude(bucket->dtype, own, engine->lanes[l].own + piece->flat_bytes,
                                piece->n);
                older = 1;
            }
        }
        if (older) {
            (void)kernels_copy(bucket->dtype, sum, own, piece->n, factor);
        }
    }
}

/* The usual case in one pass: the mean of the previous generation lands where this one is captured.
 */
static void averaged_land_capture(struct deft_runtime *rt, struct engine_op *op) {
    struct engine *engine = rt->engine;
    const struct engine_bucket *bucket = &engine->buckets[op->bucket];
    struct engine_lane *lane = engine_lane_of(engine, op->generation);
    averaged_count(rt, op, 0);
    boundary_retire(rt, op);
    for (uint32_t p = 0; p < bucket->n_pieces; p++) {
        const struct engine_piece *piece = &engine->pieces[bucket->first_piece + p];
        kernels_land_capture(bucket->dtype, averaged_weights(rt, piece),
                             engine->anchor + piece->flat_bytes, lane->own + piece->flat_bytes,
                             lane->flat + piece->flat_bytes, piece->n,
                             1.0 / (double)rt->options.n_ranks);
    }
}

static enum deft_status averaged_post(struct deft_runtime *rt, uint32_t b, uint32_t merged,
                                      struct deft_error *error) {
    struct engine *engine = rt->engine;
    struct engine_op *op = &engine_lane_of(engine, engine->generation)->ops[b];
    if (engine->gen_bad) {
        kernels_poison(op->dtype, op->link_op.data);
    }
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
    enum deft_status status = DEFT_OK;
    int captured = 0;
    if (averaged_is_due(rt, op)) {
        status = boundary_wait(rt, op, error);
        if (status == DEFT_OK && ends && engine->n_lanes == 1 && isfinite(op->landed_sq)) {
            averaged_land_capture(rt, op);
            captured = 1;
        } else if (status == DEFT_OK) {
            averaged_land(rt, op);
        }
    }
    if (status != DEFT_OK || !ends) {
        return status;
    }
    if (!captured) {
        averaged_capture(rt, b);
    }
    return averaged_post(rt, b, engine->plan.merge[engine->gen_index], error);
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
                averaged_land(rt, op);
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
                    averaged_land(rt, op);
                }
            }
        }
        if (part == 0 && engine->gen_iter == 0) {
            break;
        }
        for (uint32_t b = 0; part == 0 && b < engine->plan.n_buckets && status == DEFT_OK; b++) {
            averaged_capture(rt, b);
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
