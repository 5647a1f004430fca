/* libnccl, as far as libdeft calls it: ranks are threads of this process. */
#include "standin_streams.hpp"

#include <nccl.h>

#include <algorithm>
#include <cstring>

extern "C" {
#include "link/link_sum.h"
}

#define STANDIN_EXPORT extern "C" __attribute__((visibility("default")))

using namespace standin;
using Held = std::unique_lock<std::mutex>;

namespace {

struct Call {
    void *into;
    size_t n;
    ncclDataType_t type;
    bool has_arrived;
};

/* One all-reduce of all ranks. */
struct Meeting {
    std::vector<Call> calls;
    size_t n_called = 0;
    size_t n_arrived = 0;
    bool is_done = false;
};

struct Group {
    size_t n_ranks;
    size_t n_joined = 0;
    std::deque<Meeting> meetings;
};

} // namespace

struct ncclComm {
    Group *group;
    size_t rank;
    size_t n_calls = 0;
    int in_progress = 0; /* so many questions later it is not any more */
    bool is_aborted = false;
    std::function<void()> held_back; /* STANDIN_SWAPPED */
};

namespace {

std::map<uint64_t, Group *> &groups() {
    static auto *the = new std::map<uint64_t, Group *>;
    return *the;
}

enum link_dtype link_type(ncclDataType_t type) {
    switch (type) {
    case ncclFloat64:
        return LINK_F64;
    case ncclFloat16:
        return LINK_F16;
    case ncclBfloat16:
        return LINK_BF16;
    default:
        return LINK_F32;
    }
}

size_t bytes_of(ncclDataType_t type) {
    return type == ncclFloat64 ? 8 : type == ncclFloat32 ? 4 : 2;
}

/* In rank order, so that all ranks get the same bits. */
void reduce(Meeting &meeting) {
    Call &first = meeting.calls[0];
    for (const Call &call : meeting.calls) { /* after a violation they may differ */
        first.n = std::min(first.n, call.n);
    }
    for (size_t r = 1; r < meeting.calls.size(); r++) {
        link_sum(first.into, meeting.calls[r].into, first.n, link_type(first.type));
    }
    for (size_t r = 1; r < meeting.calls.size(); r++) {
        memcpy(meeting.calls[r].into, first.into, first.n * bytes_of(first.type));
    }
    meeting.is_done = true;
}

/* The task of one rank's stream; true once all ranks' streams have got here. */
bool meet(ncclComm *comm, size_t number) {
    Meeting &meeting = comm->group->meetings[number];
    Call &call = meeting.calls[comm->rank];
    if (comm->is_aborted) {
        return true;
    }
    if (!call.has_arrived) {
        call.has_arrived = true;
        meeting.n_arrived++;
    }
    if (meeting.n_arrived == comm->group->n_ranks && !meeting.is_done) {
        reduce(meeting);
    }
    return meeting.is_done;
}

void issue(ncclComm *comm, void *into, size_t n, ncclDataType_t type, void *stream) {
    size_t number = comm->n_calls++;
    auto &meetings = comm->group->meetings;
    if (meetings.size() <= number) {
        meetings.emplace_back();
        meetings.back().calls.resize(comm->group->n_ranks);
    }
    Meeting &meeting = meetings[number];
    for (const Call &other : meeting.calls) {
        if (other.into != nullptr && (other.n != n || other.type != type)) {
            violate("all-reduce " + std::to_string(number) + " has " + std::to_string(n) +
                    " elements on rank " + std::to_string(comm->rank) + " and " +
                    std::to_string(other.n) + " on another one");
        }
    }
    meeting.calls[comm->rank] = {into, n, type, false};
    size_t n_bytes = n * bytes_of(type);
    queue(stream_of(stream), {reads(into, n_bytes), writes(into, n_bytes)},
          [=] { return meet(comm, number); });
}

} // namespace

#define STANDIN_BEGIN(name)                                                                        \
    Held held(machine().lock);                                                                     \
    if (fails(name)) {                                                                             \
        return ncclSystemError;                                                                    \
    }

STANDIN_EXPORT ncclResult_t ncclGetVersion(int *version) {
    STANDIN_BEGIN("ncclGetVersion")
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}

STANDIN_EXPORT const char *ncclGetErrorString(ncclResult_t result) {
    return result == ncclRemoteError ? "remote process exited or there was a network error"
                                     : "the stand-in was told to fail";
}

STANDIN_EXPORT const char *ncclGetLastError(ncclComm_t) {
    return "the stand-in's last words";
}

STANDIN_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *uniqueId) {
    STANDIN_BEGIN("ncclGetUniqueId")
    uint64_t number = groups().size() + 1;
    memset(uniqueId, 0, sizeof(*uniqueId));
    memcpy(uniqueId->internal, &number, sizeof(number));
    groups()[number] = new Group;
    return ncclSuccess;
}

STANDIN_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int nranks,
                                                   ncclUniqueId commId, int rank,
                                                   ncclConfig_t *config) {
    STANDIN_BEGIN("ncclCommInitRankConfig")
    uint64_t number;
    memcpy(&number, commId.internal, sizeof(number));
    Group *group = groups()[number];
    if (config->blocking != 0) {
        violate("a communicator that blocks");
    }
    group->n_ranks = static_cast<size_t>(nranks);
    group->n_joined++;
    static auto *all = new std::vector<ncclComm *>; /* tasks may refer to them to the end */
    *comm = new ncclComm;
    all->push_back(*comm);
    (*comm)->group = group;
    (*comm)->rank = static_cast<size_t>(rank);
    return ncclInProgress;
}

STANDIN_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *asyncError) {
    STANDIN_BEGIN("ncclCommGetAsyncError")
    bool waits = comm->group->n_joined < comm->group->n_ranks;
    if (comm->in_progress > 0) {
        comm->in_progress--;
        waits = true;
    }
    *asyncError = machine().peers_are_lost ? ncclRemoteError : waits ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

STANDIN_EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    STANDIN_BEGIN("ncclCommAbort")
    comm->is_aborted = true; /* stays, for tasks that are queued */
    machine().is_full = false;
    advance();
    return ncclSuccess;
}

STANDIN_EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    STANDIN_BEGIN("ncclCommFinalize")
    comm->in_progress = 3;
    return ncclInProgress;
}

STANDIN_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t) {
    STANDIN_BEGIN("ncclCommDestroy")
    return ncclSuccess;
}

STANDIN_EXPORT ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
                                          ncclDataType_t datatype, ncclRedOp_t, ncclComm_t comm,
                                          cudaStream_t stream) {
    STANDIN_BEGIN("ncclAllReduce")
    if (sendbuff != recvbuff) {
        violate("an all-reduce that is not in place");
    }
    if (comm->in_progress > 0) {
        violate("a call while the one before is in progress");
    }
    comm->in_progress = 2;
    bool is_swapped = machine().mistake == STANDIN_SWAPPED && comm->rank == 0;
    if (is_swapped && !comm->held_back) {
        comm->held_back = [=] { issue(comm, recvbuff, count, datatype, stream); };
        return ncclInProgress;
    }
    issue(comm, recvbuff, count, datatype, stream);
    if (comm->held_back) {
        comm->held_back();
        comm->held_back = nullptr;
        machine().mistake = STANDIN_NO_MISTAKE;
    }
    return ncclInProgress;
}
