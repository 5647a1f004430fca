/* The controller's side of the agent's requests, in this process, over real HTTP, with faults on
 * demand: what the real controller does only in rare moments. */
#ifndef CONTROLLER_PEER_H
#define CONTROLLER_PEER_H

#include <stddef.h>
#include <stdint.h>

#include "dsched/plan.h"

#define CONTROLLER_PEER_MAX_RANKS      4u
#define CONTROLLER_PEER_MAX_ITERATIONS 4096u

struct controller_peer;

/* `port` 0: any. */
struct controller_peer *controller_peer_start(uint16_t port);
/* On another address than 127.0.0.1. */
struct controller_peer *controller_peer_start_at(const char *host, uint16_t port);
uint16_t controller_peer_port(const struct controller_peer *peer);
void controller_peer_stop(struct controller_peer *peer);

/* Every n-th report is committed, but its answer is lost behind a 503; 0: none. */
void controller_peer_lose_answers(struct controller_peer *peer, unsigned every);
/* While `is_other`, registrations are counted, but something that is no controller answers. */
void controller_peer_be_other(struct controller_peer *peer, int is_other);
/* The next requests that name an incarnation get 404 until it has registered again. */
void controller_peer_forget(struct controller_peer *peer);
/* Sends a plan event to all streams, now and to those that come later. `max_loss` NaN: no fuse. */
void controller_peer_push(struct controller_peer *peer, uint64_t seq,
                          const struct dsched_plan *plan, double max_loss);

/* Each waits within a deadline until it is so, and fails the test otherwise. */
void controller_peer_await_registrations(struct controller_peer *peer, unsigned n);
void controller_peer_await_local_ranks(struct controller_peer *peer, unsigned n);
void controller_peer_await_iterations(struct controller_peer *peer, unsigned rank, unsigned n);
void controller_peer_await_event(struct controller_peer *peer, const char *kind, uint64_t plan_seq);

/* Every committed iteration was counted this often at most. */
unsigned controller_peer_most_counted(struct controller_peer *peer);
/* Iterations of a rank that were committed, repeats included. */
unsigned controller_peer_iterations(struct controller_peer *peer, unsigned rank);
/* Reports whose number was neither the next nor one already committed. */
unsigned controller_peer_gaps(struct controller_peer *peer);
/* The shortest time between an answer 503 and the next report; INT64_MAX: there were none. */
int64_t controller_peer_least_pause_ns(struct controller_peer *peer);
/* Reports that came a second time. */
unsigned controller_peer_repeats(struct controller_peer *peer);
/* All-reduces in op summaries, and whether min <= median <= max always held. */
uint64_t controller_peer_ops(struct controller_peer *peer, int *out_sound);

#endif
