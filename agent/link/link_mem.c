/* Backend `mem`: ranks are threads of one process that meet in a mem_fabric. For tests. */
#include <stdlib.h>

#include "link/link_queue.h"
#include "link/mem_fabric.h"

/* After an abort the fabric wakes its threads at once; this only bounds a bug. */
#define MEM_PATIENCE_NS INT64_C(5000000000)

struct mem_link {
    struct link base;
    struct link_queue queue;
    struct mem_fabric *fabric;
    int32_t rank;
    uint32_t channel;
    uint64_t n_ops;
};

static enum deft_status mem_run(void *backend, uint32_t worker, struct link_op *op,
                                struct deft_error *error) {
    struct mem_link *link = backend;
    (void)worker; /* there is one */
    return mem_fabric_reduce(link->fabric, link->rank, link->channel, link->n_ops++, op, error);
}

static enum deft_status mem_open(const char *name, const struct link_world *world,
                                 struct link **out, struct deft_error *error) {
    struct mem_fabric *fabric = mem_fabric_find(name);
    if (fabric == NULL) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "mem link '%s' does not name a fabric of this process", name);
    }
    struct mem_link *link = calloc(1, sizeof(*link));
    if (link == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a mem link");
    }
    link->base.ops = &link_mem;
    link->fabric = fabric;
    link->rank = world->rank;
    enum deft_status status = mem_fabric_join(fabric, world->rank, &link->channel, error);
    if (status == DEFT_OK) {
        status = link_queue_start(&link->queue, 1, mem_run, link, error);
    }
    if (status != DEFT_OK) {
        free(link);
        return status;
    }
    *out = &link->base;
    return DEFT_OK;
}

static struct mem_link *mem_of(struct link *link) {
    return (struct mem_link *)link;
}

static enum deft_status mem_post(struct link *link, struct link_op *op) {
    return link_queue_post(&mem_of(link)->queue, op);
}

static enum deft_status mem_wait(struct link *link, struct link_op *op, int64_t deadline_ns) {
    return link_queue_wait(&mem_of(link)->queue, op, deadline_ns);
}

static void mem_abort(struct link *link, const struct deft_error *reason) {
    link_queue_abort(&mem_of(link)->queue, reason);
    mem_fabric_abort(mem_of(link)->fabric, reason);
}

static void mem_failure(struct link *link, struct deft_error *out_error) {
    link_queue_failure(&mem_of(link)->queue, out_error);
}

static int mem_close(struct link *link) {
    if (link == NULL) {
        return 0;
    }
    struct deft_error reason;
    if (link_queue_settle(&mem_of(link)->queue, MEM_PATIENCE_NS)) {
        (void)deft_fail(&reason, DEFT_CANCELLED, 0,
                        "the link was closed while an all-reduce waited for its peers");
        mem_abort(link, &reason);
    }
    if (link_queue_stop(&mem_of(link)->queue, MEM_PATIENCE_NS)) {
        return 1;
    }
    free(mem_of(link));
    return 0;
}

const struct link_ops link_mem = {
    .backend = "mem",
    .open = mem_open,
    .post = mem_post,
    .wait = mem_wait,
    .abort = mem_abort,
    .failure = mem_failure,
    .close = mem_close,
};
