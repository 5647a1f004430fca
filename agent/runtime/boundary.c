/* deft_step and deft_drain: what happens between two iterations.
 *
 *   COMPUTE -> OWN -> SETTLE                        averaged
 *   COMPUTE -> LAND -> LANDED -> PREVIEW -> SETTLE  the other rules
 *   SETTLE  -> FINISH, or, when another plan runs next, DRAIN <-> DRAINED -> FINISH
 *   deft_drain starts at DRAIN.
 *
 * A phase that hands gradients to the caller returns; the next call goes on with the phase behind
 * it. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/kernels.h"
#include "runtime/runtime.h"

/* --- waiting and retiring --------------------------------------------------------------------- */

enum deft_status boundary_wait(struct deft_runtime *rt, struct engine_op *op,
                               struct deft_error *error) {
    const struct runtime_link *link = &rt->links[op->link];
    if (op->is_ordered) {
        return DEFT_OK;
    }
    if (link->ops->order != NULL) { /* the device waits, not this thread */
        enum deft_status status = link->ops->order(link->link, &op->link_op, rt->stream);
        op->is_ordered = status == DEFT_OK;
        return status == DEFT_OK ? DEFT_OK : failure_from_link(rt, link, status, error);
    }
    if (link_test(&op->link_op) && op->link_op.status == DEFT_OK) {
        return DEFT_OK;
    }
    int64_t begin_ns = clock_monotonic_ns();
    enum deft_status status = link->ops->wait(link->link, &op->link_op, INT64_MAX);
    rt->record.exposed_ns += clock_monotonic_ns() - begin_ns;
    if (status != DEFT_OK) {
        return failure_from_link(rt, link, status, error);
    }
    return DEFT_OK;
}

void boundary_tell(struct deft_runtime *rt, const struct engine_op *op) {
    struct ipc_op done = {.iteration = op->end_iteration,
                          .bytes = op->link_op.elements * dsched_dtype_bytes(op->dtype),
                          .bucket = op->bucket,
                          .link = op->link,
                          .posted_ns = op->link_op.posted_ns - rt->clock_origin_ns,
                          .start_ns = op->link_op.start_ns - rt->clock_origin_ns,
                          .end_ns = op->link_op.end_ns - rt->clock_origin_ns};
    ring_put(&rt->ops, &done);
}

void boundary_retire(struct deft_runtime *rt, struct engine_op *op) {
    rt->record.bytes += op->link_op.elements * dsched_dtype_bytes(op->dtype);
    op->in_flight = 0;
    if (link_test(&op->link_op)) {
        boundary_tell(rt, op);
    } else {
        op->is_untold = 1;
    }
}

void boundary_add(double *figure, double more) {
    *figure = (isnan(*figure) ? 0 : *figure) + more;
}

/* --- landed averages -------------------------------------------------------------------------- */

/* Lookahead: parameters go back to the anchor, from which landed averages move them. */
static void boundary_undo_previews(struct deft_runtime *rt) {
    struct engine *engine = rt->engine;
    for (uint32_t i = 0; engine->anchor != NULL && i < rt->space.n_tensors; i++) {
        const struct gradspace_tensor *tensor = &rt->space.tensors[i];
        if (engine->previewed[i]) {
            rt->device->ops->move(rt->device, tensor->parameters,
                                  engine->anchor + tensor->offset_bytes,
                                  (size_t)tensor->elements * dsched_dtype_bytes(tensor->dtype));
            engine->previewed[i] = 0;
        }
    }
}

/* Fills engine->due: per bucket the oldest op in flight that is due now (or any, when draining). */
static uint32_t boundary_collect(struct deft_runtime *rt, int all) {
    struct engine *engine = rt->engine;
    uint32_t n_due = 0;
    for (uint32_t b = 0; b < engine->plan.n_buckets; b++) {
        struct engine_op *op = engine_oldest(engine, b);
        int due = op != NULL && (all || engine_is_due(op, rt->iteration));
        engine->due[b] = due ? op : NULL;
        n_due += (uint32_t)due;
    }
    return n_due;
}

static uint32_t boundary_lane_number(const struct engine *engine, const struct engine_op *op) {
    return (uint32_t)(op->generation % engine->n_lanes);
}

