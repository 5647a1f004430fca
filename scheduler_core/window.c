#include <dsched/window.h>

#include "refuse.h"

#include <stdlib.h>
#include <string.h>

void dsched_window_add(void *context, const struct dsched_span *span) {
    struct dsched_window *window = context;
    if (window->is_short_of_memory || window->n_spans == DSCHED_MAX_RECORDED_SPANS) {
        return;
    }
    if (window->n_spans == window->capacity) {
        uint32_t capacity = window->capacity == 0 ? 256 : 2 * window->capacity;
        struct dsched_span *spans = realloc(window->spans, capacity * sizeof(*spans));
        if (spans == NULL) {
            window->is_short_of_memory = 1;
            return;
        }
        window->spans = spans;
        window->capacity = capacity;
    }
    window->spans[window->n_spans++] = *span;
}

static int64_t distance(int64_t a, int64_t b) {
    return a < b ? b - a : a - b;
}

/* The boundary of stages that is nearest to where the window should begin: steps are rounded. */
static int find(struct dsched_window *window, uint32_t n_iterations, int64_t step_ns) {
    int64_t wanted_ns;
    int is_found = 0;
    for (uint32_t i = 0; i < window->n_spans; i++) {
        const struct dsched_span *span = &window->spans[i];
        if (span->lane != DSCHED_LANE_LINK && span->end_ns > window->end_ns) {
            window->end_ns = span->end_ns;
        }
    }
    wanted_ns =
        step_ns > window->end_ns / n_iterations ? 0 : window->end_ns - n_iterations * step_ns;
    for (uint32_t i = 0; i < window->n_spans; i++) {
        const struct dsched_span *span = &window->spans[i];
        if (span->lane != DSCHED_LANE_LINK &&
            (!is_found ||
             distance(span->begin_ns, wanted_ns) < distance(window->begin_ns, wanted_ns))) {
            window->begin_ns = span->begin_ns;
            window->first_iteration = span->iteration;
            is_found = 1;
        }
    }
    window->n_iterations = n_iterations;
    return is_found;
}

enum dsched_status dsched_window_close(struct dsched_window *window, uint32_t n_iterations,
                                       int64_t step_ns, struct dsched_error *error) {
    uint32_t n_kept = 0;
    if (window->is_short_of_memory) {
        return refuse_memory(error, "the spans of a picture");
    }
    if (n_iterations == 0 || !find(window, n_iterations, step_ns)) {
        return refuse(error, DSCHED_INVALID,
                      "the simulation has no iteration of which a picture could be drawn");
    }
    for (uint32_t i = 0; i < window->n_spans; i++) {
        const struct dsched_span *span = &window->spans[i];
        if (span->end_ns <= window->begin_ns || span->begin_ns >= window->end_ns) {
            continue;
        }
        if (n_kept == DSCHED_MAX_WINDOW_SPANS) {
            window->is_cut = 1;
            window->end_ns = span->begin_ns;
            break;
        }
        window->spans[n_kept++] = *span;
    }
    window->n_spans = n_kept;
    return DSCHED_OK;
}

void dsched_window_done(struct dsched_window *window) {
    if (window != NULL) {
        free(window->spans);
        memset(window, 0, sizeof(*window));
    }
}
