#include "train_loop.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"

struct buffers {
    uint32_t *order; /* of the epoch's samples */
    float *pixels;
    uint8_t *labels;
};

struct progress {
    uint32_t iteration;
    uint32_t epochs;
    double loss; /* mean of the epoch so far */
    double accuracy;
    int64_t training_ns;
    bool stop;
    bool drained; /* nothing is in flight and nothing has been trained since */
};

enum deft_status train_loop_iterations(const struct train_options *options, uint32_t n_images,
                                       uint32_t n_ranks, uint32_t *out, struct deft_error *error) {
    uint64_t n = data_iterations(n_images, options->batch, n_ranks);

    if (n == 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "%u ranks with --batch %u need %llu samples, but the data has %u", n_ranks,
                         options->batch, (unsigned long long)options->batch * n_ranks, n_images);
    }
    n *= options->n_epochs;
    if (options->limit_iterations != 0 && n > options->limit_iterations) {
        n = options->limit_iterations;
    }
    if (n > TRAIN_MAX_ITERATIONS) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "--epochs %u makes %llu iterations, but at most %u are allowed",
                         options->n_epochs, (unsigned long long)n, TRAIN_MAX_ITERATIONS);
    }
    *out = (uint32_t)n;
    return DEFT_OK;
}

/* By iterations, which stand for samples: a rule that updates less often decays no later. */
static double learning_rate(const struct train_loop *loop, uint32_t iteration) {
    const struct train_options *o = loop->options;
    if (o->schedule == TRAIN_CONSTANT) {
        return o->learning_rate;
    }
    return o->learning_rate * 0.5 * (1.0 + cos(M_PI * iteration / loop->n_iterations));
}

/* Does what an update asks for, until the boundary or the drain is complete. */
static enum deft_status follow(struct train_loop *loop, uint32_t iteration,
                               enum deft_status (*next)(struct sync *, struct deft_update *,
                                                        struct deft_error *),
                               struct deft_update *out, struct deft_error *error) {
    double rate = learning_rate(loop, iteration);
    struct deft_update update;

    do {
        enum deft_status status = next(loop->sync, &update, error);
        if (status != DEFT_OK) {
            return status;
        }
        if (update.action == DEFT_APPLY) {
            optimizer_step(loop->optimizer, rate, update.gradients);
        } else if (update.action == DEFT_PREVIEW) {
            optimizer_preview(loop->optimizer, rate, update.gradients);
        }
    } while (update.action != DEFT_DONE);
    *out = update;
    return DEFT_OK;
}

struct ready_context {
    struct sync *sync;
    struct deft_error *error;
};

static enum deft_status on_ready(void *context, uint32_t tensor, const float *gradient) {
    struct ready_context *ready = context;
    return ready->sync->ops->grad_ready(ready->sync, tensor, gradient, ready->error);
}

static enum deft_status iterate(struct train_loop *loop, const struct buffers *buffers,
                                uint32_t first, uint32_t iteration, double *out_loss,
                                struct deft_update *out_update, struct deft_error *error) {
    const struct sync_ops *sync = loop->sync->ops;
    uint32_t batch = loop->options->batch;
    struct ready_context ready = {.sync = loop->sync, .error = error};
    enum deft_status status;
    double loss;

    sync->forward_begin(loop->sync);
    data_batch(loop->training, buffers->order, first, batch, buffers->pixels, buffers->labels);
    mlp_forward(loop->mlp, buffers->pixels, batch);
    loss = mlp_loss(loop->mlp, buffers->labels, batch);
    sync->loss(loop->sync, loss);
    sync->learning_rate(loop->sync, learning_rate(loop, iteration));
    sync->backward_begin(loop->sync);
    status = mlp_backward(loop->mlp, buffers->pixels, batch, on_ready, &ready);
    if (status == DEFT_OK) {
        status = follow(loop, iteration, sync->step, out_update, error);
    }
    if (status == DEFT_OK) {
        *out_loss = loss;
    }
    return status;
}

/* Every rank evaluates everything: it costs each as long as it would cost one alone, and no rank
 * waits for another. */
static double evaluate(struct train_loop *loop, const struct buffers *buffers) {
    uint32_t n = loop->test->n_images;
    uint32_t correct = 0;
    int64_t gemm_ns = loop->mlp->gemm_ns; /* what is counted is training's share alone */
    double gemm_flops = loop->mlp->gemm_flops;

    for (uint32_t first = 0; first < n; first += loop->options->batch) {
        uint32_t batch = n - first < loop->options->batch ? n - first : loop->options->batch;
        data_batch(loop->test, NULL, first, batch, buffers->pixels, buffers->labels);
        mlp_forward(loop->mlp, buffers->pixels, batch);
        correct += mlp_correct(loop->mlp, buffers->labels, batch);
    }
    loop->mlp->gemm_ns = gemm_ns;
    loop->mlp->gemm_flops = gemm_flops;
    return (double)correct / n;
}

static enum deft_status drain(struct train_loop *loop, struct progress *progress,
                              struct deft_error *error) {
    int64_t begin_ns = clock_monotonic_ns();
    struct deft_update update;
    enum deft_status status;

    if (progress->drained) {
        return DEFT_OK;
    }
    status = follow(loop, progress->iteration, loop->sync->ops->drain, &update, error);
    progress->training_ns += clock_monotonic_ns() - begin_ns;
    progress->drained = status == DEFT_OK;
    return status;
}

