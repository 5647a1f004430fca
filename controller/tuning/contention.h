/* How much slower a job computes while its links are busy, measured on the job itself: beside
 * forward the links are idle under an exact plan, and busy under one that delays. Pure. */
#ifndef CONTENTION_H
#define CONTENTION_H

#include <stdint.h>

#define CONTENTION_ROWS 64u
/* Fewer iterations of either kind say nothing yet. */
#define CONTENTION_MIN_ROWS 20u
/* Above this something else than the links is in the way. */
#define CONTENTION_MOST 2.0

/* What is known of the plan that runs. */
struct contention_plan {
    uint64_t seq;
    int is_exact;
    int at_boundary; /* all-reduces begin at a boundary, as under averaged; 0: during backward */
    uint32_t cycle;  /* iterations after which it repeats itself, >= 1 */
    double n_merged; /* mean iterations per update, >= 1 */
};

/* An iteration. */
struct contention_row {
    uint64_t iteration;
    int64_t forward_ns;
    int64_t step_ns;
    uint64_t bytes; /* whose all-reduces ended in it */
};

/* Zero-initialised is empty. */
struct contention {
    /* Rings of the newest. */
    uint32_t n_idle;
    struct contention_row idle[CONTENTION_ROWS]; /* of exact plans */
    uint32_t n_busy;
    struct contention_row busy[CONTENTION_ROWS]; /* of the newest other one */
    struct contention_plan plan;                 /* that one */
    int is_full; /* its first all-reduces have ended: links are not idle for lack of them */
};

void contention_add(struct contention *contention, const struct contention_plan *plan,
                    const struct contention_row *row);

/* Time to compute beside busy links over the time beside idle ones, 1..CONTENTION_MOST, where all
 * links together carry a byte in `ns_per_byte`. Of a plan that merges the iteration that lies
 * beside all-reduces counts, the longest of its cycle. With F and G forward beside idle and busy
 * links, b of which they are busy: G = F + b (1 - 1 / c). 0: too little is known, or b < G / 2. */
double contention_factor(const struct contention *contention, double ns_per_byte);

#endif
