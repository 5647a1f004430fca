/* The table of tensors: its hash and its size. */
#include "fnv.h"

#include <dsched/profile.h>

uint64_t dsched_table_hash(const struct dsched_table *table) {
    uint64_t hash = fnv_u64(FNV_START, table->n_tensors);
    for (uint32_t i = 0; i < table->n_tensors; i++) {
        hash = fnv_u64(hash, table->elements[i]);
        hash = fnv_byte(hash, table->dtypes[i]);
    }
    return hash;
}

uint64_t dsched_table_elements(const struct dsched_table *table) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < table->n_tensors; i++) {
        n += table->elements[i];
    }
    return n;
}

uint64_t dsched_table_bytes(const struct dsched_table *table) {
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < table->n_tensors; i++) {
        n_bytes += table->elements[i] * dsched_dtype_bytes((enum dsched_dtype)table->dtypes[i]);
    }
    return n_bytes;
}
