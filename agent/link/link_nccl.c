/* Backend `nccl`: all-reduces on a stream of their own, ordered by events against the caller's, so
 * that no thread waits for the device. Ops are issued by the thread that posts them, in the order
 * of posting, which is the same on all ranks.
 *
 * Communicators do not block: a call that is still in progress is asked until it is not, and can be
 * given up. One thread looks at what is under way, tells the ends and times of ops, and aborts the
 * communicator when NCCL reports an error, an op takes too long or `abort` was called. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"
#include "link/cuda_device.h"
#include "link/link.h"
#include "link/nccl_comm.h"

/* Ops under way; whoever posts more waits until the device has caught up. */
#define NCCL_N_SLOTS 1024u
/* How often the watching thread looks while something is under way. */
#define NCCL_LOOK_NS INT64_C(500000)
/* For goodbyes, which need no peer that is slow but one that is there. */
#define NCCL_PATIENCE_NS INT64_C(5000000000)
/* For whoever is inside NCCL when the link has failed: it leaves at once, unless the device, whose
 * queues are full, holds it. */
#define NCCL_LEAVE_NS INT64_C(1000000000)

struct nccl_slot {
    cudaEvent_t begin;
    cudaEvent_t end;
    struct link_op *op; /* NULL: posted again before its end was seen */
};

struct nccl_link {
    struct link base;
    const struct cuda_api *cuda;
    struct nccl_comm comm;
    int device;
    int64_t op_timeout_ns;
    char net[64];
    cudaStream_t stream;
    pthread_mutex_t calls; /* one thread at a time inside NCCL; taken before `lock` */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* something was issued or has ended */
    pthread_t watcher;
    int has_watcher;
    int stopping;
    struct nccl_slot slots[NCCL_N_SLOTS];
    uint64_t n_issued;
    uint64_t n_ended;
    int64_t busy_until_ns;
    struct deft_error failure; /* under `lock` */
    int has_failed;            /* atomic: `failure` is set */
};

static struct nccl_link *nccl_of(struct link *link) {
    return (struct nccl_link *)link;
}

static int nccl_gave_up(const struct nccl_link *link) {
    return __atomic_load_n(&link->has_failed, __ATOMIC_ACQUIRE);
}

/* --- failure ---------------------------------------------------------------------------------- */

static void nccl_finish(struct link_op *op, enum deft_status status) {
    op->status = status;
    __atomic_store_n(&op->state, LINK_OP_DONE, __ATOMIC_RELEASE);
}

/* With `lock` held. The device may still work on what was issued: the watching thread aborts it. */
static void nccl_give_up(struct nccl_link *link, const struct deft_error *reason) {
    if (link->failure.status != DEFT_OK) {
        return;
    }
    link->failure = *reason;
    __atomic_store_n(&link->has_failed, 1, __ATOMIC_RELEASE);
    for (uint64_t i = link->n_ended; i < link->n_issued; i++) {
        struct nccl_slot *slot = &link->slots[i % NCCL_N_SLOTS];
        if (slot->op != NULL) {
            nccl_finish(slot->op, reason->status);
            slot->op = NULL;
        }
    }
    (void)pthread_cond_broadcast(&link->changed);
}

static void nccl_abort(struct link *link, const struct deft_error *reason) {
    struct nccl_link *self = nccl_of(link);
    (void)pthread_mutex_lock(&self->lock);
    nccl_give_up(self, reason);
    (void)pthread_mutex_unlock(&self->lock);
}

static void nccl_failure(struct link *link, struct deft_error *out_error) {
    struct nccl_link *self = nccl_of(link);
    (void)pthread_mutex_lock(&self->lock);
    *out_error = self->failure;
    (void)pthread_mutex_unlock(&self->lock);
}

/* --- the watching thread ---------------------------------------------------------------------- */

static int64_t nccl_elapsed_ns(const struct nccl_link *link, const struct nccl_slot *slot) {
    float ms = 0;
    cudaError_t code =
        cuda_api_forget(link->cuda, link->cuda->event_elapsed_time(&ms, slot->begin, slot->end));
    return code == cudaSuccess && ms > 0 ? (int64_t)((double)ms * 1e6) : 0;
}

