#include "link/cuda_ready.h"

#include <stdlib.h>
#include <string.h>

/* Events cost the host a microsecond each. */
#define READY_EVERY 4u

static cudaError_t ready_make(struct cuda_ready *ready, const struct cuda_api *api,
                              uint32_t n_tensors) {
    cudaError_t code = cudaSuccess;
    ready->events = calloc((size_t)n_tensors + 1, sizeof(cudaEvent_t));
    ready->came = calloc(n_tensors, 1);
    if (ready->events == NULL || ready->came == NULL) {
        return cudaErrorMemoryAllocation;
    }
    ready->n_tensors = n_tensors;
    for (uint32_t i = 0; i <= n_tensors && code == cudaSuccess; i++) {
        code = api->event_create_with_flags(&ready->events[i], cudaEventDefault);
    }
    return code;
}

cudaError_t cuda_ready_begin(struct cuda_ready *ready, const struct cuda_api *api,
                             cudaStream_t stream) {
    ready->is_open = 0;
    if (ready->n_tensors == 0 || ready->is_pending) { /* the first iteration tells how many */
        return cudaSuccess;
    }
    if (ready->n_left > 0) {
        ready->n_left--;
        return cudaSuccess;
    }
    ready->is_open = 1;
    memset(ready->came, 0, ready->n_tensors);
    return api->event_record(ready->events[ready->n_tensors], stream);
}

cudaError_t cuda_ready_came(struct cuda_ready *ready, const struct cuda_api *api,
                            cudaStream_t stream, uint32_t tensor, uint32_t n_tensors) {
    if (ready->n_tensors == 0) {
        return ready_make(ready, api, n_tensors);
    }
    if (!ready->is_open) {
        return cudaSuccess;
    }
    ready->came[tensor] = 1;
    return api->event_record(ready->events[tensor], stream);
}

cudaError_t cuda_ready_end(struct cuda_ready *ready, const struct cuda_api *api,
                           cudaStream_t stream) {
    cudaError_t code = cudaSuccess;
    if (!ready->is_open) {
        return code;
    }
    if (ready->passed == NULL) {
        code = api->event_create_with_flags(&ready->passed, cudaEventDisableTiming);
    }
    if (code == cudaSuccess) {
        code = api->event_record(ready->passed, stream);
    }
    ready->is_open = 0;
    ready->is_pending = 1;
    return code;
}

cudaError_t cuda_ready_take(struct cuda_ready *ready, const struct cuda_api *api,
                            int64_t *offsets_ns, int *out_found) {
    cudaError_t code = cudaSuccess;
    *out_found = 0;
    if (!ready->is_pending) {
        return code;
    }
    code = cuda_api_forget(api, api->event_query(ready->passed));
    if (code == cudaErrorNotReady) {
        return cudaSuccess;
    }
    for (uint32_t i = 0; i < ready->n_tensors && code == cudaSuccess; i++) {
        float ms = 0;
        if (ready->came[i]) {
            code = api->event_elapsed_time(&ms, ready->events[ready->n_tensors], ready->events[i]);
        }
        offsets_ns[i] = ms > 0 ? (int64_t)((double)ms * 1e6) : 0;
    }
    ready->is_pending = 0;
    ready->n_left = READY_EVERY - 1;
    *out_found = code == cudaSuccess;
    return code;
}

void cuda_ready_done(struct cuda_ready *ready, const struct cuda_api *api) {
    for (uint32_t i = 0; ready->events != NULL && i <= ready->n_tensors; i++) {
        if (ready->events[i] != NULL) {
            (void)api->event_destroy(ready->events[i]);
        }
    }
    if (ready->passed != NULL) {
        (void)api->event_destroy(ready->passed);
    }
    free((void *)ready->events);
    free(ready->came);
    memset(ready, 0, sizeof(*ready));
}
