/* A communicator that does not block: its calls return while they are in progress, are asked until
 * they are not, and can be given up. One thread at a time. */
#ifndef NCCL_COMM_H
#define NCCL_COMM_H

#include "link/link.h"
#include "link/nccl_api.h"

struct nccl_comm {
    struct nccl_api api;
    ncclComm_t handle;   /* NULL: there is none, or it was aborted */
    const int *given_up; /* atomic: whoever waits for a call gives it up. Set by the owner. */
};

/* Collective: rank 0's identifier goes through the world's all-gather. On the thread's present
 * device. */
DEFT_NODISCARD enum deft_status nccl_comm_connect(struct nccl_comm *comm, const char *net,
                                                  const struct link_world *world,
                                                  struct deft_error *error);
/* What a call that returned `result` has come to: DEFT_TIMEOUT at the deadline, DEFT_CANCELLED when
 * given up. */
DEFT_NODISCARD enum deft_status nccl_comm_await(const struct nccl_comm *comm, const char *call,
                                                ncclResult_t result, int64_t deadline_ns,
                                                struct deft_error *error);
/* A sentence with NCCL's own words. */
enum deft_status nccl_comm_fail(const struct nccl_comm *comm, const char *call, ncclResult_t result,
                                struct deft_error *error);
/* Ends what the device is at, also when the peers are gone. */
void nccl_comm_abort(struct nccl_comm *comm);
/* In order, with the peers, else by an abort. */
void nccl_comm_close(struct nccl_comm *comm, int64_t deadline_ns);

#endif
