/* May this rank run that plan? A plan is bytes from outside until it has passed here. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "runtime/runtime.h"

int admission_allows(const struct deft_runtime *rt, enum dsched_rule rule) {
    static const uint32_t needs[DSCHED_N_RULES] = {[DSCHED_DELAYED] = DEFT_CAN_SKIP,
                                                   [DSCHED_LOOKAHEAD] = DEFT_CAN_PREVIEW,
                                                   [DSCHED_AVERAGED] = DEFT_CAN_AVERAGE};
    uint32_t can = __atomic_load_n(&rt->options.capabilities, __ATOMIC_RELAXED);
    return (needs[rule] & ~can) == 0;
}

/* The first reason against running `plan`, or DEFT_OK. */
static enum deft_status admission_judge(const struct deft_runtime *rt, uint64_t seq,
                                        const struct dsched_plan *plan, struct deft_error *error) {
    uint64_t n_bytes = engine_bytes(plan, &rt->space);
    if ((plan->rule == DSCHED_LOOKAHEAD || plan->rule == DSCHED_AVERAGED) &&
        !gradspace_has_parameters(&rt->space)) {
        return deft_fail(error, DEFT_UNSUPPORTED, 0,
                         "plan %" PRIu64 ": rule %s needs registered f32 or f64 parameters", seq,
                         dsched_rule_name(plan->rule));
    }
    if (!admission_allows(rt, plan->rule)) {
        return deft_fail(error, DEFT_UNSUPPORTED, 0,
                         "plan %" PRIu64 ": this program's loop cannot run rule %s", seq,
                         dsched_rule_name(plan->rule));
    }
    if (rt->options.max_pending_bytes != 0 && n_bytes > rt->options.max_pending_bytes) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "plan %" PRIu64 " needs %" PRIu64 " bytes, %" PRIu64 " are allowed", seq,
                         n_bytes, rt->options.max_pending_bytes);
    }
    return DEFT_OK;
}

static enum deft_status admission_build(const struct deft_runtime *rt,
                                        const struct dsched_plan *plan, const struct ipc_plan *head,
                                        struct engine **out, struct deft_error *error) {
    struct fuse_limits limits = {.max_loss = head->max_loss, .max_grad_sq = head->max_grad_sq};
    int writes_back = rt->options.write_back != 0;
    struct engine *engine = NULL;
    enum deft_status status =
        engine_create(plan, head->seq, &rt->space, writes_back, &engine, error);
    if (status == DEFT_OK) {
        status = gradients_reserve(rt, plan, error);
    }
    if (status == DEFT_OK && fuse_is_set(&limits)) {
        status = engine_set_fuse(engine, &limits, &rt->builtin, &rt->space, writes_back, error);
    }
    if (status != DEFT_OK) {
        engine_destroy(engine);
        return status;
    }
    *out = engine;
    return DEFT_OK;
}

/* `has_hash` 0: nobody announced one. */
static enum deft_status admission_make(const struct deft_runtime *rt, const struct ipc_plan *head,
                                       int has_hash, const void *bytes, size_t n_bytes,
                                       struct engine **out, struct deft_error *error) {
    struct dsched_table table = gradspace_table(&rt->space);
    uint64_t seq = head->seq;
    struct dsched_error why = {.text = ""};
    struct dsched_plan plan;
    enum deft_status status = DEFT_OK;
    memset(&plan, 0, sizeof(plan));
    if (dsched_plan_decode(bytes, n_bytes, &plan, &why) != DSCHED_OK ||
        dsched_plan_validate(&plan, &table, rt->n_links, &why) != DSCHED_OK) {
        status = deft_fail(error, DEFT_INVALID, 0, "plan %" PRIu64 ": %s", seq, why.text);
    } else if (has_hash && dsched_plan_hash(&plan) != head->hash) {
        status =
            deft_fail(error, DEFT_MISMATCH, 0,
                      "plan %" PRIu64 ": its hash is %016" PRIx64 ", %016" PRIx64 " was announced",
                      seq, dsched_plan_hash(&plan), head->hash);
    } else {
        status = admission_judge(rt, seq, &plan, error);
    }
    if (status == DEFT_OK) {
        status = admission_build(rt, &plan, head, out, error);
    }
    dsched_plan_done(&plan);
    return status;
}

enum deft_status admission_offer(struct deft_runtime *rt, const struct ipc_plan *head,
                                 const void *bytes, size_t n_bytes, struct deft_error *error) {
    struct engine *engine = NULL;
    if (head->seq <= __atomic_load_n(&rt->newest_seq, __ATOMIC_RELAXED)) {
        return DEFT_OK;
    }
    enum deft_status status = admission_make(rt, head, 1, bytes, n_bytes, &engine, error);
    if (status == DEFT_OK) {
        __atomic_store_n(&rt->newest_seq, head->seq, __ATOMIC_RELAXED);
        mailbox_offer(&rt->mailbox, engine);
    }
    return status;
}

enum deft_status admission_first(struct deft_runtime *rt, struct deft_error *error) {
    const struct ipc_plan head = {.seq = 0, .max_loss = NAN, .max_grad_sq = NAN};
    struct engine *engine = NULL;
    enum deft_status status =
        admission_make(rt, &head, 0, rt->first_plan, rt->options.first_plan_bytes, &engine, error);
    if (status != DEFT_OK) {
        return status;
    }
    engine_destroy(rt->engine);
    rt->engine = engine;
    rt->stats.plan_hash = engine->hash;
    boundary_anchor(rt);
    gradients_expect(rt);
    return DEFT_OK;
}
