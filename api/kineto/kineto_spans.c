#include "kineto_spans.h"

#include <stdlib.h>

static int kineto_spans_by_begin(const void *a, const void *b) {
    const struct kineto_span *x = a;
    const struct kineto_span *y = b;
    return (x->begin_ns > y->begin_ns) - (x->begin_ns < y->begin_ns);
}

void kineto_spans_sort(struct kineto_span *spans, size_t n) {
    for (size_t i = 1; i < n; i++) {
        if (spans[i].begin_ns < spans[i - 1].begin_ns) {
            qsort(spans, n, sizeof(*spans), kineto_spans_by_begin);
            return;
        }
    }
}

int64_t kineto_spans_covered(struct kineto_span *spans, size_t n) {
    int64_t covered_ns = 0;
    int64_t reached_ns = INT64_MIN;
    kineto_spans_sort(spans, n);
    for (size_t i = 0; i < n; i++) {
        int64_t from_ns = spans[i].begin_ns > reached_ns ? spans[i].begin_ns : reached_ns;
        if (spans[i].end_ns > from_ns) {
            covered_ns += spans[i].end_ns - from_ns;
            reached_ns = spans[i].end_ns;
        }
    }
    return covered_ns;
}

int64_t kineto_spans_mean(const int64_t *values, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i];
    }
    return n > 0 ? (int64_t)(sum / (double)n) : 0;
}

static int kineto_spans_compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int64_t kineto_spans_at(int64_t *values, size_t n, size_t parts) {
    if (n == 0) {
        return 0;
    }
    qsort(values, n, sizeof(*values), kineto_spans_compare);
    return values[(n - 1) / parts];
}

int64_t kineto_spans_median(int64_t *values, size_t n) {
    return kineto_spans_at(values, n, 2);
}

int64_t kineto_spans_low(int64_t *values, size_t n) {
    return kineto_spans_at(values, n, 10);
}
