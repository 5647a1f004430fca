/* What candidates cost once their statistics are paid for. */
#ifndef PRICE_H
#define PRICE_H

#include "candidates.h"

/* Progress per sample of a plan with its simulated report, in ppm: the table's factors at the mean
 * merge and the mean delay, rounded down, but 0 when the plan has a merge or a delay at which the
 * table has 0. 1,000,000 under exact, and when `table` is NULL. */
uint32_t price_progress_ppm(const struct dsched_progress *table, const struct dsched_plan *plan,
                            const struct dsched_report *report);

/* step_ns / progress, rounded up. INT64_MAX: no progress, or more than that. step_ns >= 0. */
int64_t price_cost_ns(int64_t step_ns, uint32_t progress_ppm);

/* The largest delay up to which every one makes progress: plans wait rather than be later. Without
 * a table DSCHED_MAX_DELAY; 0 when there is none. */
uint32_t price_max_delay(const struct dsched_progress *table, enum dsched_rule rule);

/* Cycles with a limit on their delays: where merging or delay has its price, waiting a little may
 * cost less than being late, and fewer merged iterations less than no wait at all. */
struct price_offer {
    const struct layout *layout;
    struct candidates_cycle cycle;
    int64_t cost_ns; /* estimated */
};
#define PRICE_MAX_OFFERS 5u

/* For each limit on delay the whole merge that promises the least cost; of those the best, then a
 * mixture of merges if it promises more. Returns how many. `rule` is averaged or delayed, and the
 * options have a table. */
uint32_t price_find(const struct candidates *candidates, enum dsched_rule rule,
                    const struct layout *const *layouts, uint32_t n_layouts,
                    struct price_offer out[PRICE_MAX_OFFERS]);

#endif
