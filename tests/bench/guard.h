/* The controller's tuner and the ranks' fuse around a job that a benchmark plays: the decisions are
 * those of the real code, with the delays that they have on the way. */
#ifndef GUARD_H
#define GUARD_H

#include <stdint.h>

#include "runtime/fuse.h"
#include "tuning/tuner.h"

/* Iterations from the one that a decision was made on to the first under what it pushes: reports
 * wait for a commit, the push for the next boundaries. */
#define GUARD_LAG 8u

struct guard_plan {
    enum dsched_rule rule;
    uint32_t merge;
    uint32_t delay;
};
struct guard {
    struct tuner tuner;
    struct guard_plan plan; /* the answer to every question for a better one */
    struct fuse fuse;       /* of the ranks */
    struct fuse_limits limits;
    struct control_figures gathering;
    struct control_figures due; /* of the CONTROL_FIGURES_EVERY iterations from due_first on */
    uint64_t due_first;
    uint64_t due_at;
    uint64_t t; /* iterations so far */
    /* What the ranks run, and what they were given. */
    uint64_t running_seq;
    uint64_t pushed_seq;
    uint64_t switch_at; /* first iteration under it; 0: nothing is on its way */
    int pushed_is_plan;
    int is_plan;   /* what the next iteration runs under */
    int is_switch; /* it is the first one */
    /* What came of it. */
    int is_committed;           /* was, at least once */
    uint32_t n_triples;         /* comparisons with exact */
    uint32_t n_step_backs;      /* for the loss or the gradient */
    int is_fused;               /* the newest one was the ranks' own */
    uint64_t fired_at;          /* iteration of the newest one */
    int is_over;                /* it has taken effect */
    char text[WIRE_TEXT_BYTES]; /* its reason */
};

/* `n_ranks` ranks under SGD with `momentum`. The tuner is told that the plan halves the step and
 * costs no samples, so that it is tried whatever quantification thinks of it. */
void guard_init(struct guard *guard, const struct guard_plan *plan, uint32_t n_ranks,
                double momentum);
/* One iteration of the job: mean loss over the ranks, q and Q of dsched/convergence.h. */
void guard_add(struct guard *guard, double loss, double part_norm2, double mean_norm2);
/* What quantification would have said: progress per sample of the plan, 0: not admitted. */
double guard_progress(const struct guard *guard);

#endif
