#include "link/nccl_comm.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* With NCCL's own words: those of the last error, where it has any, tell more than the code's. */
enum deft_status nccl_comm_fail(const struct nccl_comm *comm, const char *call, ncclResult_t result,
                                struct deft_error *error) {
    const char *words = comm->api.get_error_string(result);
    const char *last = comm->handle != NULL ? comm->api.get_last_error(comm->handle) : NULL;
    return deft_fail(error, result == ncclRemoteError ? DEFT_PEER_LOST : DEFT_IO, (int32_t)result,
                     "NCCL: %s failed: %.120s%s%.160s", call, words,
                     last != NULL && last[0] != '\0' ? ": " : "", last != NULL ? last : "");
}

/* What a call of a communicator that does not block has come to. Gives up at the deadline, or when
 * the link has failed meanwhile. */
enum deft_status nccl_comm_await(const struct nccl_comm *comm, const char *call,
                                 ncclResult_t result, int64_t deadline_ns,
                                 struct deft_error *error) {
    while (result == ncclInProgress) {
        if (__atomic_load_n(comm->given_up, __ATOMIC_ACQUIRE)) {
            return deft_fail(error, DEFT_CANCELLED, 0, "NCCL: %s was given up", call);
        }
        if (clock_monotonic_ns() > deadline_ns) {
            return deft_fail(error, DEFT_TIMEOUT, 0,
                             "NCCL: %s was still in progress at its time limit", call);
        }
        (void)sched_yield();
        ncclResult_t asked = comm->api.comm_get_async_error(comm->handle, &result);
        if (asked != ncclSuccess) {
            return nccl_comm_fail(comm, "ncclCommGetAsyncError", asked, error);
        }
    }
    return result == ncclSuccess ? DEFT_OK : nccl_comm_fail(comm, call, result, error);
}

/* Rank 0's identifier, or why there is none, goes to all. */
static enum deft_status nccl_comm_share_id(const struct nccl_comm *comm,
                                           const struct link_world *world, ncclUniqueId *out,
                                           struct deft_error *error) {
    struct {
        ncclUniqueId id;
        int32_t result;
    } own, *all;
    memset(&own, 0, sizeof(own));
    own.result = world->rank == 0 ? (int32_t)comm->api.get_unique_id(&own.id) : 0;
    all = calloc((size_t)world->n_ranks, sizeof(*all));
    if (all == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for %d ranks", world->n_ranks);
    }
    enum deft_status status = DEFT_OK;
    if (world->n_ranks == 1) {
        all[0] = own;
    } else if (world->allgather(world->allgather_context, &own, sizeof(own), all) != 0) {
        status =
            deft_fail(error, DEFT_PEER_LOST, 0, "the ranks could not exchange NCCL's identifier");
    }
    if (status == DEFT_OK && all[0].result != (int32_t)ncclSuccess) {
        status =
            nccl_comm_fail(comm, "ncclGetUniqueId on rank 0", (ncclResult_t)all[0].result, error);
    }
    if (status == DEFT_OK) {
        *out = all[0].id;
    }
    free(all);
    return status;
}

enum deft_status nccl_comm_connect(struct nccl_comm *comm, const char *net,
                                   const struct link_world *world, struct deft_error *error) {
    ncclConfig_t config;
    ncclUniqueId id;
    enum deft_status status = nccl_api_configure(net, &config, error);
    if (status == DEFT_OK) {
        status = nccl_comm_share_id(comm, world, &id, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    int64_t deadline_ns = clock_monotonic_ns() + world->connect_timeout_ns;
    ncclResult_t result =
        comm->api.comm_init_rank_config(&comm->handle, world->n_ranks, id, world->rank, &config);
    status = nccl_comm_await(comm, "ncclCommInitRankConfig", result, deadline_ns, error);
    if (status != DEFT_OK) {
        nccl_comm_abort(comm);
    }
    return status;
}

void nccl_comm_abort(struct nccl_comm *comm) {
    if (comm->handle != NULL) {
        (void)comm->api.comm_abort(comm->handle);
        comm->handle = NULL;
    }
}

void nccl_comm_close(struct nccl_comm *comm, int64_t deadline_ns) {
    struct deft_error error;
    if (comm->handle == NULL) {
        return;
    }
    if (nccl_comm_await(comm, "ncclCommFinalize", comm->api.comm_finalize(comm->handle),
                        deadline_ns, &error) == DEFT_OK) {
        (void)comm->api.comm_destroy(comm->handle);
        comm->handle = NULL;
    }
    nccl_comm_abort(comm);
}
