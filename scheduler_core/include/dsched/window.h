/* The last iterations of a simulation: what a picture shows.
 *
 *     struct dsched_window window = {0};
 *     policy->simulate(profile, dsched_window_add, &window, &outcome, &error);
 *     dsched_window_close(&window, 2 * cycle, outcome.report.step_ns, &error);
 */
#ifndef DSCHED_WINDOW_H
#define DSCHED_WINDOW_H

#include <stdint.h>

#include <dsched/simulate.h>
#include <dsched/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* More blocks than this are neither readable nor quickly drawn; 10,000 buckets fit twice. */
#define DSCHED_MAX_WINDOW_SPANS 20480u
/* What a simulation emits at most, prologue included. */
#define DSCHED_MAX_RECORDED_SPANS 1000000u

struct dsched_window {
    struct dsched_span *spans; /* by begin time; only what overlaps [begin_ns, end_ns) */
    uint32_t n_spans;
    uint32_t capacity;
    uint64_t first_iteration; /* of the first stage */
    uint32_t n_iterations;    /* worth of time */
    int64_t begin_ns;         /* a boundary of stages */
    int64_t end_ns;           /* of the last stage */
    int is_cut;               /* spans at the end were left out, and end_ns says where */
    int is_short_of_memory;
};

/* A dsched_span_fn; `context` is a struct dsched_window, zeroed before the first span. */
void dsched_window_add(void *context, const struct dsched_span *span);
/* Keeps the time of the last `n_iterations` (at least 1) iterations of `step_ns` each, or all there
 * is. A policy's cycle may end inside an iteration; then so does the window, which in the steady
 * state still shows each stage as often as any other. DSCHED_INVALID when there was no compute
 * span, DSCHED_NO_MEMORY when an add had failed. */
DSCHED_NODISCARD enum dsched_status dsched_window_close(struct dsched_window *window,
                                                        uint32_t n_iterations, int64_t step_ns,
                                                        struct dsched_error *error);
void dsched_window_done(struct dsched_window *window); /* NULL and zeroed are fine */

#ifdef __cplusplus
}
#endif
#endif
