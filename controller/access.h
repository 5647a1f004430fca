/* Tokens as they hold now: who a token is, and what its role allows. The table is in memory; it is
 * read anew when the database says that it has changed, whoever changed it. Any thread. */
#ifndef ACCESS_H
#define ACCESS_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "store/store_access.h"
#include "wire/wire_access.h"

enum access_role { ACCESS_AGENT, ACCESS_VIEWER, ACCESS_OPERATOR };

struct access_user {
    uint64_t number; /* of the token; 0: nobody in particular */
    char name[STORE_TOKEN_NAME_BYTES];
    enum access_role role;
    char job[WIRE_ID_BYTES]; /* of an agent: its job, or how its jobs begin */
    int is_prefix;
};

struct access;

/* `is_private`: the controller listens on a loopback address only. Then it is open to everybody
 * until the first token is made; otherwise DEFT_STATE without a token that is live. */
DEFT_NODISCARD enum deft_status access_open(struct store *store, int is_private,
                                            struct access **out, struct deft_error *error);
void access_close(struct access *access); /* takes NULL */

/* Reads the table if it has changed; on failure the old one stays. */
DEFT_NODISCARD enum deft_status access_refresh(struct access *access, struct deft_error *error);
/* 1 while no token was ever made and the controller is private: everybody is an operator. */
int access_is_open(struct access *access);
/* Who a token is. 0: nobody, or not any more; then `out` is left alone. */
int access_find(struct access *access, const char *token, size_t n_bytes, int64_t now_ns,
                struct access_user *out);
/* 1 while the token of this number is live; 0 stands for everybody. */
int access_holds(struct access *access, uint64_t number, int64_t now_ns);
/* 1 when a token has ended since the mark was made, or may have, and once more at the next call:
 * who was let in just before may have opened something since. Makes the mark anew. A zeroed
 * mark: 1. */
struct access_mark {
    uint64_t revision;
    int64_t at_ns;
    int again;
};
int access_has_changed(struct access *access, struct access_mark *mark, int64_t now_ns);
/* 1 when an agent with this token may speak for the job. */
int access_is_for(const struct access_user *user, const char *job);
/* Tokens that are neither revoked nor expired. */
size_t access_count(struct access *access, int64_t now_ns);

/* --- making and ending tokens ------------------------------------------------------------------
 */

/* Who does it, from where, and why. */
struct access_cause {
    const char *who;
    const char *source;
    const char *reason;
};
/* Makes a token and stores its hash; `out->token` is the only place where its text ever is.
 * DEFT_MISMATCH when the name is taken. */
DEFT_NODISCARD enum deft_status access_create(struct store *store,
                                              const struct wire_token_request *request,
                                              const struct access_cause *cause,
                                              struct wire_token *out, struct deft_error *error);
/* Stores a token that others made, "deft_" and 43 letters, digits, - or _, under the name with "-"
 * and the first 8 digits of its hash behind it, and sets `out_is_new`. One that is there with this
 * role and without a job stays as it is, also if it does not hold any more: `out->state` tells.
 * DEFT_INVALID when the text is none, DEFT_MISMATCH when it is there as something else. */
DEFT_NODISCARD enum deft_status access_adopt(struct store *store,
                                             const struct wire_token_request *request,
                                             const char *secret, const struct access_cause *cause,
                                             struct wire_token *out, int *out_is_new,
                                             struct deft_error *error);
/* DEFT_NOT_FOUND when there is none; revoking twice changes nothing. */
DEFT_NODISCARD enum deft_status access_revoke(struct store *store, const char *name,
                                              const struct access_cause *cause,
                                              struct wire_token *out, struct deft_error *error);
/* All tokens that ever were, by name; release with wire_tokens_done. */
DEFT_NODISCARD enum deft_status access_list(struct store *store, struct wire_tokens *out,
                                            struct deft_error *error);

#endif
