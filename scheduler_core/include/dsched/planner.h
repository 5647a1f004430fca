/* From a profile to a plan. Deterministic: integer arithmetic, equal input gives equal bytes. */
#ifndef DSCHED_PLANNER_H
#define DSCHED_PLANNER_H

#include <stdint.h>

#include <dsched/plan.h>
#include <dsched/profile.h>
#include <dsched/simulate.h>
#include <dsched/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What plans cost in statistics: progress per sample relative to exact, in ppm (1,000,000: as good,
 * 0: never use it), of a rule at a merge and at a delay; the product counts. A plan is taken at its
 * mean merge and its mean delay, between whole numbers in a straight line, but makes no progress
 * when any merge or delay in it has 0. Exact makes 1,000,000 whatever is written for it.
 * dsched_progress_predict of convergence.h fills one in. */
struct dsched_progress {
    uint32_t merge_ppm[DSCHED_N_RULES][DSCHED_MAX_MERGE + 1]; /* index 0 is not used */
    uint32_t delay_ppm[DSCHED_N_RULES][DSCHED_MAX_DELAY + 1];
};

struct dsched_planner_options {
    uint32_t rules;     /* DSCHED_RULE_BIT of each rule that may be used; exact is always allowed */
    uint32_t max_merge; /* 1..DSCHED_MAX_MERGE */
    uint32_t max_delay; /* 0..DSCHED_MAX_DELAY */
    uint64_t max_pending_bytes; /* 0: no limit */
    uint32_t jitter_ppm;    /* 0..1,000,000: communication is stretched by this much when packing
                               and when steps are compared */
    uint32_t tolerance_ppm; /* 0..1,000,000: the least costly class within this of the best cost
                               wins */
    /* Borrowed. NULL: every plan counts as good as exact, and what is compared is the step alone.
     */
    const struct dsched_progress *progress;
};
/* all rules but delayed, merge 8, delay 8, no memory limit, jitter 5 %, tolerance 1 %. */
void dsched_planner_defaults(struct dsched_planner_options *options);

/* Why a candidate was not chosen: the first figure that it lost by. */
enum dsched_verdict {
    DSCHED_CHOSEN = 0,
    DSCHED_TOO_LARGE = 1,     /* report.pending_bytes is above the limit */
    DSCHED_SLOWER = 2,        /* cost_ns is above the best by more than is tolerated */
    DSCHED_COSTLIER = 3,      /* rule: one with milder statistics is as fast */
    DSCHED_FEWER_UPDATES = 4, /* report.updates_per_step_ppm */
    DSCHED_LATER = 5,         /* report.mean_delay_milli */
    DSCHED_MORE_OPS = 6,      /* report.ops_per_step_milli */
    DSCHED_EQUAL = 7,         /* nothing tells it from the chosen, which came first */
    DSCHED_NO_PROGRESS = 8,   /* progress_ppm is 0 */
    DSCHED_LESS_PROGRESS = 9, /* cost_ns likewise, although margin_step_ns is not */
};
/* "chosen", "too large", "slower", ...; NULL for a foreign value. */
const char *dsched_verdict_name(enum dsched_verdict verdict);

/* Candidates of each class are kept, so that a plan can be explained by what it was chosen over. */
struct dsched_candidate {
    enum dsched_rule rule;
    uint32_t max_merge;
    struct dsched_report report; /* simulated on the profile, without jitter */
    int feasible;                /* 0: broke a limit */
    int64_t margin_step_ns;      /* step when communication takes the jitter margin longer */
    uint32_t progress_ppm;       /* per sample, relative to exact; 1,000,000 without a table */
    int64_t cost_ns; /* margin_step_ns / progress: time per iteration of exact's progress;
                        INT64_MAX where there is none */
    enum dsched_verdict verdict;
    uint32_t gap_ppm; /* by how much less the packing could take at best, among the cuts at ends of
                         tensors, small ones taken together: landing time under exact, work of the
                         busiest link otherwise; 0: proven, or a split of tensors beats all those */
};
#define DSCHED_MAX_CANDIDATES 128u

