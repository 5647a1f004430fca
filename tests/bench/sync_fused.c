/* --sync fused: what one would write without libdeft. After backward one all-reduce of all
 * gradients where they lie, through the same transport; then the mean. Nothing is copied, nothing
 * overlaps, no rank is watched. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "link/link.h"
#include "runtime/star.h"
#include "sync.h"

static const struct sync_ops sync_fused;

struct fused {
    struct sync base;
    const struct mlp *mlp;
    int32_t n_ranks;
    struct star *star;
    struct link *link;
    struct link_op op;
    void **gradients; /* [n_tensors] */
    bool applied;     /* the boundary's gradients have been handed out */
    struct deft_stats stats;
};

static void close_fused(struct sync *sync) {
    struct fused *fused = (struct fused *)sync;
    if (fused != NULL) {
        if (fused->link != NULL) {
            fused->link->ops->close(fused->link);
        }
        star_close(fused->star, NULL);
        free(fused->gradients);
        free(fused);
    }
}

static enum deft_status open_link(struct fused *fused, const struct deft_options *options,
                                  struct deft_error *error) {
    static const char prefix[] = "gloo:";
    const char *links = options->links != NULL ? options->links : "";
    const struct link_ops *ops = link_backend("gloo");
    struct link_world world = {
        .rank = options->rank,
        .n_ranks = options->n_ranks,
        .allgather = star_allgather,
        .allgather_context = fused->star,
        .connect_timeout_ns = options->connect_timeout_ns,
        .op_timeout_ns = options->op_timeout_ns,
    };

    if (ops == NULL || strncmp(links, prefix, strlen(prefix)) != 0 || strchr(links, ',') != NULL) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "DEFT_LINKS is '%s', but the benchmark expects one gloo:INTERFACE", links);
    }
    return ops->open(links + strlen(prefix), &world, &fused->link, error);
}

static enum deft_status open_fused(const struct deft_options *options,
                                   const struct sync_model *model, struct sync **out,
                                   struct deft_error *error) {
    const struct mlp *mlp = model->mlp;
    struct fused *fused = calloc(1, sizeof(*fused));
    enum deft_status status;

    if (fused != NULL) {
        fused->gradients = calloc(mlp->n_tensors, sizeof(*fused->gradients));
    }
    if (fused == NULL || fused->gradients == NULL) {
        close_fused(&fused->base);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a table of %u tensors",
                         mlp->n_tensors);
    }
    fused->base.ops = &sync_fused;
    fused->mlp = mlp;
    fused->n_ranks = options->n_ranks;
    fused->op.data = mlp->gradients;
    fused->op.elements = mlp->n_parameters;
    for (uint32_t t = 0; t < mlp->n_tensors; t++) {
        fused->gradients[t] = mlp->tensors[t].gradients;
    }
    (void)strncpy(fused->stats.rule, "fused", sizeof(fused->stats.rule) - 1);
    status =
        star_open(options->master_host, options->master_port, options->master_fd, options->rank,
                  options->n_ranks, options->connect_timeout_ns, &fused->star, error);
    if (status == DEFT_OK) {
        status = open_link(fused, options, error);
    }
    if (status != DEFT_OK) {
        close_fused(&fused->base);
        return status;
    }
    *out = &fused->base;
    return DEFT_OK;
}

static void mark_fused(struct sync *sync) {
    (void)sync;
}

static void figure_fused(struct sync *sync, double figure) {
    (void)sync;
    (void)figure;
}

static enum deft_status grad_ready_fused(struct sync *sync, uint32_t tensor, const float *gradient,
                                         struct deft_error *error) {
    (void)sync;
    (void)tensor;
    (void)gradient;
    (void)error;
    return DEFT_OK;
}

static enum deft_status average(struct fused *fused, struct deft_error *error) {
    int64_t begin_ns = clock_monotonic_ns();
    float scale = 1.0f / (float)fused->n_ranks;
    float *gradients = fused->mlp->gradients;
    enum deft_status status = fused->link->ops->post(fused->link, &fused->op);

    if (status == DEFT_OK) {
        status = fused->link->ops->wait(fused->link, &fused->op, INT64_MAX);
    }
    if (status != DEFT_OK) {
        fused->link->ops->failure(fused->link, error);
        return status;
    }
    for (uint64_t i = 0; i < fused->mlp->n_parameters; i++) {
        gradients[i] *= scale;
    }
    fused->stats.exposed_ns += clock_monotonic_ns() - begin_ns;
    fused->stats.updates++;
    return DEFT_OK;
}

static enum deft_status step_fused(struct sync *sync, struct deft_update *out,
                                   struct deft_error *error) {
    struct fused *fused = (struct fused *)sync;
    enum deft_status status = fused->applied ? DEFT_OK : average(fused, error);

    if (status == DEFT_OK) {
        fused->applied = !fused->applied;
        fused->stats.iterations += fused->applied ? 0 : 1;
        *out = (struct deft_update){
            .action = fused->applied ? DEFT_APPLY : DEFT_DONE,
            .gradients = fused->gradients,
            .merge = 1,
            .landed = 1,
            .iteration = fused->stats.iterations,
        };
    }
    return status;
}

static enum deft_status drain_fused(struct sync *sync, struct deft_update *out,
                                    struct deft_error *error) {
    (void)sync;
    (void)error;
    *out = (struct deft_update){.action = DEFT_DONE};
    return DEFT_OK;
}

/* A benchmark has nothing to save: a second signal ends it. */
static void stop_request_fused(struct sync *sync) {
    (void)sync;
}

static void stats_fused(const struct sync *sync, struct deft_stats *out) {
    *out = ((const struct fused *)sync)->stats;
}

static uint64_t parameters_hash_fused(const struct sync *sync) {
    (void)sync;
    return 0;
}

static const struct sync_ops sync_fused = {
    .name = "fused",
    .open = open_fused,
    .forward_begin = mark_fused,
    .loss = figure_fused,
    .learning_rate = figure_fused,
    .backward_begin = mark_fused,
    .grad_ready = grad_ready_fused,
    .step = step_fused,
    .drain = drain_fused,
    .stop_request = stop_request_fused,
    .stats = stats_fused,
    .parameters_hash = parameters_hash_fused,
    .close = close_fused,
};

/* In place of the trainer's own table. */
const struct sync_ops *sync_find(const char *name) {
    static const struct sync_ops *const all[] = {&sync_deft, &sync_none, &sync_fused};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        if (strcmp(all[i]->name, name) == 0) {
            return all[i];
        }
    }
    return NULL;
}
