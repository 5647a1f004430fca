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
/* The chosen plan; `is_priced`: what it costs in progress, too. */
void cli_plan_print_solution(const struct dsched_profile *profile,
                             const struct dsched_solution *solution, int is_priced, FILE *stream);
/* What one link carries of one generation. */
struct cli_plan_packing {
    uint32_t merge;
    uint32_t n_buckets;
    uint64_t elements;
    uint32_t n_late; /* buckets with a delay */
    uint32_t max_delay;
};
struct cli_plan_packing cli_plan_packing(const struct dsched_plan *plan, uint32_t generation,
                                         uint32_t link);
/* The fastest feasible candidate of a rule, `is_priced`: that of the least cost, or NULL: there is
 * none, or it was chosen. */
const struct dsched_candidate *cli_plan_alternative(const struct dsched_solution *solution,
                                                    enum dsched_rule rule, int is_priced);

/* Which buckets of which generation are on which link, and how late they are. `profile` may be
 * NULL: then links have numbers and no times. */
void cli_plan_print_packing(const struct dsched_plan *plan, const struct dsched_profile *profile,
                            FILE *stream);
/* All candidates; `is_priced` adds progress and cost. */
void cli_plan_print_candidates(const struct dsched_solution *solution, int is_priced, FILE *stream);

#endif
