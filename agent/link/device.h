/* A device: where gradients, parameters and pending copies are, and who works on them.
 *
 * Every kind of device is one `const struct device_ops` table in its own file: the host, which does
 * at once what it is told, and CUDA, which queues it on the caller's stream. Whoever uses the table
 * does not know which: nothing in it waits for a device, but the calls that say so.
 *
 * All work is queued in one order, that of the calls, on whatever streams: when the caller changes
 * streams, the new one first waits for what the old one was given. */
#ifndef DEVICE_H
#define DEVICE_H

#include <stddef.h>
#include <stdint.h>

#include <deft/deft.h>
#include <deft/status.h>

#include "link/device_averaged.h"

struct device;

/* Whose squared norm a pass adds to. */
enum device_norm {
    DEVICE_NORM_LOCAL = 0,
    DEVICE_NORM_MEAN = 1,
    DEVICE_NORM_CHANGE = 2, /* averaged: this rank's share of what landed */
    DEVICE_N_NORMS = 3
};

/* Stages of an iteration, in order. */
enum device_stage {
    DEVICE_FORWARD = 0,
    DEVICE_BACKWARD = 1,
    DEVICE_BOUNDARY = 2,
    DEVICE_AWAIT = 3,  /* averages that are due at a boundary, which may be none */
    DEVICE_LANDED = 4, /* they are there */
    DEVICE_N_STAGES = 5
};

/* What is known of an iteration that the device has passed. */
struct device_figures {
    double norms[DEVICE_N_NORMS]; /* sums of squares; of what landed: since the iteration before */
    int64_t forward_ns;           /* 0: unknown */
    int64_t backward_ns;
    int64_t exposed_ns; /* from DEVICE_AWAIT to DEVICE_LANDED; 0 without them */
    /* Averaged: generations that have landed since figures were told last. */
    uint32_t n_applied;
    uint32_t n_dropped;
};

struct device_ops {
    const char *name; /* "cpu", "cuda" */
    /* 1: what is called here has been queued, not done. Norms come by `collect` then. */
    int is_async;

    /* Memory of the device, zeroed; NULL: there is none. May be called on any thread, and may wait
     * for the device, like `release`, which takes NULL. */
    void *(*alloc)(struct device *device, size_t n_bytes);
    void (*release)(struct device *device, void *memory);

    /* The passes of runtime/kernels.h: into[i] = from[i] * factor (`from` NULL: zeros),
     * into[i] += from[i] * factor, and the sum of x[i]^2. Each returns the squared norm of what it
     * has read, or 0 and adds it on the device to `norm`. */
    double (*copy)(struct device *device, enum deft_dtype dtype, void *into, const void *from,
                   uint64_t n, double factor, enum device_norm norm);
    double (*add)(struct device *device, enum deft_dtype dtype, void *into, const void *from,
                  uint64_t n, double factor, enum device_norm norm);
    double (*norm)(struct device *device, enum deft_dtype dtype, const void *x, uint64_t n,
                   enum device_norm norm);
    void (*scale)(struct device *device, enum deft_dtype dtype, void *x, uint64_t n, double factor);
    /* Bytes from the device to the device. */
    void (*move)(struct device *device, void *into, const void *from, size_t n_bytes);
    void (*zero)(struct device *device, void *into, size_t n_bytes);
    /* Bytes from the device to the host. Waits for them. */
    void (*read)(struct device *device, void *into, const void *from, size_t n_bytes);

