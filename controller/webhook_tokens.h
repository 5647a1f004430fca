/* Tokens of injected agents: one per job, made when its first pod comes and handed to the others
 * while it holds. The texts are kept in memory only; after a restart the next pod makes another. */
#ifndef WEBHOOK_TOKENS_H
#define WEBHOOK_TOKENS_H

#include <stdint.h>

#include <deft/status.h>

#include "access.h"

struct webhook_tokens;

DEFT_NODISCARD enum deft_status webhook_tokens_open(struct store *store, struct access *access,
                                                    uint64_t expires_s, struct webhook_tokens **out,
                                                    struct deft_error *error);
/* Takes NULL. */
void webhook_tokens_close(struct webhook_tokens *tokens);

/* `uid` of the review that asks is a part of a new token's name. `out` is "" while the controller
 * is open to everybody: the first token would end that. Any thread. */
DEFT_NODISCARD enum deft_status webhook_tokens_get(struct webhook_tokens *tokens, const char *job,
                                                   const char *uid,
                                                   const struct access_cause *cause,
                                                   char out[WIRE_SECRET_BYTES],
                                                   struct deft_error *error);

#endif
