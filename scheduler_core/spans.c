#include "spans.h"

#include "refuse.h"

#include <stdlib.h>
#include <string.h>

void spans_init(struct spans *spans) {
    memset(spans, 0, sizeof(*spans));
    spans->last_compute = -1;
}

void spans_done(struct spans *spans) {
    free(spans->items);
    spans_init(spans);
}

static int join(struct spans *spans, const struct dsched_span *span) {
    struct dsched_span *last;
    if (span->lane == DSCHED_LANE_LINK || spans->last_compute < 0) {
        return 0;
    }
    last = &spans->items[spans->last_compute];
    if (last->lane != span->lane || last->iteration != span->iteration ||
        last->end_ns != span->begin_ns) {
        return 0;
    }
    last->end_ns = span->end_ns;
    return 1;
}

void spans_add(void *context, const struct dsched_span *span) {
    struct spans *spans = context;
    if (join(spans, span) || spans->is_short_of_memory || spans->n == SPANS_MAX) {
        return;
    }
    if (spans->n == spans->capacity) {
        uint32_t capacity = spans->capacity == 0 ? 256 : 2 * spans->capacity;
        struct dsched_span *items = realloc(spans->items, capacity * sizeof(*items));
        if (items == NULL) {
            spans->is_short_of_memory = 1;
            return;
        }
        spans->items = items;
        spans->capacity = capacity;
    }
    if (span->lane != DSCHED_LANE_LINK) {
        spans->last_compute = spans->n;
    }
    spans->items[spans->n++] = *span;
}

static int by_begin(const void *a, const void *b) {
    const struct dsched_span *x = a;
    const struct dsched_span *y = b;
    if (x->begin_ns != y->begin_ns) {
        return x->begin_ns < y->begin_ns ? -1 : 1;
    }
    if (x->lane != y->lane) {
        return x->lane < y->lane ? -1 : 1;
    }
    if (x->link != y->link) {
        return x->link < y->link ? -1 : 1;
    }
    return x->end_ns < y->end_ns ? -1 : x->end_ns > y->end_ns;
}

enum dsched_status spans_emit(struct spans *spans, dsched_span_fn on_span, void *context,
                              struct dsched_error *error) {
    if (spans->is_short_of_memory) {
        return refuse_memory(error, "the spans of a simulation");
    }
    if (spans->n > 0) {
        qsort(spans->items, spans->n, sizeof(*spans->items), by_begin);
    }
    for (uint32_t i = 0; i < spans->n; i++) {
        on_span(context, &spans->items[i]);
    }
    return DSCHED_OK;
}
