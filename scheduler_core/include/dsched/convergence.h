/* What a plan costs in statistics: estimates, predictions and the test that watches a running plan.
 *
 * Pure: no memory, clock or state but the structs that are passed in. Zeroed structs are fresh
 * unless an _init is named. Squared norms are those of gradients as the optimizer would take them,
 * losses are in the job's own unit, samples are training samples, fractions are relative to exact
 * (1: as much progress per sample). A measured input that is not finite, below 0 or above
 * DSCHED_MAX_MEASURED counts as unknown; DSCHED_UNKNOWN says so on purpose. Outputs never are NaN.
 *
 * "Ours" below marks what is this project's own reasoning and not from a cited source. */
#ifndef DSCHED_CONVERGENCE_H
#define DSCHED_CONVERGENCE_H

#include <stdint.h>

#include <dsched/limits.h>
#include <dsched/plan.h>
#include <dsched/planner.h>
#include <dsched/status.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DSCHED_UNKNOWN (-1.0)
/* Sums of squares of smaller numbers stay finite; no sane norm or loss comes near it. */
#define DSCHED_MAX_MEASURED 1e100

enum dsched_optimizer_class {
    DSCHED_OPTIMIZER_UNKNOWN = 0, /* as ADAM: nothing may be derived from its recursion */
    DSCHED_OPTIMIZER_SGD = 1,     /* plain, or heavy-ball momentum */
    DSCHED_OPTIMIZER_ADAM = 2,    /* Adam, AdamW and kin */
};

/* --- gradient noise scale (McCandlish et al., arXiv 1812.06162, appendix A.1) -------------------
 * An update averages c parts, each the mean gradient of b samples. With ranks n and merge k the
 * parts are either the c = n * k gradients of single iterations (b = batch per rank), or the c = n
 * means over a rank's k iterations (b = k * batch per rank). Sums must be divided first.
 *   q = (1/c) sum_i |g_i|^2        Q = |(1/c) sum_i g_i|^2
 *   |G|^2 = (c Q - q) / (c - 1)    tr(Sigma) = (q - Q) c / (c - 1) * b       per sample
 * Both are unbiased at one point of parameter space, and are averaged apart, since the mean of
 * ratios is not the ratio of means. While gradients shrink, the means would be those of the oldest
 * and largest ones; so for the ratio each observation is first divided by what q was before it
 * (ours), which makes iterations count alike whatever the size of their gradients. */
struct dsched_noise_part {
    double part_norm2;   /* q */
    double mean_norm2;   /* Q, at most q but for rounding */
    uint32_t n_parts;    /* c; 1 tells nothing about noise */
    double part_samples; /* b, above 0 */
};
struct dsched_noise {
    double weight; /* of all observations, old ones faded */
    double weight2;
    double gradient_norm2; /* running means */
    double trace;
    double scale;        /* q lately; 0: none yet */
    double scaled_norm2; /* running means and co-moments of both over the scale before them */
    double scaled_trace;
    double moment_gg;
    double moment_tt;
    double moment_gt;
    uint64_t n_used;
    uint64_t n_broken; /* not finite, negative, too large, or Q above q */
    uint64_t n_single; /* of one part */
};
struct dsched_noise_estimate {
    int is_known;          /* at least DSCHED_MIN_NOISE_OBSERVATIONS effective ones, and |G|^2 is
                              two standard errors above 0 */
    double gradient_norm2; /* |G|^2; may be below 0 while unknown, as unbiased estimates can */
    double trace;          /* tr(Sigma) of one sample */
    double noise_samples;  /* B_noise = tr(Sigma) / |G|^2, or DSCHED_UNKNOWN */
    double error_samples;  /* its standard error, by the delta method, or DSCHED_UNKNOWN */
    double n_effective;    /* (sum w)^2 / sum w^2 of the faded weights (Kish) */
};
/* Fewer give a standard error that itself is off by a quarter or more. */
#define DSCHED_MIN_NOISE_OBSERVATIONS 8.0
/* Adds one observation. `memory` is the number of observations after which one has faded to 1/e,
 * 1 or more (less counts as 1). The means are those of the faded weights, so the first observations
 * are not drawn to 0. */
void dsched_noise_add(struct dsched_noise *noise, const struct dsched_noise_part *part,
                      double memory);
void dsched_noise_get(const struct dsched_noise *noise, struct dsched_noise_estimate *out);

