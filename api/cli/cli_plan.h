/* Plans and what they cost, for people. */
#ifndef CLI_PLAN_H
#define CLI_PLAN_H

#include <stdio.h>

#include <dsched/plan.h>
#include <dsched/planner.h>
#include <dsched/profile.h>
#include <dsched/simulate.h>

/* Step, exposed time, updates, delay, memory of one report. */
void cli_plan_print_report(const struct dsched_report *report, uint32_t n_links, FILE *stream);
/* The chosen plan and the best candidate of every class beside it. */
void cli_plan_print_solution(const struct dsched_profile *profile,
                             const struct dsched_solution *solution, FILE *stream);
/* Which buckets of which generation are on which link, and how late they are. `profile` may be
 * NULL: then links have numbers and no times. */
void cli_plan_print_packing(const struct dsched_plan *plan, const struct dsched_profile *profile,
                            FILE *stream);
void cli_plan_print_candidates(const struct dsched_solution *solution, FILE *stream);

#endif