static enum deft_status run_epoch(struct train_loop *loop, const struct buffers *buffers,
                                  uint32_t epoch, struct progress *progress,
                                  struct deft_error *error) {
    uint32_t batch = loop->options->batch;
    uint32_t n = data_iterations(loop->training->n_images, batch, loop->n_ranks);
    double loss_sum = 0.0;

    data_shuffle(loop->options->seed, epoch, loop->training->n_images, buffers->order);
    for (uint32_t i = 0; i < n && progress->iteration < loop->n_iterations && !progress->stop;
         i++) {
        uint32_t first = data_shard(i, loop->rank, batch, loop->n_ranks);
        int64_t begin_ns = clock_monotonic_ns();
        struct deft_update update;
        struct deft_stats stats;
        double loss = 0.0;
        int64_t step_ns;
        enum deft_status status =
            iterate(loop, buffers, first, progress->iteration, &loss, &update, error);

        if (status != DEFT_OK) {
            return status;
        }
        step_ns = clock_monotonic_ns() - begin_ns;
        progress->training_ns += step_ns;
        progress->iteration++;
        progress->drained = false;
        progress->stop = update.stop_agreed != 0;
        loss_sum += loss;
        progress->loss = loss_sum / (i + 1);
        loop->sync->ops->stats(loop->sync, &stats);
        train_report_iteration(loop->report, begin_ns, step_ns, &stats);
        train_report_progress(loop->report, epoch, progress->loss);
        if (isnan(loss)) {
            /* The others leave in order; from here on no sample can teach this rank anything. */
            loop->sync->ops->stop_request(loop->sync);
        }
        if (update.drain_agreed != 0) {
            status = drain(loop, progress, error);
            if (status != DEFT_OK) {
                return status;
            }
        }
    }
    progress->epochs = epoch + 1;
    return DEFT_OK;
}

static enum deft_status run_epochs(struct train_loop *loop, const struct buffers *buffers,
                                   struct progress *progress, struct deft_error *error) {
    uint32_t every = loop->options->eval_every;
    enum deft_status status = DEFT_OK;

    for (uint32_t epoch = 0; epoch < loop->options->n_epochs && !progress->stop &&
                             progress->iteration < loop->n_iterations;
         epoch++) {
        progress->accuracy = NAN;
        status = run_epoch(loop, buffers, epoch, progress, error);
        if (status == DEFT_OK && every != 0 && (epoch + 1) % every == 0 && !progress->stop) {
            status = drain(loop, progress, error);
            if (status == DEFT_OK) {
                progress->accuracy = evaluate(loop, buffers);
            }
        }
        if (status != DEFT_OK) {
            return status;
        }
        train_report_epoch(loop->report, epoch, progress->loss, progress->accuracy);
    }
    status = drain(loop, progress, error);
    if (status == DEFT_OK && isnan(progress->accuracy)) {
        progress->accuracy = evaluate(loop, buffers);
    }
    return status;
}

static void conclude(struct train_loop *loop, const struct progress *progress,
                     struct train_outcome *out) {
    int64_t gemm_ns = loop->mlp->gemm_ns;
    struct deft_stats stats;
    double busy_ns;

    loop->sync->ops->stats(loop->sync, &stats);
    busy_ns = (double)(progress->training_ns - stats.exposed_ns);
    *out = (struct train_outcome){
        .sync = loop->sync->ops->name,
        .epochs = progress->epochs,
        .loss = progress->loss,
        .accuracy = progress->accuracy,
        .training_s = (double)progress->training_ns / 1e9,
        .gemm_frac = busy_ns > 0.0 ? (double)gemm_ns / busy_ns : 0.0,
        .gemm_gflops_per_s = gemm_ns > 0 ? loop->mlp->gemm_flops / (double)gemm_ns : 0.0,
        .parameters_hash = loop->sync->ops->parameters_hash(loop->sync),
        .stopped = progress->iteration < loop->n_iterations,
        .stats = stats,
    };
}

enum deft_status train_loop_run(struct train_loop *loop, struct train_outcome *out,
                                struct deft_error *error) {
    uint32_t batch = loop->options->batch;
    struct buffers buffers = {
        .order = calloc(loop->training->n_images, sizeof(*buffers.order)),
        .pixels = calloc((size_t)batch * DATA_N_PIXELS, sizeof(*buffers.pixels)),
        .labels = calloc(batch, sizeof(*buffers.labels)),
    };
    struct progress progress = {.accuracy = NAN, .drained = true};
    enum deft_status status;

    if (buffers.order == NULL || buffers.pixels == NULL || buffers.labels == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a batch of %u samples", batch);
        goto done;
    }
    status = run_epochs(loop, &buffers, &progress, error);
    if (status == DEFT_OK) {
        conclude(loop, &progress, out);
        if (isnan(progress.loss)) {
            status = deft_fail(error, DEFT_INVALID, 0,
                               "the loss stopped being a number in epoch %u, before iteration %u; "
                               "a smaller --lr may help",
                               progress.epochs, progress.iteration);
        }
    }

done:
    free(buffers.order);
    free(buffers.pixels);
    free(buffers.labels);
    return status;
}
