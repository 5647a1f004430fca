/* Pipe-SGD (Li et al., NeurIPS 2018): the average of iteration t is applied after iteration t + 1,
 * so communication has a whole iteration to itself and only the longer of the two counts. */
#include "plan_run.h"
#include "policies.h"

/* Nothing waits for a part of the gradients, so the fewest messages are best: one per dtype. */
static enum dsched_status make(const struct dsched_profile *profile, const struct space *space,
                               struct dsched_plan *out, char *note, struct dsched_error *error) {
    enum dsched_status status = plan_run_fuse(space, UINT64_MAX, UINT64_MAX, out, error);
    (void)profile;
    (void)note;
    if (status == DSCHED_OK) {
        plan_run_delay(out, 1);
    }
    return status;
}

static enum dsched_status pipesgd_simulate(const struct dsched_profile *profile,
                                           dsched_span_fn on_span, void *context,
                                           struct dsched_outcome *out, struct dsched_error *error) {
    return plan_run(profile, make, PROGRAM_READY_DURING_BACKWARD, on_span, context, out, error);
}

const struct dsched_policy policy_pipesgd = {
    .name = "pipesgd",
    .summary = "Pipe-SGD: every average one iteration late",
    .simulate = pipesgd_simulate,
};
