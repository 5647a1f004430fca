/* What deft-train says while it trains and when it is done. */
#ifndef TRAIN_REPORT_H
#define TRAIN_REPORT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <deft/deft.h>
#include <deft/status.h>

/* Iterations at the start that are not timed: first touches of memory, filling of pipelines. */
#define TRAIN_WARM_UP 5u
/* A step time is the median over means of this many consecutive iterations: merging makes steps
 * cheap and dear by turns, which a median of single steps would hide; 12 holds whole turns of 2, 3,
 * 4 and 6. */
#define TRAIN_BLOCK 12u
/* Rows of the table of plans. More distinct plans in one run are counted in the last row. */
#define TRAIN_MAX_PLANS 16u

struct train_record {
    int64_t begin_ns; /* monotonic clock */
    int64_t step_ns;
    int64_t exposed_ns;
    uint32_t plan; /* row of the table of plans */
    uint32_t reserved;
};

struct train_plan {
    uint64_t hash;
    uint64_t seq;
    char rule[sizeof(((struct deft_stats *)0)->rule)];
};

struct train_report {
    struct train_record *records; /* [capacity] */
    uint32_t n_records;
    uint32_t capacity;
    struct train_plan plans[TRAIN_MAX_PLANS];
    uint32_t n_plans;
    int64_t exposed_before_ns; /* deft_stats.exposed_ns at the previous iteration */
    bool on_terminal;
    bool quiet;       /* ranks above 0 */
    int64_t shown_ns; /* when the bar was last drawn */
    uint32_t n_epochs;
    int32_t rank;
    int32_t n_ranks;
};

DEFT_NODISCARD enum deft_status train_report_init(struct train_report *report, uint32_t n_epochs,
                                                  uint32_t n_iterations, int32_t rank,
                                                  int32_t n_ranks, struct deft_error *error);
/* Takes NULL and zeroed reports. */
void train_report_done(struct train_report *report);

/* One iteration is over. */
void train_report_iteration(struct train_report *report, int64_t begin_ns, int64_t step_ns,
                            const struct deft_stats *stats);
/* Draws the bar on a terminal; `loss` is the epoch's mean so far. */
void train_report_progress(struct train_report *report, uint32_t epoch, double loss);
/* One line per epoch. `accuracy` NaN: not evaluated. */
void train_report_epoch(struct train_report *report, uint32_t epoch, double loss, double accuracy);

/* Step times of a set of iterations, in milliseconds. */
struct train_times {
    uint32_t n;
    double step_ms; /* median over blocks */
    double p10_ms;  /* of single iterations */
    double p90_ms;
    double exposed_ms; /* mean per iteration */
};
/* Over iterations after the warm-up, of plan row `plan` or of all (UINT32_MAX). All zero if there
 * are none. */
DEFT_NODISCARD enum deft_status train_report_times(const struct train_report *report, uint32_t plan,
                                                   struct train_times *out,
                                                   struct deft_error *error);

struct train_outcome {
    const char *sync;
    uint32_t epochs;   /* begun */
    double loss;       /* mean of the last epoch */
    double accuracy;   /* 0..1 on the test set */
    double training_s; /* wall clock of the iterations and drains */
    double gemm_frac;  /* matrix products' share of the time outside exposed waits */
    double gemm_gflops_per_s;
    uint64_t parameters_hash;
    bool stopped;
    struct deft_stats stats;
};
/* The final table. */
DEFT_NODISCARD enum deft_status train_report_table(const struct train_report *report,
                                                   const struct train_outcome *outcome,
                                                   struct deft_error *error);
/* The same as one line of JSON. */
DEFT_NODISCARD enum deft_status train_report_json(const struct train_report *report,
                                                  const struct train_outcome *outcome, FILE *stream,
                                                  struct deft_error *error);
/* Every iteration as a line of CSV, with a header line; `outcome` is not used. */
DEFT_NODISCARD enum deft_status train_report_steps(const struct train_report *report,
                                                   const struct train_outcome *outcome,
                                                   FILE *stream, struct deft_error *error);
typedef enum deft_status (*train_report_writer)(const struct train_report *report,
                                                const struct train_outcome *outcome, FILE *stream,
                                                struct deft_error *error);

#endif
