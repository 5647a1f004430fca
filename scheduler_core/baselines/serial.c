#include "plan_run.h"
#include "policies.h"

static enum dsched_status serial_simulate(const struct dsched_profile *profile,
                                          dsched_span_fn on_span, void *context,
                                          struct dsched_outcome *out, struct dsched_error *error) {
    return plan_run(profile, plan_run_ddp, PROGRAM_READY_AFTER_BACKWARD, on_span, context, out,
                    error);
}

const struct dsched_policy policy_serial = {
    .name = "serial",
    .summary = "no overlap: every all-reduce waits for the end of backward (DDP's buckets)",
    .simulate = serial_simulate,
};
