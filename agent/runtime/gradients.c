/* Forward, backward and deft_grad_ready: gradients are accumulated into the pending generation,
 * their norms are taken in the same pass, and buckets are posted as they become complete. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/kernels.h"
#include "runtime/runtime.h"

void deft_forward_begin(struct deft_runtime *rt) {
    int64_t now_ns = clock_monotonic_ns();
    if (rt->has_finished) {
        rt->finished.step_ns = now_ns - rt->begin_ns;
        ring_put(&rt->iterations, &rt->finished);
        rt->has_finished = 0;
    }
    rt->begin_ns = now_ns;
    rt->backward_ns = now_ns;
    if (rt->life == RUNTIME_COMMITTED) {
        rt->device->ops->stamp(rt->device, DEVICE_FORWARD);
    }
}

void deft_loss(struct deft_runtime *rt, double loss) {
    /* Between two iterations it belongs to the one that has just ended. */
    struct ipc_iteration *record = rt->has_finished ? &rt->finished : &rt->record;
    record->loss = isfinite(loss) ? loss : NAN;
    record->flags &= ~IPC_ITERATION_BAD_LOSS;
    record->flags |= isfinite(loss) ? 0 : IPC_ITERATION_BAD_LOSS;
}

void deft_learning_rate(struct deft_runtime *rt, double rate) {
    rt->learning_rate = isfinite(rate) && rate >= 0 ? rate : NAN;
}

void deft_stream(struct deft_runtime *rt, void *stream) {
    rt->stream = stream;
    rt->device->ops->use_stream(rt->device, stream);
}

void deft_backward_begin(struct deft_runtime *rt) {
    rt->backward_ns = clock_monotonic_ns();
    rt->record.forward_ns = rt->backward_ns - rt->begin_ns;
    if (rt->life == RUNTIME_COMMITTED) {
        rt->device->ops->stamp(rt->device, DEVICE_BACKWARD);
    }
}

static int gradients_last_of_generation(const struct engine *engine) {
    return engine->gen_iter + 1 == engine->plan.merge[engine->gen_index];
}

void gradients_expect(struct deft_runtime *rt) {
    struct engine *engine = rt->engine;
    rt->n_given = 0;
    rt->own_bad = 0;
    memset(rt->was_given, 0, rt->space.n_tensors);
    memset(&rt->record, 0, sizeof(rt->record));
    rt->record.loss = NAN;
    rt->record.grad_sq_mean = NAN;
    rt->record.change_sq_local = NAN;
    rt->record.learning_rate = NAN;
    for (uint32_t b = 0; b < engine->plan.n_buckets; b++) {
        engine->buckets[b].n_missing = engine->buckets[b].n_pieces;
    }
    memset(engine->next_post, 0, sizeof(engine->next_post));
}

/* At most: where types are mixed, a bucket's own may be narrower than the widest. */
static size_t gradients_largest_op(const struct deft_runtime *rt, const struct dsched_plan *plan,
                                   uint32_t link) {
    uint64_t elements = 0;
    size_t width = 0;
    for (uint32_t i = 0; i < plan->n_generations * plan->n_buckets; i++) {
        const struct dsched_bucket *bucket = &plan->buckets[i % plan->n_buckets];
        if (plan->ops[i].link == link && bucket->end - bucket->begin > elements) {
            elements = bucket->end - bucket->begin;
        }
    }
    for (uint32_t t = 0; t < rt->space.n_tensors; t++) {
        size_t bytes = dsched_dtype_bytes(rt->space.tensors[t].dtype);
        width = bytes > width ? bytes : width;
    }
    return (size_t)elements * width;
}

enum deft_status gradients_reserve(const struct deft_runtime *rt, const struct dsched_plan *plan,
                                   struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (uint32_t l = 0; l < plan->n_links && status == DEFT_OK; l++) {
        const struct runtime_link *link = &rt->links[l];
        if (link->ops->reserve != NULL) {
            status = link->ops->reserve(link->link, gradients_largest_op(rt, plan, l), error);
        }
    }
    return status;
}

