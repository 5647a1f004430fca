#include "optimizer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void optimizer_defaults(struct optimizer_options *options) {
    *options = (struct optimizer_options){
        .kind = OPTIMIZER_SGD,
        .momentum = 0.9f,
        .beta1 = 0.9f,
        .beta2 = 0.999f,
        .epsilon = 1e-8f,
    };
}

enum deft_status optimizer_init(struct optimizer *optimizer,
                                const struct optimizer_options *options, const struct mlp *mlp,
                                struct deft_error *error) {
    struct optimizer o = {.options = *options, .mlp = mlp};

    o.first = calloc((size_t)mlp->n_parameters, sizeof(float));
    o.steps = calloc(mlp->n_tensors, sizeof(*o.steps));
    if (options->kind == OPTIMIZER_ADAMW) {
        o.second = calloc((size_t)mlp->n_parameters, sizeof(float));
    }
    if (o.first == NULL || o.steps == NULL ||
        (options->kind == OPTIMIZER_ADAMW && o.second == NULL)) {
        optimizer_done(&o);
        return deft_fail(error, DEFT_NO_MEMORY, 0,
                         "no memory for the optimizer's state of %llu parameters",
                         (unsigned long long)mlp->n_parameters);
    }
    *optimizer = o;
    return DEFT_OK;
}

void optimizer_done(struct optimizer *optimizer) {
    if (optimizer != NULL) {
        free(optimizer->first);
        free(optimizer->second);
        free(optimizer->steps);
        *optimizer = (struct optimizer){0};
    }
}

/* Stepping and previewing share these loops, so that they cannot come to differ. `keep` is constant
 * at each call and folded away. */
static inline void sgd(float *restrict p, float *restrict v, const float *restrict g, uint64_t n,
                       float rate, float momentum, float decay, int keep) {
    for (uint64_t i = 0; i < n; i++) {
        float next = momentum * v[i] + (g[i] + decay * p[i]);
        if (keep) {
            v[i] = next;
        }
        p[i] -= rate * next;
    }
}

struct adamw_factors {
    float shrink;  /* 1 - r d */
    float rate;    /* r / (1 - beta1^n) */
    float correct; /* 1 / (1 - beta2^n) */
    float beta1;
    float beta2;
    float epsilon;
};

static inline void adamw(float *restrict p, float *restrict a, float *restrict b,
                         const float *restrict g, uint64_t n, struct adamw_factors f, int keep) {
    for (uint64_t i = 0; i < n; i++) {
        float first = f.beta1 * a[i] + (1.0f - f.beta1) * g[i];
        float second = f.beta2 * b[i] + (1.0f - f.beta2) * (g[i] * g[i]);
        if (keep) {
            a[i] = first;
            b[i] = second;
        }
        p[i] = p[i] * f.shrink - f.rate * first / (sqrtf(second * f.correct) + f.epsilon);
    }
}

static struct adamw_factors adamw_factors(const struct optimizer_options *o, double learning_rate,
                                          uint64_t step) {
    return (struct adamw_factors){
        .shrink = (float)(1.0 - learning_rate * (double)o->weight_decay),
        .rate = (float)(learning_rate / (1.0 - pow((double)o->beta1, (double)step))),
        .correct = (float)(1.0 / (1.0 - pow((double)o->beta2, (double)step))),
        .beta1 = o->beta1,
        .beta2 = o->beta2,
        .epsilon = o->epsilon,
    };
}

static void move(const struct optimizer *o, double learning_rate, const struct mlp_tensor *tensor,
                 const float *gradient, uint64_t step, int keep) {
    size_t at = (size_t)(tensor->parameters - o->mlp->parameters);
    float *p = tensor->parameters;
    float rate = (float)learning_rate;

    if (o->options.kind == OPTIMIZER_SGD && keep) {
        sgd(p, o->first + at, gradient, tensor->elements, rate, o->options.momentum,
            o->options.weight_decay, 1);
    } else if (o->options.kind == OPTIMIZER_SGD) {
        sgd(p, o->first + at, gradient, tensor->elements, rate, o->options.momentum,
            o->options.weight_decay, 0);
    } else {
        struct adamw_factors factors = adamw_factors(&o->options, learning_rate, step);
        if (keep) {
            adamw(p, o->first + at, o->second + at, gradient, tensor->elements, factors, 1);
        } else {
            adamw(p, o->first + at, o->second + at, gradient, tensor->elements, factors, 0);
        }
    }
}

void optimizer_step(struct optimizer *optimizer, double learning_rate, void *const *gradients) {
    for (uint32_t t = 0; t < optimizer->mlp->n_tensors; t++) {
        if (gradients[t] != NULL) {
            optimizer->steps[t]++;
            move(optimizer, learning_rate, &optimizer->mlp->tensors[t], gradients[t],
                 optimizer->steps[t], 1);
        }
    }
}

void optimizer_preview(const struct optimizer *optimizer, double learning_rate,
                       void *const *gradients) {
    for (uint32_t t = 0; t < optimizer->mlp->n_tensors; t++) {
        if (gradients[t] != NULL) {
            move(optimizer, learning_rate, &optimizer->mlp->tensors[t], gradients[t],
                 optimizer->steps[t] + 1, 0);
        }
    }
}
