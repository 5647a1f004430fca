/* The agent's side of the ranks' socket, in this process: what ranks report is kept, plans are sent
 * as the real agent would. One thread serves all ranks. */
#ifndef AGENT_PEER_H
#define AGENT_PEER_H

#include <stddef.h>
#include <stdint.h>

#include <dsched/plan.h>

#include "ipc/ipc.h"

#define AGENT_PEER_MAX_RANKS      8u
#define AGENT_PEER_MAX_ITERATIONS 256u
#define AGENT_PEER_MAX_EVENTS     64u

struct agent_peer;

/* Of one rank. */
struct agent_peer_rank {
    struct ipc_hello hello;
    uint32_t n_iterations;
    struct ipc_iteration iterations[AGENT_PEER_MAX_ITERATIONS]; /* in the order of arrival */
    uint32_t n_events;
    struct ipc_event events[AGENT_PEER_MAX_EVENTS];
};

/* Serves until `n_ranks` ranks have come and gone. */
struct agent_peer *agent_peer_start(uint32_t n_ranks);
/* What goes into deft_options.agent_socket. */
const char *agent_peer_socket(const struct agent_peer *peer);
/* Sends a plan to all ranks, now and to those that come later. */
void agent_peer_push(struct agent_peer *peer, uint64_t seq, const struct dsched_plan *plan,
                     double max_loss, double max_grad_sq);
/* Waits for all ranks to have gone. */
void agent_peer_join(struct agent_peer *peer);
const struct agent_peer_rank *agent_peer_rank(const struct agent_peer *peer, uint32_t rank);
void agent_peer_free(struct agent_peer *peer);

#endif
