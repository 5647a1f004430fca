/* Backend `gloo`: the distribution's libgloo over TCP. Up to two full meshes per network interface,
 * so that one all-reduce is on the wire while the next one waits for its peers. */
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

/* Connections grow with the ranks and meshes; in a large world latency is no longer per message. */
#define GLOO_MAX_RANKS_OF_TWO 64

struct gloo_link {
    struct link base;
    struct link_queue queue;
    uint32_t n_shims; /* 0 in a world of one rank */
    struct gloo_shim *shims[LINK_QUEUE_MAX_WORKERS];
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

static enum deft_status gloo_run(void *backend, uint32_t worker, struct link_op *op,
                                 struct deft_error *error) {
    struct gloo_link *link = backend;
    struct gloo_shim *shim = link->shims[worker];
    if (shim == NULL) {
        return DEFT_OK;
    }
    char text[GLOO_SHIM_TEXT_BYTES] = "";
    enum gloo_shim_result result;
    if (op->reduce == LINK_MAX) {
        result = gloo_shim_max(shim, op->data, op->elements, link->op_timeout_ms, text);
    } else {
        result = gloo_shim_sum(shim, op->data, op->elements, gloo_type(op->dtype), gloo_sum_half,
                               link->op_timeout_ms, text);
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
    struct gloo_shim *shim =
        gloo_shim_open(interface, name, world->rank, world->n_ranks, world->allgather,
                       world->allgather_context, world->connect_timeout_ns / GLOO_NS_PER_MS, text);
    thread_restore_signals(&before);
    if (shim == NULL) {
        return deft_fail(error, DEFT_IO, 0,
                         "link %s could not connect %d ranks: %s (expected the name of a network "
                         "interface or an address of this host)",
                         link->name, world->n_ranks, text);
    }
    link->shims[link->n_shims++] = shim;
    return DEFT_OK;
}

static void gloo_free(struct gloo_link *link) {
    for (uint32_t i = 0; i < link->n_shims; i++) {
        gloo_shim_close(link->shims[i]);
    }
    free(link);
}

static enum deft_status gloo_open(const char *name, const struct link_world *world,
                                  struct link **out, struct deft_error *error) {
    struct gloo_link *link = calloc(1, sizeof(*link));
    uint32_t n_workers = world->one_at_a_time || world->n_ranks > GLOO_MAX_RANKS_OF_TWO ? 1 : 2;
    if (link == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a link");
    }
    enum deft_status status = DEFT_OK;
    link->base.ops = &link_gloo;
    link->op_timeout_ms = world->op_timeout_ns / GLOO_NS_PER_MS;
    strncpy(link->name, name, sizeof(link->name) - 1);
    for (uint32_t i = 0; world->n_ranks > 1 && i < n_workers && status == DEFT_OK; i++) {
        status = gloo_connect(link, name, world, error);
    }
    if (status == DEFT_OK) {
        status = link_queue_start(&link->queue, n_workers, gloo_run, link, error);
    }
    if (status != DEFT_OK) {
        gloo_free(link);
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
    for (uint32_t i = 0; i < gloo_of(link)->n_shims; i++) {
        gloo_shim_abort(gloo_of(link)->shims[i]);
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
    struct deft_error reason;
    if (link_queue_settle(&self->queue, GLOO_PATIENCE_NS)) {
        (void)deft_fail(&reason, DEFT_CANCELLED, 0,
                        "the link was closed while an all-reduce waited for its peers");
        gloo_abort(link, &reason);
    }
    if (link_queue_stop(&self->queue, GLOO_PATIENCE_NS)) {
        return 1;
    }
    gloo_free(self);
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
