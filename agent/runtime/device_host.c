#include "runtime/device_host.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime/gradspace.h"
#include "runtime/kernels.h"

/* Passes over a whole model touch one page after the other: large pages save most of the look-ups.
 */
#define HOST_HUGE_PAGE_BYTES ((size_t)2 << 20)

/* Allocated and touched, so that no page is faulted in while training. */
static void *host_alloc(struct device *device, size_t n_bytes) {
    (void)device;
    size_t align = n_bytes >= HOST_HUGE_PAGE_BYTES ? HOST_HUGE_PAGE_BYTES : GRADSPACE_ALIGN_BYTES;
    size_t rounded = (n_bytes + align - 1) / align * align;
    void *buffer = aligned_alloc(align, rounded);
    if (buffer != NULL) {
        if (align == HOST_HUGE_PAGE_BYTES) {
            (void)madvise(buffer, rounded, MADV_HUGEPAGE); /* a wish: without it only slower */
        }
        memset(buffer, 0, rounded);
    }
    return buffer;
}

static void host_release(struct device *device, void *memory) {
    (void)device;
    free(memory);
}

static double host_copy(struct device *device, enum deft_dtype dtype, void *into, const void *from,
                        uint64_t n, double factor, enum device_norm norm) {
    (void)device;
    (void)norm;
    return kernels_copy((enum dsched_dtype)dtype, into, from, n, factor);
}

static double host_add(struct device *device, enum deft_dtype dtype, void *into, const void *from,
                       uint64_t n, double factor, enum device_norm norm) {
    (void)device;
    (void)norm;
    return kernels_add((enum dsched_dtype)dtype, into, from, n, factor);
}

static double host_norm(struct device *device, enum deft_dtype dtype, const void *x, uint64_t n,
                        enum device_norm norm) {
    (void)device;
    (void)norm;
    return kernels_norm((enum dsched_dtype)dtype, x, n);
}

static void host_scale(struct device *device, enum deft_dtype dtype, void *x, uint64_t n,
                       double factor) {
    (void)device;
    kernels_scale((enum dsched_dtype)dtype, x, n, factor);
}

static void host_move(struct device *device, void *into, const void *from, size_t n_bytes) {
    (void)device;
    memcpy(into, from, n_bytes);
}

static void host_zero(struct device *device, void *into, size_t n_bytes) {
    (void)device;
    memset(into, 0, n_bytes);
}

static void host_guard(struct device *device, const struct device_averaged_gradient *gradients,
                       uint32_t n_gradients, int begins) {
    (void)device;
    (void)gradients;
    (void)n_gradients;
    (void)begins;
}

static int host_judge(struct device *device, enum deft_dtype dtype, const void *landed,
                      int counts) {
    (void)device;
    (void)counts;
    return kernels_is_poisoned((enum dsched_dtype)dtype, landed);
}

static void host_drop(enum dsched_dtype dtype, const struct device_averaged *at, uint64_t n) {
    size_t n_bytes = (size_t)n * dsched_dtype_bytes(dtype);
    memcpy(at->w, at->a, n_bytes);
    for (uint32_t i = 0; i < at->n_older; i++) {
        memset(at->older[i], 0, n_bytes);
    }
}

static void host_average(struct device *device, enum deft_dtype dtype,
                         const struct device_averaged *at, uint64_t n,
                         struct device_averaged_sums *sums) {
    enum dsched_dtype type = (enum dsched_dtype)dtype;
    struct kernels_norms norms = {.landed_sq = sums->landed_sq, .own_sq = sums->own_sq};
    const struct kernels_averaged pass = {.w = at->w,
                                          .a = at->a,
                                          .landed = at->is_dropped ? NULL : at->landed,
                                          .landed_own = at->landed_own,
                                          .older = at->n_older > 0 ? at->older[0] : NULL,
                                          .own = at->own,
                                          .sum = at->sum,
                                          .factor = at->factor};
    (void)device;
    if (at->is_dropped) {
        host_drop(type, at, n);
    }
    kernels_average(type, &pass, n, &norms);
    if (at->own != NULL && at->n_older > 1) { /* rare, so in passes of their own */
        for (uint32_t i = 1; i < at->n_older; i++) {
            kernels_exclude(type, at->own, at->older[i], n);
        }
        norms.own_sq = sums->own_sq + kernels_copy(type, at->sum, at->own, n, at->factor);
    }
    sums->landed_sq = norms.landed_sq;
    sums->own_sq = norms.own_sq;
}

static void host_seal(struct device *device, enum deft_dtype dtype, void *sum, int is_bad) {
    (void)device;
    if (is_bad) {
        kernels_poison((enum dsched_dtype)dtype, sum);
    }
}

static void host_purge(struct device *device, enum deft_dtype dtype, void *x, uint64_t n) {
    enum dsched_dtype type = (enum dsched_dtype)dtype;
    (void)device;
    if (!isfinite(kernels_norm(type, x, n))) {
        memset(x, 0, (size_t)n * dsched_dtype_bytes(type));
    }
}

static void *host_mark_create(struct device *device) {
    (void)device;
    return NULL;
}

static void host_mark(struct device *device, void *mark) {
    (void)device;
    (void)mark;
}

static void host_use_stream(struct device *device, void *stream) {
    (void)device;
    (void)stream;
}

static void host_stamp(struct device *device, enum device_stage stage) {
    (void)device;
    (void)stage;
}

static int host_collect(struct device *device, struct device_figures *out) {
    (void)device;
    (void)out;
    return 0;
}

static void host_came(struct device *device, uint32_t tensor, uint32_t n_tensors) {
    (void)device;
    (void)tensor;
    (void)n_tensors;
}

static int host_take_readiness(struct device *device, int64_t *offsets_ns) {
    (void)device;
    (void)offsets_ns;
    return 0;
}

static void host_nothing(struct device *device) {
    (void)device;
}

static enum deft_status host_failure(const struct device *device, struct deft_error *error) {
    (void)device;
    (void)error;
    return DEFT_OK;
}

const struct device_ops device_host = {
    .name = "cpu",
    .is_async = 0,
    .alloc = host_alloc,
    .release = host_release,
    .copy = host_copy,
    .add = host_add,
    .norm = host_norm,
    .scale = host_scale,
    .move = host_move,
    .zero = host_zero,
    .read = host_move,
    .guard = host_guard,
    .judge = host_judge,
    .average = host_average,
    .seal = host_seal,
    .purge = host_purge,
    .mark_create = host_mark_create,
    .mark_destroy = host_mark,
    .mark = host_mark,
    .use_stream = host_use_stream,
    .stamp = host_stamp,
    .collect = host_collect,
    .came = host_came,
    .take_readiness = host_take_readiness,
    .settle = host_nothing,
    .failure = host_failure,
    .close = host_nothing,
};
