/* The way to the controller: registrations and reports, from a thread of its own, so that nothing
 * on this side ever waits for the network. */
#ifndef DAEMON_UPLINK_H
#define DAEMON_UPLINK_H

#include <stdint.h>

#include <deft/status.h>

#include "base/log.h"
#include "client/http_client.h"
#include "daemon_incarnation.h"
#include "wire/wire.h"

struct daemon_uplink;

/* The pointers outlive the uplink. */
struct daemon_uplink_options {
    const struct http_client_options *controller;
    const char *agent;     /* the name it reports under; no other agent has it */
    const char *job;       /* NULL: known from the first rank on */
    const char *spool_dir; /* NULL: memory has to do */
    uint64_t spool_bytes;  /* on disk */
};
DEFT_NODISCARD enum deft_status daemon_uplink_start(const struct daemon_uplink_options *options,
                                                    const struct log *log,
                                                    struct daemon_uplink **out,
                                                    struct deft_error *error);

/* Makes `inc` the current incarnation and registers it, again if its registration has grown. */
DEFT_NODISCARD enum deft_status daemon_uplink_announce(struct daemon_uplink *uplink,
                                                       struct daemon_incarnation *inc,
                                                       struct deft_error *error);
/* Queues a report of the current incarnation and takes it over. Never blocks. */
void daemon_uplink_push(struct daemon_uplink *uplink, struct wire_report *report);
/* Records dropped since the last call, because the controller was away too long. */
uint64_t daemon_uplink_take_dropped(struct daemon_uplink *uplink);

/* Waits at most `timeout_ms` until the current incarnation is registered. DEFT_OK gives its id and
 * a reference, DEFT_TIMEOUT otherwise. */
DEFT_NODISCARD enum deft_status daemon_uplink_current(struct daemon_uplink *uplink, int timeout_ms,
                                                      char out_id[WIRE_ID_BYTES],
                                                      struct daemon_incarnation **out_inc);
/* From now on daemon_uplink_current does not wait: whoever is in it is to end. */
void daemon_uplink_let_go(struct daemon_uplink *uplink);
/* 1 while `id` is the current incarnation's. */
int daemon_uplink_is_current(struct daemon_uplink *uplink, const char *id);
/* The controller does not know `id` (any more): register again. */
void daemon_uplink_forget(struct daemon_uplink *uplink, const char *id);

/* Sends what is queued until `deadline_ns` (monotonic), writes down what is left, then ends the
 * thread and releases everything. Takes NULL. */
void daemon_uplink_stop(struct daemon_uplink *uplink, int64_t deadline_ns);

#endif
