/* What a device tells of iterations that it has passed: an earlier one than the present one, so
 * what is not finite is known too late for a thread to leave it out (docs/gpu.md). */
#include <math.h>

#include "runtime/runtime.h"

static void passed_landed(struct deft_runtime *rt, const struct device_figures *figures) {
    if (figures->norms[DEVICE_NORM_MEAN] != 0) {
        rt->record.grad_sq_mean = figures->norms[DEVICE_NORM_MEAN];
    }
    if (figures->norms[DEVICE_NORM_CHANGE] != 0) {
        rt->record.change_sq_local = figures->norms[DEVICE_NORM_CHANGE];
    }
    rt->record.updates += figures->n_applied;
    rt->record.skipped += figures->n_dropped;
    rt->update.skipped += figures->n_dropped;
}

static void passed_readiness(struct deft_runtime *rt) {
    if (rt->device->ops->take_readiness(rt->device, rt->readiness_ns)) {
        for (uint32_t i = 0; i < rt->space.n_tensors; i++) {
            rt->readiness_sum_ns[i] += rt->readiness_ns[i];
        }
        rt->n_readiness++;
    }
}

enum deft_status passed_await(struct deft_runtime *rt, struct deft_error *error) {
    const struct engine *engine = rt->engine;
    const struct device_ops *device = rt->device->ops;
    enum deft_status status = DEFT_OK;
    uint32_t n_due = 0;
    for (uint32_t b = 0; device->is_async && b < engine->plan.n_buckets && status == DEFT_OK; b++) {
        struct engine_op *op = engine_oldest(engine, b);
        if (!engine_is_due(op, rt->iteration)) {
            continue;
        }
        if (n_due++ == 0) {
            device->stamp(rt->device, DEVICE_AWAIT);
        }
        status = boundary_wait(rt, op, error);
    }
    if (n_due > 0 && status == DEFT_OK) {
        device->stamp(rt->device, DEVICE_LANDED);
    }
    return status;
}

void passed_iteration(struct deft_runtime *rt) {
    struct device_figures figures;
    rt->device->ops->stamp(rt->device, DEVICE_BOUNDARY);
    rt->record.grad_sq_local = NAN;
    passed_readiness(rt);
    if (!rt->device->ops->collect(rt->device, &figures)) {
        return;
    }
    rt->record.grad_sq_local = figures.norms[DEVICE_NORM_LOCAL];
    passed_landed(rt, &figures);
    rt->passed_exposed_ns = figures.exposed_ns;
    if (figures.forward_ns != 0 && figures.backward_ns != 0) {
        rt->record.forward_ns = figures.forward_ns;
        rt->record.backward_ns = figures.backward_ns;
    }
}

void passed_drain(struct deft_runtime *rt) {
    struct device_figures figures;
    if (rt->device->ops->collect(rt->device, &figures)) {
        passed_landed(rt, &figures);
    }
}
