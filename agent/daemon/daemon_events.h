/* Plans and commands of the controller, from one event stream and a thread of its own. Plans are
 * decoded and validated there; the main thread only forwards finished frames. */
#ifndef DAEMON_EVENTS_H
#define DAEMON_EVENTS_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "base/log.h"
#include "daemon_uplink.h"

struct daemon_events;

DEFT_NODISCARD enum deft_status
daemon_events_start(const struct http_client_options *controller, struct daemon_uplink *uplink,
                    const struct log *log, struct daemon_events **out, struct deft_error *error);
/* Readable when there is something to take. */
int daemon_events_fd(const struct daemon_events *events);

/* After another incarnation was announced to the uplink: leaves the stream of the one before. */
void daemon_events_restart(struct daemon_events *events);

/* What arrived since the last call. `key` says which incarnation it is for. */
struct daemon_news {
    char key[WIRE_ID_BYTES];
    uint64_t plan_seq; /* 0: no new plan */
    uint8_t *plan;     /* payload of an IPC_PLAN frame; the caller frees it */
    size_t plan_bytes;
    uint32_t command;              /* enum ipc_command_kind; 0: none */
    uint64_t refused_seq;          /* 0: none; a plan that no rank will see */
    char refusal[WIRE_TEXT_BYTES]; /* why */
};
void daemon_events_take(struct daemon_events *events, struct daemon_news *out);

void daemon_events_stop(struct daemon_events *events); /* takes NULL */

#endif
