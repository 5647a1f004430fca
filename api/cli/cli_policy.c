#include "cli_policy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cli_policy_defaults(struct cli_planner *planner) {
    *planner = (struct cli_planner){.is_given = 0};
    dsched_planner_defaults(&planner->options);
    planner->options.max_merge = DSCHED_MAX_MERGE;
    planner->options.max_delay = DSCHED_MAX_DELAY;
    planner->options.jitter_ppm = 0;
}

/* A policy whose schedule no plan describes repeats with every iteration. */
static enum dsched_status cli_policy_window(struct dsched_window *window,
                                            const struct dsched_report *report,
                                            struct dsched_error *reason) {
    if (window == NULL) {
        return DSCHED_OK;
    }
    return dsched_window_close(window, 2 * (report->cycle > 0 ? report->cycle : 1), report->step_ns,
                               reason);
}

enum deft_status cli_policy_plan(const struct dsched_plan *plan,
                                 const struct dsched_profile *profile, struct dsched_window *window,
                                 struct dsched_outcome *out, struct deft_error *error) {
    struct dsched_error reason = {{0}};
    struct dsched_outcome outcome = {.rule = plan->rule};
    enum dsched_status status =
        dsched_simulate_plan(profile, plan, 0, window != NULL ? dsched_window_add : NULL, window,
                             &outcome.report, &reason);
    if (status == DSCHED_OK) {
        status = cli_policy_window(window, &outcome.report, &reason);
    }
    if (status == DSCHED_OK) {
        *out = outcome;
    }
    return cli_profile_failed(status, &reason, error);
}

/* `deft` under the user's limits. */
static enum deft_status cli_policy_limited(const struct dsched_planner_options *options,
                                           const struct dsched_profile *profile,
                                           struct dsched_window *window, struct dsched_outcome *out,
                                           struct deft_error *error) {
    struct dsched_solution *solution = calloc(1, sizeof(*solution));
    if (solution == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a solution");
    }
    enum deft_status status = cli_profile_solve(profile, options, solution, error);
    if (status == DEFT_OK) {
        status = cli_policy_plan(&solution->plan, profile, window, out, error);
        dsched_solution_done(solution);
    }
    if (status == DEFT_OK) {
        (void)snprintf(out->note, sizeof(out->note), "limits: merge %u, delay %u, jitter %u ppm%s",
                       options->max_merge, options->max_delay, options->jitter_ppm,
                       options->progress != NULL ? "; chosen by progress" : "");
    }
    free(solution);
    return status;
}

enum deft_status cli_policy_run(const struct dsched_policy *policy,
                                const struct cli_planner *planner,
                                const struct dsched_profile *profile, struct dsched_window *window,
                                struct dsched_outcome *out, struct deft_error *error) {
    struct dsched_error reason = {{0}};
    struct dsched_outcome outcome = {0};
    if (planner != NULL && planner->is_given && strcmp(policy->name, "deft") == 0) {
        return cli_policy_limited(&planner->options, profile, window, out, error);
    }
    enum dsched_status status = policy->simulate(profile, window != NULL ? dsched_window_add : NULL,
                                                 window, &outcome, &reason);
    if (status == DSCHED_OK) {
        status = cli_policy_window(window, &outcome.report, &reason);
    }
    if (status == DSCHED_OK) {
        *out = outcome;
    }
    return cli_profile_failed(status, &reason, error);
}
