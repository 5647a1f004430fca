/* The calls of NCCL that libdeft makes, found at run time. */
#ifndef NCCL_API_H
#define NCCL_API_H

#include <nccl.h>

#include "link/library.h"

/* Named as in NCCL without the prefix; signatures as in its header. */
struct nccl_api {
    int version; /* as NCCL_VERSION_CODE */
    ncclResult_t (*get_version)(int *version);
    const char *(*get_error_string)(ncclResult_t result);
    const char *(*get_last_error)(ncclComm_t comm);
    ncclResult_t (*get_unique_id)(ncclUniqueId *id);
    ncclResult_t (*comm_init_rank_config)(ncclComm_t *comm, int n_ranks, ncclUniqueId id, int rank,
                                          ncclConfig_t *config);
    ncclResult_t (*comm_get_async_error)(ncclComm_t comm, ncclResult_t *result);
    ncclResult_t (*comm_abort)(ncclComm_t comm);
    ncclResult_t (*comm_finalize)(ncclComm_t comm);
    ncclResult_t (*comm_destroy)(ncclComm_t comm);
    ncclResult_t (*all_reduce)(const void *from, void *into, size_t n, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream);
};

/* The copy that this process has, else one by its soname or DEFT_NCCL. Fails with a sentence when
 * there is none or it is too old. */
DEFT_NODISCARD enum deft_status nccl_api_load(struct nccl_api *out, struct deft_error *error);

/* The limits of what NCCL takes of the device, from the environment: DEFT_NCCL_MIN_CTAS,
 * DEFT_NCCL_MAX_CTAS (blocks, 1..64: one per channel), DEFT_NCCL_CGA_CLUSTER_SIZE (0..8). What is
 * not set is left to NCCL. `net` NULL or "": any network. The string is kept. */
DEFT_NODISCARD enum deft_status nccl_api_configure(const char *net, ncclConfig_t *out,
                                                   struct deft_error *error);

#endif
