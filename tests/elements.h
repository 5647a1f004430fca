/* Elements of any type, one at a time, for tests of passes over arrays. */
#ifndef ELEMENTS_H
#define ELEMENTS_H

#include <stdint.h>

#include <dsched/profile.h>

#include "link/link_sum.h"

static inline double elements_get(enum dsched_dtype dtype, const void *x, uint64_t i) {
    switch (dtype) {
    case DSCHED_F32:
        return (double)((const float *)x)[i];
    case DSCHED_F64:
        return ((const double *)x)[i];
    case DSCHED_F16:
        return (double)link_f16_to_f32(((const uint16_t *)x)[i]);
    case DSCHED_BF16:
        return (double)link_bf16_to_f32(((const uint16_t *)x)[i]);
    }
    return 0;
}

static inline void elements_put(enum dsched_dtype dtype, void *x, uint64_t i, double value) {
    switch (dtype) {
    case DSCHED_F32:
        ((float *)x)[i] = (float)value;
        break;
    case DSCHED_F64:
        ((double *)x)[i] = value;
        break;
    case DSCHED_F16:
        ((uint16_t *)x)[i] = link_f32_to_f16((float)value);
        break;
    case DSCHED_BF16:
        ((uint16_t *)x)[i] = link_f32_to_bf16((float)value);
        break;
    }
}

#endif
