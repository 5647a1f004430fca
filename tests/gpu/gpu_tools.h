/* What the checks of gpu_check share: a device, numbers, and memory there. What cannot go on ends
 * the process with a sentence. */
#ifndef GPU_TOOLS_H
#define GPU_TOOLS_H

#include <stdint.h>

#include <deft/deft.h>

#include "link/cuda_device.h"

struct gpu_tools {
    struct device *device;
    const struct cuda_api *cuda;
    uint64_t random;
};

/* -0.5..0.5 */
double gpu_tools_next(uint64_t *random);
/* Bytes of an element. */
size_t gpu_tools_width(enum deft_dtype dtype);
/* Element `i` of `x` in host memory. */
double gpu_tools_get(enum deft_dtype dtype, const uint8_t *x, uint64_t i);
void gpu_tools_put(enum deft_dtype dtype, uint8_t *x, uint64_t i, double value);
_Noreturn void gpu_tools_give_up(const char *what);
void gpu_tools_check_code(const struct gpu_tools *check, const char *call, cudaError_t code);
void gpu_tools_check_device(const struct gpu_tools *check);
/* Waits until it is there. */
void gpu_tools_upload(const struct gpu_tools *check, void *into, const void *from, size_t n_bytes);
/* `memory`, unless it is NULL. */
uint8_t *gpu_tools_must(void *memory);
/* Seconds of one pass on the default stream: the mean of 20, after 3 that are not measured. */
double gpu_tools_time_s(const struct gpu_tools *check, void (*pass)(const void *context),
                        const void *context);

#endif
