/* Convergence-loss quantification of one job: what its gradients and losses say, and what each plan
 * would therefore cost. Pure; one thread at a time. The figures are those of dsched/convergence.h
 * and dsched/loss.h; this is where a job's reports meet them. */
#ifndef QUANTIFY_H
#define QUANTIFY_H

#include <stdint.h>

#include <deft/status.h>
#include <dsched/convergence.h>
#include <dsched/loss.h>
#include <dsched/planner.h>

#include "wire/wire.h"

/* Of a job whose owner has said nothing. */
void quantify_default_limits(struct wire_limits *limits);

/* What the registration tells. */
struct quantify_job {
    uint32_t n_ranks;
    enum dsched_optimizer_class optimizer;
    double momentum;
    double learning_rate;   /* 0: unknown */
    uint64_t batch_samples; /* of all ranks together; 0: unknown */
};
void quantify_job_of(const struct wire_registration *registration, struct quantify_job *out);

/* One iteration of all ranks. Means over ranks; NaN where none was reported. */
struct quantify_sample {
    uint64_t iteration;
    int is_exact;   /* it ran under an exact plan */
    int is_switch;  /* plans were switched in it */
    uint32_t merge; /* of the generation that was applied; 0: none was */
    enum dsched_loss_given loss_given;
    double loss;            /* mean; not finite when some rank's was not */
    double grad_sq_local;   /* mean of |g_r|^2: q */
    double grad_sq_mean;    /* |mean g|^2: Q; under averaged |M|^2 */
    double change_sq_local; /* averaged: mean of |D_r|^2 */
    double learning_rate;
};

/* Estimates cost more than samples. */
#define QUANTIFY_FRESH 8u
/* Learning rates that are compared to see a warm-up. */
#define QUANTIFY_RATES 32u

struct quantify {
    struct quantify_job job;
    struct wire_limits limits;
    struct dsched_noise noise;
    struct dsched_disagreement disagreement;
    struct dsched_loss loss;
    uint64_t n_broken_exact; /* iterations under exact whose loss was given and not finite */
    double grad_sq;          /* smoothed mean of q; 0: none yet */
    uint64_t n_grad_sq;
    double rates[QUANTIFY_RATES]; /* a ring, of the newest iterations */
    uint32_t n_rates;
    struct dsched_loss_estimate estimate; /* of `loss`, at most QUANTIFY_FRESH iterations old */
    uint32_t estimate_age;
    double lowest_level; /* least smoothed loss since quantify_mark; infinity at first */
    double smoothed;     /* loss, over about QUANTIFY_SMOOTH iterations; NaN at first */
};
void quantify_init(struct quantify *quantify, const struct quantify_job *job,
                   const struct wire_limits *limits);
void quantify_add(struct quantify *quantify, const struct quantify_sample *sample);
/* Another plan runs: the lowest level counts anew. */
void quantify_mark(struct quantify *quantify);

/* The rate still grows: 1 % or more over the newest QUANTIFY_RATES iterations. */
int quantify_rate_rises(const struct quantify *quantify);
/* Losses that are not finite are this job's habit (fp16 overflows): it had them under exact, too.
 */
int quantify_breaks_by_itself(const struct quantify *quantify);
/* The loss is well above the lowest level of this plan: 2 %, and more than noise explains. */
int quantify_loss_rises(const struct quantify *quantify);
void quantify_noise(const struct quantify *quantify, struct dsched_noise_estimate *out);
const struct dsched_loss_estimate *quantify_loss(const struct quantify *quantify);

/* The fuse of a plan that is pushed now: the means over the ranks and a few iterations above which
 * the ranks leave it; NaN: not watched. */
void quantify_fuse(const struct quantify *quantify, double *out_max_loss, double *out_max_grad_sq);

/* What a solve is given, and what is said about it. */
struct quantify_price {
    struct dsched_progress progress; /* 0 for what is not admitted */
    uint32_t max_merge;              /* admitted under some rule; 1..limits.max_merge */
    uint32_t max_delay;
    double max_loss; /* the fuse of the next plan, NaN: not watched */
    double max_grad_sq;
    char text[320]; /* why merges are bounded as they are, with the figures */
};
/* `rules`: DSCHED_RULE_BIT of what the job's loop can run. */
DEFT_NODISCARD enum deft_status quantify_price(const struct quantify *quantify, uint32_t rules,
                                               struct quantify_price *out,
                                               struct deft_error *error);
/* Iterations of the job per progress of an exact one, of a plan: 1,000,000 for exact. */
uint32_t quantify_progress_ppm(const struct quantify_price *price, uint32_t rule, uint32_t merge,
                               uint32_t delay);

#endif
