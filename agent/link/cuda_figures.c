#include "link/cuda_figures.h"

#include <string.h>

#define FIGURES_NS_PER_MS 1e6

static cudaEvent_t figures_event(const struct cuda_api *api, unsigned flags) {
    cudaEvent_t event = NULL;
    cudaError_t code = cuda_api_forget(api, api->event_create_with_flags(&event, flags));
    return code == cudaSuccess ? event : NULL;
}

int cuda_figures_make(struct cuda_figures *figures, const struct cuda_api *api,
                      struct device *device) {
    figures->sums = device->ops->alloc(device, sizeof(*figures->sums));
    for (uint32_t i = 0; i < CUDA_FIGURES_SLOTS; i++) {
        struct cuda_figures_slot *slot = &figures->slots[i];
        slot->sums = device->ops->pin(device, sizeof(*slot->sums));
        slot->passed = figures_event(api, cudaEventDisableTiming);
        if (figures->sums == NULL || slot->sums == NULL || slot->passed == NULL) {
            return 0;
        }
        for (uint32_t s = 0; s < DEVICE_N_STAGES; s++) {
            slot->stages[s] = figures_event(api, cudaEventDefault);
            if (slot->stages[s] == NULL) {
                return 0;
            }
        }
    }
    return 1;
}

static void figures_destroy_event(const struct cuda_api *api, cudaEvent_t event) {
    if (event != NULL) {
        (void)api->event_destroy(event);
    }
}

void cuda_figures_done(struct cuda_figures *figures, const struct cuda_api *api,
                       struct device *device) {
    for (uint32_t i = 0; i < CUDA_FIGURES_SLOTS; i++) {
        struct cuda_figures_slot *slot = &figures->slots[i];
        device->ops->unpin(device, slot->sums);
        figures_destroy_event(api, slot->passed);
        for (uint32_t s = 0; s < DEVICE_N_STAGES; s++) {
            figures_destroy_event(api, slot->stages[s]);
        }
    }
    device->ops->release(device, figures->sums);
    memset(figures, 0, sizeof(*figures));
}

cudaError_t cuda_figures_stamp(struct cuda_figures *figures, const struct cuda_api *api,
                               cudaStream_t stream, enum device_stage stage) {
    struct cuda_figures_slot *slot = &figures->slots[figures->present];
    slot->stamped |= 1u << stage;
    return api->event_record(slot->stages[stage], stream);
}

cudaError_t cuda_figures_end(struct cuda_figures *figures, const struct cuda_api *api,
                             cudaStream_t stream, const char **out_call) {
    struct cuda_figures_slot *slot = &figures->slots[figures->present];
    cudaError_t code;
    *out_call = "cudaMemcpyAsync";
    code = api->memcpy_async(slot->sums, figures->sums, sizeof(*slot->sums), cudaMemcpyDeviceToHost,
                             stream);
    if (code == cudaSuccess) {
        *out_call = "cudaMemsetAsync";
        code = api->memset_async(figures->sums->norms, 0, sizeof(figures->sums->norms), stream);
    }
    if (code == cudaSuccess) {
        *out_call = "cudaEventRecord";
        code = api->event_record(slot->passed, stream);
    }
    slot->is_pending = code == cudaSuccess;
    figures->present = (figures->present + 1) % CUDA_FIGURES_SLOTS;
    /* Of a device that is further behind the oldest figures are lost. */
    figures->slots[figures->present].is_pending = 0;
    figures->slots[figures->present].stamped = 0;
    return code;
}

/* 0: unless both have been stamped. */
static int64_t figures_between_ns(const struct cuda_api *api, const struct cuda_figures_slot *slot,
                                  enum device_stage begin, enum device_stage end) {
    uint32_t both = 1u << begin | 1u << end;
    float ms = 0;
    if ((slot->stamped & both) != both) {
        return 0;
    }
    cudaError_t code =
        cuda_api_forget(api, api->event_elapsed_time(&ms, slot->stages[begin], slot->stages[end]));
    if (code != cudaSuccess || !(ms > 0)) {
        return 0;
    }
    return (int64_t)((double)ms * FIGURES_NS_PER_MS);
}

static void figures_read(struct cuda_figures *figures, const struct cuda_api *api,
                         const struct cuda_figures_slot *slot, struct device_figures *out) {
    const struct device_kernels_notes *notes = &slot->sums->notes;
    memcpy(out->norms, slot->sums->norms, sizeof(out->norms));
    out->forward_ns = figures_between_ns(api, slot, DEVICE_FORWARD, DEVICE_BACKWARD);
    out->backward_ns = figures_between_ns(api, slot, DEVICE_BACKWARD, DEVICE_BOUNDARY);
    out->exposed_ns = figures_between_ns(api, slot, DEVICE_AWAIT, DEVICE_LANDED);
    uint64_t n_dropped = notes->n_dropped - figures->n_dropped;
    out->n_dropped += (uint32_t)n_dropped;
    out->n_applied += (uint32_t)(notes->n_landed - figures->n_landed - n_dropped);
    figures->n_landed = notes->n_landed;
    figures->n_dropped = notes->n_dropped;
}

cudaError_t cuda_figures_take(struct cuda_figures *figures, const struct cuda_api *api,
                              struct device_figures *out, int *out_found) {
    *out_found = 0;
    out->n_applied = out->n_dropped = 0;
    for (uint32_t i = 1; i <= CUDA_FIGURES_SLOTS; i++) { /* oldest first */
        struct cuda_figures_slot *slot =
            &figures->slots[(figures->present + i) % CUDA_FIGURES_SLOTS];
        if (!slot->is_pending) {
            continue;
        }
        cudaError_t code = cuda_api_forget(api, api->event_query(slot->passed));
        if (code != cudaSuccess) {
            return code == cudaErrorNotReady ? cudaSuccess : code;
        }
        figures_read(figures, api, slot, out);
        slot->is_pending = 0;
        *out_found = 1;
    }
    return cudaSuccess;
}
