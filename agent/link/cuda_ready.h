/* When the gradients of an iteration come, by the device's clock: one iteration at a time is looked
 * at, and told when the device has passed it. */
#ifndef CUDA_READY_H
#define CUDA_READY_H

#include "link/cuda_api.h"

/* Zero-initialised is empty. */
struct cuda_ready {
    uint32_t n_tensors;
    cudaEvent_t *events; /* [n_tensors + 1], the last one: backward begins */
    uint8_t *came;       /* [n_tensors] */
    int is_open;         /* between begin and end of the iteration that is looked at */
    int is_pending;      /* it has ended for the host */
    cudaEvent_t passed;
    uint32_t n_left; /* iterations until the next one is looked at */
};

/* All of these on the training thread and the device's own context; `stream` is the caller's. An
 * error is the first one of CUDA's. */
/* Backward begins; looks at every fourth iteration, and at none before the one before is told. */
DEFT_NODISCARD cudaError_t cuda_ready_begin(struct cuda_ready *ready, const struct cuda_api *api,
                                            cudaStream_t stream);
/* The gradient of `tensor`, of `n_tensors`, is there at this point of the stream. */
DEFT_NODISCARD cudaError_t cuda_ready_came(struct cuda_ready *ready, const struct cuda_api *api,
                                           cudaStream_t stream, uint32_t tensor,
                                           uint32_t n_tensors);
/* The iteration ends. */
DEFT_NODISCARD cudaError_t cuda_ready_end(struct cuda_ready *ready, const struct cuda_api *api,
                                          cudaStream_t stream);
/* Fills `offsets_ns`, [n_tensors], since backward began, of an iteration that the device has
 * passed;
 * `*out_found` 0: there is none. Does not wait. */
DEFT_NODISCARD cudaError_t cuda_ready_take(struct cuda_ready *ready, const struct cuda_api *api,
                                           int64_t *offsets_ns, int *out_found);
void cuda_ready_done(struct cuda_ready *ready, const struct cuda_api *api);

#endif
