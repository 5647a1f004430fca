/* SGD with momentum, and AdamW; stepping in place, and previewing a step. */
#ifndef OPTIMIZER_H
#define OPTIMIZER_H

#include <stdint.h>

#include <deft/status.h>

#include "mlp.h"

enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZER_ADAMW };

struct optimizer_options {
    enum optimizer_kind kind;
    float momentum;     /* SGD: 0..1 */
    float weight_decay; /* SGD: added to the gradient; AdamW: decoupled */
    float beta1;        /* AdamW */
    float beta2;
    float epsilon;
};
/* SGD with momentum 0.9; AdamW's betas 0.9 and 0.999, epsilon 1e-8; no weight decay. */
void optimizer_defaults(struct optimizer_options *options);

struct optimizer {
    struct optimizer_options options;
    const struct mlp *mlp;
    float *first;    /* [n_parameters] momentum, or the first moment */
    float *second;   /* [n_parameters] the second moment; NULL for SGD */
    uint64_t *steps; /* [n_tensors] AdamW corrects its bias by each tensor's own count */
};

/* `mlp` must outlive the optimizer. */
DEFT_NODISCARD enum deft_status optimizer_init(struct optimizer *optimizer,
                                               const struct optimizer_options *options,
                                               const struct mlp *mlp, struct deft_error *error);
/* Takes NULL and zeroed optimizers. */
void optimizer_done(struct optimizer *optimizer);

/* Steps every tensor t whose gradients[t] is not NULL, at `learning_rate`. With momentum m, weight
 * decay d and learning rate r, SGD is  v = m v + (g + d p);  p = p - r v,  and AdamW (Loshchilov
 * and Hutter, arXiv 1711.05101) is  p = p (1 - r d) - r (a / (1 - beta1^n)) / (sqrt(b / (1 -
 * beta2^n)) + epsilon)  with a and b the running moments and n the tensor's step count. */
void optimizer_step(struct optimizer *optimizer, double learning_rate, void *const *gradients);

/* Moves the parameters to where optimizer_step would put them, bit for bit, and leaves the
 * optimizer's state as it is. */
void optimizer_preview(const struct optimizer *optimizer, double learning_rate,
                       void *const *gradients);

#endif
