/* The calls of CUDA's runtime that libdeft makes, found at run time. */
#ifndef CUDA_API_H
#define CUDA_API_H

#include <cuda_runtime_api.h>

#include "link/library.h"

/* Named as in CUDA without the prefix; signatures as in its header. */
struct cuda_api {
    cudaError_t (*runtime_get_version)(int *version);
    cudaError_t (*driver_get_version)(int *version);
    cudaError_t (*get_last_error)(void);
    const char *(*get_error_string)(cudaError_t code);
    cudaError_t (*get_device)(int *device);
    cudaError_t (*set_device)(int device);
    cudaError_t (*get_device_count)(int *count);
    cudaError_t (*malloc)(void **memory, size_t n_bytes);
    cudaError_t (*free)(void *memory);
    cudaError_t (*host_alloc)(void **memory, size_t n_bytes, unsigned flags);
    cudaError_t (*free_host)(void *memory);
    cudaError_t (*memcpy_async)(void *into, const void *from, size_t n_bytes,
                                enum cudaMemcpyKind kind, cudaStream_t stream);
    cudaError_t (*memset_async)(void *memory, int value, size_t n_bytes, cudaStream_t stream);
    cudaError_t (*device_get_stream_priority_range)(int *least, int *greatest);
    cudaError_t (*stream_create_with_priority)(cudaStream_t *stream, unsigned flags, int priority);
    cudaError_t (*stream_destroy)(cudaStream_t stream);
    cudaError_t (*stream_synchronize)(cudaStream_t stream);
    cudaError_t (*stream_wait_event)(cudaStream_t stream, cudaEvent_t event, unsigned flags);
    cudaError_t (*stream_is_capturing)(cudaStream_t stream, enum cudaStreamCaptureStatus *status);
    cudaError_t (*thread_exchange_stream_capture_mode)(enum cudaStreamCaptureMode *mode);
    cudaError_t (*event_create_with_flags)(cudaEvent_t *event, unsigned flags);
    cudaError_t (*event_destroy)(cudaEvent_t event);
    cudaError_t (*event_record)(cudaEvent_t event, cudaStream_t stream);
    cudaError_t (*event_query)(cudaEvent_t event);
    cudaError_t (*event_synchronize)(cudaEvent_t event);
    cudaError_t (*event_elapsed_time)(float *out_ms, cudaEvent_t begin, cudaEvent_t end);
};

/* The copy that this process has, else one by its soname or DEFT_CUDART; an older one where the
 * driver is too old for that. Fails with a sentence when there is none, it or the driver is too old
 * or there is no device: then the error's code is cudaErrorNoDevice. */
DEFT_NODISCARD enum deft_status cuda_api_load(struct cuda_api *out, struct deft_error *error);

/* Returns `code`. One that is not cudaSuccess is no longer the last error of this thread: the
 * runtime is the program's own, and its next look at its own launches would find it. For all
 * failures that go no further; cuda_api_fail does it for those that are told. */
cudaError_t cuda_api_forget(const struct cuda_api *api, cudaError_t code);

/* "CUDA: CALL failed: WORDS", DEFT_IO (DEFT_NO_MEMORY where that is it). On the thread that made
 * the call. */
enum deft_status cuda_api_fail(const struct cuda_api *api, const char *call, cudaError_t code,
                               struct deft_error *error);

/* Makes `device` the current one of this thread; returns what to give to cuda_api_leave. */
int cuda_api_enter(const struct cuda_api *api, int device);
void cuda_api_leave(const struct cuda_api *api, int device, int before);

#endif
