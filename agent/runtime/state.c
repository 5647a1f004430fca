/* What no gradient moves: optimizer state that deft_state_add registered, averaged over the ranks
 * when averaged drains; and buffers of the caller's, on demand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/kernels.h"
#include "runtime/runtime.h"

/* A buffer goes in pieces that no link needs more memory for than it was measured with. */
#define STATE_PIECE_BYTES (UINT64_C(4) << 20)

struct state_buffer {
    void *data;
    uint64_t elements;
    enum dsched_dtype dtype;
    void *mark;          /* of the device: behind it the pieces may be read */
    struct link_op *ops; /* [n_ops], one per piece */
    uint64_t n_ops;
};

static enum deft_status state_make(struct device *device, struct state_buffer *buffer,
                                   struct deft_error *error) {
    uint64_t width = dsched_dtype_bytes(buffer->dtype);
    uint64_t most = STATE_PIECE_BYTES / width;
    buffer->n_ops = (buffer->elements + most - 1) / most;
    buffer->ops = calloc(buffer->n_ops, sizeof(*buffer->ops));
    buffer->mark = device->ops->mark_create(device);
    if (buffer->ops == NULL || (device->ops->is_async && buffer->mark == NULL)) {
        free(buffer->ops);
        device->ops->mark_destroy(device, buffer->mark);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory or event for optimizer state");
    }
    for (uint64_t i = 0; i < buffer->n_ops; i++) {
        uint64_t left = buffer->elements - i * most;
        buffer->ops[i] = (struct link_op){.data = (uint8_t *)buffer->data + i * most * width,
                                          .elements = left < most ? left : most,
                                          .dtype = (enum link_dtype)buffer->dtype,
                                          .reduce = LINK_SUM,
                                          .ready = buffer->mark};
    }
    return DEFT_OK;
}

enum deft_status deft_state_add(struct deft_runtime *rt, void *state, uint64_t elements,
                                enum deft_dtype dtype, struct deft_error *error) {
    if (state == NULL || elements == 0 || elements > DSCHED_MAX_ELEMENTS ||
        dsched_dtype_bytes((enum dsched_dtype)dtype) == 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "optimizer state %u: expected memory, 1..2^40 elements and a known type",
                         rt->n_states);
    }
    if (rt->phase != PHASE_COMPUTE || rt->n_given > 0) {
        return deft_fail(error, DEFT_STATE, 0,
                         "optimizer state was added inside an iteration, expected between two");
    }
    struct state_buffer *grown =
        realloc(rt->states, (size_t)(rt->n_states + 1) * sizeof(*rt->states));
    if (grown == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for optimizer state");
    }
    rt->states = grown;
    struct state_buffer *buffer = &rt->states[rt->n_states];
    *buffer = (struct state_buffer){
        .data = state, .elements = elements, .dtype = (enum dsched_dtype)dtype};
    enum deft_status status = state_make(rt->device, buffer, error);
    rt->n_states += status == DEFT_OK;
    return status;
}

void state_done(struct deft_runtime *rt) {
    for (uint32_t i = 0; i < rt->n_states; i++) {
        rt->device->ops->mark_destroy(rt->device, rt->states[i].mark);
        free(rt->states[i].ops);
    }
    free(rt->states);
    rt->states = NULL;
    rt->n_states = 0;
}

static enum deft_status state_reduce(struct deft_runtime *rt, struct state_buffer *buffers,
                                     uint32_t n_buffers, struct deft_error *error) {
    const struct runtime_link *link = &rt->links[0];
    const struct device_ops *device = rt->device->ops;
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < n_buffers && status == DEFT_OK; i++) {
        struct state_buffer *buffer = &buffers[i];
        device->scale(rt->device, (enum deft_dtype)buffer->dtype, buffer->data, buffer->elements,
                      1.0 / (double)rt->options.n_ranks);
        device->mark(rt->device, buffer->mark);
        for (uint64_t p = 0; p < buffer->n_ops && status == DEFT_OK; p++) {
            status = link->ops->post(link->link, &buffer->ops[p]);
        }
    }
    for (uint32_t i = 0; i < n_buffers && status == DEFT_OK; i++) {
        struct state_buffer *buffer = &buffers[i];
        for (uint64_t p = 0; p < buffer->n_ops && status == DEFT_OK; p++) {
            status = link->ops->wait(link->link, &buffer->ops[p], INT64_MAX);
        }
        if (status == DEFT_OK) {
            device->purge(rt->device, (enum deft_dtype)buffer->dtype, buffer->data,
                          buffer->elements);
        }
    }
    return status == DEFT_OK ? DEFT_OK : failure_from_link(rt, link, status, error);
}

/* A rank whose first step was skipped has its state later than the others; buffers are paired by
 * their order, so then none is averaged. */
enum deft_status state_average(struct deft_runtime *rt, struct deft_error *error) {
    int is_alike = 1;
    enum deft_status status = vote_call(rt, CONTROL_STATES, rt->n_states, &is_alike, error);
    return status == DEFT_OK && is_alike ? state_reduce(rt, rt->states, rt->n_states, error)
                                         : status;
}

