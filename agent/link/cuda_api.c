#include "link/cuda_api.h"

#include <string.h>

#define CUDA_API_SYMBOL(symbol, member)                                                            \
    { symbol, offsetof(struct cuda_api, member) }

/* Events with flags of their own record and stream capture are as they are now since then. */
#define CUDA_API_OLDEST 11020

static enum deft_status api_bind(const struct library *library, struct cuda_api *out,
                                 struct deft_error *error) {
    static const struct library_symbol symbols[] = {
        CUDA_API_SYMBOL("cudaRuntimeGetVersion", runtime_get_version),
        CUDA_API_SYMBOL("cudaDriverGetVersion", driver_get_version),
        CUDA_API_SYMBOL("cudaGetLastError", get_last_error),
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
        CUDA_API_SYMBOL("cudaThreadExchangeStreamCaptureMode", thread_exchange_stream_capture_mode),
        CUDA_API_SYMBOL("cudaEventCreateWithFlags", event_create_with_flags),
        CUDA_API_SYMBOL("cudaEventDestroy", event_destroy),
        CUDA_API_SYMBOL("cudaEventRecord", event_record),
        CUDA_API_SYMBOL("cudaEventQuery", event_query),
        CUDA_API_SYMBOL("cudaEventSynchronize", event_synchronize),
        CUDA_API_SYMBOL("cudaEventElapsedTime", event_elapsed_time),
    };
    return library_bind(library, symbols, sizeof(symbols) / sizeof(symbols[0]), out, error);
}

/* Why there is no device; the code of the error is cudaErrorNoDevice where that is certain. */
static enum deft_status api_refuse(const struct cuda_api *api, const struct library *library,
                                   int version, cudaError_t code, struct deft_error *error) {
    int driver = 0;
    if (code == cudaErrorInsufficientDriver) { /* also where there is none */
        (void)cuda_api_forget(api, api->driver_get_version(&driver));
    }
    if (code == cudaErrorInsufficientDriver && driver > 0) {
        return deft_fail(error, DEFT_UNSUPPORTED, (int32_t)code,
                         "the driver is too old: it is for CUDA %d.%d, and %.160s is of CUDA "
                         "%d.%d; update the driver, or set DEFT_CUDART to an older libcudart",
                         driver / 1000, driver % 1000 / 10, library->path, version / 1000,
                         version % 1000 / 10);
    }
    if (code == cudaSuccess || code == cudaErrorNoDevice || code == cudaErrorInsufficientDriver) {
        return deft_fail(
            error, DEFT_UNSUPPORTED, (int32_t)cudaErrorNoDevice, "CUDA has no device here: %s",
            code == cudaErrorInsufficientDriver ? "there is no driver" : "it counts none");
    }
    return deft_fail(error, DEFT_UNSUPPORTED, (int32_t)code, "CUDA has no device here: %s",
                     api->get_error_string(code));
}

/* `*out_may_go_on`: an older runtime may find devices. */
static enum deft_status api_try(const struct library *library, struct cuda_api *out,
                                int *out_may_go_on, struct deft_error *error) {
    struct cuda_api api;
    int version = 0;
    int n_devices = 0;
    *out_may_go_on = 0;
    enum deft_status status = api_bind(library, &api, error);
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
    code = cuda_api_forget(&api, api.get_device_count(&n_devices));
    if (code != cudaSuccess || n_devices == 0) {
        *out_may_go_on = code == cudaErrorInsufficientDriver;
        return api_refuse(&api, library, version, code, error);
    }
    *out = api;
    return DEFT_OK;
}

/* Returns 0 when it is none of them: then it was wished for. */
static int api_leave_out(const char **names, const char *name) {
    size_t i = 0;
    while (names[i] != NULL && strcmp(names[i], name) != 0) {
        i++;
    }
    int found = names[i] != NULL;
    for (; names[i] != NULL; i++) {
        names[i] = names[i + 1];
    }
    return found;
}

enum deft_status cuda_api_load(struct cuda_api *out, struct deft_error *error) {
    const char *names[] = {"libcudart.so.13", "libcudart.so.12", "libcudart.so.11.0", NULL};
    struct library library;
    struct deft_error rest; /* the first sentence stays */
    int may_go_on = 0;
    enum deft_status status = library_open("CUDA's runtime", "DEFT_CUDART", names, &library, error);
    if (status == DEFT_OK) {
        status = api_try(&library, out, &may_go_on, error);
    }
    while (may_go_on && api_leave_out(names, library.path) && names[0] != NULL &&
           library_open("CUDA's runtime", "DEFT_CUDART", names, &library, &rest) == DEFT_OK) {
        if (api_try(&library, out, &may_go_on, &rest) == DEFT_OK) {
            return DEFT_OK;
        }
    }
    return status;
}

cudaError_t cuda_api_forget(const struct cuda_api *api, cudaError_t code) {
    if (code != cudaSuccess) {
        (void)api->get_last_error();
    }
    return code;
}

enum deft_status cuda_api_fail(const struct cuda_api *api, const char *call, cudaError_t code,
                               struct deft_error *error) {
    (void)cuda_api_forget(api, code);
    return deft_fail(error, code == cudaErrorMemoryAllocation ? DEFT_NO_MEMORY : DEFT_IO,
                     (int32_t)code, "CUDA: %s failed: %s", call, api->get_error_string(code));
}

int cuda_api_enter(const struct cuda_api *api, int device) {
    int before = device;
    if (cuda_api_forget(api, api->get_device(&before)) == cudaSuccess && before != device) {
        /* what is called next tells what is wrong */
        (void)cuda_api_forget(api, api->set_device(device));
    }
    return before;
}

void cuda_api_leave(const struct cuda_api *api, int device, int before) {
    if (before != device) {
        (void)cuda_api_forget(api, api->set_device(before));
    }
}
