/* A link of host memory whose ops are on a device. Two workers take the ops in turn: one copies its
 * op down while the other's is on the network, and the network gets them in the order of posting,
 * as all ranks do. */
#include <stdlib.h>
#include <string.h>

#include "link/device.h"
#include "link/link_queue.h"

#define STAGE_PATIENCE_NS INT64_C(1000000000)

struct stage_memory {
    uint8_t *pinned;
    size_t n_bytes;
};

struct stage_worker {
    void *copier;
    /* Both under the link's lock; the worker alone replaces its room, and uses it without. */
    struct stage_memory room;
    struct stage_memory spare; /* reserved for ops that do not fit into the room */
};

struct stage_link {
    struct link base;
    struct link_queue queue;
    struct device *device;
    const struct link_ops *inner_ops;
    struct link *inner;
    uint32_t n_workers;
    struct stage_worker workers[LINK_QUEUE_MAX_WORKERS];
    pthread_mutex_t lock;
    pthread_cond_t turn;
    uint64_t n_run[LINK_QUEUE_MAX_WORKERS]; /* ops that a worker has taken */
    uint64_t n_posted;                      /* on the inner link */
    int has_failed;
};

static struct stage_link *stage_of(struct link *link) {
    return (struct stage_link *)link;
}

static enum deft_status stage_pin(const struct stage_link *link, size_t n_bytes,
                                  struct stage_memory *out, struct deft_error *error) {
    out->pinned = link->device->ops->pin(link->device, n_bytes);
    out->n_bytes = out->pinned != NULL ? n_bytes : 0;
    return out->pinned != NULL
               ? DEFT_OK
               : deft_fail(error, DEFT_NO_MEMORY, 0,
                           "no pinned memory for the %zu bytes of an all-reduce", n_bytes);
}

static void stage_unpin(const struct stage_link *link, struct stage_memory *memory) {
    link->device->ops->unpin(link->device, memory->pinned);
    *memory = (struct stage_memory){.pinned = NULL};
}

/* What was reserved takes the place of what is too small. Ops that nobody reserved for, those that
 * measure the link, get their memory here. */
static enum deft_status stage_make_room(struct stage_link *link, struct stage_worker *worker,
                                        size_t n_bytes, struct deft_error *error) {
    struct stage_memory room = worker->room;
    enum deft_status status = DEFT_OK;
    if (n_bytes <= room.n_bytes) {
        return DEFT_OK;
    }
    stage_unpin(link, &room);
    (void)pthread_mutex_lock(&link->lock);
    worker->room = worker->spare;
    worker->spare = (struct stage_memory){.pinned = NULL};
    room = worker->room;
    (void)pthread_mutex_unlock(&link->lock);
    if (n_bytes > room.n_bytes) {
        stage_unpin(link, &room);
        status = stage_pin(link, n_bytes, &room, error);
        (void)pthread_mutex_lock(&link->lock);
        worker->room = room;
        (void)pthread_mutex_unlock(&link->lock);
    }
    return status;
}

/* Posts on the inner link when all ops before have been. */
static enum deft_status stage_post_in_turn(struct stage_link *link, uint64_t number,
                                           struct link_op *inner) {
    (void)pthread_mutex_lock(&link->lock);
    while (link->n_posted != number && !link->has_failed) {
        (void)pthread_cond_wait(&link->turn, &link->lock);
    }
    enum deft_status status = link->has_failed ? DEFT_CANCELLED : DEFT_OK;
    if (status == DEFT_OK) {
        status = link->inner_ops->post(link->inner, inner);
        link->n_posted++;
    }
    (void)pthread_cond_broadcast(&link->turn);
    (void)pthread_mutex_unlock(&link->lock);
    return status;
}

/* Whoever waits for its turn behind an op that failed would wait for ever. */
static void stage_give_up(struct stage_link *link) {
    (void)pthread_mutex_lock(&link->lock);
    link->has_failed = 1;
    (void)pthread_cond_broadcast(&link->turn);
    (void)pthread_mutex_unlock(&link->lock);
}

static enum deft_status stage_reduce(struct stage_link *link, uint64_t number, struct link_op *op,
                                     void *pinned, struct deft_error *error) {
    struct link_op inner = {
        .data = pinned, .elements = op->elements, .dtype = op->dtype, .reduce = op->reduce};
    enum deft_status status = stage_post_in_turn(link, number, &inner);
    if (status == DEFT_OK) {
        status = link->inner_ops->wait(link->inner, &inner, INT64_MAX);
    }
    if (status != DEFT_OK) {
        link->inner_ops->failure(link->inner, error);
        if (error->status == DEFT_OK) {
            (void)deft_fail(error, status, 0, "an all-reduce of staged memory: %s",
                            deft_status_text(status));
        }
    }
    return status;
}

static enum deft_status stage_run(void *backend, uint32_t number, struct link_op *op,
                                  struct deft_error *error) {
    struct stage_link *link = backend;
    struct stage_worker *worker = &link->workers[number];
    const struct device_ops *device = link->device->ops;
    size_t n_bytes = (size_t)op->elements * link_dtype_bytes(op->dtype);
    uint64_t turn = link->n_run[number]++ * link->n_workers + number;
    enum deft_status status = stage_make_room(link, worker, n_bytes, error);
    if (status == DEFT_OK) {
        status = device->pull(link->device, worker->copier, worker->room.pinned, op->data, n_bytes,
                              op->ready, error);
    }
    if (status == DEFT_OK) {
        status = stage_reduce(link, turn, op, worker->room.pinned, error);
    }
    if (status == DEFT_OK) {
        status = device->push(link->device, worker->copier, op->data, worker->room.pinned, n_bytes,
                              error);
    }
    if (status != DEFT_OK) {
        stage_give_up(link);
    }
    return status;
}

