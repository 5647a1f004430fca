#include "plan_run.h"
#include "policies.h"

static enum dsched_status wfbp_simulate(const struct dsched_profile *profile,
                                        dsched_span_fn on_span, void *context,
                                        struct dsched_outcome *out, struct dsched_error *error) {
    return plan_run(profile, plan_run_ddp, PROGRAM_READY_DURING_BACKWARD, on_span, context, out,
                    error);
}

const struct dsched_policy policy_wfbp = {
    .name = "wfbp",
    .summary = "wait-free backward propagation, as PyTorch DDP does it (1 MiB, then 25 MiB)",
    .simulate = wfbp_simulate,
};
