/* Sets of spans: how much of the time they cover. */
#ifndef KINETO_SPANS_H
#define KINETO_SPANS_H

#include <stddef.h>
#include <stdint.h>

#include "kineto_trace.h"

/* Sorts by begin, unless that is how they stand. */
void kineto_spans_sort(struct kineto_span *spans, size_t n);
/* Time covered by at least one. Sorts. */
int64_t kineto_spans_covered(struct kineto_span *spans, size_t n);

/* Rounded down; 0 for none. */
int64_t kineto_spans_mean(const int64_t *values, size_t n);
/* Lower median, and the value that a tenth of them do not exceed. Sort `values`; 0 for none. */
int64_t kineto_spans_median(int64_t *values, size_t n);
int64_t kineto_spans_low(int64_t *values, size_t n);

#endif
