/* Plans: what every rank does with every bucket, as a cycle that repeats.
 *
 * A plan holds no clocks, only orders. On each link the ops run by generation, then by bucket
 * (buckets are numbered in readiness order), so the order needs no field of its own: it follows
 * from which link each op is on. */
#ifndef DSCHED_PLAN_H
#define DSCHED_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include <dsched/limits.h>
#include <dsched/profile.h>
#include <dsched/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What moves the parameters (docs/update-rules.md). Values travel in encodings: never renumber. */
enum dsched_rule {
    DSCHED_EXACT = 0,     /* merge 1, delay 0: synchronous data parallel, bit for bit */
    DSCHED_DELAYED = 1,   /* only landed averages move parameters */
    DSCHED_LOOKAHEAD = 2, /* merge 1, delay 0..1; working weights = anchor + previewed step */
    DSCHED_AVERAGED = 3,  /* local optimizer steps; a generation is the change of its steps */
};
#define DSCHED_N_RULES        4u
#define DSCHED_RULE_BIT(rule) (1u << (rule))
const char *dsched_rule_name(enum dsched_rule rule); /* "exact", ...; NULL for a foreign value */
DSCHED_NODISCARD enum dsched_status dsched_rule_parse(const char *name, enum dsched_rule *out);

/* Elements [begin, end) of the gradient space, all of one dtype. */
struct dsched_bucket {
    uint64_t begin;
    uint64_t end;
};

/* The all-reduce of one bucket of one generation. */
struct dsched_op {
    uint8_t link;  /* index into the profile's or runtime's links */
    uint8_t delay; /* boundaries after the end of the generation at which it is applied */
};

/* Predicted figures of the steady state, per iteration; information only, not part of the hash. */
struct dsched_forecast {
    int64_t step_ns;
    int64_t exposed_ns;
    int64_t compute_ns;            /* T = forward + backward + optimizer */
    uint32_t updates_per_step_ppm; /* 1,000,000 = one update per iteration */
    uint32_t mean_delay_milli;     /* element-weighted boundaries * 1000 */
    uint32_t max_delay;
    uint64_t pending_bytes;
};

struct dsched_plan {
    enum dsched_rule rule;
    uint32_t n_links; /* links the plan uses are < n_links */
    uint32_t n_buckets;
    uint32_t n_generations;        /* in one cycle */
    struct dsched_bucket *buckets; /* [n_buckets], contiguous, first begins at 0 */
    uint16_t *merge;               /* [n_generations], iterations per generation */
    struct dsched_op *ops;         /* [n_generations * n_buckets], generation-major */
    struct dsched_forecast forecast;
};

static inline const struct dsched_op *dsched_plan_op(const struct dsched_plan *plan, uint32_t g,
                                                     uint32_t b) {
    return &plan->ops[(size_t)g * plan->n_buckets + b];
}
/* Iterations in one cycle: the sum of merge. */
uint32_t dsched_plan_cycle(const struct dsched_plan *plan);
uint32_t dsched_plan_max_merge(const struct dsched_plan *plan);
uint32_t dsched_plan_max_delay(const struct dsched_plan *plan);
/* Largest number of generations alive during one iteration of the steady state. A generation is
 * alive from its first iteration on, while it accumulates, up to and including the iteration whose
 * boundary applies the last of its buckets; under averaged it is alive from its end on, until the
 * boundary that applies the last of its buckets. Exact: 1. */
uint32_t dsched_plan_slots(const struct dsched_plan *plan);

/* Allocates the three arrays zeroed. dsched_plan_done takes NULL and zeroed plans. */
DSCHED_NODISCARD enum dsched_status dsched_plan_init(struct dsched_plan *plan, uint32_t n_buckets,
                                                     uint32_t n_generations);
void dsched_plan_done(struct dsched_plan *plan);
DSCHED_NODISCARD enum dsched_status dsched_plan_copy(const struct dsched_plan *plan,
                                                     struct dsched_plan *out);

/* The rules every plan obeys (design, scheduling.md). Nothing is run or sent unvalidated.
 * - buckets partition the gradient space of `table` without gap, none empty, none across dtypes;
 * - merges 1..max, links < n_links, delays 0..max;
 * - per bucket, generations apply in order, at most one per boundary, also across the cycle's end;
 * - exact: merge 1, delay 0; lookahead: merge 1, delay 0..1; averaged: any;
 * - exact, delayed, lookahead: all buckets that share a tensor have the same delay in a generation
 *   (an optimizer steps whole tensors).
 * `n_links` is what the job has. */
DSCHED_NODISCARD enum dsched_status dsched_plan_validate(const struct dsched_plan *plan,
                                                         const struct dsched_table *table,
                                                         uint32_t n_links,
                                                         struct dsched_error *error);

/* Canonical little-endian encoding, versioned, with the forecast. Equal plans give equal bytes.
 * dsched_plan_encode: `out` may be NULL to ask for the size. Decoding checks structure and limits
 * (never allocates more than the input justifies) but not the table: validate afterwards. */
size_t dsched_plan_encode(const struct dsched_plan *plan, uint8_t *out, size_t capacity_bytes);
DSCHED_NODISCARD enum dsched_status dsched_plan_decode(const uint8_t *bytes, size_t n_bytes,
                                                       struct dsched_plan *out,
                                                       struct dsched_error *error);
/* FNV-1a over the encoding without the forecast: what ranks compare before they switch. */
uint64_t dsched_plan_hash(const struct dsched_plan *plan);

/* Bytes of pending copies, anchors and working weights that the runtime holds under this plan, for
 * a table: the figure behind --max-pending-bytes. Generation slots alive at once times their size,
 * plus: lookahead one anchor; averaged one anchor and one own copy of the change per slot. */
uint64_t dsched_plan_pending_bytes(const struct dsched_plan *plan,
                                   const struct dsched_table *table);

/* --- partition -------------------------------------------------------------------------------- */

/* PyTorch DDP's rule: tensors in reverse order, close a bucket when its bytes reach the limit;
 * first limit `first_bytes` (1 MiB there), then `later_bytes` (25 MiB); a dtype change closes too.
 * Fills plan->buckets of a fresh exact plan with one generation on link 0. */
DSCHED_NODISCARD enum dsched_status dsched_plan_ddp(const struct dsched_table *table,
                                                    uint64_t first_bytes, uint64_t later_bytes,
                                                    struct dsched_plan *out);

#ifdef __cplusplus
}
#endif
#endif
