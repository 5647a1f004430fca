/* Medians of times. */
#ifndef MEDIAN_H
#define MEDIAN_H

#include <stddef.h>
#include <stdint.h>

/* Sorts `values`, [n], upwards. */
void median_sort(int64_t *values, size_t n);
/* Sorts them as well; n >= 1. Of an even number the mean of the middle two. */
int64_t median_of(int64_t *values, size_t n);

#endif
