/* FNV-1a, 64 bits, over little-endian integers: the same on every machine. */
#ifndef FNV_H
#define FNV_H

#include <stdint.h>

#define FNV_START UINT64_C(0xcbf29ce484222325)

static inline uint64_t fnv_byte(uint64_t hash, uint8_t byte) {
    return (hash ^ byte) * UINT64_C(0x100000001b3);
}
static inline uint64_t fnv_u64(uint64_t hash, uint64_t value) {
    for (unsigned shift = 0; shift < 64; shift += 8) {
        hash = fnv_byte(hash, (uint8_t)(value >> shift));
    }
    return hash;
}

#endif
