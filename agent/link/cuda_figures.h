/* What a device finds out in an iteration, on its way to the host: sums, counts, and the times of
 * stages by its own clock. Told when the device has passed the iteration. */
#ifndef CUDA_FIGURES_H
#define CUDA_FIGURES_H

#include "link/cuda_api.h"
#include "link/device.h"
#include "link/device_kernels.h"

/* Iterations whose figures are under way: a host is seldom further ahead of its device. */
#define CUDA_FIGURES_SLOTS 8u

/* In the device's memory; passes write to it. */
struct cuda_figures_sums {
    double norms[DEVICE_N_NORMS];      /* begin anew with each iteration */
    struct device_kernels_notes notes; /* counts never do, so none is lost on the way */
    double purged;                     /* of what is being looked at; not told */
};

struct cuda_figures_slot {
    struct cuda_figures_sums *sums; /* pinned */
    cudaEvent_t stages[DEVICE_N_STAGES];
    cudaEvent_t passed;
    uint32_t stamped; /* bit per stage */
    int is_pending;   /* `passed` has been recorded and not been seen */
};

/* Zero-initialised is good for cuda_figures_done. */
struct cuda_figures {
    struct cuda_figures_sums *sums;
    struct cuda_figures_slot slots[CUDA_FIGURES_SLOTS];
    uint32_t present;   /* whose iteration it is */
    uint64_t n_landed;  /* told so far */
    uint64_t n_dropped; /* of these */
};

/* All of these on the training thread and the device's own context; `stream` is the caller's.
 * Returns 0 when there is no memory or event. */
int cuda_figures_make(struct cuda_figures *figures, const struct cuda_api *api,
                      struct device *device);
void cuda_figures_done(struct cuda_figures *figures, const struct cuda_api *api,
                       struct device *device);
DEFT_NODISCARD cudaError_t cuda_figures_stamp(struct cuda_figures *figures,
                                              const struct cuda_api *api, cudaStream_t stream,
                                              enum device_stage stage);
/* The iteration ends at this point of the stream. `*out_call` is the one that failed. */
DEFT_NODISCARD cudaError_t cuda_figures_end(struct cuda_figures *figures,
                                            const struct cuda_api *api, cudaStream_t stream,
                                            const char **out_call);
/* Those of the newest iteration that the device has passed since the last call; `*out_found` 0:
 * none. Does not wait. */
DEFT_NODISCARD cudaError_t cuda_figures_take(struct cuda_figures *figures,
                                             const struct cuda_api *api, struct device_figures *out,
                                             int *out_found);

#endif