/* --- stability ----------------------------------------------------------------------------------
 * On a quadratic of curvature lambda, a rule with rate eta is stable for s = eta * lambda below an
 * edge. k is the merge, tau the delay, m the momentum.
 * - exact: z^2 - (1 + m - s) z + m = 0, so 2 (1 + m).
 * - delayed, mean of merged gradients: with a = floor(tau / k) and f = (tau mod k) / k, the share f
 *   of a generation was taken one update earlier than the rest, so per update
 *   z^(a+2) - (1 + m) z^(a+1) + m z^a + s ((1 - f) z + f) = 0.
 *   k = 1, m = 0: 2 sin(pi / (2 (2 tau + 1))). k = 1, tau = 1: 1 - m.
 * - lookahead: the mean over ranks of the working weights A + P(A, g_r) is A plus the step in
 *   flight, when the optimizer is linear in the gradient and ranks share their curvature. So the
 *   mean, and identical ranks, follow the recursion of exact. The distance of a rank from the mean
 *   is -eta (g_r - mean g) of the iteration before, so z = -s: whatever m is, ranks whose gradients
 *   differ at all drift apart beyond s = 1. The edge at tau = 1 is that 1.
 * - averaged: corrections M - D_r sum to 0, so the mean of the ranks follows exact, too. The
 *   distance of a rank from the mean grows by its own steps and is taken back when they land:
 *   z^tau - m z^(tau-1) + s (z^(tau-1) + ... + 1) = 0 for k = 1,
 *   whose edge is 1 for m = 0 at every tau >= 1, and 1 + m at tau = 1. For k > 1 the same follows
 *   from the k-th power of one step. The edge is the smaller of the mean's and the distance's, and
 *   the first: for m = 0 and even k a root only touches the circle at s = 1.
 * All ours but the closed forms of exact and of m = 0. */

/* Edge of eta * lambda for SGD. 0: `momentum` is not in [0, 1), a limit is broken, or the edge is
 * below 1e-6. Merge 1..DSCHED_MAX_MERGE, delay 0..DSCHED_MAX_DELAY. For exact, merge and delay are
 * ignored. Deterministic, about 200 tests of a polynomial of degree <= 66 by Schur and Cohn. */
double dsched_stability_edge(enum dsched_rule rule, double momentum, uint32_t merge,
                             uint32_t delay);

/* Whether all roots of c[0] + c[1] z + ... + c[degree] z^degree are inside the unit circle (Schur,
 * Cohn). 0 when a coefficient is not finite, the leading one is 0 or degree exceeds
 * DSCHED_MAX_DEGREE. Degree 0 has no roots: 1. */
#define DSCHED_MAX_DEGREE (DSCHED_MAX_DELAY + 2u)
int dsched_stability_inside(const double *coefficients, uint32_t degree);

/* --- efficiency: progress per sample, relative to exact -----------------------------------------
 * merge, delayed: e(k) = (B_noise + B) / (B_noise + k B)   (McCandlish, samples to reach a loss)
 * delay, delayed, SGD: the share of exact's margin that is left (ours; 0 at the edge),
 *   d = (1 - s / edge(tau, k)) / (1 - s / edge(0)), s = eta * lambda, at most 1.
 * delay, delayed, Adam or unknown: tau = 0: 1; tau = 1: a prior; above: 0 unless measured.
 * lookahead, averaged: linear optimizers lose nothing on quadratics; 0 when s is known to be at
 *   the edge; else a prior of 1 / (1 + 0.01 (k - 1 + tau)), one hundredth for each iteration that a
 *   rank goes on alone, which keeps them behind exact in ties. Under SGD lookahead's first late
 *   iteration counts by how far its edge, 1, is below exact's: 2 (1 + m) hundredths; with momentum
 *   it is 0 unless s is known. Momentum lets exact train at s above 1, as a transformer was seen to
 *   for half of its run, which diverged when lookahead began there (docs/convergence.md); averaged
 *   bears nearly what exact does. */
struct dsched_efficiency_inputs {
    enum dsched_rule rule;
    enum dsched_optimizer_class optimizer;
    uint32_t merge; /* 1..DSCHED_MAX_MERGE */
    uint32_t delay; /* 0..DSCHED_MAX_DELAY, the largest of the plan */
    double momentum;
    double batch_samples;  /* B, all ranks together, of one iteration */
    double noise_samples;  /* B_noise */
    double rate_curvature; /* s = learning rate * largest curvature */
    double measured_frac;  /* from this job's own paired windows: wins over any prediction */
};
struct dsched_efficiency {
    double merge_frac;    /* e; 1 when measured */
    double delay_frac;    /* d; the measurement when there is one */
    double progress_frac; /* e * d, 0..1; measurements may be above 1 */
    int is_prior;         /* an input that matters was unknown */
};
/* Unknown B_noise counts as B: users pick batches up to about the noise scale. */
/* Unknown s counts as half of exact's edge, with which delayed is not stable for tau >= 1, and
 * lookahead not with momentum. */
