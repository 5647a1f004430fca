#include "link/link.h"

#include <string.h>

size_t link_dtype_bytes(enum link_dtype dtype) {
    switch (dtype) {
    case LINK_F32:
        return 4;
    case LINK_F64:
    case LINK_I64:
        return 8;
    case LINK_F16:
    case LINK_BF16:
        return 2;
    }
    return 0;
}

int link_test(const struct link_op *op) {
    return __atomic_load_n(&op->state, __ATOMIC_ACQUIRE) == LINK_OP_DONE;
}

const struct link_ops *link_backend(const char *backend) {
    static const struct link_ops *const backends[] = {
#ifdef DEFT_WITH_GLOO
        &link_gloo,
#endif
#ifdef DEFT_WITH_CUDA
        &link_nccl,
#endif
        &link_mem,
    };
    for (size_t i = 0; i < sizeof(backends) / sizeof(backends[0]); i++) {
        if (strcmp(backends[i]->backend, backend) == 0) {
            return backends[i];
        }
    }
    return NULL;
}