struct dsched_solution {
    struct dsched_plan plan; /* with its forecast filled in */
    struct dsched_report report;
    int64_t link_ns;       /* C: one all-reduce of the whole gradient space on link 0 */
    int64_t split_ns;      /* S: the same with perfect splitting over all links */
    uint32_t coverage_ppm; /* CR = C / (forward + backward) */
    uint32_t n_candidates;
    uint32_t chosen; /* index into candidates */
    struct dsched_candidate candidates[DSCHED_MAX_CANDIDATES];
};

/* DSCHED_INFEASIBLE when nothing fits max_pending_bytes (exact takes one copy of all gradients);
 * DSCHED_LIMIT when dtypes change so often that DSCHED_MAX_BUCKETS do not suffice.
 * The returned plan validates against the profile's table. `out` is owned by the caller; release it
 * with dsched_solution_done. Uses memory O(tensors + buckets * generations). */
DSCHED_NODISCARD enum dsched_status dsched_solve(const struct dsched_profile *profile,
                                                 const struct dsched_planner_options *options,
                                                 struct dsched_solution *out,
                                                 struct dsched_error *error);
void dsched_solution_done(struct dsched_solution *solution);

/* --- one knapsack -------------------------------------------------------------------------------
 * Chooses a subset of items that maximises value under a capacity, exactly: branch and bound with
 * the fractional bound. Up to `n_items` 1..DSCHED_MAX_BUCKETS; `node_limit` bounds the work, after
 * which the best found is returned and *out_gap_ppm tells how far it may be from the optimum
 * (0 = proven optimal). `out_taken[i]` is 0 or 1. Ties prefer the lower item number. */
struct dsched_item {
    int64_t weight; /* >= 0 */
    int64_t value;  /* >= 0 */
};
DSCHED_NODISCARD enum dsched_status dsched_knapsack(const struct dsched_item *items,
                                                    uint32_t n_items, int64_t capacity,
                                                    uint64_t node_limit, uint8_t *out_taken,
                                                    int64_t *out_value, uint32_t *out_gap_ppm);

/* --- many knapsacks: links ----------------------------------------------------------------------
 * Gives every bucket a link such that the last one lands as early as possible; or, with `values`,
 * such that the value of what lands after `deadline_ns` is least while nothing lands after
 * `limit_ns` (a stage is a knapsack per link, value is communication hidden). A link takes its
 * buckets in order, each once it is ready. Label search with dominance and a fractional bound
 * (docs/planner.md), never worse than giving each bucket to the link where it lands first. */
struct dsched_packing {
    uint32_t n_buckets;      /* 1..DSCHED_MAX_BUCKETS */
    uint32_t n_links;        /* 1..DSCHED_MAX_LINKS */
    const int64_t *ready_ns; /* [n_buckets], >= 0, never falling; NULL: all ready at 0, where
                                without values the order does not matter */
    const int64_t *costs_ns; /* [n_links * n_buckets], link-major, >= 0 */
    const int64_t *values;   /* [n_buckets], >= 0; NULL: none */
    int64_t deadline_ns;     /* with values only, as is limit_ns */
    int64_t limit_ns;
    uint32_t n_labels; /* 1..DSCHED_MAX_LABELS kept per bucket: more are exact for more buckets */
};
/* 4096 labels are exact for every instance of the tests of up to 12 buckets, and cost half a MiB
 * per bucket at most. */
#define DSCHED_MAX_LABELS 4096u

/* `out_links` has [n_buckets]. *out_result is the landing time, or the late value;
 * *out_gap_ppm tells by how much of it the optimum may be less (0 = proven optimal).
 * DSCHED_INFEASIBLE when nothing was found that lands by limit_ns; DSCHED_LIMIT when the sum of all
 * times overflows. */
DSCHED_NODISCARD enum dsched_status dsched_pack(const struct dsched_packing *packing,
                                                uint8_t *out_links, int64_t *out_result,
                                                uint32_t *out_gap_ppm);

#ifdef __cplusplus
}
#endif
#endif
