#include "link/cuda_copier.h"

#include <stdlib.h>

#include "link/cuda_device.h"

struct cuda_copier {
    cudaStream_t stream;
    cudaEvent_t done;
};

void cuda_copier_close(struct device *device, void *copier) {
    const struct cuda_api *api = cuda_device_api(device);
    struct cuda_copier *closed = copier;
    if (closed == NULL) {
        return;
    }
    if (closed->stream != NULL) {
        (void)api->stream_destroy(closed->stream);
    }
    if (closed->done != NULL) {
        (void)api->event_destroy(closed->done);
    }
    free(closed);
}

enum deft_status cuda_copier_open(struct device *device, void **out, struct deft_error *error) {
    const struct cuda_api *api = cuda_device_api(device);
    int number = cuda_device_number(device);
    struct cuda_copier *copier = calloc(1, sizeof(*copier));
    if (copier == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a link");
    }
    int before = cuda_api_enter(api, number);
    cudaError_t code = api->stream_create_with_priority(&copier->stream, cudaStreamNonBlocking, 0);
    if (code == cudaSuccess) { /* whoever waits for it sleeps */
        code = api->event_create_with_flags(&copier->done,
                                            cudaEventDisableTiming | cudaEventBlockingSync);
    }
    cuda_api_leave(api, number, before);
    if (code != cudaSuccess) {
        cuda_copier_close(device, copier);
        return cuda_api_fail(api, "cudaStreamCreateWithPriority", code, error);
    }
    *out = copier;
    return DEFT_OK;
}

static enum deft_status copier_carry(const struct device *device, const struct cuda_copier *copier,
                                     void *into, const void *from, size_t n_bytes,
                                     enum cudaMemcpyKind kind, cudaEvent_t mark,
                                     struct deft_error *error) {
    const struct cuda_api *api = cuda_device_api(device);
    int number = cuda_device_number(device);
    const char *call = "cudaStreamWaitEvent";
    int before = cuda_api_enter(api, number);
    cudaError_t code = mark != NULL ? api->stream_wait_event(copier->stream, mark, 0) : cudaSuccess;
    if (code == cudaSuccess) {
        call = "cudaMemcpyAsync";
        code = api->memcpy_async(into, from, n_bytes, kind, copier->stream);
    }
    if (code == cudaSuccess) {
        call = "cudaEventRecord";
        code = api->event_record(copier->done, copier->stream);
    }
    if (code == cudaSuccess) {
        call = "cudaEventSynchronize";
        code = api->event_synchronize(copier->done);
    }
    cuda_api_leave(api, number, before);
    return code == cudaSuccess ? DEFT_OK : cuda_api_fail(api, call, code, error);
}

enum deft_status cuda_copier_pull(struct device *device, void *copier, void *into, const void *from,
                                  size_t n_bytes, void *mark, struct deft_error *error) {
    return copier_carry(device, copier, into, from, n_bytes, cudaMemcpyDeviceToHost, mark, error);
}

enum deft_status cuda_copier_push(struct device *device, void *copier, void *into, const void *from,
                                  size_t n_bytes, struct deft_error *error) {
    return copier_carry(device, copier, into, from, n_bytes, cudaMemcpyHostToDevice, NULL, error);
}
