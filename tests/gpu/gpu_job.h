/* One training job, on the host or on the stand-in's devices: the same gradients and the same
 * steps, so that the parameters must come out the same, bit for bit. */
#ifndef GPU_JOB_H
#define GPU_JOB_H

#include <pthread.h>

#include <dsched/plan.h>

#include "standin.h"
#include "world.h"

#define GPU_JOB_TENSORS 4u
#define GPU_JOB_BUFFERS (3 * GPU_JOB_TENSORS) /* parameters, gradients, momentum */
#define GPU_JOB_RANKS   2
#define GPU_JOB_PLANS   2

struct gpu_job {
    const char *device; /* "cpu", "cuda" */
    const char *links;
    const struct dsched_plan *plan; /* NULL: the built-in one */
    uint32_t write_back;
    uint64_t n_iterations;
    int is_held;                 /* streams do nothing between commit and drain */
    int two_streams;             /* the caller goes from one to the other within an iteration */
    int drain_twice;             /* also half way */
    int has_momentum;            /* registered as optimizer state */
    uint32_t max_pending_copies; /* of the model, that plans may hold; 0: any number */
    /* From this iteration on all ranks vote for the next of these; 0: there are no more. */
    const struct dsched_plan *next_plans[GPU_JOB_PLANS];
    uint64_t next_at[GPU_JOB_PLANS];
    /* One gradient of this rank is not finite in this iteration (from 1); 0: none is. */
    uint64_t bad_at;
    int32_t bad_rank;
    int64_t op_timeout_ns;
    /* Called by rank 0 before each of its iterations; may be NULL. */
    void (*meddle)(struct gpu_job *job, uint64_t iteration);
    /* What came out. */
    uint8_t *parameters[GPU_JOB_RANKS];     /* [gpu_job_bytes()] */
    uint8_t *momentum[GPU_JOB_RANKS];       /* the same */
    uint64_t n_told_skipped[GPU_JOB_RANKS]; /* by deft_update */
    enum deft_status status[GPU_JOB_RANKS];
    struct deft_error error[GPU_JOB_RANKS];
    char notice[GPU_JOB_RANKS][384];
    struct deft_stats stats[GPU_JOB_RANKS];
    uint32_t n_readiness[GPU_JOB_RANKS]; /* iterations whose gradients' times were published */
    int64_t readiness_ns[GPU_JOB_RANKS][GPU_JOB_TENSORS];
    pthread_barrier_t barrier;
    void *memory[GPU_JOB_RANKS][GPU_JOB_BUFFERS]; /* freed when all runtimes are closed */
};

uint64_t gpu_job_elements(void);
size_t gpu_job_bytes(void);
/* Runs all ranks to their end, or until some call fails, which `status` and `error` tell. */
void gpu_job_run(struct gpu_job *job);
void gpu_job_done(struct gpu_job *job);
/* The same job on the host, over memory; fails the test unless it comes to the same. */
void gpu_job_check_against_host(const struct gpu_job *job);

#endif
