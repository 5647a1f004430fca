/* What the ranks of one incarnation have reported lately, put together: whole iterations, compute
 * times, readiness of gradients, times of all-reduces. Pure; one thread at a time. */
#ifndef OBSERVE_H
#define OBSERVE_H

#include <stdint.h>

#include <deft/status.h>
#include <dsched/profile.h>

#include "tuning/contention.h"
#include "tuning/quantify.h"
#include "wire/wire.h"

struct observe;

DEFT_NODISCARD enum deft_status observe_create(uint32_t n_ranks, uint32_t n_tensors,
                                               uint32_t n_links, struct observe **out);
void observe_destroy(struct observe *observe);

/* An iteration that all ranks have reported. */
struct observed {
    uint64_t iteration;
    uint64_t plan_seq;
    int is_mixed;       /* ranks disagree on the plan: nothing can be said about it */
    int64_t step_ns;    /* of the slowest rank; 0: some rank does not know */
    int64_t forward_ns; /* the stages of the rank that computed longest */
    int64_t backward_ns;
    int64_t optimizer_ns;           /* everything else that rank did outside of waiting */
    int64_t exposed_ns;             /* of the rank that waited least */
    uint64_t bytes;                 /* that the links of the rank with the most carried */
    struct quantify_sample figures; /* means over the ranks that reported each */
};
/* A rank that is so many iterations behind the newest is not waited for: its agent has died, and
 * the others are judged without it until it has caught up. Agents that back off are less late. */
#define OBSERVE_SILENT 4096u
/* 1 when this row completes its iteration, which is then in `out`. Rows seen before are ignored.
 * The row's rank is below n_ranks. */
int observe_iteration(struct observe *observe, const struct wire_iteration *row,
                      struct observed *out);
/* Ranks that have reported lately. `*out_first_unheard` is the lowest of the others; n_ranks when
 * there is none. */
uint32_t observe_heard(const struct observe *observe, uint32_t *out_first_unheard);
/* The readiness of the rank that is last counts. n_offsets is n_tensors. */
void observe_readiness(struct observe *observe, const struct wire_readiness *readiness);
void observe_ops(struct observe *observe, const struct wire_op_summary *summary);

/* The plan that runs from now on, since what iterations say depends on it. To begin with it is
 * number 0, an exact one. */
void observe_runs(struct observe *observe, const struct contention_plan *plan);

/* Over the newest undisturbed iterations, of the plan that runs once it has enough of them:
 * medians, under a plan that merges the mean of those of each place in its cycle. DEFT_STATE while
 * there are too few. */
DEFT_NODISCARD enum deft_status observe_compute(const struct observe *observe, int64_t *out_forward,
                                                int64_t *out_backward, int64_t *out_optimizer);
/* Share of the computation, 0..1, beside which links were busy, over the same iterations: what they
 * carried at `ns_per_byte`, less what was waited for. */
double observe_overlap(const struct observe *observe, double ns_per_byte);
/* contention_factor of this job. */
double observe_contention(const struct observe *observe, double ns_per_byte);
/* [n_tensors] offsets from backward_begin, or NULL. */
const int64_t *observe_offsets(const struct observe *observe);
/* Low quantile of the fastest all-reduce per size, sorted by bytes; returns how many, at most
 * `capacity`. Only sizes that were seen lately. */
uint32_t observe_curve(const struct observe *observe, uint32_t link, struct dsched_sample *out,
                       uint32_t capacity);

#endif
