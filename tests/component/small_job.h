/* A small job over libdeft, for properties of its ranks: whatever plans run, the ranks must stay
 * alike, and gradients under exact must be the sum over the ranks. What each rank did is written
 * down per iteration, to be compared behind world_run. */
#ifndef SMALL_JOB_H
#define SMALL_JOB_H

#include <stdint.h>

#include "runtime/runtime.h"
#include "world.h"

#define SMALL_JOB_TENSORS  6u
#define SMALL_JOB_ELEMENTS 236u
#define SMALL_JOB_ALL_CAN  (DEFT_CAN_PREVIEW | DEFT_CAN_SKIP | DEFT_CAN_AVERAGE)

/* What one rank saw; [n_iterations]. */
struct small_job_log {
    uint64_t n_iterations;
    uint64_t n_checked;        /* iterations whose gradients were compared with the reference */
    uint64_t *anchors;         /* hash of the anchor behind the iteration */
    uint64_t *parameters;      /* hash of the parameters behind it */
    uint64_t *plans;           /* number of the plan that ran in it */
    uint64_t *hashes;          /* hash of that plan */
    struct deft_update *ends;  /* what its last deft_step said */
    struct ipc_iteration *all; /* the record of each iteration, without what came later */
};

struct small_job {
    int32_t n_ranks;
    uint64_t max_steps;
    int sums_in_rank_order; /* else only equality between ranks can be asked for */
    /* NULL: 1. Not finite: given as such. */
    double (*loss)(const struct small_job *job, int32_t rank, uint64_t iteration);
    void *context; /* the test's own */
    struct small_job_log logs[WORLD_MAX_RANKS];
};

struct small_job_rank {
    struct world_rank *self;
    struct small_job *job;
    struct small_job_log *log;
    double *w[SMALL_JOB_TENSORS]; /* storage of f64; f32 tensors use it as float */
    double *gradient[SMALL_JOB_TENSORS];
    double *velocity[SMALL_JOB_TENSORS];
    uint64_t iteration;
};

/* On the test's thread. `out` is zeroed first; small_job_done frees the logs. A rank that makes
 * `max_steps` iterations ends the test. */
void small_job_init(struct small_job *out, int32_t n_ranks, uint32_t max_steps);
void small_job_done(struct small_job *job);
/* Fails the test unless all ranks logged the same. */
void small_job_check_alike(const struct small_job *job);

/* A random plan of `rule` that the validator accepts. */
void small_job_plan(uint64_t *random, enum dsched_rule rule, uint32_t n_links,
                    struct dsched_plan *out);

/* On a rank's thread, whose world has the job as its `shared`. */
void small_job_start(struct small_job_rank *rank, struct world_rank *self);
void small_job_end(struct small_job_rank *rank);
/* One iteration; checks gradients under exact against the reference sum in rank order. */
void small_job_step(struct small_job_rank *rank);
void small_job_drain(struct small_job_rank *rank);
uint64_t small_job_hash(const struct small_job_rank *rank);
/* As the agent would. Limits NaN: no fuse. */
void small_job_offer(struct small_job_rank *rank, uint64_t seq, const struct dsched_plan *plan,
                     double max_loss, double max_grad_sq);

#endif
