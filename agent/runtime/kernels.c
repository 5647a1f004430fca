#include "runtime/kernels.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "link/link_sum.h"

static uint64_t kernels_min(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

#define KERNELS_T          float
#define KERNELS_ACC        float
#define KERNELS_NAME(stem) f32_##stem
#include "runtime/kernels.inc"
#undef KERNELS_T
#undef KERNELS_ACC
#undef KERNELS_NAME

#define KERNELS_T          double
#define KERNELS_ACC        double
#define KERNELS_NAME(stem) f64_##stem
#include "runtime/kernels.inc"
#undef KERNELS_T
#undef KERNELS_ACC
#undef KERNELS_NAME

/* Half types: widened per element. Correct rather than fast; hosts with them have GPUs. */
static float half_load(enum dsched_dtype dtype, const uint16_t *x, uint64_t i) {
    return dtype == DSCHED_F16 ? link_f16_to_f32(x[i]) : link_bf16_to_f32(x[i]);
}

static uint16_t half_round(enum dsched_dtype dtype, float value) {
    return dtype == DSCHED_F16 ? link_f32_to_f16(value) : link_f32_to_bf16(value);
}

static double half_combine(enum dsched_dtype dtype, uint16_t *into, const uint16_t *from,
                           uint64_t n, float factor, int add) {
    double sum = 0;
    for (uint64_t i = 0; i < n; i++) {
        float value = half_load(dtype, from, i);
        sum += (double)value * (double)value;
        float scaled = value * factor;
        into[i] = half_round(dtype, add ? half_load(dtype, into, i) + scaled : scaled);
    }
    return sum;
}

double kernels_copy(enum dsched_dtype dtype, void *into, const void *from, uint64_t n,
                    double factor) {
    if (from == NULL) {
        memset(into, 0, (size_t)n * dsched_dtype_bytes(dtype));
        return 0;
    }
    switch (dtype) {
    case DSCHED_F32:
        return f32_copy(into, from, n, (float)factor);
    case DSCHED_F64:
        return f64_copy(into, from, n, factor);
    case DSCHED_F16:
    case DSCHED_BF16:
        return half_combine(dtype, into, from, n, (float)factor, 0);
    }
    return 0;
}

double kernels_add(enum dsched_dtype dtype, void *into, const void *from, uint64_t n,
                   double factor) {
    if (from == NULL) {
        return 0;
    }
    switch (dtype) {
    case DSCHED_F32:
        return f32_add(into, from, n, (float)factor);
    case DSCHED_F64:
        return f64_add(into, from, n, factor);
    case DSCHED_F16:
    case DSCHED_BF16:
        return half_combine(dtype, into, from, n, (float)factor, 1);
    }
    return 0;
}

double kernels_norm(enum dsched_dtype dtype, const void *x, uint64_t n) {
    double sum = 0;
    switch (dtype) {
    case DSCHED_F32:
        return f32_norm(x, n);
    case DSCHED_F64:
        return f64_norm(x, n);
    case DSCHED_F16:
    case DSCHED_BF16:
        for (uint64_t i = 0; i < n; i++) {
            double value = (double)half_load(dtype, x, i);
            sum += value * value;
        }
        break;
    }
    return sum;
}

void kernels_scale(enum dsched_dtype dtype, void *x, uint64_t n, double factor) {
    switch (dtype) {
    case DSCHED_F32:
        f32_scale(x, n, (float)factor);
        break;
    case DSCHED_F64:
        f64_scale(x, n, factor);
        break;
    case DSCHED_F16:
    case DSCHED_BF16:
        for (uint64_t i = 0; i < n; i++) {
            uint16_t *half = x;
            half[i] = half_round(dtype, half_load(dtype, half, i) * (float)factor);
        }
        break;
    }
}

void kernels_average(enum dsched_dtype dtype, const struct kernels_averaged *at, uint64_t n,
                     struct kernels_norms *norms) {
    if (dtype == DSCHED_F32) {
        f32_average(at, n, norms);
    } else {
        f64_average(at, n, norms);
    }
}

void kernels_exclude(enum dsched_dtype dtype, void *own, const void *older, uint64_t n) {
    if (dtype == DSCHED_F32) {
        f32_exclude(own, older, n);
    } else {
        f64_exclude(own, older, n);
    }
}

void kernels_poison(enum dsched_dtype dtype, void *x) {
    switch (dtype) {
    case DSCHED_F32:
        *(float *)x = NAN;
        break;
    case DSCHED_F64:
        *(double *)x = (double)NAN;
        break;
    case DSCHED_F16:
    case DSCHED_BF16:
        *(uint16_t *)x = half_round(dtype, NAN);
        break;
    }
}

int kernels_is_poisoned(enum dsched_dtype dtype, const void *x) {
    switch (dtype) {
    case DSCHED_F32:
        return isnan(*(const float *)x);
    case DSCHED_F64:
        return isnan(*(const double *)x);
    case DSCHED_F16:
    case DSCHED_BF16:
        return isnan(half_load(dtype, x, 0));
    }
    return 0;
}