#define DSCHED_PRIOR_EDGE_FRAC 0.5
/* Adam under delayed, tau = 1 (docs/update-rules.md: it costs several points of accuracy). */
#define DSCHED_PRIOR_ADAM_FRAC  0.5
#define DSCHED_PRIOR_ALONE_FRAC 0.01
/* A measured progress beyond this is a fault of the measurement. */
#define DSCHED_MAX_MEASURED_FRAC 2.0
DSCHED_NODISCARD enum dsched_status
dsched_efficiency_predict(const struct dsched_efficiency_inputs *inputs,
                          struct dsched_efficiency *out, struct dsched_error *error);
/* e(k) alone. Unknown noise or batch: the prior. `merge` 0 counts as 1. */
double dsched_efficiency_merge(double noise_samples, double batch_samples, uint32_t merge);
/* The planner's table of merges 1..max_merge and delays 0..max_delay, the rest 0; `rule`, `merge`
 * and `delay` of the inputs are ignored, `measured_frac` must be unknown. Fractions are rounded to
 * ppm. Delays count in the delay table, at merge 1, merges in the merge table, relative to merge 1;
 * the product is
 * - the prediction of delayed, but for SGD, where merging makes a delay milder: what is lost to it
 *   is that of merge 1;
 * - the prediction of lookahead and averaged at merge 1, and at delay 1, at which merges are
 *   compared since those plans are late; elsewhere within 0.5 % of it for merges and delays up to
 *   8, and too little beyond. Where SGD has an edge of stability, merges and delays are cut to
 * those that are stable in every combination, small ones first. DSCHED_INVALID: a limit or what
 * dsched_efficiency_predict refuses. */
DSCHED_NODISCARD enum dsched_status
dsched_progress_predict(const struct dsched_efficiency_inputs *inputs, uint32_t max_merge,
                        uint32_t max_delay, struct dsched_progress *out,
                        struct dsched_error *error);

/* --- random walk with rebound (ours, after the design of the loss-quantification) ---------------
 * One update moves the excess loss x by a Gaussian with drift -mu and deviation sigma and reflects
 * it at 0: E[x'] is a folded-normal mean, with m = x - mu
 *   sigma sqrt(2/pi) exp(-m^2 / (2 sigma^2)) + m (1 - 2 Phi(-m / sigma)). */
enum dsched_walk_scaling {
    DSCHED_WALK_MEAN = 0, /* merged gradients are divided by k: mu, sigma / sqrt(k) */
    DSCHED_WALK_SUM = 1,  /* step per sample stays; also averaged's k steps: k mu, sqrt(k) sigma */
    DSCHED_WALK_SQRT = 2, /* rate times sqrt(k): sqrt(k) mu, sigma */
};
struct dsched_walk {
    double excess;         /* x of the start, >= 0 */
    double drift;          /* mu of one exact iteration, >= 0 */
    double deviation;      /* sigma of one exact iteration, >= 0 */
    uint32_t n_iterations; /* 1..DSCHED_MAX_WALK_ITERATIONS, the samples of both */
    enum dsched_walk_scaling scaling;
};
/* 65,536 steps for each of 64 merges take below a second; a longer look ahead says no more. */
#define DSCHED_MAX_WALK_ITERATIONS 65536u
double dsched_walk_mean(double excess, double drift, double deviation);
/* R = E[x] of the plan / E[x] of exact after the same samples: updates of `merge` iterations, the
 * last one shorter, whose drift is multiplied by `delay_frac` 0..1. 1 when both end at 0. */
DSCHED_NODISCARD enum dsched_status dsched_walk_ratio(const struct dsched_walk *walk,
                                                      uint32_t merge, double delay_frac,
                                                      double *out_ratio,
                                                      struct dsched_error *error);

/* --- admission ----------------------------------------------------------------------------------
 * The largest merge up to which every one has R <= 1 + epsilon and progress >= floor. */
