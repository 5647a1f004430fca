#include "kineto_steps.h"

#include <inttypes.h>
#include <stdlib.h>

uint32_t kineto_steps_first(const struct kineto_array *spans, int64_t at_ns) {
    const struct kineto_span *items = spans->items;
    uint32_t low = 0;
    uint32_t high = spans->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (items[middle].begin_ns < at_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

static enum deft_status kineto_steps_of_marks(const struct kineto_trace *trace,
                                              struct kineto_window *windows,
                                              struct deft_error *error) {
    const struct kineto_mark *marks = trace->steps.items;
    for (uint32_t i = 0; i < trace->steps.n; i++) {
        int last = i + 1 == trace->steps.n;
        windows[i].number = marks[i].number;
        windows[i].begin_ns = marks[i].span.begin_ns;
        windows[i].end_ns = last ? marks[i].span.end_ns : marks[i + 1].span.begin_ns;
        if (i > 0 && marks[i].number <= marks[i - 1].number) {
            return deft_fail(error, DEFT_INVALID, 0,
                             "'%s' has step %" PRIu64 " behind step %" PRIu64
                             ", expected each once and in order",
                             trace->path, marks[i].number, marks[i - 1].number);
        }
        if (windows[i].end_ns <= windows[i].begin_ns) {
            return deft_fail(error, DEFT_INVALID, 0, "step %" PRIu64 " of '%s' takes no time",
                             marks[i].number, trace->path);
        }
    }
    return DEFT_OK;
}

/* A step ends with its optimizer's mark, and the next one begins there. */
static void kineto_steps_of_optimizers(const struct kineto_trace *trace,
                                       struct kineto_window *windows) {
    const struct kineto_span *marks = trace->optimizers.items;
    for (uint32_t i = 0; i + 1 < trace->optimizers.n; i++) {
        windows[i].number = i + 1;
        windows[i].begin_ns = marks[i].end_ns;
        windows[i].end_ns = marks[i + 1].end_ns;
    }
}

/* With several backwards in a step (accumulation) the last one counts: only it communicates. */
static int64_t kineto_steps_last_forward(const struct kineto_trace *trace,
                                         const struct kineto_window *window) {
    const struct kineto_span *forwards = trace->forwards.items;
    uint32_t end = kineto_steps_first(&trace->forwards, window->end_ns);
    return end > 0 && forwards[end - 1].begin_ns >= window->begin_ns ? forwards[end - 1].end_ns
                                                                     : window->begin_ns;
}

static void kineto_steps_stages(const struct kineto_trace *trace, struct kineto_window *window) {
    const struct kineto_span *backwards = trace->backwards.items;
    const struct kineto_span *optimizers = trace->optimizers.items;
    uint32_t first =
        kineto_steps_first(&trace->backwards, kineto_steps_last_forward(trace, window));
    if (first == trace->backwards.n || backwards[first].begin_ns >= window->end_ns) {
        return;
    }
    window->complete = 1;
    window->backward_ns = backwards[first].begin_ns;
    window->optimizer_ns = backwards[first].end_ns;
    for (uint32_t i = first; i < trace->backwards.n && backwards[i].begin_ns < window->end_ns;
         i++) {
        if (backwards[i].end_ns > window->optimizer_ns) {
            window->optimizer_ns = backwards[i].end_ns;
        }
    }
    uint32_t mark = kineto_steps_first(&trace->optimizers, window->backward_ns);
    if (mark < trace->optimizers.n && optimizers[mark].begin_ns < window->end_ns) {
        window->optimizer_ns = optimizers[mark].begin_ns;
    } else if (window->optimizer_ns > window->end_ns) {
        window->optimizer_ns = window->end_ns;
    }
}

enum deft_status kineto_steps_find(const struct kineto_trace *trace, struct kineto_window **out,
                                   uint32_t *out_n, struct deft_error *error) {
    uint32_t n_complete = 0;
    uint32_t n = trace->steps.n;
    enum deft_status status = DEFT_OK;
    if (n == 0 && trace->optimizers.n > 1) {
        n = trace->optimizers.n - 1;
    }
    if (n > KINETO_MAX_STEPS) {
        return deft_fail(error, DEFT_LIMIT, 0, "'%s' has %u steps, at most %u are taken",
                         trace->path, n, KINETO_MAX_STEPS);
    }
    if (n == 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "'%s' has no steps: give the profiler a schedule with two or more active "
                         "steps and call prof.step() after each one",
                         trace->path);
    }
    struct kineto_window *windows = calloc(n, sizeof(*windows));
    if (windows == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for %u steps", n);
    }
    if (trace->steps.n > 0) {
        status = kineto_steps_of_marks(trace, windows, error);
    } else {
        kineto_steps_of_optimizers(trace, windows);
    }
    for (uint32_t i = 0; i < n && status == DEFT_OK; i++) {
        kineto_steps_stages(trace, &windows[i]);
        n_complete += (uint32_t)windows[i].complete;
    }
    if (status == DEFT_OK && n_complete == 0) {
        status = deft_fail(error, DEFT_INVALID, 0,
                           "no step of '%s' has a backward on the host: give the profiler "
                           "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]",
                           trace->path);
    }
    if (status != DEFT_OK) {
        free(windows);
        return status;
    }
    *out = windows;
    *out_n = n;
    return DEFT_OK;
}
