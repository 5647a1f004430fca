#include <stdlib.h>

#include "sync.h"
#include "train_device.h"

struct through_deft {
    struct sync base;
    struct deft_runtime *rt;
    struct train_device *device; /* NULL: tensors are in host memory */
};

static struct through_deft *through(struct sync *sync) {
    return (struct through_deft *)sync;
}

static struct deft_runtime *runtime(const struct sync *sync) {
    return ((const struct through_deft *)sync)->rt;
}

static void close_deft(struct sync *sync) {
    if (sync != NULL) {
        deft_close(runtime(sync));
        train_device_close(through(sync)->device);
        free(sync);
    }
}

/* What libdeft is told of memory that the optimizer moves. */
static void *place_of(const struct through_deft *sync, float *host) {
    return sync->device != NULL ? train_device_twin(sync->device, host) : host;
}

static enum deft_status add_tensors(const struct through_deft *sync, const struct sync_model *model,
                                    struct deft_error *error) {
    const struct mlp *mlp = model->mlp;
    for (uint32_t t = 0; t < mlp->n_tensors; t++) {
        struct deft_tensor tensor = {
            .name = mlp->tensors[t].name,
            .elements = mlp->tensors[t].elements,
            .dtype = DEFT_F32,
            .parameters = model->gradients_only ? NULL : place_of(sync, mlp->tensors[t].parameters),
        };
        uint32_t id = 0; /* counts from 0 in the order of adding: the same as t */
        enum deft_status status = deft_tensor_add(sync->rt, &tensor, &id, error);
        if (status != DEFT_OK) {
            return status;
        }
    }
    return DEFT_OK;
}

/* Momentum, or Adam's two moments: what averaging must keep alike on all ranks. Whole arenas, since
 * the padding between tensors is zero everywhere and stays so. */
static enum deft_status add_states(const struct through_deft *sync, const struct sync_model *model,
                                   struct deft_error *error) {
    float *const states[] = {model->optimizer->first, model->optimizer->second};
    for (size_t i = 0; i < sizeof(states) / sizeof(states[0]) && !model->gradients_only; i++) {
        if (states[i] != NULL) {
            enum deft_status status = deft_state_add(sync->rt, place_of(sync, states[i]),
                                                     model->mlp->n_parameters, DEFT_F32, error);
            if (status != DEFT_OK) {
                return status;
            }
        }
    }
    return DEFT_OK;
}

/* Registered parameters become rank 0's, wherever they are. */
static enum deft_status commit(struct through_deft *sync, struct deft_error *error) {
    struct deft_update nothing = {.action = DEFT_DONE};
    enum deft_status status = DEFT_OK;

    if (sync->device != NULL) {
        status = train_device_push(sync->device, error);
    }
    if (status == DEFT_OK) {
        status = deft_commit(sync->rt, error);
    }
    if (status == DEFT_OK && sync->device != NULL) {
        status = train_device_fetch(sync->device, &nothing, error);
    }
    return status;
}

static enum deft_status open_deft(const struct deft_options *options,
                                  const struct sync_model *model, struct sync **out,
                                  struct deft_error *error) {
    struct through_deft *sync = calloc(1, sizeof(*sync));
    enum deft_status status;

    if (sync == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the runtime's handle");
    }
    sync->base.ops = &sync_deft;
    status = deft_open(options, &sync->rt, error);
    if (status == DEFT_OK && train_device_is_cuda(options->device)) {
        status = train_device_open(options->device, model, &sync->device, error);
        if (status == DEFT_OK) {
            deft_stream(sync->rt, train_device_stream(sync->device));
        }
    }
    if (status == DEFT_OK) {
        status = add_tensors(sync, model, error);
    }
    if (status == DEFT_OK) {
        status = add_states(sync, model, error);
    }
    if (status == DEFT_OK) {
        status = commit(sync, error);
    }
    if (status != DEFT_OK) {
        close_deft(&sync->base);
        return status;
    }
    *out = &sync->base;
    return DEFT_OK;
}

static void forward_begin_deft(struct sync *sync) {
    deft_forward_begin(runtime(sync));
}

static void loss_deft(struct sync *sync, double loss) {
    deft_loss(runtime(sync), loss);
}

static void learning_rate_deft(struct sync *sync, double rate) {
    deft_learning_rate(runtime(sync), rate);
}

static void backward_begin_deft(struct sync *sync) {
    deft_backward_begin(runtime(sync));
}

static enum deft_status grad_ready_deft(struct sync *sync, uint32_t tensor, const float *gradient,
                                        struct deft_error *error) {
    struct train_device *device = through(sync)->device;
    const void *given = gradient;
    struct deft_update ignored;
    enum deft_status status;

    if (device != NULL) {
        void *copy = NULL;
        status = train_device_gradient(device, tensor, gradient, &copy, error);
        if (status != DEFT_OK) {
            return status;
        }
        given = copy;
    }
    status = deft_grad_ready(runtime(sync), tensor, given);
    /* A runtime that has failed says why in every later call that takes an error. */
    if (status != DEFT_OK && deft_step(runtime(sync), &ignored, error) == DEFT_OK) {
        (void)deft_fail(error, status, 0, "the gradient of tensor %u was refused: %s", tensor,
                        deft_status_text(status));
    }
    return status;
}

/* On a device the optimizer, which is on the host, takes its turn between two copies. */
static enum deft_status turn(struct through_deft *sync,
                             enum deft_status (*next)(struct deft_runtime *, struct deft_update *,
                                                      struct deft_error *),
                             struct deft_update *out, struct deft_error *error) {
    enum deft_status status = DEFT_OK;

    if (sync->device != NULL) {
        status = train_device_push(sync->device, error);
    }
    if (status == DEFT_OK) {
        status = next(sync->rt, out, error);
    }
    if (status == DEFT_OK && sync->device != NULL) {
        status = train_device_fetch(sync->device, out, error);
    }
    return status;
}

static enum deft_status step_deft(struct sync *sync, struct deft_update *out,
                                  struct deft_error *error) {
    return turn(through(sync), deft_step, out, error);
}

static enum deft_status drain_deft(struct sync *sync, struct deft_update *out,
                                   struct deft_error *error) {
    return turn(through(sync), deft_drain, out, error);
}

static void stop_request_deft(struct sync *sync) {
    deft_stop_request(runtime(sync));
}

static void stats_deft(const struct sync *sync, struct deft_stats *out) {
    deft_stats(runtime(sync), out);
}

static const char *notice_deft(const struct sync *sync) {
    return deft_notice(runtime(sync));
}

static uint64_t parameters_hash_deft(const struct sync *sync) {
    return deft_anchor_hash(runtime(sync));
}

const struct sync_ops sync_deft = {
    .name = "deft",
    .open = open_deft,
    .forward_begin = forward_begin_deft,
    .loss = loss_deft,
    .learning_rate = learning_rate_deft,
    .backward_begin = backward_begin_deft,
    .grad_ready = grad_ready_deft,
    .step = step_deft,
    .drain = drain_deft,
    .stop_request = stop_request_deft,
    .stats = stats_deft,
    .notice = notice_deft,
    .parameters_hash = parameters_hash_deft,
    .close = close_deft,
};
