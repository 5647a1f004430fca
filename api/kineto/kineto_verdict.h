/* What a job's figures mean for a person: what bounds it, and what scheduling can do about it.
 * Pure: a function of its arguments. */
#ifndef KINETO_VERDICT_H
#define KINETO_VERDICT_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>
#include <dsched/plan.h>
#include <dsched/planner.h>
#include <dsched/profile.h>

#include "kineto.h"

/* Below this share of the step the device does nothing at all for the rest: the host is late. */
#define KINETO_HOST_BOUND_PPM 500000u
/* From this exposed share on communication is what to work at; below it even hiding everything
 * gains less than a run-to-run difference. */
#define KINETO_EXPOSED_PPM 50000u

/* A replay that is further off than this has not understood the job: say so. */
#define KINETO_REPLAY_OFF_PPM 100000

enum kineto_bound {
    KINETO_BOUND_HOST,          /* compute and exposed communication < KINETO_HOST_BOUND_PPM */
    KINETO_BOUND_COMMUNICATION, /* else exposed >= KINETO_EXPOSED_PPM */
    KINETO_BOUND_COMPUTE,       /* else */
};
const char *kineto_bound_name(enum kineto_bound bound); /* "host", "communication", "compute" */

/* A plan and what it would bring. */
struct kineto_offer {
    enum dsched_rule rule;
    uint32_t max_merge;
    uint32_t max_delay;
    uint32_t mean_delay_milli;
    uint32_t updates_per_step_ppm;
    int64_t step_ns;
    uint32_t gain_ppm; /* of the replay's step over step_ns; 1,000,000: none */
};

struct kineto_verdict {
    enum kineto_bound bound;
    uint32_t busy_ppm;        /* compute or exposed communication runs, of the step */
    uint32_t exposed_ppm;     /* of the step */
    uint32_t coverage_ppm;    /* gradients' communication / compute that runs */
    uint32_t merge;           /* iterations per all-reduce that the coverage asks for: ceil */
    uint32_t ceiling_ppm;     /* step / compute that runs: no schedule gains more */
    int follows_ddp;          /* the buckets are those of PyTorch DDP's rule, 1 MiB then 25 MiB */
    int64_t replay_step_ns;   /* the job as it is, simulated: its own buckets, wait-free */
    int64_t replay_off_ppm;   /* the replay against what was measured, signed */
    const char *exact_policy; /* fastest policy that is exact, and its step */
    int64_t exact_step_ns;
    struct kineto_offer best;   /* what the planner chooses */
    struct kineto_offer second; /* with a second link at half the speed */
    uint32_t second_merge;      /* iterations per all-reduce that the coverage asks for then */
};

/* `profile` is the one of `job` (kineto_profile). */
DEFT_NODISCARD enum deft_status kineto_verdict(const struct kineto_job *job,
                                               const struct dsched_profile *profile,
                                               struct kineto_verdict *out,
                                               struct deft_error *error);

/* The verdict in sentences, one a line, cut at `capacity` bytes with the terminating zero. */
#define KINETO_VERDICT_BYTES 2048u
void kineto_verdict_text(const struct kineto_job *job, const struct kineto_verdict *verdict,
                         char *out, size_t capacity);

#endif