/* The memory of this iteration's gradient, to be written; NULL: there is none, or a drain applies
 * what is older than it. */
static uint8_t *boundary_given(const struct deft_runtime *rt, uint32_t id) {
    uint8_t *given = NULL;
    if (rt->engine->writes_back && rt->phase == PHASE_LANDED) {
        memcpy(&given, &rt->given[id], sizeof(given)); /* the caller said that it is writable */
    }
    return given;
}

/* A bucket's averages go into the gradients that this iteration was given; a tensor without one
 * keeps its average in the lane. Returns the squared norm. */
static double boundary_write_back(struct deft_runtime *rt, const struct engine_op *op) {
    const struct engine *engine = rt->engine;
    const struct engine_bucket *bucket = &engine->buckets[op->bucket];
    const struct device_ops *device = rt->device->ops;
    enum deft_dtype dtype = (enum deft_dtype)bucket->dtype;
    const uint8_t *flat = engine_lane_of(engine, op->generation)->flat;
    double sum = 0;
    for (uint32_t p = 0; p < bucket->n_pieces; p++) {
        const struct engine_piece *piece = &engine->pieces[bucket->first_piece + p];
        uint8_t *given = boundary_given(rt, piece->tensor);
        sum += given != NULL
                   ? device->copy(rt->device, dtype, given + piece->tensor_bytes,
                                  flat + piece->flat_bytes, piece->n, 1.0, DEVICE_NORM_MEAN)
                   : device->norm(rt->device, dtype, flat + piece->flat_bytes, piece->n,
                                  DEVICE_NORM_MEAN);
    }
    return sum;
}

/* Awaits what is due and finds the generations that some rank made non-finite: the sum shows it to
 * all ranks alike, so all of them skip it. */
static enum deft_status boundary_await(struct deft_runtime *rt, struct deft_error *error) {
    struct engine *engine = rt->engine;
    memset(engine->lane_bad, 0, engine->n_lanes);
    for (uint32_t b = 0; b < engine->plan.n_buckets; b++) {
        struct engine_op *op = engine->due[b];
        if (op == NULL) {
            continue;
        }
        enum deft_status status = boundary_wait(rt, op, error);
        if (status != DEFT_OK) {
            return status;
        }
        if (engine->writes_back) {
            op->landed_sq = boundary_write_back(rt, op);
        } else if (rt->device->ops->is_async) {
            op->landed_sq =
                rt->device->ops->norm(rt->device, (enum deft_dtype)op->dtype, op->link_op.data,
                                      op->link_op.elements, DEVICE_NORM_MEAN);
        }
        if (!isfinite(op->landed_sq)) {
            engine->lane_bad[boundary_lane_number(engine, op)] = 1;
        }
        rt->update.merge = op->merged;
        rt->update.delay = (uint32_t)(rt->iteration - op->end_iteration);
    }
    for (uint32_t b = 0; b < engine->plan.n_buckets; b++) {
        const struct engine_op *op = engine->due[b];
        if (op != NULL && !engine->lane_bad[boundary_lane_number(engine, op)] &&
            !rt->device->ops->is_async) {
            boundary_add(&rt->record.grad_sq_mean, op->landed_sq);
        }
    }
    return DEFT_OK;
}

/* The landed gradient of tensor `id`, or NULL when it is not due, not whole or skipped. */
static void *boundary_landed_gradient(struct deft_runtime *rt, uint32_t id) {
    struct engine *engine = rt->engine;
    const struct engine_extent *extent = &engine->extents[id];
    const struct engine_op *op = engine->due[extent->first];
    for (uint32_t b = extent->first; b < extent->first + extent->n; b++) {
        if (op == NULL || engine->due[b] == NULL || engine->due[b]->generation != op->generation) {
            return NULL;
        }
    }
    if (engine->lane_bad[boundary_lane_number(engine, op)]) {
        return NULL;
    }
    const struct gradspace_tensor *tensor = &rt->space.tensors[id];
    void *gradient = engine_lane_of(engine, op->generation)->flat + tensor->offset_bytes;
    if (boundary_given(rt, id) != NULL) {
        return boundary_given(rt, id);
    }
    if (op->merged != op->planned) { /* a drain cut the generation short: still the mean */
        rt->device->ops->scale(rt->device, (enum deft_dtype)tensor->dtype, gradient,
                               tensor->elements, (double)op->planned / (double)op->merged);
    }
    return gradient;
}

