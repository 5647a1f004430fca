/* From traces of the PyTorch profiler (Kineto, Chrome trace) to a profile that can be planned with.
 *
 * Usage: kineto_read each rank's file, kineto_job_init over all of them, kineto_profile. Nothing
 * here prints, and nothing of a trace stays in memory but compact records (kineto_limits.h).
 *
 * What a step is. On a device, a step begins when its first kernel can: when the host has begun it
 * and the device is through with what was given to it before. It ends where the next one begins.
 * Kernels belong to the step, and to the stage, in which the host launched them, however late they
 * run: forward before the autograd engine's first node, backward up to the launch of the last
 * gradient all-reduce, then the optimizer. Without a device (Gloo) the host's own calls count.
 *
 * Instants inside a step are nanoseconds since its begin. */
#ifndef KINETO_H
#define KINETO_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>
#include <dsched/profile.h>

#include "kineto_limits.h"

/* --- reading ---------------------------------------------------------------------------------- */

struct kineto_trace;

/* Sees how far reading is, in bytes of the file as it lies on disk; `total_bytes` is 0 for a pipe.
 */
typedef void (*kineto_progress_fn)(void *context, uint64_t done_bytes, uint64_t total_bytes);

/* Reads .json or .json.gz; "-" is standard input. `max_records` (1..KINETO_MAX_RECORDS) bounds what
 * is kept. `on_progress` may be NULL. DEFT_INVALID and DEFT_LIMIT for what is in the file, or when
 * it cannot be opened; DEFT_IO when reading fails. */
DEFT_NODISCARD enum deft_status kineto_read(const char *path, uint32_t max_records,
                                            kineto_progress_fn on_progress, void *context,
                                            struct kineto_trace **out, struct deft_error *error);
void kineto_trace_destroy(struct kineto_trace *trace); /* NULL is fine */
/* Events that were read, and records that were kept of them. */
uint64_t kineto_trace_events(const struct kineto_trace *trace);
uint32_t kineto_trace_records(const struct kineto_trace *trace);

/* --- what was found --------------------------------------------------------------------------- */

/* One gradient all-reduce. */
struct kineto_reduce {
    uint64_t elements;
    enum dsched_dtype dtype;
    int64_t ready_ns; /* its gradients are complete and the host has asked for it */
    int64_t begin_ns;
    int64_t end_ns;
    int64_t wait_ns; /* of its duration, waiting for ranks that came later; -1: unknown */
};

/* The gradient of one parameter. */
struct kineto_parameter {
    uint64_t elements;
    int64_t ready_ns;
};

struct kineto_step {
    uint64_t number; /* the profiler's */
    uint32_t rank;
    int64_t step_ns;
    int64_t backward_begin_ns;
    int64_t backward_end_ns;
    int64_t forward_busy_ns; /* kernels run; on the host, operators */
    int64_t backward_busy_ns;
    int64_t optimizer_busy_ns;
    int64_t compute_busy_ns;  /* all three; less than their sum if streams overlap */
    int64_t copy_ns;          /* copies and fills of device memory */
    int64_t communication_ns; /* gradient all-reduces */
    int64_t exposed_ns;       /* the part of it while nothing else runs */
    int64_t foreign_ns;       /* other collectives */
    int64_t wait_ns;          /* waiting for peers, in all its all-reduces; 0 if unknown */
    uint32_t n_reduces;
    struct kineto_reduce *reduces; /* in the order of their launches */
    uint32_t n_parameters;
    struct kineto_parameter *parameters; /* in the order of readiness */
};

/* Collectives that are not of gradients: counted, named, left out of the profile. */
struct kineto_foreign {
    char name[KINETO_NAME_BYTES];
    char group[KINETO_NAME_BYTES]; /* of processes */
    uint32_t count;
    int64_t total_ns;
};

/* A bucket of gradients over all steps and ranks: medians, but for the time of its transfer. */
struct kineto_bucket {
    uint64_t elements;
    enum dsched_dtype dtype;
    int64_t ready_ns;
    int64_t begin_ns;
    int64_t duration_ns;
    int64_t transfer_ns; /* low quantile, without what waiting for peers can be told apart */
    int64_t wait_ns;     /* mean wait for peers, -1: unknown (one rank) */
};

struct kineto_job {
    uint32_t world_size; /* 0: unknown */
    uint32_t n_ranks;    /* whose traces were read */
    int has_device;      /* 0: computed and communicated on the host */
    uint32_t n_steps;    /* of all ranks, ranks in order of their numbers */
    struct kineto_step *steps;
    uint32_t n_left_out; /* steps without a whole set of all-reduces */
    uint32_t n_buckets;
    struct kineto_bucket *buckets;
    uint32_t n_parameters; /* 0: no shapes, or they do not add up to the buckets */
    struct kineto_parameter *parameters;
    uint32_t n_foreign;
    struct kineto_foreign foreign[KINETO_MAX_NAMES];
    uint32_t late_rank; /* of the ranks, the one that others wait for most; with two or more */
    struct kineto_step
        median;           /* of each figure over steps and ranks, of wait_ns the mean; no arrays */
    int64_t optimizer_ns; /* from backward and communication done to the end of the step */
    uint32_t n_notes;
    char notes[KINETO_MAX_NOTES][KINETO_NOTE_BYTES]; /* what to know about the figures */
};

/* The traces of ranks of one job, any order. They are consumed: joined and emptied as they are
 * read, to be destroyed by the caller. Refuses what lacks the needed events, with the setting of
 * the profiler that brings them, and traces that are not of one job. */
DEFT_NODISCARD enum deft_status kineto_job_init(struct kineto_job *job,
                                                struct kineto_trace *const *traces,
                                                uint32_t n_traces, struct deft_error *error);
void kineto_job_done(struct kineto_job *job); /* zeroed and NULL are fine */

/* --- the profile ------------------------------------------------------------------------------ */

/* Stage times are windows of wall time, so that gaps between kernels count: measured while
 * communication overlaps. One tensor per parameter if shapes are known, else per bucket. `name`
 * becomes the profile's, `world_size` 0 takes the job's. Release with dsched_profile_done. */
DEFT_NODISCARD enum deft_status kineto_profile(const struct kineto_job *job, const char *name,
                                               uint32_t world_size, struct dsched_profile *out,
                                               struct deft_error *error);

#endif
