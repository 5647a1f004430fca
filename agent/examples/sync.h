/* How the ranks' gradients become one: a table of what the training loop needs, after deft.h. */
#ifndef SYNC_H
#define SYNC_H

#include <stdbool.h>
#include <stdint.h>

#include <deft/deft.h>

#include "mlp.h"
#include "optimizer.h"

struct sync;

/* What is trained. Both must outlive the struct sync. */
struct sync_model {
    const struct mlp *mlp;
    const struct optimizer *optimizer;
    bool gradients_only; /* keep parameters and optimizer state to ourselves */
};

struct sync_ops {
    const char *name; /* as in --sync */
    /* Meets the other ranks with `options`; afterwards all ranks have rank 0's parameters. */
    enum deft_status (*open)(const struct deft_options *options, const struct sync_model *model,
                             struct sync **out, struct deft_error *error);
    void (*forward_begin)(struct sync *sync);
    void (*loss)(struct sync *sync, double loss);
    void (*learning_rate)(struct sync *sync, double rate); /* as deft_learning_rate */
    void (*backward_begin)(struct sync *sync);
    enum deft_status (*grad_ready)(struct sync *sync, uint32_t tensor, const float *gradient,
                                   struct deft_error *error);
    /* As deft_step and deft_drain. */
    enum deft_status (*step)(struct sync *sync, struct deft_update *out, struct deft_error *error);
    enum deft_status (*drain)(struct sync *sync, struct deft_update *out, struct deft_error *error);
    void (*stop_request)(struct sync *sync); /* async-signal-safe */
    void (*stats)(const struct sync *sync, struct deft_stats *out);
    /* As deft_notice. NULL: there is never anything to tell. */
    const char *(*notice)(const struct sync *sync);
    /* Of the parameters; equal on all ranks after a drain. 0 when there is nothing to compare. */
    uint64_t (*parameters_hash)(const struct sync *sync);
    void (*close)(struct sync *sync); /* takes NULL */
};

/* First member of every kind. */
struct sync {
    const struct sync_ops *ops;
};

/* libdeft. */
extern const struct sync_ops sync_deft;
/* Nothing: each rank trains alone on its share, which costs what a step costs when communication is
 * free. */
extern const struct sync_ops sync_none;

/* "deft" or "none"; NULL for anything else. */
const struct sync_ops *sync_find(const char *name);

#endif