/* Hands out what is due. Returns the number of tensors that take part. */
static uint32_t boundary_hand_landed(struct deft_runtime *rt) {
    uint32_t n = 0;
    uint32_t n_bad = 0;
    for (uint32_t i = 0; i < rt->space.n_tensors; i++) {
        rt->gradients[i] = boundary_landed_gradient(rt, i);
        n += rt->gradients[i] != NULL;
    }
    for (uint32_t l = 0; l < rt->engine->n_lanes; l++) {
        n_bad += rt->engine->lane_bad[l];
    }
    rt->update.skipped += n_bad;
    rt->record.skipped += n_bad;
    rt->record.updates += n > 0;
    rt->update.landed = 1;
    rt->update.action = n > 0 ? DEFT_APPLY : DEFT_DONE;
    return n;
}

static void boundary_retire_due(struct deft_runtime *rt) {
    struct engine *engine = rt->engine;
    for (uint32_t b = 0; b < engine->plan.n_buckets; b++) {
        if (engine->due[b] != NULL) {
            boundary_retire(rt, engine->due[b]);
            engine->due[b] = NULL;
        }
    }
}

/* --- phases: each returns with rt->phase set to what comes next; update.action other than
 * DEFT_DONE hands out
 * ------------------------------------------------------------------------------- */

