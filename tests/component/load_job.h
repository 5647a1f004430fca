/* What the agents of one job send: registrations and reports with the figures of a training job,
 * made from nothing but their numbers, so that a report that is sent again is the same one. */
#ifndef LOAD_JOB_H
#define LOAD_JOB_H

#include <stdint.h>

#include "wire/wire.h"

/* A transformer's worth: its registration is large enough to be packed. */
#define LOAD_JOB_TENSORS 64u
/* All-reduces of different size in a report, those of DDP's buckets. */
#define LOAD_JOB_OPS 4u
/* Iterations between two reports of a rank's readiness, as libdeft sends them. */
#define LOAD_JOB_READINESS 16u

struct load_job {
    char id[WIRE_ID_BYTES];
    char mode[16]; /* wished at the registration; "": the controller's */
    uint32_t number;
    uint32_t first_agent;
    uint32_t n_agents;     /* a rank each */
    uint32_t n_iterations; /* of a report */
    int64_t step_ns;       /* under the exact plan */
    /* The newest plan that was pushed, and from which iteration on all ranks run it. */
    uint64_t plan_seq;
    uint64_t plan_from;
    int64_t plan_step_ns;
    /* And the one before it. */
    uint64_t old_seq;
    int64_t old_step_ns;
    int is_known;                    /* registered */
    char incarnation[WIRE_ID_BYTES]; /* then its id */
};

/* Under which name an agent reports; every start has its own. */
void load_job_agent(const struct load_job *job, uint32_t rank, uint32_t n_starts,
                    char out[WIRE_ID_BYTES]);
/* JSON, malloc'ed; NULL: no memory. */
char *load_job_registration(const struct load_job *job, uint32_t rank, uint32_t n_starts);
/* The report number `number` of the rank, from 0, which goes out as `seq`. */
char *load_job_report(const struct load_job *job, uint32_t rank, uint32_t n_starts, uint64_t seq,
                      uint64_t number);

#endif
