/* A made-up job for the tuner: its step times and losses under each plan are known. */
#ifndef TUNER_JOB_H
#define TUNER_JOB_H

#include <stdint.h>

#include "tuning/tuner.h"

#define EXACT_NS  INT64_C(100000000)
#define JOB_PLANS 512u

/* Plans by sequence number have a step time; ranks switch a few iterations after a push. */
struct job {
    struct tuner tuner;
    uint64_t random;
    uint64_t iteration;
    uint64_t running_seq;
    uint64_t pushed_seq;
    uint32_t switch_in; /* iterations until the ranks take the pushed plan up; 0: never */
    int64_t step_ns[JOB_PLANS];
    uint32_t cycle[JOB_PLANS]; /* long step once per cycle */
    int is_exact[JOB_PLANS];
    int counts[TUNER_N_KINDS];
    struct tuner_decision last; /* newest that is not TUNER_SOLVE */
    struct tuner_plan proposal; /* the answer to TUNER_SOLVE */
    int64_t proposal_step_ns;   /* what it will really take */
    int64_t running_ns;         /* what the solver will say of the plan that runs */
    int has_proposal;
    int ignores_pushes;
    /* The loss of this iteration, for job->running_seq; NULL: a constant 1. */
    double (*loss)(struct job *job);
    double level; /* for `loss` to use */
    enum dsched_loss_given gives_loss;
    double learning_rate;
    /* Called with every decision but TUNER_SOLVE, may be NULL. */
    void (*watch)(struct job *job, const struct tuner_decision *decision);
};

/* Without warm-up, which the tests of it ask for. */
void job_config(struct tuner_config *out);
void job_start(struct job *job, enum tuner_mode mode);
/* What the solver will say, and what will be true. */
void job_offer(struct job *job, int64_t predicted_ns, int64_t real_ns, uint32_t cycle,
               uint64_t hash);
void job_decided(struct job *job, const struct tuner_decision *decision);
void job_run(struct job *job, int n);
/* Uniform in [-1, 1). */
double job_noise(struct job *job);

#endif
