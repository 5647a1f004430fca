#include "kineto_gradient.h"

#include <string.h>

enum kineto_gradient_verdict { GRADIENT_NO, GRADIENT_UNSIZED, GRADIENT_UNTYPED, GRADIENT_YES };

static const struct kineto_collective *
kineto_gradient_collective(const struct kineto_trace *trace, const struct kineto_kernel *kernel) {
    const struct kineto_collective *items = trace->collectives.items;
    return kernel->collective == KINETO_NO_COLLECTIVE ? NULL : &items[kernel->collective];
}

static enum kineto_gradient_verdict kineto_gradient_look(const struct kineto_trace *trace,
                                                         const struct kineto_kernel *kernel,
                                                         const struct kineto_window *window,
                                                         struct kineto_reduce *out) {
    const struct kineto_collective *collective = kineto_gradient_collective(trace, kernel);
    if (kernel->work != KINETO_REDUCE || collective == NULL || !window->complete ||
        kernel->launched_ns < window->backward_ns || kernel->launched_ns >= window->optimizer_ns ||
        strcmp(trace->names.text[collective->name], "all_reduce") != 0) {
        return GRADIENT_NO;
    }
    uint8_t dtype = collective->dtype != KINETO_DTYPE_UNKNOWN ? collective->dtype : kernel->dtype;
    if (dtype == KINETO_DTYPE_FOREIGN) {
        return GRADIENT_NO;
    }
    if (collective->elements == 0) {
        return GRADIENT_UNSIZED;
    }
    out->elements = collective->elements;
    out->dtype = dtype == KINETO_DTYPE_UNKNOWN ? DSCHED_F32 : (enum dsched_dtype)dtype;
    out->wait_ns = -1;
    return dtype == KINETO_DTYPE_UNKNOWN ? GRADIENT_UNTYPED : GRADIENT_YES;
}

void kineto_gradient_count(const struct kineto_trace *trace, const struct kineto_window *windows,
                           uint32_t n_windows, struct kineto_gradient_census *out) {
    const struct kineto_kernel *kernels = trace->kernels.items;
    double bytes[KINETO_MAX_NAMES] = {0};
    uint32_t w = 0;
    *out = (struct kineto_gradient_census){0};
    for (uint32_t i = 0; i < trace->kernels.n; i++) {
        struct kineto_reduce reduce = {0};
        while (w < n_windows && windows[w].end_ns <= kernels[i].launched_ns) {
            w++;
        }
        if (w == n_windows) {
            break;
        }
        enum kineto_gradient_verdict verdict =
            kineto_gradient_look(trace, &kernels[i], &windows[w], &reduce);
        const struct kineto_collective *collective = kineto_gradient_collective(trace, &kernels[i]);
        if (verdict == GRADIENT_UNSIZED) {
            out->n_unsized++;
        } else if (verdict != GRADIENT_NO) {
            out->n_gradients++;
            out->n_untyped += verdict == GRADIENT_UNTYPED;
            bytes[collective->group] += (double)reduce.elements * dsched_dtype_bytes(reduce.dtype);
            if (bytes[collective->group] > bytes[out->group] || out->n_gradients == 1) {
                out->group = collective->group;
            }
        } else if (collective != NULL) {
            out->n_elsewhere++;
            out->elsewhere = collective->name;
        }
    }
}

int kineto_gradient_is(const struct kineto_trace *trace, const struct kineto_kernel *kernel,
                       const struct kineto_window *window,
                       const struct kineto_gradient_census *census, struct kineto_reduce *out) {
    const struct kineto_collective *collective = kineto_gradient_collective(trace, kernel);
    return kineto_gradient_look(trace, kernel, window, out) >= GRADIENT_UNTYPED &&
           collective->group == census->group;
}