/* The oldest op under way has ended: its end is now, its length by the device's clock. */
static void nccl_end_oldest(struct nccl_link *link, int64_t now_ns) {
    int64_t length_ns = nccl_elapsed_ns(link, &link->slots[link->n_ended % NCCL_N_SLOTS]);
    (void)pthread_mutex_lock(&link->lock);
    struct nccl_slot *slot = &link->slots[link->n_ended % NCCL_N_SLOTS];
    if (slot->op != NULL) {
        struct link_op *op = slot->op;
        int64_t start_ns = now_ns - length_ns;
        start_ns = start_ns > link->busy_until_ns ? start_ns : link->busy_until_ns;
        op->start_ns = start_ns > op->posted_ns ? start_ns : op->posted_ns;
        op->end_ns = now_ns;
        if (op->landed != NULL) {
            op->landed(op);
        }
        nccl_finish(op, DEFT_OK);
        slot->op = NULL;
    }
    link->busy_until_ns = now_ns;
    link->n_ended++;
    (void)pthread_cond_broadcast(&link->changed);
    (void)pthread_mutex_unlock(&link->lock);
}

/* What NCCL itself says of the communicator. */
static enum deft_status nccl_ask(struct nccl_link *link, struct deft_error *error) {
    ncclResult_t result = ncclSuccess;
    if (pthread_mutex_trylock(&link->calls) != 0) {
        return DEFT_OK; /* whoever is inside asks NCCL itself */
    }
    ncclResult_t asked = link->comm.api.comm_get_async_error(link->comm.handle, &result);
    (void)pthread_mutex_unlock(&link->calls);
    if (asked != ncclSuccess) {
        return nccl_comm_fail(&link->comm, "ncclCommGetAsyncError", asked, error);
    }
    return result == ncclSuccess || result == ncclInProgress
               ? DEFT_OK
               : nccl_comm_fail(&link->comm, "an all-reduce", result, error);
}

/* Why the oldest op, which has not ended, never will; DEFT_OK: it may. Whoever is inside NCCL may
 * not come out before this gives up: the time counts for itself. */
static enum deft_status nccl_judge(struct nccl_link *link, int64_t since_ns,
                                   struct deft_error *error) {
    enum deft_status status = nccl_ask(link, error);
    if (status == DEFT_OK && clock_monotonic_ns() - since_ns > link->op_timeout_ns) {
        status = deft_fail(error, DEFT_TIMEOUT, 0,
                           "NCCL: an all-reduce has not ended within %lld s of the one before it",
                           (long long)(link->op_timeout_ns / INT64_C(1000000000)));
    }
    return status;
}

static void nccl_pause(struct nccl_link *link) {
    int64_t until_ns = clock_monotonic_ns() + NCCL_LOOK_NS;
    (void)pthread_mutex_lock(&link->lock);
    if (!nccl_gave_up(link)) {
        (void)thread_condition_wait(&link->changed, &link->lock, until_ns);
    }
    (void)pthread_mutex_unlock(&link->lock);
}

/* Returns 0 when there is nothing more to watch. */
static int nccl_await_work(struct nccl_link *link, uint64_t *out_oldest) {
    (void)pthread_mutex_lock(&link->lock);
    while (link->n_ended == link->n_issued && !link->stopping && !nccl_gave_up(link)) {
        (void)pthread_cond_wait(&link->changed, &link->lock);
    }
    int goes_on = !nccl_gave_up(link) && link->n_ended < link->n_issued;
    *out_oldest = link->n_ended;
    (void)pthread_mutex_unlock(&link->lock);
    return goes_on;
}

/* Returns 0 when somebody stays inside: only the abort can free it. */
static int nccl_take_calls(struct nccl_link *link) {
    const struct timespec look = {.tv_nsec = NCCL_LOOK_NS};
    int64_t until_ns = clock_monotonic_ns() + NCCL_LEAVE_NS;
    int is_taken = pthread_mutex_trylock(&link->calls) == 0;
    while (!is_taken && clock_monotonic_ns() < until_ns) {
        (void)nanosleep(&look, NULL);
        is_taken = pthread_mutex_trylock(&link->calls) == 0;
    }
    return is_taken;
}

