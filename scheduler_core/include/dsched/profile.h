/* What is known about a job: tensors, compute times, link curves (design: deft.profile/1).
 *
 * Times are integer nanoseconds, sizes are bytes or elements, ratios are parts per million. */
#ifndef DSCHED_PROFILE_H
#define DSCHED_PROFILE_H

#include <stddef.h>
#include <stdint.h>

#include <dsched/limits.h>
#include <dsched/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Values travel in plans, tables and IPC messages: never renumber. */
enum dsched_dtype {
    DSCHED_F32 = 0,
    DSCHED_F64 = 1,
    DSCHED_F16 = 2,
    DSCHED_BF16 = 3,
};
#define DSCHED_N_DTYPES 4u

/* 4, 8, 2, 2; 0 for a foreign value. */
uint32_t dsched_dtype_bytes(enum dsched_dtype dtype);
/* "f32", "f64", "f16", "bf16"; NULL for a foreign value. */
const char *dsched_dtype_name(enum dsched_dtype dtype);

/* One tensor in forward order. `elements` 0 is a compute-only entry. Backward runs the tensors in
 * reverse; a gradient is ready when its own backward_ns has passed. */
struct dsched_tensor {
    char name[DSCHED_NAME_BYTES];
    uint64_t elements;
    enum dsched_dtype dtype;
    int64_t forward_ns;
    int64_t backward_ns;
};

struct dsched_sample {
    uint64_t bytes;
    int64_t ns;
};

/* An all-reduce of S > 0 bytes takes alpha_ns + S * 1e9 / bytes_per_s, or, when n_samples > 0, the
 * piecewise linear interpolation of `samples` (sorted by bytes, extrapolated by the last segment).
 */
struct dsched_link {
    char name[DSCHED_NAME_BYTES];
    int64_t alpha_ns;
    int64_t bytes_per_s;
    uint32_t contention_ppm; /* compute time factor while the link is busy; 1,000,000 = none */
    uint32_t n_samples;
    struct dsched_sample *samples; /* owned by the profile */
};

struct dsched_profile {
    char name[DSCHED_NAME_BYTES];
    uint32_t world_size;
    int64_t forward_ns; /* whole stages; tensors' own times may sum to slightly less */
    int64_t backward_ns;
    int64_t optimizer_ns;
    uint32_t n_tensors;
    struct dsched_tensor *tensors;
    uint32_t n_links;
    struct dsched_link *links;
};

/* Everything inside becomes owned by the profile; dsched_profile_done(NULL or zeroed) is fine. */
void dsched_profile_done(struct dsched_profile *profile);

/* Checks every number against limits.h and consistency (samples sorted, at least one tensor with
 * elements, at least one link, ...). */
DSCHED_NODISCARD enum dsched_status dsched_profile_check(const struct dsched_profile *profile,
                                                         struct dsched_error *error);

/* Time of one all-reduce of `bytes` on `link`. Rounded up to whole ns. 0 for 0 bytes. */
int64_t dsched_link_ns(const struct dsched_link *link, uint64_t bytes);

/* --- the gradient space ------------------------------------------------------------------------
 * All gradient elements as one flat vector, output side first: the reverse of forward order. */

/* What a plan is checked against; the runtime has this without any profile. Forward order. */
struct dsched_table {
    uint32_t n_tensors;
    const uint64_t *elements;
    const uint8_t *dtypes; /* enum dsched_dtype */
};

/* FNV-1a over counts, sizes and dtypes: equal on all ranks or they train different models. */
uint64_t dsched_table_hash(const struct dsched_table *table);
uint64_t dsched_table_elements(const struct dsched_table *table);
uint64_t dsched_table_bytes(const struct dsched_table *table);

#ifdef __cplusplus
}
#endif
#endif