    /* Averaged. Before the own step of an iteration, all of whose gradients have been added to
     * DEVICE_NORM_LOCAL: if that is not finite, the gradients, DEVICE_AVERAGED_MAX_GRADIENTS at
     * most in a call, become zeros, and the generation counts as bad until an iteration `begins`
     * another one. The host does nothing: who asks it knows the norm and makes no step. */
    void (*guard)(struct device *device, const struct device_averaged_gradient *gradients,
                  uint32_t n_gradients, int begins);
    /* The mean of a bucket has landed, with its first element at `landed`: 1 when some rank has
     * marked it. A device returns 0 and tells only its own passes of `average` until the next call;
     * `counts`: and the figures, of the generation. */
    int (*judge)(struct device *device, enum deft_dtype dtype, const void *landed, int counts);
    /* Lands, then captures. Adds to `*sums`, or on the device to the norms. */
    void (*average)(struct device *device, enum deft_dtype dtype, const struct device_averaged *at,
                    uint64_t n, struct device_averaged_sums *sums);
    /* A bucket whose first element is at `sum` has been captured: marks it when it `is_bad`, or
     * when a device knows that: a change since the last call is not finite, or the generation
     * counts as bad. */
    void (*seal)(struct device *device, enum deft_dtype dtype, void *sum, int is_bad);
    /* What is not all finite becomes zeros. */
    void (*purge)(struct device *device, enum deft_dtype dtype, void *x, uint64_t n);

    /* A mark in the order of the work, for links to start behind. NULL on the host and when there
     * is no memory, which `failure` tells. */
    void *(*mark_create)(struct device *device);
    void (*mark_destroy)(struct device *device, void *mark);
    void (*mark)(struct device *device, void *mark);

    /* The work goes on on the caller's `stream`. A stream that is being captured into a graph is a
     * failure: what is queued there would run again without the runtime. */
    void (*use_stream)(struct device *device, void *stream);
    /* Stages of the iteration begin at this point of the work. */
    void (*stamp)(struct device *device, enum device_stage stage);
    /* Ends an iteration's figures. Returns 1 and those of the newest iteration that the device has
     * passed since the last call, or 0. Does not wait. */
    int (*collect)(struct device *device, struct device_figures *out);
    /* The gradient of `tensor`, of `n_tensors`, is there at this point of the work. */
    void (*came)(struct device *device, uint32_t tensor, uint32_t n_tensors);
    /* Returns 1 and, in `offsets_ns`, [n_tensors], when the gradients of an iteration came after
     * its backward had begun; each such iteration once. 0: there is none new. Does not wait. */
    int (*take_readiness)(struct device *device, int64_t *offsets_ns);
    /* Waits until all that was queued is done. */
    void (*settle)(struct device *device);

    /* For links of host memory, NULL on the host. Memory that the device copies fast, and a copier:
     * a stream of its own, for one thread at a time, whose calls wait. `pull` starts behind `mark`
     * (NULL: at once). */
    void *(*pin)(struct device *device, size_t n_bytes);
    void (*unpin)(struct device *device, void *memory);
    DEFT_NODISCARD enum deft_status (*copier_open)(struct device *device, void **out,
                                                   struct deft_error *error);
    void (*copier_close)(struct device *device, void *copier);
    DEFT_NODISCARD enum deft_status (*pull)(struct device *device, void *copier, void *into,
                                            const void *from, size_t n_bytes, void *mark,
                                            struct deft_error *error);
    DEFT_NODISCARD enum deft_status (*push)(struct device *device, void *copier, void *into,
                                            const void *from, size_t n_bytes,
                                            struct deft_error *error);

    /* The first call that failed, with the library's own words; DEFT_OK: none has. Calls after it
     * do nothing. Training thread only, like all but `alloc`, `release` and what is for
     * links. */
    DEFT_NODISCARD enum deft_status (*failure)(const struct device *device,
                                               struct deft_error *error);
    /* Takes NULL. Everything of it must have been released. */
    void (*close)(struct device *device);
};

/* First member of every device. */
struct device {
    const struct device_ops *ops;
};

#ifdef DEFT_WITH_CUDA
/* CUDA's device `number`; -1: the one that is current on this thread. Everything of CUDA is loaded
 * here, at run time: fails with DEFT_UNSUPPORTED and a sentence when it is not there. */
DEFT_NODISCARD enum deft_status cuda_device_open(int number, struct device **out,
                                                 struct deft_error *error);
#endif

#endif
