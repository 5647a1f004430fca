#include "kineto_dtype.h"

#include <string.h>
#include <strings.h>

#include <dsched/profile.h>

#include "kineto_trace.h"

struct kineto_dtype_word {
    const char *text;
    uint8_t dtype;
};

static const struct kineto_dtype_word kineto_dtype_types[] = {
    {"float", DSCHED_F32},          {"double", DSCHED_F64},        {"half", DSCHED_F16},
    {"c10::half", DSCHED_F16},      {"at::half", DSCHED_F16},      {"bfloat16", DSCHED_BF16},
    {"c10::bfloat16", DSCHED_BF16}, {"at::bfloat16", DSCHED_BF16},
};

/* Names end in operation and type: "..._AllReduce_RING_LL_Sum_float(...)" up to NCCL 2.18,
 * "ncclDevKernel_AllReduce_Sum_f32_RING_LL(...)" since. Longer words first. */
static const struct kineto_dtype_word kineto_dtype_kernels[] = {
    {"_bfloat16", DSCHED_BF16},   {"_bf16", DSCHED_BF16},       {"_float", DSCHED_F32},
    {"_f32", DSCHED_F32},         {"_double", DSCHED_F64},      {"_f64", DSCHED_F64},
    {"_half", DSCHED_F16},        {"_f16", DSCHED_F16},         {"_int", KINETO_DTYPE_FOREIGN},
    {"_u", KINETO_DTYPE_FOREIGN}, {"_i", KINETO_DTYPE_FOREIGN},
};

uint8_t kineto_dtype_of_type(const char *type) {
    for (size_t i = 0; i < sizeof(kineto_dtype_types) / sizeof(kineto_dtype_types[0]); i++) {
        if (strcasecmp(type, kineto_dtype_types[i].text) == 0) {
            return kineto_dtype_types[i].dtype;
        }
    }
    return KINETO_DTYPE_FOREIGN;
}

uint8_t kineto_dtype_of_kernel(const char *name) {
    for (size_t i = 0; i < sizeof(kineto_dtype_kernels) / sizeof(kineto_dtype_kernels[0]); i++) {
        if (strstr(name, kineto_dtype_kernels[i].text) != NULL) {
            return kineto_dtype_kernels[i].dtype;
        }
    }
    return KINETO_DTYPE_UNKNOWN;
}

int kineto_dtype_is_collective(const char *name) {
    return strncasecmp(name, "nccl", 4) == 0 || strncasecmp(name, "rccl", 4) == 0 ||
           strncasecmp(name, "mscclKernel", 11) == 0;
}