static void *nccl_watch(void *argument) {
    struct nccl_link *link = argument;
    struct deft_error error = {.status = DEFT_OK};
    uint64_t oldest = 0;
    uint64_t seen = UINT64_MAX;
    int64_t since_ns = 0;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeThreadLocal;
    /* For good: it is this link's own thread. Graphs that others capture are not its concern, and
     * its looks at events are not theirs. */
    (void)cuda_api_enter(link->cuda, link->device);
    (void)cuda_api_forget(link->cuda, link->cuda->thread_exchange_stream_capture_mode(&mode));
    while (nccl_await_work(link, &oldest)) {
        int64_t now_ns = clock_monotonic_ns();
        if (seen != oldest) {
            seen = oldest;
            since_ns = now_ns;
        }
        cudaError_t code = cuda_api_forget(
            link->cuda, link->cuda->event_query(link->slots[oldest % NCCL_N_SLOTS].end));
        if (code == cudaSuccess) {
            nccl_end_oldest(link, now_ns);
            continue;
        }
        if (code == cudaErrorCudartUnloading) {
            return NULL; /* the process ends, and the driver with all that is under way has */
        }
        enum deft_status status = code == cudaErrorNotReady
                                      ? nccl_judge(link, since_ns, &error)
                                      : cuda_api_fail(link->cuda, "an all-reduce", code, &error);
        if (status != DEFT_OK) {
            nccl_abort(&link->base, &error);
        } else {
            nccl_pause(link);
        }
    }
    if (nccl_gave_up(link)) { /* ends what the device is at, also when its peers are gone */
        int is_taken = nccl_take_calls(link);
        nccl_comm_abort(&link->comm);
        if (is_taken) {
            (void)pthread_mutex_unlock(&link->calls);
        }
    }
    return NULL;
}

/* --- ops -------------------------------------------------------------------------------------- */

static ncclDataType_t nccl_type(enum link_dtype dtype) {
    switch (dtype) {
    case LINK_F64:
        return ncclFloat64;
    case LINK_F16:
        return ncclFloat16;
    case LINK_BF16:
        return ncclBfloat16;
    case LINK_I64:
        return ncclInt64;
    case LINK_F32:
        break;
    }
    return ncclFloat32;
}

/* Queues the op behind its mark and between two events. */
static enum deft_status nccl_issue(struct nccl_link *link, const struct link_op *op,
                                   const struct nccl_slot *slot, struct deft_error *error) {
    const struct cuda_api *cuda = link->cuda;
    cudaError_t code = cudaSuccess;
    if (op->ready != NULL) {
        code = cuda->stream_wait_event(link->stream, op->ready, 0);
    }
    if (code != cudaSuccess) {
        return cuda_api_fail(cuda, "cudaStreamWaitEvent", code, error);
    }
    code = cuda->event_record(slot->begin, link->stream);
    if (nccl_gave_up(link)) { /* and the communicator may be gone */
        return DEFT_CANCELLED;
    }
    if (code == cudaSuccess) {
        ncclResult_t result = link->comm.api.all_reduce(
            op->data, op->data, (size_t)op->elements, nccl_type(op->dtype),
            op->reduce == LINK_MAX ? ncclMax : ncclSum, link->comm.handle, link->stream);
        enum deft_status status =
            nccl_comm_await(&link->comm, "ncclAllReduce", result,
                            clock_monotonic_ns() + link->op_timeout_ns, error);
        if (status != DEFT_OK) {
            return status;
        }
        code = cuda->event_record(slot->end, link->stream);
    }
    return code == cudaSuccess ? DEFT_OK : cuda_api_fail(cuda, "cudaEventRecord", code, error);
}

/* Takes both locks, when there is a slot that is free or the link has failed. Whoever waits for one
 * is not inside NCCL: the watching thread goes on asking it. */
static void nccl_enter(struct nccl_link *link) {
    for (;;) {
        (void)pthread_mutex_lock(&link->calls);
        (void)pthread_mutex_lock(&link->lock);
        if (link->n_issued - link->n_ended < NCCL_N_SLOTS || nccl_gave_up(link)) {
            return;
        }
        (void)pthread_mutex_unlock(&link->calls);
        (void)pthread_cond_wait(&link->changed, &link->lock);
        (void)pthread_mutex_unlock(&link->lock);
    }
}

/* With both locks held: the free slot, or NULL. An op that is posted again before its end was seen
 * leaves the slot it had: its times are lost. */
static struct nccl_slot *nccl_take_slot(struct nccl_link *link, const struct link_op *op) {
    int is_queued = __atomic_load_n(&op->state, __ATOMIC_RELAXED) == LINK_OP_QUEUED;
    for (uint64_t i = link->n_ended; is_queued && i < link->n_issued; i++) {
        struct nccl_slot *slot = &link->slots[i % NCCL_N_SLOTS];
        slot->op = slot->op == op ? NULL : slot->op;
    }
    return nccl_gave_up(link) ? NULL : &link->slots[link->n_issued % NCCL_N_SLOTS];
}