struct dsched_admission_inputs {
    struct dsched_efficiency_inputs efficiency; /* its merge is ignored */
    struct dsched_walk walk;
    uint32_t max_merge;
    double epsilon_frac; /* >= 0; default 0.01 */
    double floor_frac;   /* 0..1; default 0.5 */
};
#define DSCHED_DEFAULT_EPSILON_FRAC 0.01
#define DSCHED_DEFAULT_FLOOR_FRAC   0.5
enum dsched_admission_reason {
    DSCHED_ADMIT_ALL = 0,      /* max_merge itself is fine */
    DSCHED_ADMIT_WALK = 1,     /* merge + 1 has R above 1 + epsilon */
    DSCHED_ADMIT_PROGRESS = 2, /* merge + 1 makes less progress than the floor */
    DSCHED_ADMIT_UNSTABLE = 3, /* merge + 1 has no progress at all: beyond the edge */
};
struct dsched_admission {
    struct dsched_admission_inputs inputs;
    uint32_t merge; /* 0: not even 1; stay with exact */
    enum dsched_admission_reason reason;
    struct dsched_efficiency efficiency; /* of `merge`, or of 1 when it is 0 */
    double walk_ratio;                   /* likewise */
    double refused_ratio;                /* R and progress of merge + 1, or DSCHED_UNKNOWN */
    double refused_frac;
    char text[320]; /* one sentence */
};
DSCHED_NODISCARD enum dsched_status dsched_admit_merge(const struct dsched_admission_inputs *inputs,
                                                       struct dsched_admission *out,
                                                       struct dsched_error *error);

/* --- disagreement under averaged (ours) ---------------------------------------------------------
 * D_r is the change of rank r in a generation of k iterations, M their mean over n ranks. With
 * q = mean |D_r|^2 and Q = |M|^2 the disagreement is rho^2 = mean |D_r - M|^2 / |M|^2 = (q - Q) /
 * Q. Ranks with one direction and independent noise S per iteration have E[q - Q] = k S (1 - 1/n)
 * and E[Q] = k^2 G + k S / n: rho falls with k, and is sqrt(n - 1) when there is nothing but noise.
 * A rank off the mean by D_r - M sees a loss higher by lambda |D_r - M|^2 / 2, while a generation
 * gains |M|^2 / (eta k): the loss lags behind that of the mean by s k rho^2 / 2 generations, which
 * grows with k up to a limit. A lag is paid once, not per sample; it tells how far the quadratic
 * picture, in which averaged is free, is stretched. */
struct dsched_disagreement {
    struct dsched_noise noise; /* of changes per iteration; parts of one iteration's worth */
    uint32_t n_ranks;
};
struct dsched_disagreement_estimate {
    int is_known;         /* two ranks or more, and enough observations */
    double rho;           /* at the merge that is asked for */
    double unrelated_rho; /* sqrt(n - 1): nothing but noise */
    double lag_generations;
};
/* `merge` 1..DSCHED_MAX_MERGE; norms of the changes of a whole generation. Another n_ranks than
 * before starts over. */
void dsched_disagreement_add(struct dsched_disagreement *disagreement, double change_norm2,
                             double mean_norm2, uint32_t n_ranks, uint32_t merge, double memory);
/* Unknown `rate_curvature` counts as 1, averaged's edge without momentum. */
void dsched_disagreement_get(const struct dsched_disagreement *disagreement, uint32_t merge,
                             double rate_curvature, struct dsched_disagreement_estimate *out);

/* --- drift: the test of the guard (ours; CUSUM after Page 1954, ARL after Siegmund 1985) --------
 * Windows in turn exact, plan, exact form a triple, and three tests share the false-alarm rate.
 * - Trend: z is the least-squares slope of the loss under the plan minus the mean slope of its two
 *   neighbours, over its standard error, so a trend that is linear in slope cancels. Where both
 *   neighbours clearly fall, the mean is the harmonic one: losses that fall as a power of time or
 *   exponentially fall in the middle at least that fast. z feeds a CUSUM with allowance 3/4.
 * - Rise: by how much the mean of the exact window after the plan is above that of the one before,
 *   less half an epsilon of it, over its standard error, into another such CUSUM: harm that stays.
 * - Level: within a plan window, means of 2, 4, 8 .. losses, which must be above that of the exact
 *   window before by an epsilon and by more than noise reaches, so that a loss that climbs quickly
 *   is seen before the window ends. A falling loss cannot set it off, nor can a single wild one.
 * Rise and level take for granted that under exact the loss does not rise, but for the slope that
 * the exact window before shows. Noise may have Laplace's tails. Its correlation from one iteration
 * to the next is estimated and allowed for as that of an autoregression of first order: at 0.5 the
 * rate of false alarms is at most twice the stated one, at 0.9 some ten times. Feed the losses of
 * single batches, no moving averages. Further exact windows before the first plan window sharpen
 * the estimate of the noise; they count as restarts. */
