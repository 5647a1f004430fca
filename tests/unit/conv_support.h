/* Random numbers for the tests of what a plan costs in statistics. */
#ifndef CONV_SUPPORT_H
#define CONV_SUPPORT_H

#include <stdint.h>

/* Uniform in (0, 1). */
double conv_uniform(uint64_t *state);
/* Standard normal. */
double conv_normal(uint64_t *state);
/* Laplace, mean 0, deviation 1. */
double conv_laplace(uint64_t *state);

#endif
