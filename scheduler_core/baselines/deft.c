#include "../refuse.h"
#include "policies.h"

#include <dsched/planner.h>

#include <stdlib.h>

/* Without limits on convergence, on the profile's own numbers: like every other policy it is
 * simulated without jitter, so it is planned without a margin too. */
static enum dsched_status deft_simulate(const struct dsched_profile *profile,
                                        dsched_span_fn on_span, void *context,
                                        struct dsched_outcome *out, struct dsched_error *error) {
    struct dsched_planner_options options;
    struct dsched_solution *solution = calloc(1, sizeof(*solution));
    enum dsched_status status;
    if (solution == NULL) {
        return refuse_memory(error, "a solution");
    }
    dsched_planner_defaults(&options);
    options.max_merge = DSCHED_MAX_MERGE;
    options.max_delay = DSCHED_MAX_DELAY;
    options.jitter_ppm = 0;
    status = dsched_solve(profile, &options, solution, error);
    if (status == DSCHED_OK) {
        struct dsched_outcome outcome = {.rule = solution->plan.rule};
        status = dsched_simulate_plan(profile, &solution->plan, 0, on_span, context,
                                      &outcome.report, error);
        if (status == DSCHED_OK) {
            *out = outcome;
        }
        dsched_solution_done(solution);
    }
    free(solution);
    return status;
}

const struct dsched_policy policy_deft = {
    .name = "deft",
    .summary = "the planner's choice, no limits on merge and delay, no jitter margin",
    .simulate = deft_simulate,
};
