/* The first use of the links: measure them, and give all ranks rank 0's parameters. */
#include <string.h>

#include "base/clock.h"
#include "runtime/runtime.h"

#define PROBE_REPEATS 3u
/* Once a size takes longer than this, larger ones would only delay the start of the job: the curve
 * is extended by its last segment, and the job's own all-reduces refine it. */
#define PROBE_ENOUGH_NS INT64_C(60000000)

static const uint64_t probe_sizes[] = {4096, 16384, 65536, 262144, 1048576, 4194304};
#define PROBE_N_SIZES (sizeof(probe_sizes) / sizeof(probe_sizes[0]))

static enum deft_status probe_wait(struct deft_runtime *rt, struct runtime_link *link,
                                   struct link_op *op, struct deft_error *error) {
    enum deft_status status = link->ops->post(link->link, op);
    if (status == DEFT_OK) {
        status = link->ops->wait(link->link, op, INT64_MAX);
    }
    return status == DEFT_OK ? DEFT_OK : failure_from_link(rt, link, status, error);
}

/* Ranks enter an all-reduce at slightly different times; a small one before each measurement lines
 * them up. */
static enum deft_status probe_once(struct deft_runtime *rt, struct runtime_link *link, float *data,
                                   uint64_t n_bytes, int64_t *out_ns, struct deft_error *error) {
    struct link_op *align = &rt->scratch[0];
    struct link_op *op = &rt->scratch[1];
    enum deft_status status;
    *align = (struct link_op){.data = data, .elements = 1, .dtype = LINK_F32, .reduce = LINK_SUM};
    *op = (struct link_op){
        .data = data, .elements = n_bytes / sizeof(float), .dtype = LINK_F32, .reduce = LINK_SUM};
    status = probe_wait(rt, link, align, error);
    if (status == DEFT_OK) {
        status = probe_wait(rt, link, op, error);
    }
    if (status == DEFT_OK) {
        *out_ns = op->end_ns - op->start_ns;
    }
    return status;
}

/* All ranks must stop at the same size: the slowest decides. */
static enum deft_status probe_slowest(struct deft_runtime *rt, int64_t ns, int64_t *out_ns,
                                      struct deft_error *error) {
    struct link_op *op = &rt->scratch[0];
    enum deft_status status;
    memset(rt->scratch_values, 0, sizeof(rt->scratch_values));
    rt->scratch_values[0] = ns;
    *op = (struct link_op){.data = rt->scratch_values,
                           .elements = CONTROL_VALUES,
                           .dtype = LINK_I64,
                           .reduce = LINK_MAX};
    status = probe_wait(rt, &rt->control_link, op, error);
    if (status == DEFT_OK) {
        *out_ns = rt->scratch_values[0];
    }
    return status;
}

static enum deft_status probe_link(struct deft_runtime *rt, struct runtime_link *link, float *data,
                                   struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    int64_t slowest_ns = 0;
    for (size_t s = 0; s < PROBE_N_SIZES && slowest_ns < PROBE_ENOUGH_NS; s++) {
        int64_t best_ns = INT64_MAX;
        for (uint32_t r = 0; r < PROBE_REPEATS; r++) {
            int64_t ns = 0;
            status = probe_once(rt, link, data, probe_sizes[s], &ns, error);
            if (status != DEFT_OK) {
                return status;
            }
            best_ns = ns < best_ns ? ns : best_ns;
        }
        status = probe_slowest(rt, best_ns, &slowest_ns, error);
        if (status != DEFT_OK) {
            return status;
        }
        link->probes[link->n_probes++] =
            (struct dsched_sample){.bytes = probe_sizes[s], .ns = slowest_ns};
    }
    return DEFT_OK;
}

enum deft_status probe_links(struct deft_runtime *rt, struct deft_error *error) {
    if (rt->options.n_ranks == 1) {
        return DEFT_OK;
    }
    const struct device_ops *device = rt->device->ops;
    float *data = device->alloc(rt->device, (size_t)probe_sizes[PROBE_N_SIZES - 1]);
    if (data == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to measure the links with");
    }
    enum deft_status status = DEFT_OK;
    for (uint32_t l = 0; l < rt->n_links && status == DEFT_OK; l++) {
        status = probe_link(rt, &rt->links[l], data, error);
    }
    if (status == DEFT_OK) { /* after a failure a link may still write there */
        device->release(rt->device, data);
    }
    return status;
}

enum deft_status probe_share_parameters(struct deft_runtime *rt, struct deft_error *error) {
    for (uint32_t i = 0; i < rt->space.n_tensors; i++) {
        if (rt->space.tensors[i].parameters == NULL) {
            return DEFT_OK;
        }
    }
    if (rt->options.n_ranks == 1) {
        return DEFT_OK;
    }
    /* A sum in which all ranks but rank 0 bring zeros. */
    struct engine_lane *lane = &rt->engine->lanes[0];
    rt->device->ops->zero(rt->device, lane->flat, rt->space.n_bytes);
    if (rt->options.rank == 0) {
        averaged_save(rt, lane->flat);
    }
    for (uint32_t b = 0; b < rt->engine->plan.n_buckets; b++) {
        struct link_op *op = &lane->ops[b].link_op;
        rt->device->ops->mark(rt->device, op->ready);
        enum deft_status status = probe_wait(rt, &rt->links[0], op, error);
        if (status != DEFT_OK) {
            return status;
        }
    }
    averaged_restore(rt, lane->flat);
    rt->device->ops->settle(rt->device);
    return failure_from_device(rt, error);
}
