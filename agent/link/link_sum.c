#include "link/link_sum.h"

#include <math.h>
#include <string.h>

static uint32_t sum_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof(bits));
    return bits;
}

static float sum_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

float link_bf16_to_f32(uint16_t bits) {
    return sum_float((uint32_t)bits << 16);
}

uint16_t link_f32_to_bf16(float value) {
    uint32_t bits = sum_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) {
        return (uint16_t)((bits >> 16) | 0x40u); /* keep a NaN a quiet NaN after the cut */
    }
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

float link_f16_to_f32(uint16_t bits) {
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = (bits >> 10) & 0x1fu;
    uint32_t mantissa = bits & 0x3ffu;
    if (exponent == 0x1fu) {
        return sum_float(sign | 0x7f800000u | (mantissa << 13));
    }
    if (exponent != 0) {
        return sum_float(sign | ((exponent + 112u) << 23) | (mantissa << 13));
    }
    float magnitude = ldexpf((float)mantissa, -24);
    return sign != 0 ? -magnitude : magnitude;
}

uint16_t link_f32_to_f16(float value) {
    uint32_t bits = sum_bits(value);
    uint16_t sign = (uint16_t)((bits >> 16) & 0x8000u);
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) {
        return (uint16_t)(sign | 0x7e00u);
    }
    if (magnitude >= 0x477ff000u) { /* 65520 and above rounds to infinity */
        return (uint16_t)(sign | 0x7c00u);
    }
    if (magnitude < 0x38800000u) { /* below 2^-14: the result is subnormal or zero */
        float scaled = sum_float(magnitude) * 16777216.0f; /* exact: a power of two */
        return (uint16_t)(sign | (uint16_t)lrintf(scaled));
    }
    uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u);
    return (uint16_t)(sign | (uint16_t)((rounded - 0x38000000u) >> 13));
}

static void sum_f32(float *into, const float *from, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        into[i] += from[i];
    }
}

static void sum_f64(double *into, const double *from, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        into[i] += from[i];
    }
}

static void sum_f16(uint16_t *into, const uint16_t *from, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        into[i] = link_f32_to_f16(link_f16_to_f32(into[i]) + link_f16_to_f32(from[i]));
    }
}

static void sum_bf16(uint16_t *into, const uint16_t *from, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        into[i] = link_f32_to_bf16(link_bf16_to_f32(into[i]) + link_bf16_to_f32(from[i]));
    }
}

void link_sum(void *into, const void *from, uint64_t elements, enum link_dtype dtype) {
    switch (dtype) {
    case LINK_F32:
        sum_f32(into, from, elements);
        break;
    case LINK_F64:
        sum_f64(into, from, elements);
        break;
    case LINK_F16:
        sum_f16(into, from, elements);
        break;
    case LINK_BF16:
        sum_bf16(into, from, elements);
        break;
    case LINK_I64:
        break; /* link_check refuses sums of integers */
    }
}

void link_max_i64(int64_t *into, const int64_t *from, uint64_t elements) {
    for (uint64_t i = 0; i < elements; i++) {
        into[i] = into[i] > from[i] ? into[i] : from[i];
    }
}
