/* JSON numbers as integers, without a detour through floating point: time stamps have more digits
 * than a double keeps. */
#ifndef KINETO_NUMBER_H
#define KINETO_NUMBER_H

#include <stddef.h>
#include <stdint.h>

/* The number of the JSON text times 10^scale, cut towards zero. 0 if it does not fit an int64. */
int kineto_number(const char *text, size_t n_bytes, int scale, int64_t *out);

#endif
