/* Collects the spans of a timeline and hands them out by begin time. */
#ifndef SPANS_H
#define SPANS_H

#include <dsched/simulate.h>

/* A picture of more spans than this is unreadable; what comes later is left out. */
#define SPANS_MAX 1000000u

struct spans {
    struct dsched_span *items;
    uint32_t n;
    uint32_t capacity;
    int is_short_of_memory;
    int64_t last_compute; /* index of the newest compute span, or -1 */
};

void spans_init(struct spans *spans);
void spans_done(struct spans *spans);
/* A dsched_span_fn; `context` is the struct spans. Joins compute spans of one stage that touch. */
void spans_add(void *context, const struct dsched_span *span);
/* Sorts, then calls `on_span` for each. DSCHED_NO_MEMORY when an add had failed. */
DSCHED_NODISCARD enum dsched_status spans_emit(struct spans *spans, dsched_span_fn on_span,
                                               void *context, struct dsched_error *error);

#endif
