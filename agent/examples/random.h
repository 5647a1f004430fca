/* Small random numbers that are the same on every machine: splitmix64 (Steele, Lea, Flood 2014). */
#ifndef RANDOM_H
#define RANDOM_H

#include <math.h>
#include <stdint.h>

static inline uint64_t random_next(uint64_t *state) {
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A state for stream number `stream` of `seed`; streams do not overlap in practice. */
static inline uint64_t random_seed(uint64_t seed, uint64_t stream) {
    uint64_t state = seed ^ (stream * UINT64_C(0xd1342543de82ef95));
    return random_next(&state);
}

/* 0..bound - 1; bound >= 1. The bias of the remainder is below 2^-40 for every use here. */
static inline uint64_t random_below(uint64_t *state, uint64_t bound) {
    return random_next(state) % bound;
}

/* In (0, 1]: safe to take the logarithm of. */
static inline double random_unit(uint64_t *state) {
    return (double)((random_next(state) >> 11) + 1) * 0x1p-53;
}

/* Standard normal, by Box and Muller; the second value is not kept. */
static inline double random_normal(uint64_t *state) {
    double radius = sqrt(-2.0 * log(random_unit(state)));
    return radius * cos(6.283185307179586 * random_unit(state));
}

#endif