static enum deft_status nccl_post(struct link *link, struct link_op *op) {
    struct nccl_link *self = nccl_of(link);
    struct deft_error error = {.status = DEFT_OK};
    nccl_enter(self);
    struct nccl_slot *slot = nccl_take_slot(self, op);
    enum deft_status status = self->failure.status;
    if (status == DEFT_OK && self->stopping) {
        status = DEFT_STATE;
    }
    op->status = DEFT_OK;
    op->posted_ns = clock_monotonic_ns();
    op->start_ns = op->end_ns = op->posted_ns;
    op->ticket = slot;
    __atomic_store_n(&op->state, LINK_OP_QUEUED, __ATOMIC_RELAXED);
    (void)pthread_mutex_unlock(&self->lock);
    if (status == DEFT_OK) {
        int before = cuda_api_enter(self->cuda, self->device);
        status = nccl_issue(self, op, slot, &error);
        cuda_api_leave(self->cuda, self->device, before);
    }
    (void)pthread_mutex_lock(&self->lock);
    if (status == DEFT_OK && self->failure.status == DEFT_OK) {
        slot->op = op;
        self->n_issued++;
        (void)pthread_cond_broadcast(&self->changed);
    } else {
        if (error.status != DEFT_OK) {
            nccl_give_up(self, &error);
        }
        status = self->failure.status != DEFT_OK ? self->failure.status : status;
        nccl_finish(op, status);
    }
    (void)pthread_mutex_unlock(&self->lock);
    (void)pthread_mutex_unlock(&self->calls);
    return status;
}

