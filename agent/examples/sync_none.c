#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "sync.h"

struct none {
    struct sync base;
    void **gradients; /* [n_tensors] this rank's own */
    bool applied;     /* the boundary's gradients have been handed out */
    atomic_int stop_wanted;
    uint64_t iterations;
};

static void close_none(struct sync *sync) {
    struct none *none = (struct none *)sync;
    if (none != NULL) {
        free(none->gradients);
        free(none);
    }
}

static enum deft_status open_none(const struct deft_options *options,
                                  const struct sync_model *model, struct sync **out,
                                  struct deft_error *error) {
    const struct mlp *mlp = model->mlp;
    struct none *none = calloc(1, sizeof(*none));
    (void)options;
    if (none != NULL) {
        none->base.ops = &sync_none;
        none->gradients = calloc(mlp->n_tensors, sizeof(*none->gradients));
    }
    if (none == NULL || none->gradients == NULL) {
        close_none(&none->base);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a table of %u tensors",
                         mlp->n_tensors);
    }
    for (uint32_t t = 0; t < mlp->n_tensors; t++) {
        none->gradients[t] = mlp->tensors[t].gradients;
    }
    *out = &none->base;
    return DEFT_OK;
}

static void mark_none(struct sync *sync) {
    (void)sync;
}

static void figure_none(struct sync *sync, double figure) {
    (void)sync;
    (void)figure;
}

static enum deft_status grad_ready_none(struct sync *sync, uint32_t tensor, const float *gradient,
                                        struct deft_error *error) {
    (void)sync;
    (void)tensor;
    (void)gradient;
    (void)error;
    return DEFT_OK;
}

static enum deft_status step_none(struct sync *sync, struct deft_update *out,
                                  struct deft_error *error) {
    struct none *none = (struct none *)sync;
    (void)error;
    none->applied = !none->applied;
    *out = (struct deft_update){
        .action = none->applied ? DEFT_APPLY : DEFT_DONE,
        .gradients = none->gradients,
        .merge = 1,
        .stop_agreed = (uint32_t)(atomic_load(&none->stop_wanted) != 0),
        .iteration = none->iterations,
    };
    none->iterations += none->applied ? 0 : 1;
    return DEFT_OK;
}

static enum deft_status drain_none(struct sync *sync, struct deft_update *out,
                                   struct deft_error *error) {
    (void)sync;
    (void)error;
    *out = (struct deft_update){.action = DEFT_DONE};
    return DEFT_OK;
}

static void stop_request_none(struct sync *sync) {
    atomic_store(&((struct none *)sync)->stop_wanted, 1);
}

static void stats_none(const struct sync *sync, struct deft_stats *out) {
    const struct none *none = (const struct none *)sync;
    *out = (struct deft_stats){.iterations = none->iterations, .rule = "none"};
}

static uint64_t parameters_hash_none(const struct sync *sync) {
    (void)sync;
    return 0;
}

const struct sync_ops sync_none = {
    .name = "none",
    .open = open_none,
    .forward_begin = mark_none,
    .loss = figure_none,
    .learning_rate = figure_none,
    .backward_begin = mark_none,
    .grad_ready = grad_ready_none,
    .step = step_none,
    .drain = drain_none,
    .stop_request = stop_request_none,
    .stats = stats_none,
    .parameters_hash = parameters_hash_none,
    .close = close_none,
};
