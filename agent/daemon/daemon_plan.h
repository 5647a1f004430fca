/* Plans and commands on their way from the controller's JSON to the ranks' frames. */
#ifndef DAEMON_PLAN_H
#define DAEMON_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "daemon_incarnation.h"

/* The payload of an IPC_PLAN frame, malloc'ed, from the data of a "plan" event, once it suits the
 * table and the links of `inc`. Nothing unvalidated reaches a rank. `*out_seq` is set as soon as it
 * is known, also on failure, so that a refusal can name the plan. */
DEFT_NODISCARD enum deft_status daemon_plan_payload(const char *data,
                                                    const struct daemon_incarnation *inc,
                                                    uint64_t *out_seq, uint8_t **out_payload,
                                                    size_t *out_bytes, struct deft_error *error);

/* enum ipc_command_kind from the data of a "command" event. */
DEFT_NODISCARD enum deft_status daemon_plan_command(const char *data, uint32_t *out_command);

#endif
