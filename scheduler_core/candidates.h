/* Candidate plans: made from a layout, a rule and a cycle of merges; simulated; kept. */
#ifndef CANDIDATES_H
#define CANDIDATES_H

#include "layout.h"

#include <dsched/planner.h>

struct candidates {
    const struct dsched_profile *profile;
    const struct dsched_planner_options *options;
    const struct space *space;
    int64_t compute_ns; /* T */
    uint32_t ddp;       /* candidate with PyTorch DDP's plan; DSCHED_MAX_CANDIDATES: none */
    uint32_t n;
    struct dsched_candidate items[DSCHED_MAX_CANDIDATES];
    struct dsched_plan plans[DSCHED_MAX_CANDIDATES];
};

/* `n_iterations` spread over `n_generations` as evenly as whole numbers allow. */
struct candidates_cycle {
    uint32_t n_generations;
    uint32_t n_iterations;
    uint32_t max_delay; /* on top of what the options and the rule allow */
};

/* layout->load_ns with the jitter margin: compute time per generation that keeps the links from
 * falling behind. */
int64_t candidates_load_ns(const struct candidates *candidates, const struct layout *layout);

/* A cycle is sustainable when its links, slowed by the jitter margin, have time to spare: a queue
 * that is served no faster than it fills only grows. */
int candidates_sustain(const struct candidates *candidates, const struct layout *layout,
                       struct candidates_cycle cycle);

/* Makes and simulates one plan; one that needs more memory than allowed is given less delay.
 * Nothing is added when there are DSCHED_MAX_CANDIDATES already. */
DSCHED_NODISCARD enum dsched_status
candidates_add(struct candidates *candidates, enum dsched_rule rule, const struct layout *layout,
               struct candidates_cycle cycle, uint32_t gap_ppm, struct dsched_error *error);
/* Takes the last candidate back when an earlier one has the same figures. */
void candidates_drop_repeated(struct candidates *candidates);
void candidates_done(struct candidates *candidates);

#endif
