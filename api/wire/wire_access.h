/* Messages about tokens and about why something is changed. See wire.h for what holds of all. */
#ifndef WIRE_ACCESS_H
#define WIRE_ACCESS_H

#include "wire.h"

#define WIRE_TOKEN_NAME_BYTES 64u
#define WIRE_ROLE_BYTES       16u
#define WIRE_TIME_BYTES       32u
#define WIRE_SECRET_BYTES     64u
/* Ten years: who means for ever says nothing. */
#define WIRE_MAX_EXPIRES_IN_S (UINT64_C(10) * 366 * 86400)

/* What is asked for. `job` and `job_prefix` are for agents, which need one of them. */
struct wire_token_request {
    char name[WIRE_TOKEN_NAME_BYTES]; /* letters, digits and .-_:@+ */
    char role[WIRE_ROLE_BYTES];       /* agent, viewer or operator */
    char job[WIRE_ID_BYTES];
    char job_prefix[WIRE_ID_BYTES];
    uint64_t expires_in_s; /* 0: never */
};
DEFT_NODISCARD enum deft_status wire_token_request_encode(const struct wire_token_request *in,
                                                          char **out, struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_token_request_decode(const char *text, size_t n_bytes,
                                                          struct wire_token_request *out,
                                                          struct deft_error *error);
/* The same checks for what did not come as JSON. */
DEFT_NODISCARD enum deft_status wire_token_request_check(const struct wire_token_request *request,
                                                         struct deft_error *error);

struct wire_token {
    char name[WIRE_TOKEN_NAME_BYTES];
    char role[WIRE_ROLE_BYTES];
    char job[WIRE_ID_BYTES];
    char job_prefix[WIRE_ID_BYTES];
    char state[16]; /* live, expired or revoked */
    char created_at[WIRE_TIME_BYTES];
    char created_by[WIRE_TOKEN_NAME_BYTES];
    char expires_at[WIRE_TIME_BYTES]; /* "": never */
    char revoked_at[WIRE_TIME_BYTES]; /* "": not */
    char token[WIRE_SECRET_BYTES];    /* "" but in the one answer that makes it */
};
struct wire_tokens {
    uint32_t n_tokens;
    struct wire_token *tokens;
};
DEFT_NODISCARD enum deft_status wire_token_encode(const struct wire_token *in, char **out,
                                                  struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_token_decode(const char *text, size_t n_bytes,
                                                  struct wire_token *out, struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_tokens_encode(const struct wire_tokens *in, char **out,
                                                   struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_tokens_decode(const char *text, size_t n_bytes,
                                                   struct wire_tokens *out,
                                                   struct deft_error *error);
void wire_tokens_done(struct wire_tokens *tokens);

/* The "reason" beside whatever else a body has; "" without one. */
DEFT_NODISCARD enum deft_status wire_reason_decode(const char *text, size_t n_bytes,
                                                   char out[WIRE_TEXT_BYTES],
                                                   struct deft_error *error);

#endif
