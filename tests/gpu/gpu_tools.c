#include "gpu_tools.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "link/link_sum.h"

double gpu_tools_next(uint64_t *random) {
    *random ^= *random >> 12;
    *random ^= *random << 25;
    *random ^= *random >> 27;
    return (double)((*random * UINT64_C(2685821657736338717)) >> 11) / 9007199254740992.0 - 0.5;
}

size_t gpu_tools_width(enum deft_dtype dtype) {
    return dtype == DEFT_F64 ? 8 : dtype == DEFT_F32 ? 4 : 2;
}

double gpu_tools_get(enum deft_dtype dtype, const uint8_t *x, uint64_t i) {
    float single = 0;
    double wide = 0;
    uint16_t half = 0;
    switch (dtype) {
    case DEFT_F32:
        memcpy(&single, x + i * 4, 4);
        return (double)single;
    case DEFT_F64:
        memcpy(&wide, x + i * 8, 8);
        return wide;
    case DEFT_F16:
    case DEFT_BF16:
        memcpy(&half, x + i * 2, 2);
        return (double)(dtype == DEFT_F16 ? link_f16_to_f32(half) : link_bf16_to_f32(half));
    }
    return 0;
}

void gpu_tools_put(enum deft_dtype dtype, uint8_t *x, uint64_t i, double value) {
    float single = (float)value;
    uint16_t half = dtype == DEFT_F16 ? link_f32_to_f16(single) : link_f32_to_bf16(single);
    if (dtype == DEFT_F64) {
        memcpy(x + i * 8, &value, 8);
    } else if (dtype == DEFT_F32) {
        memcpy(x + i * 4, &single, 4);
    } else {
        memcpy(x + i * 2, &half, 2);
    }
}

void gpu_tools_give_up(const char *what) {
    (void)fprintf(stderr, "gpu_check: %s\n", what);
    exit(1);
}

void gpu_tools_check_code(const struct gpu_tools *check, const char *call, cudaError_t code) {
    struct deft_error error;
    if (code != cudaSuccess) {
        deft_ignore(cuda_api_fail(check->cuda, call, code, &error));
        gpu_tools_give_up(error.text);
    }
}

void gpu_tools_check_device(const struct gpu_tools *check) {
    struct deft_error error;
    if (check->device->ops->failure(check->device, &error) != DEFT_OK) {
        gpu_tools_give_up(error.text);
    }
}

void gpu_tools_upload(const struct gpu_tools *check, void *into, const void *from, size_t n_bytes) {
    gpu_tools_check_code(
        check, "cudaMemcpyAsync",
        check->cuda->memcpy_async(into, from, n_bytes, cudaMemcpyHostToDevice, NULL));
    check->device->ops->settle(check->device);
}

uint8_t *gpu_tools_must(void *memory) {
    if (memory == NULL) {
        gpu_tools_give_up("no memory");
    }
    return memory;
}

double gpu_tools_time_s(const struct gpu_tools *check, void (*pass)(const void *context),
                        const void *context) {
    enum { REPEATS = 20 };
    cudaEvent_t begin = NULL;
    cudaEvent_t end = NULL;
    float ms = 0;
    gpu_tools_check_code(check, "cudaEventCreate", check->cuda->event_create_with_flags(&begin, 0));
    gpu_tools_check_code(check, "cudaEventCreate", check->cuda->event_create_with_flags(&end, 0));
    for (int i = -3; i < REPEATS; i++) {
        if (i == 0) {
            gpu_tools_check_code(check, "cudaEventRecord", check->cuda->event_record(begin, NULL));
        }
        pass(context);
    }
    gpu_tools_check_code(check, "cudaEventRecord", check->cuda->event_record(end, NULL));
    gpu_tools_check_code(check, "cudaEventSynchronize", check->cuda->event_synchronize(end));
    gpu_tools_check_code(check, "cudaEventElapsedTime",
                         check->cuda->event_elapsed_time(&ms, begin, end));
    gpu_tools_check_device(check);
    (void)check->cuda->event_destroy(begin);
    (void)check->cuda->event_destroy(end);
    return (double)ms / REPEATS / 1e3;
}
