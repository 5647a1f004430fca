/* Backend `gloo`: the distribution's libgloo over TCP, one full mesh per network interface. */
#include <net/if.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "link/gloo_shim.h"
#include "link/link_queue.h"
#include "link/link_sum.h"

/* Closing the sockets wakes a blocked call unless its peer's host is silent; then Gloo only returns
 * at its own timeout, for which nobody should wait. */
#define GLOO_PATIENCE_NS INT64_C(1000000000)
#define GLOO_NS_PER_MS   INT64_C(1000000)

struct gloo_link {
    struct link base;
    struct link_queue queue;
    struct gloo_shim *shim; /* NULL in a world of one rank */
    int64_t op_timeout_ms;
    char name[64];
};

static struct gloo_link *gloo_of(struct link *link) {
    return (struct gloo_link *)link;
}

static void gloo_sum_half(void *into, const void *from, size_t elements, int type) {
    link_sum(into, from, elements, type == GLOO_SHIM_F16 ? LINK_F16 : LINK_BF16);
}

static enum gloo_shim_type gloo_type(enum link_dtype dtype) {
    switch (dtype) {
    case LINK_F64:
        return GLOO_SHIM_F64;
    case LINK_F16:
        return GLOO_SHIM_F16;
    case LINK_BF16:
        return GLOO_SHIM_BF16;
    case LINK_F32:
    case LINK_I64:
        break;
    }
    return GLOO_SHIM_F32;
}

static enum deft_status gloo_run(void *backend, struct link_op *op, struct deft_error *error) {
    struct gloo_link *link = backend;
    if (link->shim == NULL) {
        return DEFT_OK;
    }
    char text[GLOO_SHIM_TEXT_BYTES] = "";
    enum gloo_shim_result result;
    if (op->reduce == LINK_MAX) {
        result = gloo_shim_max(link->shim, op->data, op->elements, link->op_timeout_ms, text);
    } else {
        result = gloo_shim_sum(link->shim, op->data, op->elements, gloo_type(op->dtype),
                               gloo_sum_half, link->op_timeout_ms, text);
    }
    if (result == GLOO_SHIM_OK) {
        return DEFT_OK;
    }
    return deft_fail(error, result == GLOO_SHIM_TIMEOUT ? DEFT_TIMEOUT : DEFT_IO, 0,
                     "link %s failed: %s", link->name, text);
}

static enum deft_status gloo_connect(struct gloo_link *link, const char *name,
                                     const struct link_world *world, struct deft_error *error) {
    char text[GLOO_SHIM_TEXT_BYTES] = "";
    const char *interface = if_nametoindex(name) != 0 ? name : NULL;
    sigset_t before;
    thread_block_signals(&before); /* Gloo's own threads write to sockets without MSG_NOSIGNAL */
    link->shim =
        gloo_shim_open(interface, name, world->rank, world->n_ranks, world->allgather,
                       world->allgather_context, world->connect_timeout_ns / GLOO_NS_PER_MS, text);
    thread_restore_signals(&before);
    if (link->shim == NULL) {
        return deft_fail(error, DEFT_IO, 0,
                         "link %s could not connect %d ranks: %s (expected the name of a network "
                         "interface or an address of this host)",
                         link->name, world->n_ranks, text);
    }
    return DEFT_OK;
}

static enum deft_status gloo_open(const char *name, const struct link_world *world,
                                  struct link **out, struct deft_error *error) {
    struct gloo_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a link");
    }
    enum deft_status status = DEFT_OK;
    link->base.ops = &link_gloo;
    link->op_timeout_ms = world->op_timeout_ns / GLOO_NS_PER_MS;
    strncpy(link->name, name, sizeof(link->name) - 1);
    if (world->n_ranks > 1) {
        status = gloo_connect(link, name, world, error);
    }
    if (status == DEFT_OK) {
        status = link_queue_start(&link->queue, gloo_run, link, error);
    }
    if (status != DEFT_OK) {
        gloo_shim_close(link->shim);
        free(link);
        return status;
    }
    *out = &link->base;
    return DEFT_OK;
}

static enum deft_status gloo_post(struct link *link, struct link_op *op) {
    return link_queue_post(&gloo_of(link)->queue, op);
}

static enum deft_status gloo_wait(struct link *link, struct link_op *op, int64_t deadline_ns) {
    return link_queue_wait(&gloo_of(link)->queue, op, deadline_ns);
}

static void gloo_abort(struct link *link, const struct deft_error *reason) {
    link_queue_abort(&gloo_of(link)->queue, reason);
    if (gloo_of(link)->shim != NULL) {
        gloo_shim_abort(gloo_of(link)->shim);
    }
}

static void gloo_failure(struct link *link, struct deft_error *out_error) {
    link_queue_failure(&gloo_of(link)->queue, out_error);
}

static int gloo_close(struct link *link) {
    if (link == NULL) {
        return 0;
    }
    struct gloo_link *self = gloo_of(link);
    if (link_queue_stop(&self->queue, GLOO_PATIENCE_NS)) {
        return 1;
    }
    gloo_shim_close(self->shim);
    free(self);
    return 0;
}

const struct link_ops link_gloo = {
    .backend = "gloo",
    .open = gloo_open,
    .post = gloo_post,
    .wait = gloo_wait,
    .abort = gloo_abort,
    .failure = gloo_failure,
    .close = gloo_close,
};