enum dsched_drift_result {
    DSCHED_DRIFT_UNDECIDED = 0,
    DSCHED_DRIFT_FINE = 1, /* the drift of a whole plan window is below epsilon of the loss, with
                              confidence 97.5 % */
    DSCHED_DRIFT_DRIFTING = 2,
    DSCHED_DRIFT_BROKEN = 3, /* a loss or gradient norm under the plan that is not finite, or a norm
                                above DSCHED_NORM_JUMP times its average. DRIFTING and BROKEN stay
                                until dsched_drift_init */
};
#define DSCHED_NORM_JUMP 5.0
enum dsched_drift_label { DSCHED_DRIFT_EXACT = 0, DSCHED_DRIFT_PLAN = 1 };
struct dsched_drift_options {
    uint32_t window_losses;  /* 8..DSCHED_MAX_WINDOW_LOSSES losses per window; default 32 */
    uint32_t settle_losses;  /* 0..the same: left out at the start of each window; default 4 */
    double epsilon_frac;     /* above 0, at most 1; default 0.01 */
    double false_alarm_frac; /* 1e-9..0.1 per window on a stationary stream; default 3e-4 */
};
/* Slopes of 4,096 losses see drifts far below any epsilon; longer windows only decide later. */
#define DSCHED_MAX_WINDOW_LOSSES 4096u
/* Least squares of one window around its first point, to keep large iteration numbers exact, and
 * the squares of its steps from one loss to the next. */
struct dsched_drift_fit {
    uint32_t n;
    double x0;
    double y0;
    double mean_x;
    double mean_y;
    double xx;
    double xy;
    double yy;
    double last_x;
    double last_y;
    double step_xx;
    double step_xy;
    double step_yy;
};
/* Noise of single losses, from windows taken together, old ones faded. */
struct dsched_drift_noise {
    double n_residuals; /* degrees of freedom */
    double residuals;   /* sums of squares */
    double n_steps;
    double steps;
};
/* Means of 2, 4, 8, 16 losses at every loss, of 32 .. 8,192 one after the other. */
#define DSCHED_DRIFT_RECENT 16u
#define DSCHED_DRIFT_SCALES 9u
struct dsched_drift {
    struct dsched_drift_options options;
    struct dsched_drift_fit fits[3];
    uint32_t window; /* 0..2 within the triple */
    uint32_t n_settled;
    uint64_t last_iteration;
    int has_iteration;
    double triple_cusum;
    double rise_cusum;
    double cusum_limit; /* of both */
    /* The exact window before, for the losses under the plan. */
    struct dsched_drift_noise noise; /* of exact windows */
    double base;                     /* its mean, at base_x */
    double base_x;
    double base_slope; /* >= 0 */
    double base_deviation;
    double base_rho;                    /* correlation of neighbours, 0..1 */
    uint32_t n_plan;                    /* losses of the plan window, settling ones too */
    double recent[DSCHED_DRIFT_RECENT]; /* off the base, in deviations; a ring */
    double off[DSCHED_DRIFT_SCALES];    /* sums of the means to come */
    double drift_sum; /* of slope differences, per iteration, and of their variances */
    double variance_sum;
    double level; /* mean loss and iterations of a plan window of the last triple */
    double span_iterations;
    double last_z;
    uint64_t n_triples;
    double norm_mean;
    uint64_t n_norms;
    uint64_t n_restarts; /* windows dropped: another label than asked for, iterations going back,
                            a loss under exact that is not finite */
    enum dsched_drift_result result;
};
void dsched_drift_defaults(struct dsched_drift_options *options);
DSCHED_NODISCARD enum dsched_status dsched_drift_init(struct dsched_drift *drift,
                                                      const struct dsched_drift_options *options,
                                                      struct dsched_error *error);
/* What the next loss should be of. */
enum dsched_drift_label dsched_drift_wants(const struct dsched_drift *drift);
/* Iterations without a loss are left out, so one loss per epoch is fine. `gradient_norm` may be
 * DSCHED_UNKNOWN. */
enum dsched_drift_result dsched_drift_add(struct dsched_drift *drift, enum dsched_drift_label label,
                                          uint64_t iteration, double loss, double gradient_norm);

#ifdef __cplusplus
}
#endif
#endif
