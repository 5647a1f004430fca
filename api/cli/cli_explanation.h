/* Why a plan is as it is: packing, forecast, and what the alternatives would cost. */
#ifndef CLI_EXPLANATION_H
#define CLI_EXPLANATION_H

#include <stdio.h>

#include <deft/status.h>
#include <dsched/plan.h>
#include <dsched/planner.h>
#include <dsched/profile.h>
#include <dsched/window.h>

/* What there is to tell of: at least a plan. */
struct cli_explanation {
    const struct dsched_plan *plan;
    const struct dsched_profile *profile;   /* NULL: a plan alone has no times and no names */
    const struct dsched_solution *solution; /* NULL: nobody chose the plan here */
    const struct dsched_window *window;     /* NULL without a profile */
    int is_priced;                          /* the solution was chosen by progress */
};

void cli_explanation_print(const struct cli_explanation *in, FILE *stream);

/* {"schema":"deft.explanation/1","packing":[{"generation":0,"merge":1,"link":0,"buckets":5,
 *  "elements":..,"late_buckets":0,"max_delay_steps":0},...],
 *  "alternatives":[{"rule":"exact","step_ns":..,"step_change_frac":0.1,"exposed_ns":..,
 *  "updates_per_step":1.0,"progress":0.9,"cost_ns":..},...],"solution":{deft.solution/1}}; without
 * a solution no alternatives, and "plan" in its place. */
DEFT_NODISCARD enum deft_status cli_explanation_json(const struct cli_explanation *in, char **out,
                                                     struct deft_error *error);

#endif
