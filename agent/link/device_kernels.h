/* What libdeft-cuda offers to libdeft: passes over device memory, queued on a stream. A shared
 * object of its own, found at run time, so that libdeft needs nothing of CUDA. It brings its own
 * copy of CUDA's runtime; streams and memory are the driver's, and so the same in all copies. */
#ifndef DEVICE_KERNELS_H
#define DEVICE_KERNELS_H

#include <stddef.h>
#include <stdint.h>

#include "link/device_averaged.h"

#ifdef __cplusplus
extern "C" {
#endif

#define DEVICE_KERNELS_VERSION 2u
#define DEVICE_KERNELS_SYMBOL  "deft_cuda_kernels"

/* Where a pass is queued. Passes that share a scratch must be ordered among themselves. */
struct device_kernels_queue {
    int32_t device; /* CUDA's number */
    void *stream;
    void *scratch; /* scratch_bytes of the device's memory, zeroed before the first pass */
};

/* What passes of averaged leave for those behind them, in the device's memory, zeroed at first. */
struct device_kernels_notes {
    uint64_t n_landed;          /* generations that were judged and counted */
    uint64_t n_dropped;         /* of these */
    uint32_t is_dropped;        /* the mean that was judged last */
    uint32_t is_bad;            /* a change that was captured since the last `seal` is not finite */
    uint32_t generation_is_bad; /* some gradient of it was not finite */
};

/* Types are enum deft_dtype. Results are 0 or CUDA's code, whose words `text` has. Squared norms
 * are added to `*sum` on the device, in an order that depends on the number of elements and the
 * alignment alone. Elements of all types but f64 are squared in f32, and so are the squares of at
 * most four elements (eight of a half type) added; all else is f64. So an element of more than
 * 1.8e19 makes the norm infinite, as it does on the host for f32; half types it squares in f64. */
struct device_kernels {
    uint32_t version;
    uint32_t scratch_bytes;
    /* into[i] = from[i] * factor, or += when `add`; *sum += from[i]^2. Half types are widened to
     * f32 and rounded to nearest even. Buffers are aligned to their elements; where both are alike
     * to 16 bytes, memory is accessed by 16 bytes. They do not overlap. */
    int (*combine)(const struct device_kernels_queue *queue, int dtype, void *into,
                   const void *from, uint64_t n, double factor, int add, double *sum);
    int (*norm)(const struct device_kernels_queue *queue, int dtype, const void *x, uint64_t n,
                double *sum);
    int (*scale)(const struct device_kernels_queue *queue, int dtype, void *x, uint64_t n,
                 double factor);
    /* into[i] = from[i] * factor between any two types. */
    int (*cast)(const struct device_kernels_queue *queue, int into_dtype, void *into,
                int from_dtype, const void *from, uint64_t n, double factor);
    /* Averaged, as device.h has it, f32 and f64. `average` adds what has landed to sums[0] and this
     * rank's share of it to sums[1]; when the mean was judged bad, nothing. */
    int (*average)(const struct device_kernels_queue *queue, int dtype,
                   const struct device_averaged *at, uint64_t n, double *sums,
                   struct device_kernels_notes *notes);
    int (*judge)(const struct device_kernels_queue *queue, int dtype, const void *landed,
                 int counts, struct device_kernels_notes *notes);
    int (*seal)(const struct device_kernels_queue *queue, int dtype, void *sum,
                struct device_kernels_notes *notes);
    /* Zeroes all unless *norm is finite, which `bad`, unless it is NULL, keeps from one call to the
     * next one that `begins`. DEVICE_AVERAGED_MAX_GRADIENTS at most. */
    int (*guard)(const struct device_kernels_queue *queue,
                 const struct device_averaged_gradient *gradients, uint32_t n_gradients, int begins,
                 const double *norm, uint32_t *bad);
    const char *(*text)(int code);
};

/* The only symbol of libdeft-cuda. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
const struct device_kernels *
deft_cuda_kernels(void);

#ifdef __cplusplus
}
#endif
#endif
