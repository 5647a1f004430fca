#include "conv_support.h"

#include <math.h>

#include "testing.h"

double conv_uniform(uint64_t *state) {
    return ((double)(testing_random(state) >> 11) + 0.5) * 0x1p-53;
}

double conv_normal(uint64_t *state) {
    double radius = sqrt(-2 * log(conv_uniform(state)));
    return radius * cos(6.28318530717958647692 * conv_uniform(state));
}

double conv_laplace(uint64_t *state) {
    double u = conv_uniform(state) - 0.5;
    return copysign(log(1 - 2 * fabs(u)), -u) * 0.70710678118654752440;
}