enum deft_status gradients_post(struct deft_runtime *rt, struct engine_op *op, uint32_t merged) {
    struct engine *engine = rt->engine;
    const struct dsched_op *planned = dsched_plan_op(&engine->plan, engine->gen_index, op->bucket);
    const struct runtime_link *link = &rt->links[planned->link];
    if (op->is_untold) { /* a whole generation later; a device that is further behind leaves it out
                          */
        op->is_untold = 0;
        if (link_test(&op->link_op)) {
            boundary_tell(rt, op);
        }
    }
    op->generation = engine->generation;
    op->end_iteration = rt->iteration;
    op->merged = merged;
    op->planned = engine->plan.merge[engine->gen_index];
    op->link = planned->link;
    op->delay = planned->delay;
    op->in_flight = 1;
    op->is_ordered = 0;
    rt->device->ops->mark(rt->device, op->link_op.ready);
    return link->ops->post(link->link, &op->link_op);
}

/* Posts on every link the buckets that are complete, in order: an earlier bucket of the same link
 * that is not complete holds back the later ones, because the order must be the same on all ranks.
 */
static void gradients_post_complete(struct deft_runtime *rt) {
    struct engine *engine = rt->engine;
    struct engine_lane *lane = engine_lane_of(engine, engine->generation);
    uint32_t merge = engine->plan.merge[engine->gen_index];
    for (uint32_t l = 0; l < engine->plan.n_links; l++) {
        uint32_t b = engine->next_post[l];
        for (; b < engine->plan.n_buckets; b++) {
            if (dsched_plan_op(&engine->plan, engine->gen_index, b)->link != l) {
                continue;
            }
            if (engine->buckets[b].n_missing > 0) {
                break;
            }
            enum deft_status status = gradients_post(rt, &lane->ops[b], merge);
            if (status != DEFT_OK) {
                deft_ignore(failure_from_link(rt, &rt->links[l], status, NULL));
                return; /* deft_step has the sentence */
            }
        }
        engine->next_post[l] = b;
    }
}

static double gradients_accumulate(struct deft_runtime *rt, const struct gradspace_tensor *tensor,
                                   const void *gradient) {
    struct engine *engine = rt->engine;
    const struct device_ops *device = rt->device->ops;
    enum deft_dtype dtype = (enum deft_dtype)tensor->dtype;
    if (engine->plan.rule == DSCHED_AVERAGED) {
        return gradient != NULL
                   ? device->norm(rt->device, dtype, gradient, tensor->elements, DEVICE_NORM_LOCAL)
                   : 0;
    }
    struct engine_lane *lane = engine_lane_of(engine, engine->generation);
    void *into = lane->flat + tensor->offset_bytes;
    double factor =
        1.0 / ((double)rt->options.n_ranks * (double)engine->plan.merge[engine->gen_index]);
    if (engine->gen_iter == 0) {
        return device->copy(rt->device, dtype, into, gradient, tensor->elements, factor,
                            DEVICE_NORM_LOCAL);
    }
    return device->add(rt->device, dtype, into, gradient, tensor->elements, factor,
                       DEVICE_NORM_LOCAL);
}

enum deft_status deft_grad_ready(struct deft_runtime *rt, uint32_t id, const void *gradient) {
    if (rt->failure.status != DEFT_OK) {
        return DEFT_OK; /* deft_step has the sentence */
    }
    if (rt->life != RUNTIME_COMMITTED || rt->phase != PHASE_COMPUTE) {
        return DEFT_STATE;
    }
    if (id >= rt->space.n_tensors || rt->was_given[id]) {
        return DEFT_INVALID;
    }
    struct engine *engine = rt->engine;
    if (rt->device->ops->is_async) {
        rt->device->ops->came(rt->device, id, rt->space.n_tensors);
    } else {
        rt->readiness_sum_ns[id] += clock_monotonic_ns() - rt->backward_ns;
    }
    rt->given[id] = gradient;
    rt->was_given[id] = 1;
    rt->n_given++;
    rt->record.grad_sq_local += gradients_accumulate(rt, &rt->space.tensors[id], gradient);
    if (engine->plan.rule == DSCHED_AVERAGED || !gradients_last_of_generation(engine)) {
        return DEFT_OK;
    }
    const struct engine_extent *extent = &engine->extents[id];
    for (uint32_t b = extent->first; b < extent->first + extent->n; b++) {
        engine->buckets[b].n_missing--;
    }
    gradients_post_complete(rt);
    return DEFT_OK;
}
