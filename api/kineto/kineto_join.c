#include "kineto_join.h"

#include <stdlib.h>

#include "kineto_spans.h"

/* Collectives nest two deep (parameters around the title); what lies further back is over. */
#define KINETO_JOIN_LOOK_BACK 16u

static int kineto_join_by_correlation(const void *a, const void *b) {
    const struct kineto_launch *x = a;
    const struct kineto_launch *y = b;
    if (x->correlation != y->correlation) {
        return x->correlation < y->correlation ? -1 : 1;
    }
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

static int kineto_join_by_launch(const void *a, const void *b) {
    const struct kineto_kernel *x = a;
    const struct kineto_kernel *y = b;
    if (x->launched_ns != y->launched_ns) {
        return x->launched_ns < y->launched_ns ? -1 : 1;
    }
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

/* Kernels refer to collectives by index, so not they are sorted but an index of them. */
static int kineto_join_by_begin(const void *a, const void *b, void *context) {
    const struct kineto_collective *items = context;
    uint32_t x = *(const uint32_t *)a;
    uint32_t y = *(const uint32_t *)b;
    if (items[x].begin_ns != items[y].begin_ns) {
        return items[x].begin_ns < items[y].begin_ns ? -1 : 1;
    }
    return (x > y) - (x < y);
}

static int kineto_join_by_end(const void *a, const void *b) {
    const struct kineto_gradient *x = a;
    const struct kineto_gradient *y = b;
    return (x->at_ns > y->at_ns) - (x->at_ns < y->at_ns);
}

static int kineto_join_by_step(const void *a, const void *b) {
    const struct kineto_mark *x = a;
    const struct kineto_mark *y = b;
    return (x->span.begin_ns > y->span.begin_ns) - (x->span.begin_ns < y->span.begin_ns);
}

static void kineto_join_sort(struct kineto_array *array, size_t item_bytes,
                             int (*compare)(const void *, const void *)) {
    const char *items = array->items;
    for (uint32_t i = 1; i < array->n; i++) {
        if (compare(items + (size_t)(i - 1) * item_bytes, items + (size_t)i * item_bytes) > 0) {
            qsort(array->items, array->n, item_bytes, compare);
            return;
        }
    }
}

/* The first launch with this correlation: a driver's call may repeat that of the runtime. */
static const struct kineto_launch *kineto_join_find(const struct kineto_array *launches,
                                                    uint64_t correlation) {
    const struct kineto_launch *items = launches->items;
    uint32_t low = 0;
    uint32_t high = launches->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (items[middle].correlation < correlation) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < launches->n && items[low].correlation == correlation ? &items[low] : NULL;
}

/* Collectives by begin. */
struct kineto_join_index {
    const struct kineto_collective *items;
    uint32_t n;
    uint32_t *order;
};

static enum deft_status kineto_join_index_init(struct kineto_join_index *index,
                                               const struct kineto_trace *trace,
                                               struct deft_error *error) {
    index->items = trace->collectives.items;
    index->n = trace->collectives.n;
    index->order = calloc((size_t)index->n + 1, sizeof(*index->order));
    if (index->order == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for an index of collectives");
    }
    for (uint32_t i = 0; i < index->n; i++) {
        index->order[i] = i;
    }
    qsort_r(index->order, index->n, sizeof(*index->order), kineto_join_by_begin,
            trace->collectives.items);
    return DEFT_OK;
}

/* Number of collectives that begin at or before `at_ns`. */
static uint32_t kineto_join_before(const struct kineto_join_index *index, int64_t at_ns) {
    uint32_t low = 0;
    uint32_t high = index->n;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (index->items[index->order[middle]].begin_ns <= at_ns) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* The call around an instant (of a thread): the innermost one, but one that tells the size wins. */
static uint32_t kineto_join_around(const struct kineto_join_index *index, int64_t at_ns,
                                   const uint32_t *thread) {
    uint32_t end = kineto_join_before(index, at_ns);
    uint32_t found = KINETO_NO_COLLECTIVE;
    for (uint32_t back = 1; back <= KINETO_JOIN_LOOK_BACK && back <= end; back++) {
        uint32_t i = index->order[end - back];
        const struct kineto_collective *item = &index->items[i];
        int fits = (item->source == KINETO_PARAMS || item->source == KINETO_TITLE) &&
                   (thread == NULL || item->thread == *thread) && item->end_ns >= at_ns;
        if (fits && (found == KINETO_NO_COLLECTIVE ||
                     (index->items[found].elements == 0 && item->elements != 0))) {
            found = i;
        }
    }
    return found;
}

static void kineto_join_kernels(struct kineto_trace *trace, const struct kineto_join_index *index) {
    struct kineto_kernel *kernels = trace->kernels.items;
    for (uint32_t i = 0; i < trace->kernels.n; i++) {
        struct kineto_kernel *kernel = &kernels[i];
        const struct kineto_launch *launch =
            kineto_join_find(&trace->launches, kernel->correlation);
        if (launch == NULL) {
            continue;
        }
        kernel->launched_ns = launch->at_ns;
        if (kernel->work == KINETO_REDUCE && kernel->collective == KINETO_NO_COLLECTIVE) {
            kernel->collective = kineto_join_around(index, launch->at_ns, &launch->thread);
        }
    }
}

/* The collectives of the host are its kernels. Who called them tells the size if they do not. */
static enum deft_status kineto_join_host(struct kineto_trace *trace,
                                         const struct kineto_join_index *index,
                                         struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < index->n && status == DEFT_OK; i++) {
        const struct kineto_collective *item = &index->items[index->order[i]];
        struct kineto_kernel kernel = {.begin_ns = item->begin_ns,
                                       .end_ns = item->end_ns,
                                       .launched_ns = item->begin_ns,
                                       .collective = index->order[i],
                                       .work = KINETO_REDUCE,
                                       .dtype = KINETO_DTYPE_UNKNOWN};
        if (item->source != KINETO_HOST) {
            continue;
        }
        if (item->elements == 0) {
            uint32_t around = kineto_join_around(index, item->begin_ns, NULL);
            kernel.collective = around != KINETO_NO_COLLECTIVE ? around : kernel.collective;
        }
        status = kineto_trace_keep(trace, &trace->kernels, &kernel, sizeof(kernel), error);
    }
    return status;
}

enum deft_status kineto_join(struct kineto_trace *trace, struct deft_error *error) {
    struct kineto_join_index index = {0};
    enum deft_status status = kineto_join_index_init(&index, trace, error);
    if (status != DEFT_OK) {
        return status;
    }
    kineto_join_sort(&trace->launches, sizeof(struct kineto_launch), kineto_join_by_correlation);
    trace->has_device = trace->kernels.n > 0;
    if (trace->has_device) {
        kineto_join_kernels(trace, &index);
    } else {
        status = kineto_join_host(trace, &index, error);
    }
    kineto_join_sort(&trace->kernels, sizeof(struct kineto_kernel), kineto_join_by_launch);
    kineto_join_sort(&trace->gradients, sizeof(struct kineto_gradient), kineto_join_by_end);
    kineto_join_sort(&trace->steps, sizeof(struct kineto_mark), kineto_join_by_step);
    kineto_spans_sort(trace->optimizers.items, trace->optimizers.n);
    kineto_spans_sort(trace->forwards.items, trace->forwards.n);
    kineto_spans_sort(trace->backwards.items, trace->backwards.n);
    kineto_spans_sort(trace->operators.items, trace->operators.n);
    free(index.order);
    return status;
}
