#include "plan_run.h"

#include "../refuse.h"
#include "../simulation.h"
#include "policies.h"

enum dsched_status plan_run(const struct dsched_profile *profile, plan_run_make make,
                            enum program_ready ready, dsched_span_fn on_span, void *context,
                            struct dsched_outcome *out, struct dsched_error *error) {
    struct space space = {0};
    struct dsched_plan plan = {0};
    struct dsched_outcome outcome = {.note = ""};
    struct simulation simulation = {
        .profile = profile, .space = &space, .plan = &plan, .ready = ready};
    enum dsched_status status = dsched_profile_check(profile, error);
    if (status != DSCHED_OK) {
        return status;
    }
    status = space_init(&space, profile, error);
    if (status != DSCHED_OK) {
        return status;
    }
    status = make(profile, &space, &plan, outcome.note, error);
    if (status == DSCHED_OK) {
        outcome.rule = plan.rule;
        status = simulation_run(&simulation, on_span, context, &outcome.report, error);
    }
    if (status == DSCHED_OK) {
        *out = outcome;
    }
    dsched_plan_done(&plan);
    space_done(&space);
    return status;
}

enum dsched_status plan_run_fuse(const struct space *space, uint64_t first_bytes,
                                 uint64_t later_bytes, struct dsched_plan *out,
                                 struct dsched_error *error) {
    enum dsched_status status = dsched_plan_ddp(&space->table, first_bytes, later_bytes, out);
    if (status == DSCHED_OK) {
        return status;
    }
    return refuse(error, status, "a policy's buckets for this profile could not be made: %s",
                  status == DSCHED_LIMIT ? "they exceed the limit of buckets"
                                         : "memory could not be allocated");
}

enum dsched_status plan_run_ddp(const struct dsched_profile *profile, const struct space *space,
                                struct dsched_plan *out, char *note, struct dsched_error *error) {
    (void)profile;
    (void)note;
    return plan_run_fuse(space, POLICIES_DDP_FIRST_BYTES, POLICIES_DDP_LATER_BYTES, out, error);
}

void plan_run_delay(struct dsched_plan *plan, uint32_t delay) {
    plan->rule = delay == 0 ? DSCHED_EXACT : DSCHED_DELAYED;
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        plan->ops[b].delay = (uint8_t)delay;
    }
}
