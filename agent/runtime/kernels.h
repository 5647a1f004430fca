/* The passes over gradients and parameters. All deterministic: equal input gives equal bits on
 * every rank that runs the same binary. Squared norms are sums of f32 squares per block of
 * KERNELS_BLOCK elements, added up in f64; a non-finite element makes the norm non-finite. */
#ifndef KERNELS_H
#define KERNELS_H

#include <stdint.h>

#include <dsched/profile.h>

#define KERNELS_BLOCK 512u

/* into[i] = from[i] * factor. `from` NULL counts as zeros. Returns sum of from[i]^2. */
double kernels_copy(enum dsched_dtype dtype, void *into, const void *from, uint64_t n,
                    double factor);
/* into[i] += from[i] * factor. Returns sum of from[i]^2. */
double kernels_add(enum dsched_dtype dtype, void *into, const void *from, uint64_t n,
                   double factor);
/* Sum of x[i]^2. */
double kernels_norm(enum dsched_dtype dtype, const void *x, uint64_t n);
/* x[i] *= factor. */
void kernels_scale(enum dsched_dtype dtype, void *x, uint64_t n, double factor);

/* --- averaged, f32 and f64 only (docs/update-rules.md) -------------------------------------------
 * w: this rank's parameters, a: anchor, own: this rank's change that is in flight, sum: all-reduce
 * buffer holding the mean of the changes once it has landed. */

/* A landed mean replaces this rank's own share: a += sum, w += sum - own. */
void kernels_land(enum dsched_dtype dtype, void *w, void *a, const void *sum, const void *own,
                  uint64_t n);
/* The change of the generation that ends now becomes in flight: own = w - a, sum = own * factor. */
void kernels_capture(enum dsched_dtype dtype, const void *w, const void *a, void *own, void *sum,
                     uint64_t n, double factor);
/* The same when an older change is still in flight, after kernels_capture: own -= older. */
void kernels_exclude(enum dsched_dtype dtype, void *own, const void *older, uint64_t n);
/* kernels_land followed by kernels_capture in one pass, in place. */
void kernels_land_capture(enum dsched_dtype dtype, void *w, void *a, void *own, void *sum,
                          uint64_t n, double factor);
/* Makes element 0 not a number: how a rank tells all others to skip a generation. */
void kernels_poison(enum dsched_dtype dtype, void *x);

#endif