/* A collective call on demand is possible now. */
static enum deft_status state_check(const struct deft_runtime *rt, const char *call,
                                    struct deft_error *error) {
    if (failure_check(rt, error) != DEFT_OK) {
        return rt->failure.status;
    }
    if (rt->life != RUNTIME_COMMITTED || rt->phase != PHASE_COMPUTE || rt->n_given > 0) {
        return deft_fail(
            error, DEFT_STATE, 0, "%s was called %s, expected between two iterations", call,
            rt->life != RUNTIME_COMMITTED ? "before deft_commit" : "inside an iteration");
    }
    return DEFT_OK;
}

/* Sums `rt->scratch_data`, [elements], over the ranks. On failure the data stays where a link may
 * still write to it. */
static enum deft_status state_sum(struct deft_runtime *rt, uint64_t elements, enum link_dtype dtype,
                                  struct deft_error *error) {
    const struct runtime_link *link = rt->device->ops->is_async ? &rt->control_link : &rt->links[0];
    struct link_op *op = &rt->scratch[0];
    enum deft_status status;
    *op = (struct link_op){
        .data = rt->scratch_data, .elements = elements, .dtype = dtype, .reduce = LINK_SUM};
    status = link->ops->post(link->link, op);
    if (status == DEFT_OK) {
        status = link->ops->wait(link->link, op, INT64_MAX);
    }
    return status == DEFT_OK ? DEFT_OK : failure_from_link(rt, link, status, error);
}

static enum deft_status state_scratch(struct deft_runtime *rt, size_t n_bytes,
                                      struct deft_error *error) {
    rt->scratch_data = calloc(1, n_bytes);
    return rt->scratch_data != NULL
               ? DEFT_OK
               : deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to share %zu bytes", n_bytes);
}

static void state_scratch_done(struct deft_runtime *rt) {
    free(rt->scratch_data);
    rt->scratch_data = NULL;
}

enum deft_status deft_average(struct deft_runtime *rt, void *data, uint64_t elements,
                              enum deft_dtype dtype, struct deft_error *error) {
    enum dsched_dtype type = (enum dsched_dtype)dtype;
    enum deft_status status = state_check(rt, "deft_average", error);
    if (status != DEFT_OK) {
        return status;
    }
    if (data == NULL || elements == 0 || elements > DSCHED_MAX_ELEMENTS ||
        dsched_dtype_bytes(type) == 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "deft_average expects memory, 1..2^40 elements and a known type");
    }
    if (rt->options.n_ranks == 1) {
        return DEFT_OK;
    }
    size_t n_bytes = (size_t)elements * dsched_dtype_bytes(type);
    status = vote_call(rt, CONTROL_AVERAGE, (int64_t)(elements << 8 | dtype), NULL, error);
    if (status == DEFT_OK) {
        status = state_scratch(rt, n_bytes, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    (void)kernels_copy(type, rt->scratch_data, data, elements, 1.0 / (double)rt->options.n_ranks);
    status = state_sum(rt, elements, (enum link_dtype)type, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (isfinite(kernels_norm(type, rt->scratch_data, elements))) {
        memcpy(data, rt->scratch_data, n_bytes);
    } else {
        memset(data, 0, n_bytes);
    }
    state_scratch_done(rt);
    return DEFT_OK;
}

/* Links sum floating-point numbers: two bytes at a time as one of them, and zeros from all ranks
 * but `root`, so that every bit pattern comes through, at twice its bytes. */
enum deft_status deft_broadcast(struct deft_runtime *rt, int32_t root, void *data, size_t n_bytes,
                                struct deft_error *error) {
    enum deft_status status = state_check(rt, "deft_broadcast", error);
    size_t n_pairs = n_bytes / 2 + n_bytes % 2;
    uint8_t *bytes = data;
    float *pairs;
    if (status == DEFT_OK && (root < 0 || root >= rt->options.n_ranks)) {
        return deft_fail(error, DEFT_INVALID, 0, "the root is rank %d, expected 0..%d", root,
                         rt->options.n_ranks - 1);
    }
    if (status != DEFT_OK || n_bytes == 0 || rt->options.n_ranks == 1) {
        return status;
    }
    status = vote_call(rt, CONTROL_BROADCAST, (int64_t)n_bytes, NULL, error);
    if (status == DEFT_OK) {
        status = state_scratch(rt, n_pairs * sizeof(*pairs), error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    pairs = rt->scratch_data;
    for (size_t i = 0; rt->options.rank == root && i < n_bytes; i++) {
        pairs[i / 2] += (float)bytes[i] * (i % 2 == 0 ? 1.0f : 256.0f);
    }
    status = state_sum(rt, n_pairs, LINK_F32, error);
    if (status != DEFT_OK) {
        return status;
    }
    for (size_t i = 0; rt->options.rank != root && i < n_bytes; i++) {
        uint32_t pair = (uint32_t)pairs[i / 2];
        bytes[i] = (uint8_t)(i % 2 == 0 ? pair : pair >> 8);
    }
    state_scratch_done(rt);
    return DEFT_OK;
}
