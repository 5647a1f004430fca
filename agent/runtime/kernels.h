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
 * w: this rank's parameters, a: anchor, own: this rank's change that is in flight, sum: its part of
 * the mean, which the all-reduce turns into the mean of all ranks' changes. */

/* Where one pass over a bucket reads and writes; NULL parts are left out. */
struct kernels_averaged {
    void *w;
    void *a;
    const void *landed; /* mean that has landed: a += landed, w += landed - landed_own */
    const void *landed_own;
    const void *older; /* change that stays in flight and is not part of the new one */
    void *own;         /* the new change, own = w - a - older; may be landed_own */
    void *sum;         /* own * factor; may be landed */
    double factor;
};
struct kernels_norms {
    double landed_sq; /* |landed|^2; 0 without */
    double own_sq;    /* |own|^2, before kernels_exclude; 0 without */
};
/* Lands, then captures, in one pass. Adds to `*norms`. */
void kernels_average(enum dsched_dtype dtype, const struct kernels_averaged *at, uint64_t n,
                     struct kernels_norms *norms);
/* When more than one older change is in flight, after kernels_average: own -= older. */
void kernels_exclude(enum dsched_dtype dtype, void *own, const void *older, uint64_t n);

/* Makes element 0 not a number: how a rank tells all others to skip a generation. A sum with it is
 * poisoned on all ranks. */
void kernels_poison(enum dsched_dtype dtype, void *x);
int kernels_is_poisoned(enum dsched_dtype dtype, const void *x);

#endif
