/* A policy on a profile: what `simulate` shows of one and `compare` of all. */
#ifndef CLI_POLICY_H
#define CLI_POLICY_H

#include <stdint.h>

#include <deft/status.h>
#include <dsched/simulate.h>
#include <dsched/window.h>

#include "cli_profile.h"

/* More policies than there are; the table is walked to its end anyway. */
#define CLI_POLICY_MAX 32u

/* The planner's limits as the policy `deft` has them: none, and no margin. */
void cli_policy_defaults(struct cli_planner *planner);

/* Runs `policy`. Of a planner whose options were given, its options replace those of the policy
 * `deft`; NULL is fine. `window` (zeroed, or NULL) gets the last two cycles. */
DEFT_NODISCARD enum deft_status
cli_policy_run(const struct dsched_policy *policy, const struct cli_planner *planner,
               const struct dsched_profile *profile, struct dsched_window *window,
               struct dsched_outcome *out, struct deft_error *error);
/* The same for a plan. */
DEFT_NODISCARD enum deft_status
cli_policy_plan(const struct dsched_plan *plan, const struct dsched_profile *profile,
                struct dsched_window *window, struct dsched_outcome *out, struct deft_error *error);

#endif
