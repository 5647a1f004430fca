#include "ddp_run.h"

#include "../refuse.h"
#include "../simulation.h"
#include "policies.h"

enum dsched_status ddp_run(const struct dsched_profile *profile, enum program_ready ready,
                           dsched_span_fn on_span, void *context, struct dsched_outcome *out,
                           struct dsched_error *error) {
    struct space space = {0};
    struct dsched_plan plan = {0};
    struct dsched_outcome outcome = {.rule = DSCHED_EXACT};
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
    status =
        dsched_plan_ddp(&space.table, POLICIES_DDP_FIRST_BYTES, POLICIES_DDP_LATER_BYTES, &plan);
    if (status != DSCHED_OK) {
        status = refuse(error, status, "DDP's buckets for this profile could not be made: %s",
                        status == DSCHED_LIMIT ? "they exceed the limit of buckets"
                                               : "memory could not be allocated");
        goto done;
    }
    status = simulation_run(&simulation, on_span, context, &outcome.report, error);
    if (status == DSCHED_OK) {
        *out = outcome;
    }
done:
    dsched_plan_done(&plan);
    space_done(&space);
    return status;
}