static enum deft_status boundary_open(struct deft_runtime *rt, struct deft_error *error) {
    if (rt->n_given != rt->space.n_tensors) {
        uint32_t i = 0;
        while (i < rt->space.n_tensors && rt->was_given[i]) {
            i++;
        }
        return deft_fail(error, DEFT_STATE, 0,
                         "iteration %llu: tensor %s and %u others have no gradient; every tensor "
                         "needs one deft_grad_ready before deft_step (NULL counts as zeros)",
                         (unsigned long long)rt->iteration, rt->space.tensors[i].name,
                         rt->space.n_tensors - rt->n_given - 1);
    }
    if (rt->is_fresh) {
        rt->is_fresh = 0;
        boundary_anchor(rt);
    }
    rt->boundary_ns = clock_monotonic_ns();
    rt->record.backward_ns = rt->boundary_ns - rt->backward_ns;
    rt->record.learning_rate = rt->learning_rate;
    rt->own_bad = !isfinite(rt->record.grad_sq_local);
    memset(&rt->update, 0, sizeof(rt->update));
    rt->update.iteration = rt->iteration;
    if (rt->engine->plan.rule == DSCHED_AVERAGED) {
        averaged_guard(rt); /* before the norms begin anew */
    }
    if (rt->device->ops->is_async) {
        passed_iteration(rt);
        rt->own_bad = 0;
    }
    rt->n_readiness += !rt->device->ops->is_async;
    enum deft_status status = vote_boundary(rt, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (rt->engine->plan.rule != DSCHED_AVERAGED) {
        rt->phase = PHASE_LAND;
        return DEFT_OK;
    }
    rt->phase = PHASE_OWN;
    if (!rt->own_bad) {
        for (uint32_t i = 0; i < rt->space.n_tensors; i++) {
            /* The caller's own memory, handed back to it: it may write there. */
            memcpy(&rt->gradients[i], &rt->given[i], sizeof(rt->gradients[i]));
        }
        rt->update.landed = 0;
        rt->update.merge = 1;
        rt->update.action = DEFT_APPLY;
    }
    return DEFT_OK;
}

static enum deft_status boundary_land(struct deft_runtime *rt, struct deft_error *error) {
    rt->phase = PHASE_LANDED;
    if (boundary_collect(rt, 0) == 0) {
        return DEFT_OK;
    }
    enum deft_status status = passed_await(rt, error);
    if (status == DEFT_OK) {
        status = boundary_await(rt, error);
    }
    if (status == DEFT_OK) {
        boundary_undo_previews(rt);
        (void)boundary_hand_landed(rt);
    }
    return status;
}

static enum deft_status boundary_preview(struct deft_runtime *rt) {
    struct engine *engine = rt->engine;
    uint32_t n = 0;
    rt->phase = PHASE_SETTLE;
    if (engine->plan.rule != DSCHED_LOOKAHEAD || rt->switching || rt->leaving || rt->own_bad) {
        return DEFT_OK;
    }
    for (uint32_t i = 0; i < rt->space.n_tensors; i++) {
        const struct gradspace_tensor *tensor = &rt->space.tensors[i];
        int late = engine_oldest(engine, engine->extents[i].first) != NULL;
        memcpy(&rt->gradients[i], &rt->given[i], sizeof(rt->gradients[i]));
        if (!late || rt->given[i] == NULL) {
            rt->gradients[i] = NULL;
            continue;
        }
        rt->device->ops->move(rt->device, engine->anchor + tensor->offset_bytes, tensor->parameters,
                              (size_t)tensor->elements * dsched_dtype_bytes(tensor->dtype));
        engine->previewed[i] = 1;
        n++;
    }
    rt->update.landed = 0;
    rt->update.merge = 1;
    rt->update.delay = 0;
    rt->update.action = n > 0 ? DEFT_PREVIEW : DEFT_DONE;
    return DEFT_OK;
}

static enum deft_status boundary_settle(struct deft_runtime *rt) {
    struct engine *engine = rt->engine;
    if (++engine->gen_iter == engine->plan.merge[engine->gen_index]) {
        engine->gen_iter = 0;
        engine->gen_index = (engine->gen_index + 1) % engine->plan.n_generations;
        engine->generation++;
    }
    rt->phase = rt->switching || rt->leaving ? PHASE_DRAIN : PHASE_FINISH;
    return DEFT_OK;
}

/* The gradients accumulated so far become a generation of fewer iterations. */
static enum deft_status boundary_post_part(struct deft_runtime *rt, struct deft_error *error) {
    struct engine *engine = rt->engine;
    struct engine_lane *lane = engine_lane_of(engine, engine->generation);
    for (uint32_t b = 0; b < engine->plan.n_buckets; b++) {
        enum deft_status status = gradients_post(rt, &lane->ops[b], engine->gen_iter);
        if (status != DEFT_OK) {
            return failure_from_link(rt, &rt->links[lane->ops[b].link], status, error);
        }
    }
    engine->gen_iter = 0;
    engine->gen_index = (engine->gen_index + 1) % engine->plan.n_generations;
    engine->generation++;
    return DEFT_OK;
}

void boundary_anchor(struct deft_runtime *rt) {
    if (rt->engine->anchor != NULL) {
        averaged_save(rt, rt->engine->anchor);
    }
}

static void boundary_switch(struct deft_runtime *rt) {
    struct engine *old = rt->engine;
    rt->engine = rt->candidate;
    rt->candidate = NULL;
    rt->switching = 0;
    fuse_start(&rt->fuse, rt->iteration + 1);
    boundary_anchor(rt);
    rt->stats.switches++;
    mailbox_event(&rt->mailbox, IPC_EVENT_SWITCHED, rt->engine->seq, rt->iteration + 1, 0, "");
    mailbox_retire(&rt->mailbox, old);
}

/* The fuse has blown: exact goes on under the plan's number. A candidate stays one. */
static void boundary_leave(struct deft_runtime *rt) {
    struct engine *old = rt->engine;
    rt->engine = engine_leave(old);
    rt->leaving = 0;
    fuse_start(&rt->fuse, rt->iteration + 1);
    mailbox_event(&rt->mailbox, IPC_EVENT_FUSED, old->seq, rt->iteration + 1, 0, rt->fuse_text);
    mailbox_retire(&rt->mailbox, old);
}

/* Nothing of the old plan may be under way on a device when its memory goes; and who drains reads
 * parameters next. The only place between commit and close where a host waits for its device. */
static enum deft_status boundary_settle_device(struct deft_runtime *rt, struct deft_error *error) {
    const struct engine *engine = rt->engine;
    for (uint32_t i = 0; rt->device->ops->is_async && i < engine->n_lanes * engine->plan.n_buckets;
         i++) {
        struct engine_op *op =
            &engine->lanes[i / engine->plan.n_buckets].ops[i % engine->plan.n_buckets];
        const struct runtime_link *link = &rt->links[op->link];
        if (!op->is_untold) {
            continue;
        }
        enum deft_status status = link->ops->wait(link->link, &op->link_op, INT64_MAX);
        if (status != DEFT_OK) {
            return failure_from_link(rt, link, status, error);
        }
        boundary_tell(rt, op);
        op->is_untold = 0;
    }
    rt->device->ops->settle(rt->device);
    return DEFT_OK;
}

static enum deft_status boundary_drain_next(struct deft_runtime *rt, struct deft_error *error) {
    struct engine *engine = rt->engine;
    enum deft_status status = DEFT_OK;
    if (engine->plan.rule == DSCHED_AVERAGED) {
        status = averaged_drain(rt, error);
        if (status == DEFT_OK) {
            status = boundary_settle_device(rt, error);
        }
        passed_drain(rt);
    } else {
        if (engine->gen_iter > 0) {
            status = boundary_post_part(rt, error);
        }
        if (status == DEFT_OK && boundary_collect(rt, 1) > 0) {
            rt->phase = PHASE_DRAINED;
            status = boundary_await(rt, error);
            if (status == DEFT_OK) {
                boundary_undo_previews(rt);
                (void)boundary_hand_landed(rt);
            }
            return status;
        }
        boundary_undo_previews(rt);
        status = boundary_settle_device(rt, error);
        engine_rewind(engine);
    }
    if (status == DEFT_OK && rt->switching) {
        boundary_switch(rt);
    } else if (status == DEFT_OK && rt->leaving) {
        boundary_leave(rt);
    }
    rt->record.flags |= IPC_ITERATION_DRAINED;
    rt->phase = PHASE_FINISH;
    return status;
}

static void boundary_publish_readiness(struct deft_runtime *rt) {
    enum { EVERY = 16 };
    if (rt->n_readiness < EVERY || pthread_mutex_trylock(&rt->mailbox.lock) != 0) {
        return;
    }
    for (uint32_t i = 0; i < rt->space.n_tensors; i++) {
        rt->mailbox.readiness[i] = rt->readiness_sum_ns[i] / rt->n_readiness;
    }
    rt->mailbox.readiness_head = (struct ipc_readiness){.iteration = rt->iteration,
                                                        .n_iterations = rt->n_readiness,
                                                        .n_tensors = rt->space.n_tensors};
    (void)pthread_mutex_unlock(&rt->mailbox.lock);
    memset(rt->readiness_sum_ns, 0, rt->space.n_tensors * sizeof(*rt->readiness_sum_ns));
    rt->n_readiness = 0;
}

static void boundary_count(struct deft_runtime *rt) {
    const struct ipc_iteration *record = &rt->record;
    rt->stats.updates += record->updates;
    rt->stats.skipped += record->skipped;
    rt->stats.exposed_ns += record->exposed_ns;
    if (!isnan(record->grad_sq_mean)) {
        rt->stats.grad_sq_mean = record->grad_sq_mean;
    }
}

static void boundary_finish_iteration(struct deft_runtime *rt) {
    struct ipc_iteration *record = &rt->record;
    record->iteration = rt->iteration;
    record->plan_seq = rt->stats.plan_seq;
    record->merge = rt->update.merge;
    record->flags |= record->plan_seq != rt->finished.plan_seq ? IPC_ITERATION_SWITCHED : 0;
    record->runtime_ns =
        clock_monotonic_ns() - rt->boundary_ns - record->exposed_ns - record->optimizer_ns;
    if (rt->device->ops->is_async) { /* this thread has hardly waited, but its device has */
        record->exposed_ns = rt->passed_exposed_ns;
    }
    rt->finished = *record;
    rt->has_finished = 1;
    rt->stats.iterations++;
    boundary_count(rt);
    rt->stats.plan_seq = rt->engine->seq;
    rt->stats.plan_hash = rt->engine->hash;
    boundary_publish_readiness(rt);
    rt->iteration++;
}

static enum deft_status boundary_finish(struct deft_runtime *rt) {
    if (rt->draining) {
        rt->is_fresh = 1;
        boundary_count(rt);
        rt->draining = 0;
    } else {
        boundary_finish_iteration(rt);
    }
    gradients_expect(rt);
    rt->phase = PHASE_COMPUTE;
    rt->update.action = DEFT_DONE;
    return DEFT_OK;
}

static enum deft_status boundary_phase(struct deft_runtime *rt, struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    switch (rt->phase) {
    case PHASE_COMPUTE:
        return boundary_open(rt, error);
    case PHASE_OWN:
        status = averaged_boundary(rt, error);
        rt->phase = PHASE_SETTLE;
        return status;
    case PHASE_LAND:
        return boundary_land(rt, error);
    case PHASE_LANDED:
        boundary_retire_due(rt);
        rt->phase = PHASE_PREVIEW;
        return DEFT_OK;
    case PHASE_PREVIEW:
        return boundary_preview(rt);
    case PHASE_SETTLE:
        return boundary_settle(rt);
    case PHASE_DRAIN:
        return boundary_drain_next(rt, error);
    case PHASE_DRAINED:
        boundary_retire_due(rt);
        rt->phase = PHASE_DRAIN;
        return DEFT_OK;
    case PHASE_FINISH:
        return boundary_finish(rt);
    }
    return DEFT_STATE;
}

/* Runs phases until one hands something out or the boundary is complete. */
static enum deft_status boundary_run(struct deft_runtime *rt, struct deft_update *out,
                                     struct deft_error *error) {
    if (rt->handed_ns != 0) {
        rt->record.optimizer_ns += clock_monotonic_ns() - rt->handed_ns;
        rt->handed_ns = 0;
    }
    rt->update.action = DEFT_DONE;
    do {
        enum deft_status status = boundary_phase(rt, error);
        if (status == DEFT_OK) {
            status = failure_from_device(rt, error);
        }
        if (status != DEFT_OK) {
            return status;
        }
    } while (rt->update.action == DEFT_DONE && rt->phase != PHASE_COMPUTE);
    rt->update.gradients = (void *const *)rt->gradients;
    *out = rt->update;
    if (rt->update.action != DEFT_DONE) {
        rt->handed_ns = clock_monotonic_ns();
    }
    return DEFT_OK;
}

enum deft_status deft_step(struct deft_runtime *rt, struct deft_update *out,
                           struct deft_error *error) {
    if (failure_check(rt, error) != DEFT_OK) {
        return rt->failure.status;
    }
    if (rt->life != RUNTIME_COMMITTED || rt->draining) {
        return deft_fail(error, DEFT_STATE, 0, "deft_step was called %s",
                         rt->draining ? "before deft_drain was done" : "before deft_commit");
    }
    return boundary_run(rt, out, error);
}

enum deft_status deft_drain(struct deft_runtime *rt, struct deft_update *out,
                            struct deft_error *error) {
    if (failure_check(rt, error) != DEFT_OK) {
        return rt->failure.status;
    }
    if (rt->life != RUNTIME_COMMITTED ||
        (!rt->draining && (rt->phase != PHASE_COMPUTE || rt->n_given > 0))) {
        return deft_fail(error, DEFT_STATE, 0, "deft_drain was called %s",
                         rt->life != RUNTIME_COMMITTED ? "before deft_commit"
                                                       : "inside an iteration");
    }
    if (!rt->draining) {
        if (vote_call(rt, CONTROL_DRAIN, 0, NULL, error) != DEFT_OK) {
            return rt->failure.status;
        }
        if (rt->is_fresh) { /* nothing is in flight: what the caller has loaded stays */
            boundary_anchor(rt);
        }
        rt->draining = 1;
        rt->phase = PHASE_DRAIN;
        memset(&rt->update, 0, sizeof(rt->update));
        rt->update.iteration = rt->iteration;
        if (rt->has_finished) { /* what follows a drain, such as an evaluation, is no step time */
            ring_put(&rt->iterations, &rt->finished);
            rt->has_finished = 0;
        }
    }
    return boundary_run(rt, out, error);
}
