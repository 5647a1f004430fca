#include "link/cuda_api.h"

#define CUDA_API_SYMBOL(symbol, member)                                                            \
    { symbol, offsetof(struct cuda_api, member) }

/* Events with flags of their own record and stream capture are as they are now since then. */
#define CUDA_API_OLDEST 11020

enum deft_status cuda_api_load(struct cuda_api *out, struct deft_error *error) {
    static const char *const names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0",
                                        NULL};
    static const struct library_symbol symbols[] = {
        CUDA_API_SYMBOL("cudaRuntimeGetVersion", runtime_get_version),
        CUDA_API_SYMBOL("cudaGetErrorString", get_error_string),
        CUDA_API_SYMBOL("cudaGetDevice", get_device),
        CUDA_API_SYMBOL("cudaSetDevice", set_device),
        CUDA_API_SYMBOL("cudaGetDeviceCount", get_device_count),
        CUDA_API_SYMBOL("cudaMalloc", malloc),
        CUDA_API_SYMBOL("cudaFree", free),
        CUDA_API_SYMBOL("cudaHostAlloc", host_alloc),
        CUDA_API_SYMBOL("cudaFreeHost", free_host),
        CUDA_API_SYMBOL("cudaMemcpyAsync", memcpy_async),
        CUDA_API_SYMBOL("cudaMemsetAsync", memset_async),
        CUDA_API_SYMBOL("cudaDeviceGetStreamPriorityRange", device_get_stream_priority_range),
        CUDA_API_SYMBOL("cudaStreamCreateWithPriority", stream_create_with_priority),
        CUDA_API_SYMBOL("cudaStreamDestroy", stream_destroy),
        CUDA_API_SYMBOL("cudaStreamSynchronize", stream_synchronize),
        CUDA_API_SYMBOL("cudaStreamWaitEvent", stream_wait_event),
        CUDA_API_SYMBOL("cudaStreamIsCapturing", stream_is_capturing),
        CUDA_API_SYMBOL("cudaEventCreateWithFlags", event_create_with_flags),
        CUDA_API_SYMBOL("cudaEventDestroy", event_destroy),
        CUDA_API_SYMBOL("cudaEventRecord", event_record),
        CUDA_API_SYMBOL("cudaEventQuery", event_query),
        CUDA_API_SYMBOL("cudaEventSynchronize", event_synchronize),
        CUDA_API_SYMBOL("cudaEventElapsedTime", event_elapsed_time),
    };
    struct library library;
    struct cuda_api api;
    int version = 0;
    int n_devices = 0;
    enum deft_status status = library_open("CUDA's runtime", "DEFT_CUDART", names, &library, error);
    if (status == DEFT_OK) {
        status = library_bind(&library, symbols, sizeof(symbols) / sizeof(symbols[0]), &api, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    cudaError_t code = api.runtime_get_version(&version);
    if (code != cudaSuccess) {
        return cuda_api_fail(&api, "cudaRuntimeGetVersion", code, error);
    }
    if (version < CUDA_API_OLDEST) {
        return deft_fail(error, DEFT_UNSUPPORTED, version,
                         "CUDA's runtime has version %d, expected %d or newer", version,
                         CUDA_API_OLDEST);
    }
    code = api.get_device_count(&n_devices);
    if (code != cudaSuccess || n_devices == 0) {
        return deft_fail(error, DEFT_UNSUPPORTED, (int32_t)code, "CUDA has no device here: %s",
                         code != cudaSuccess ? api.get_error_string(code) : "it counts none");
    }
    *out = api;
    return DEFT_OK;
}

enum deft_status cuda_api_fail(const struct cuda_api *api, const char *call, cudaError_t code,
                               struct deft_error *error) {
    return deft_fail(error, code == cudaErrorMemoryAllocation ? DEFT_NO_MEMORY : DEFT_IO,
                     (int32_t)code, "CUDA: %s failed: %s", call, api->get_error_string(code));
}

int cuda_api_enter(const struct cuda_api *api, int device) {
    int before = device;
    if (api->get_device(&before) == cudaSuccess && before != device) {
        (void)api->set_device(device); /* what is called next tells what is wrong */
    }
    return before;
}

void cuda_api_leave(const struct cuda_api *api, int device, int before) {
    if (before != device) {
        (void)api->set_device(before);
    }
}