static void stage_free(struct stage_link *link) {
    for (uint32_t i = 0; i < link->n_workers; i++) {
        stage_unpin(link, &link->workers[i].room);
        stage_unpin(link, &link->workers[i].spare);
        link->device->ops->copier_close(link->device, link->workers[i].copier);
    }
    (void)pthread_cond_destroy(&link->turn);
    (void)pthread_mutex_destroy(&link->lock);
    free(link);
}

static enum deft_status stage_open_inner(struct stage_link *link, const char *name,
                                         const struct link_world *world, struct deft_error *error) {
    char backend[32] = "";
    struct link_world inner = *world;
    const char *colon = strchr(name, ':');
    if (colon != NULL && (size_t)(colon - name) < sizeof(backend)) {
        memcpy(backend, name, (size_t)(colon - name));
    }
    inner.device = NULL;
    link->inner_ops = link_backend(backend);
    if (link->inner_ops == NULL) {
        return deft_fail(error, DEFT_UNSUPPORTED, 0,
                         "a staged link is '%s', expected BACKEND:NAME of one that there is", name);
    }
    return link->inner_ops->open(colon + 1, &inner, &link->inner, error);
}

static enum deft_status stage_open(const char *name, const struct link_world *world,
                                   struct link **out, struct deft_error *error) {
    struct stage_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a link");
    }
    link->base.ops = &link_stage;
    link->device = world->device;
    (void)pthread_mutex_init(&link->lock, NULL);
    (void)pthread_cond_init(&link->turn, NULL);
    enum deft_status status = DEFT_OK;
    uint32_t n_workers = world->one_at_a_time ? 1 : LINK_QUEUE_MAX_WORKERS;
    while (status == DEFT_OK && link->n_workers < n_workers) {
        void **copier = &link->workers[link->n_workers].copier;
        status = link->device->ops->copier_open(link->device, copier, error);
        link->n_workers += status == DEFT_OK;
    }
    if (status == DEFT_OK) {
        status = stage_open_inner(link, name, world, error);
    }
    if (status == DEFT_OK) {
        status = link_queue_start(&link->queue, n_workers, stage_run, link, error);
    }
    if (status != DEFT_OK) {
        if (link->inner != NULL) {
            (void)link->inner_ops->close(link->inner);
        }
        stage_free(link);
        return status;
    }
    *out = &link->base;
    return DEFT_OK;
}

static enum deft_status stage_reserve(struct link *base, size_t n_bytes, struct deft_error *error) {
    struct stage_link *link = stage_of(base);
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < link->n_workers && status == DEFT_OK; i++) {
        struct stage_worker *worker = &link->workers[i];
        struct stage_memory spare = {.pinned = NULL};
        (void)pthread_mutex_lock(&link->lock);
        int has_room = n_bytes <= worker->room.n_bytes || n_bytes <= worker->spare.n_bytes;
        (void)pthread_mutex_unlock(&link->lock);
        if (has_room) {
            continue;
        }
        status = stage_pin(link, n_bytes, &spare, error);
        if (status == DEFT_OK) {
            (void)pthread_mutex_lock(&link->lock);
            struct stage_memory before = worker->spare;
            worker->spare = spare;
            (void)pthread_mutex_unlock(&link->lock);
            stage_unpin(link, &before);
        }
    }
    return status;
}

static enum deft_status stage_post(struct link *link, struct link_op *op) {
    return link_queue_post(&stage_of(link)->queue, op);
}

static enum deft_status stage_wait(struct link *link, struct link_op *op, int64_t deadline_ns) {
    return link_queue_wait(&stage_of(link)->queue, op, deadline_ns);
}

static void stage_abort(struct link *link, const struct deft_error *reason) {
    struct stage_link *self = stage_of(link);
    link_queue_abort(&self->queue, reason);
    self->inner_ops->abort(self->inner, reason);
    stage_give_up(self);
}

static void stage_failure(struct link *link, struct deft_error *out_error) {
    link_queue_failure(&stage_of(link)->queue, out_error);
}

static int stage_close(struct link *link) {
    if (link == NULL) {
        return 0;
    }
    struct stage_link *self = stage_of(link);
    struct deft_error reason;
    if (link_queue_settle(&self->queue, STAGE_PATIENCE_NS)) {
        (void)deft_fail(&reason, DEFT_CANCELLED, 0,
                        "the link was closed while an all-reduce waited for its peers");
        stage_abort(link, &reason);
    }
    if (link_queue_stop(&self->queue, STAGE_PATIENCE_NS) ||
        self->inner_ops->close(self->inner) != 0) {
        return 1;
    }
    stage_free(self);
    return 0;
}

const struct link_ops link_stage = {
    .backend = "stage",
    .open = stage_open,
    .reserve = stage_reserve,
    .post = stage_post,
    .wait = stage_wait,
    .abort = stage_abort,
    .failure = stage_failure,
    .close = stage_close,
};
