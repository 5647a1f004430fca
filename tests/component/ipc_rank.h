/* A rank as the agent sees it: the frames, without any training behind them. */
#ifndef IPC_RANK_H
#define IPC_RANK_H

#include <stddef.h>
#include <stdint.h>

#include "ipc/ipc.h"

#define IPC_RANK_TENSORS 3u

struct ipc_rank {
    int fd;
    int32_t rank;
    int may_be_refused; /* the agent may hang up in the middle of its words */
    struct ipc_reader reader;
};

/* Connects within a deadline, says hello with IPC_RANK_TENSORS tensors and one link, and is ready.
 * The table is 1,000, 2,000 and 3,000 f32 elements. */
void ipc_rank_join(struct ipc_rank *rank, const char *socket, int32_t number, int32_t n_ranks,
                   const char *job, const char *key);
/* The same for a rank that the agent need not take. */
void ipc_rank_intrude(struct ipc_rank *rank, const char *socket, int32_t number, int32_t n_ranks,
                      const char *job, const char *key);
/* Iterations [first, first + n), each with a loss and one all-reduce. */
void ipc_rank_iterations(const struct ipc_rank *rank, uint64_t first, uint32_t n,
                         uint64_t plan_seq);
void ipc_rank_event(const struct ipc_rank *rank, enum ipc_event_kind kind, uint64_t plan_seq);
/* The next frame within a deadline; valid until the next call. Fails the test otherwise. */
void ipc_rank_receive(struct ipc_rank *rank, uint16_t *out_type, const void **out_payload,
                      size_t *out_n_bytes);
/* 1 once the agent has hung up, within a deadline. */
int ipc_rank_is_dropped(struct ipc_rank *rank);
void ipc_rank_leave(struct ipc_rank *rank);

#endif
