/* Traces of a made-up job on devices, together with what an import must find in them. */
#ifndef KINETO_SYNTHETIC_H
#define KINETO_SYNTHETIC_H

#include <stddef.h>
#include <stdint.h>

#include <dsched/profile.h>

#define SYNTHETIC_MAX_STEPS   8u
#define SYNTHETIC_MAX_BUCKETS 6u
#define SYNTHETIC_MAX_LAYERS  24u
#define SYNTHETIC_MAX_RANKS   4u

struct synthetic_reduce {
    int64_t ready_ns; /* from the step's begin, as all that follows */
    int64_t begin_ns;
    int64_t end_ns;
    int64_t wait_ns;
};

struct synthetic_step {
    int64_t step_ns;
    int64_t backward_begin_ns;
    int64_t backward_end_ns;
    int64_t forward_busy_ns;
    int64_t backward_busy_ns;
    int64_t optimizer_busy_ns;
    int64_t exposed_ns;
    struct synthetic_reduce reduces[SYNTHETIC_MAX_BUCKETS];
};

struct synthetic {
    uint64_t state; /* of the random numbers */
    uint32_t n_steps;
    uint32_t n_ranks;
    uint32_t n_layers; /* one parameter each, in the order of readiness */
    uint32_t n_buckets;
    uint32_t bucket_of[SYNTHETIC_MAX_LAYERS];
    uint64_t layer_elements[SYNTHETIC_MAX_LAYERS];
    uint64_t bucket_elements[SYNTHETIC_MAX_BUCKETS];
    int64_t transfer_ns[SYNTHETIC_MAX_BUCKETS]; /* without waiting */
    enum dsched_dtype dtype;
    int with_shapes;      /* of parameters */
    int with_odd_shapes;  /* that do not add up to the buckets */
    int with_tail;        /* a kernel of the backward that waits for the last all-reduce */
    int with_old_titles;  /* sizes on "nccl:all_reduce" instead of record_param_comms */
    int with_foreign;     /* a broadcast per forward, an all-reduce of integers per backward, one of
                             the loss after the optimizer */
    int64_t host_lead_ns; /* how far the host is ahead: negative makes the job host-bound */
    struct synthetic_step truth[SYNTHETIC_MAX_RANKS][SYNTHETIC_MAX_STEPS];
};

/* A random job. */
void synthetic_init(struct synthetic *job, uint64_t seed);
/* The trace of one rank, zero-terminated; fills truth[rank]. Events are in a random order. Free it.
 */
char *synthetic_write(struct synthetic *job, uint32_t rank, size_t *out_bytes);

#endif
