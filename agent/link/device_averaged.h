/* What the passes of averaged work on (docs/update-rules.md): device.h offers them to the runtime,
 * device_kernels.h to CUDA. Elements are f32 or f64. */
#ifndef DEVICE_AVERAGED_H
#define DEVICE_AVERAGED_H

#include <stdint.h>

/* Changes that stay in flight beside the one that is captured: a delay has 64 boundaries at most.
 */
#define DEVICE_AVERAGED_MAX_OLDER 64u
/* Gradients of one call. */
#define DEVICE_AVERAGED_MAX_GRADIENTS 128u

/* One pass over a part of a bucket: [n] each, NULL is left out. All but `w` are aligned alike to 16
 * bytes. When some rank has marked the mean, w = a instead, and the older changes, which were
 * relative to weights that are gone, become zeros. */
struct device_averaged {
    void *w; /* this rank's parameters */
    void *a; /* the anchor */
    /* A mean that has landed, and this rank's share: a += landed, w += landed - landed_own. */
    const void *landed;
    const void *landed_own;
    void *older[DEVICE_AVERAGED_MAX_OLDER]; /* in flight and no part of the new change */
    uint32_t n_older;
    int32_t is_dropped; /* what `judge` said of the mean */
    void *own;          /* the new change: own = w - a - all older ones; may be landed_own */
    void *sum;          /* own * factor; may be landed */
    double factor;
};

/* Sums of squares; 0 where a device keeps them. */
struct device_averaged_sums {
    double landed_sq;
    double own_sq;
};

/* A gradient that the caller lets us write to. */
struct device_averaged_gradient {
    void *memory;
    uint64_t n_bytes;
};

#endif
