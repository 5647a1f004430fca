/* Where the telemetry thread and the training thread meet: plans in, retired engines and
 * measurements out. The training thread only ever tries the lock; when it is taken, the next
 * boundary will do. */
#ifndef MAILBOX_H
#define MAILBOX_H

#include <pthread.h>
#include <stdint.h>

#include "ipc/ipc.h"
#include "runtime/engine.h"

#define MAILBOX_EVENTS 32u

struct mailbox {
    pthread_mutex_t lock;
    struct engine *offered; /* newest plan that could run; owned */
    struct engine *retired; /* to be freed away from the hot path; a list would need two switches
                               between two visits of the telemetry thread, then the older is freed
                               by the training thread itself */
    struct ipc_event events[MAILBOX_EVENTS];
    uint32_t n_events;
    uint64_t n_events_lost;
    int64_t *readiness;                  /* [n_tensors] mean offsets in ns */
    struct ipc_readiness readiness_head; /* n_iterations 0: nothing new */
    uint32_t commands;                   /* bits of enum ipc_command_kind */
};

/* Returns 0 when memory is short. */
int mailbox_init(struct mailbox *mailbox, uint32_t n_tensors);
void mailbox_done(struct mailbox *mailbox);
/* Telemetry thread: replaces an older offer. Takes ownership. */
void mailbox_offer(struct mailbox *mailbox, struct engine *engine);
/* Training thread: the offer, or NULL when there is none or the lock is taken. */
struct engine *mailbox_take(struct mailbox *mailbox);
/* Training thread: gives an engine away to be freed. */
void mailbox_retire(struct mailbox *mailbox, struct engine *engine);
/* Telemetry thread: frees what was retired. */
void mailbox_sweep(struct mailbox *mailbox);
/* Any thread. Events are rare; when the box is full the event is counted as lost. */
void mailbox_event(struct mailbox *mailbox, enum ipc_event_kind kind, uint64_t plan_seq,
                   uint64_t iteration, uint64_t count, const char *text);
/* Telemetry thread: moves the oldest event out. */
int mailbox_next_event(struct mailbox *mailbox, struct ipc_event *out);

#endif
