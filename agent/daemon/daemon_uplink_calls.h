/* The two requests of the uplink, and what their answers mean. */
#ifndef DAEMON_UPLINK_CALLS_H
#define DAEMON_UPLINK_CALLS_H

#include <stdint.h>

#include <deft/status.h>

#include "client/http_client.h"
#include "wire/wire.h"

/* One request may take this long; the queue holds what comes meanwhile. */
#define DAEMON_UPLINK_TIMEOUT_MS 10000

/* DEFT_OK, DEFT_NOT_FOUND (404), DEFT_STATE (409), DEFT_INVALID (any other 4xx: sending the same
 * again is pointless), DEFT_IO and DEFT_TIMEOUT (later). `*out_retry_after_s` is set in any case.
 */
DEFT_NODISCARD enum deft_status daemon_uplink_call_register(struct http_client *client,
                                                            const char *job, const char *body,
                                                            struct wire_registered *out,
                                                            int64_t *out_retry_after_s,
                                                            struct deft_error *error);
DEFT_NODISCARD enum deft_status
daemon_uplink_call_report(struct http_client *client, const char *incarnation,
                          const struct wire_report *report, uint64_t *out_committed_seq,
                          int64_t *out_retry_after_s, struct deft_error *error);

#endif
