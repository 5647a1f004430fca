/* What the job's updates cost, from options: so that plans are chosen by it. */
#ifndef CLI_PRICE_H
#define CLI_PRICE_H

#include <argp.h>
#include <stdio.h>

#include <dsched/convergence.h>
#include <dsched/planner.h>

struct cli_price {
    struct dsched_efficiency_inputs inputs;
    int is_given;          /* one of the options was on the command line */
    const char *needs_sgd; /* an option that says nothing of other optimizers, or NULL */
};

/* --optimizer --momentum --batch --noise-scale --rate-curvature, as an argp child whose input is a
 * struct cli_price; what is not given is unknown. */
extern const struct argp cli_price_argp;

/* "progress" and "cost" of a candidate, for tables; "0" and "-" where there is none. */
void cli_price_figures(const struct dsched_candidate *candidate, char progress[16], char cost[16]);

#endif
