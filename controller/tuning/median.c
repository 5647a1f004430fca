#include "tuning/median.h"

#include <stdlib.h>

static int median_compare(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a;
    int64_t y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void median_sort(int64_t *values, size_t n) {
    qsort(values, n, sizeof(*values), median_compare);
}

int64_t median_of(int64_t *values, size_t n) {
    median_sort(values, n);
    return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}
