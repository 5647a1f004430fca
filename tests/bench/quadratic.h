/* A training job whose truth is known: ranks on a noisy quadratic under any update rule.
 *
 * The loss is (1/2) sum_d curvature_d w_d^2. A rank's gradient is that of the loss at its own
 * working weights plus Gaussian noise; the optimizer is SGD with heavy-ball momentum. What lands
 * when, and what a rank does meanwhile, is as docs/update-rules.md says. Pure but for malloc; equal
 * seeds give equal noise under every rule, so that two jobs can be compared step by step. */
#ifndef QUADRATIC_H
#define QUADRATIC_H

#include <stdint.h>

#include <dsched/plan.h>

struct quadratic_setup {
    const double *curvature; /* [n_dims], above 0; borrowed */
    uint32_t n_dims;
    uint32_t n_ranks;
    double rate;
    double momentum;
    double noise;        /* deviation of each coordinate of one rank's gradient of one iteration */
    double scaled_noise; /* the same, as a multiple of the gradient, in the mean over its block */
    uint32_t block;      /* coordinates of one curvature that share scaled noise; divides n_dims */
    uint64_t n_noisy;    /* iterations after which there is no noise; 0: always noisy */
    uint64_t seed;
};
struct quadratic; /* opaque */

/* At w = `start` [n_dims], exact. NULL without memory. */
struct quadratic *quadratic_create(const struct quadratic_setup *setup, const double *start);
void quadratic_destroy(struct quadratic *job);
/* Drains, as a switch of plans does, then goes on under another rule. Lookahead wants merge 1 and
 * delay 0 or 1. Returns 0 without memory or with another lookahead; the job is then as before. */
int quadratic_switch(struct quadratic *job, enum dsched_rule rule, uint32_t merge, uint32_t delay);
void quadratic_step(struct quadratic *job);
void quadratic_set_rate(struct quadratic *job, double rate);

/* Mean over the ranks of the loss at their working weights. */
double quadratic_loss(const struct quadratic *job);
/* |G|^2 at the mean of the working weights, without noise. */
double quadratic_gradient_norm2(const struct quadratic *job);
/* Of the newest step: q and Q of convergence.h with one part per rank. */
double quadratic_part_norm2(const struct quadratic *job);
double quadratic_mean_norm2(const struct quadratic *job);
/* Largest coordinate of weights and of the optimizer's next steps; large or not finite: diverged.
 */
double quadratic_size(const struct quadratic *job);

#endif
