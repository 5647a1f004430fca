/* a * b / c without overflow in between: the one place of 128-bit arithmetic. */
#ifndef MULDIV_H
#define MULDIV_H

#include <stdint.h>

__extension__ typedef unsigned __int128 muldiv_wide;

/* Rounded down and up; saturates at `limit`. c > 0. Small products, which nearly all are, spare the
 * slow division. */
static inline uint64_t muldiv_down(uint64_t a, uint64_t b, uint64_t c, uint64_t limit) {
    muldiv_wide product = (muldiv_wide)a * b;
    muldiv_wide q = product <= UINT64_MAX ? (uint64_t)product / c : product / c;
    return q > limit ? limit : (uint64_t)q;
}
static inline uint64_t muldiv_up(uint64_t a, uint64_t b, uint64_t c, uint64_t limit) {
    muldiv_wide sum = (muldiv_wide)a * b + (c - 1);
    muldiv_wide q = sum <= UINT64_MAX ? (uint64_t)sum / c : sum / c;
    return q > limit ? limit : (uint64_t)q;
}

#define MULDIV_PPM UINT64_C(1000000)

/* A duration >= 0 stretched by `ppm` parts per million of itself, rounded up. */
static inline int64_t muldiv_stretch(int64_t ns, uint32_t ppm) {
    return (int64_t)muldiv_up((uint64_t)ns, MULDIV_PPM + ppm, MULDIV_PPM, INT64_MAX);
}

#endif
