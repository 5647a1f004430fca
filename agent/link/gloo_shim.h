/* The C face of Gloo. Nothing else in the project includes a Gloo header. */
#ifndef GLOO_SHIM_H
#define GLOO_SHIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gloo_shim;

#define GLOO_SHIM_TEXT_BYTES 256

/* Gathers n_bytes from every rank; 0 on success. */
typedef int (*gloo_shim_allgather_fn)(void *context, const void *in, size_t n_bytes, void *out);

/* Connects a full mesh of TCP pairs over `interface` (a network interface) or, when that is NULL,
 * over the interface that owns `address`. Collective. Returns NULL and a text on failure. */
struct gloo_shim *gloo_shim_open(const char *interface, const char *address, int rank, int n_ranks,
                                 gloo_shim_allgather_fn allgather, void *context,
                                 int64_t connect_timeout_ms, char *out_text);

enum gloo_shim_type { GLOO_SHIM_F32, GLOO_SHIM_F64, GLOO_SHIM_F16, GLOO_SHIM_BF16 };
enum gloo_shim_result { GLOO_SHIM_OK, GLOO_SHIM_TIMEOUT, GLOO_SHIM_BROKEN };

/* Adds `from` into `into`; for the half types, which Gloo itself sums without rounding to even. */
typedef void (*gloo_shim_sum_fn)(void *into, const void *from, size_t elements, int type);

/* All-reduce in place, blocking; bit-equal on all ranks. A ring; up to GLOO_SHIM_MAX_VALUES numbers
 * of f64 take about log2 n_ranks rounds of small messages instead, received into buffers that were
 * posted one call ahead, so that a round costs one network latency and no rendezvous. */
enum gloo_shim_result gloo_shim_sum(struct gloo_shim *shim, void *data, size_t elements,
                                    enum gloo_shim_type type, gloo_shim_sum_fn sum,
                                    int64_t timeout_ms, char *out_text);

/* Element-wise maximum over ranks, in place, blocking: ceil(log2 n_ranks) rounds like those of a
 * small sum. At most GLOO_SHIM_MAX_VALUES values. */
#define GLOO_SHIM_MAX_VALUES 16
enum gloo_shim_result gloo_shim_max(struct gloo_shim *shim, int64_t *values, size_t n_values,
                                    int64_t timeout_ms, char *out_text);

/* Closes the connections, which ends blocked calls of peers. Any thread. */
void gloo_shim_abort(struct gloo_shim *shim);
/* No call may be running. Takes NULL. */
void gloo_shim_close(struct gloo_shim *shim);

#ifdef __cplusplus
}
#endif
#endif