static enum deft_status nccl_wait(struct link *link, struct link_op *op, int64_t deadline_ns) {
    struct nccl_link *self = nccl_of(link);
    enum deft_status status = DEFT_OK;
    (void)pthread_mutex_lock(&self->lock);
    while (!link_test(op) && self->failure.status == DEFT_OK && status == DEFT_OK) {
        if (thread_condition_wait(&self->changed, &self->lock, deadline_ns) == ETIMEDOUT) {
            status = DEFT_TIMEOUT;
        }
    }
    if (link_test(op)) {
        status = op->status;
    } else if (self->failure.status != DEFT_OK) {
        status = self->failure.status;
    }
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

static enum deft_status nccl_order(struct link *link, struct link_op *op, void *stream) {
    struct nccl_link *self = nccl_of(link);
    struct deft_error error = {.status = DEFT_OK};
    (void)pthread_mutex_lock(&self->lock);
    enum deft_status status = self->failure.status;
    int is_done = link_test(op);
    if (status == DEFT_OK && is_done) {
        status = op->status;
    }
    if (status == DEFT_OK && !is_done) { /* under the lock, so that its slot stays its own */
        const struct nccl_slot *slot = op->ticket;
        int before = cuda_api_enter(self->cuda, self->device);
        cudaError_t code = self->cuda->stream_wait_event(stream, slot->end, 0);
        cuda_api_leave(self->cuda, self->device, before);
        if (code != cudaSuccess) {
            status = cuda_api_fail(self->cuda, "cudaStreamWaitEvent", code, &error);
            nccl_give_up(self, &error);
        }
    }
    (void)pthread_mutex_unlock(&self->lock);
    return status;
}

/* --- open and close --------------------------------------------------------------------------- */

static enum deft_status nccl_check(const struct device *device, struct deft_error *error) {
    struct nccl_api api;
    if (cuda_device_api(device) == NULL) {
        return deft_fail(error, DEFT_UNSUPPORTED, 0,
                         "the tensors of this job are in host memory, NCCL reduces those on CUDA "
                         "devices");
    }
    return nccl_api_load(&api, error);
}

static void nccl_free(struct nccl_link *link) {
    int before = cuda_api_enter(link->cuda, link->device);
    for (uint32_t i = 0; i < NCCL_N_SLOTS; i++) {
        if (link->slots[i].begin != NULL) {
            (void)link->cuda->event_destroy(link->slots[i].begin);
        }
        if (link->slots[i].end != NULL) {
            (void)link->cuda->event_destroy(link->slots[i].end);
        }
    }
    if (link->stream != NULL) {
        (void)link->cuda->stream_destroy(link->stream);
    }
    cuda_api_leave(link->cuda, link->device, before);
    (void)pthread_cond_destroy(&link->changed);
    (void)pthread_mutex_destroy(&link->lock);
    (void)pthread_mutex_destroy(&link->calls);
    free(link);
}

static enum deft_status nccl_make_stream(struct nccl_link *link, struct deft_error *error) {
    const struct cuda_api *cuda = link->cuda;
    const char *call = "cudaStreamCreateWithPriority";
    int least = 0;
    int greatest = 0;
    cudaError_t code = cuda->device_get_stream_priority_range(&least, &greatest);
    if (code == cudaSuccess) {
        code = cuda->stream_create_with_priority(&link->stream, cudaStreamNonBlocking, greatest);
    }
    for (uint32_t i = 0; i < NCCL_N_SLOTS && code == cudaSuccess; i++) {
        call = "cudaEventCreateWithFlags";
        code = cuda->event_create_with_flags(&link->slots[i].begin, cudaEventDefault);
        if (code == cudaSuccess) {
            code = cuda->event_create_with_flags(&link->slots[i].end, cudaEventDefault);
        }
    }
    return code == cudaSuccess ? DEFT_OK : cuda_api_fail(cuda, call, code, error);
}

static enum deft_status nccl_start(struct nccl_link *link, const struct link_world *world,
                                   struct deft_error *error) {
    int before = cuda_api_enter(link->cuda, link->device);
    enum deft_status status = nccl_make_stream(link, error);
    if (status == DEFT_OK) {
        status = nccl_comm_connect(&link->comm, link->net, world, error);
    }
    if (status == DEFT_OK) {
        int code = thread_start(&link->watcher, nccl_watch, link);
        link->has_watcher = code == 0;
        if (code != 0) {
            nccl_comm_abort(&link->comm);
            status = deft_fail(error, DEFT_NO_MEMORY, code,
                               "the thread of a link could not be started: %s", strerror(code));
        }
    }
    cuda_api_leave(link->cuda, link->device, before);
    return status;
}

static enum deft_status nccl_open(const char *name, const struct link_world *world,
                                  struct link **out, struct deft_error *error) {
    struct nccl_api api;
    enum deft_status status = nccl_check(world->device, error);
    if (status == DEFT_OK) {
        status = nccl_api_load(&api, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    struct nccl_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a link");
    }
    link->comm.api = api;
    (void)thread_condition_init(&link->changed);
    (void)pthread_mutex_init(&link->lock, NULL);
    (void)pthread_mutex_init(&link->calls, NULL);
    link->base.ops = &link_nccl;
    link->comm.given_up = &link->has_failed;
    link->cuda = cuda_device_api(world->device);
    link->device = cuda_device_number(world->device);
    link->op_timeout_ns = world->op_timeout_ns;
    (void)snprintf(link->net, sizeof(link->net), "%s", name);
    status = nccl_start(link, world, error);
    if (status != DEFT_OK) {
        nccl_free(link);
        return status;
    }
    *out = &link->base;
    return DEFT_OK;
}

/* Waits a while for what is under way: peers that do not answer any more are given up. */
static void nccl_settle(struct nccl_link *link) {
    int64_t until_ns = clock_monotonic_ns() + NCCL_PATIENCE_NS;
    struct deft_error reason;
    (void)pthread_mutex_lock(&link->lock);
    link->stopping = 1;
    (void)pthread_cond_broadcast(&link->changed);
    while (link->n_ended < link->n_issued && !nccl_gave_up(link) &&
           thread_condition_wait(&link->changed, &link->lock, until_ns) != ETIMEDOUT) {
    }
    if (link->n_ended < link->n_issued) {
        (void)deft_fail(&reason, DEFT_CANCELLED, 0,
                        "the link was closed while an all-reduce waited for its peers");
        nccl_give_up(link, &reason);
    }
    (void)pthread_mutex_unlock(&link->lock);
    (void)pthread_join(link->watcher, NULL);
}

static int nccl_close(struct link *link) {
    if (link == NULL) {
        return 0;
    }
    struct nccl_link *self = nccl_of(link);
    nccl_settle(self);
    int before = cuda_api_enter(self->cuda, self->device);
    nccl_comm_close(&self->comm, clock_monotonic_ns() + NCCL_PATIENCE_NS);
    cuda_api_leave(self->cuda, self->device, before);
    nccl_free(self);
    return 0;
}

const struct link_ops link_nccl = {
    .backend = "nccl",
    .check = nccl_check,
    .open = nccl_open,
    .post = nccl_post,
    .wait = nccl_wait,
    .order = nccl_order,
    .abort = nccl_abort,
    .failure = nccl_failure,
    .close = nccl_close,
};
