#include "wire_access.h"

#include <string.h>

#include "wire_common.h"

/* More tokens than a controller keeps. */
#define ACCESS_MAX_TOKENS 100000

#define R struct wire_token_request
static const struct wire_field request_fields[] = {
    WIRE_ROW_TEXT(R, name, "name", 1),
    WIRE_ROW_TEXT(R, role, "role", 1),
    WIRE_ROW_TEXT(R, job, "job", 0),
    WIRE_ROW_TEXT(R, job_prefix, "job_prefix", 0),
    WIRE_ROW_UINT(R, expires_in_s, "expires_in_s", 0, 0, WIRE_MAX_EXPIRES_IN_S),
};
#undef R
static const struct wire_shape request_shape =
    WIRE_SHAPE(struct wire_token_request, request_fields, WIRE_KEYED);

#define R struct wire_token
static const struct wire_field token_fields[] = {
    WIRE_ROW_TEXT(R, name, "name", 1),
    WIRE_ROW_TEXT(R, role, "role", 1),
    WIRE_ROW_TEXT(R, job, "job", 0),
    WIRE_ROW_TEXT(R, job_prefix, "job_prefix", 0),
    WIRE_ROW_TEXT(R, state, "state", 1),
    WIRE_ROW_TEXT(R, created_at, "created_at", 0),
    WIRE_ROW_TEXT(R, created_by, "created_by", 0),
    WIRE_ROW_TEXT(R, expires_at, "expires_at", 0),
    WIRE_ROW_TEXT(R, revoked_at, "revoked_at", 0),
    WIRE_ROW_TEXT(R, token, "token", 0),
};
#undef R
static const struct wire_shape token_shape =
    WIRE_SHAPE(struct wire_token, token_fields, WIRE_KEYED);

static const struct wire_field tokens_fields[] = {
    WIRE_ROW_ARRAY(struct wire_tokens, tokens, n_tokens, "tokens", 1, ACCESS_MAX_TOKENS,
                   &token_shape),
};
static const struct wire_shape tokens_shape =
    WIRE_SHAPE(struct wire_tokens, tokens_fields, WIRE_KEYED);

struct access_reason {
    char reason[WIRE_TEXT_BYTES];
};
static const struct wire_field reason_fields[] = {
    WIRE_ROW_TEXT(struct access_reason, reason, "reason", 0),
};
static const struct wire_shape reason_shape =
    WIRE_SHAPE(struct access_reason, reason_fields, WIRE_KEYED);

enum deft_status wire_token_request_check(const struct wire_token_request *request,
                                          struct deft_error *error) {
    static const char *const roles[] = {"agent", "viewer", "operator", NULL};
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  ".-_:@+";
    int is_agent = strcmp(request->role, "agent") == 0;
    if (request->name[0] == '\0' || request->name[strspn(request->name, allowed)] != '\0') {
        return deft_fail(error, DEFT_INVALID, 0,
                         "name: 1 to %u letters, digits and .-_:@+ were expected",
                         WIRE_TOKEN_NAME_BYTES - 1);
    }
    if (!wire_is_one_of(request->role, roles)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "role: 'agent', 'viewer' or 'operator' was expected, not '%s'",
                         request->role);
    }
    if (!is_agent && (request->job[0] != '\0' || request->job_prefix[0] != '\0')) {
        return deft_fail(error, DEFT_INVALID, 0, "job: only an agent's token is for one job");
    }
    if (is_agent && (request->job[0] != '\0') == (request->job_prefix[0] != '\0')) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "job: an agent's token is for one job or for jobs that begin alike, so "
                         "job or job_prefix was expected");
    }
    return DEFT_OK;
}

enum deft_status wire_token_request_encode(const struct wire_token_request *in, char **out,
                                           struct deft_error *error) {
    enum deft_status status = wire_token_request_check(in, error);
    return status == DEFT_OK ? wire_shape_encode(&request_shape, "the token", in, out, error)
                             : status;
}

enum deft_status wire_token_request_decode(const char *text, size_t n_bytes,
                                           struct wire_token_request *out,
                                           struct deft_error *error) {
    struct wire_token_request request = {0};
    enum deft_status status =
        wire_shape_decode(&request_shape, "the token", text, n_bytes, &request, error);
    if (status == DEFT_OK) {
        status = wire_token_request_check(&request, error);
    }
    if (status == DEFT_OK) {
        *out = request;
    }
    return status;
}

enum deft_status wire_token_encode(const struct wire_token *in, char **out,
                                   struct deft_error *error) {
    return wire_shape_encode(&token_shape, "the token", in, out, error);
}

enum deft_status wire_token_decode(const char *text, size_t n_bytes, struct wire_token *out,
                                   struct deft_error *error) {
    return wire_shape_decode(&token_shape, "the token", text, n_bytes, out, error);
}

enum deft_status wire_tokens_encode(const struct wire_tokens *in, char **out,
                                    struct deft_error *error) {
    return wire_shape_encode(&tokens_shape, "the list of tokens", in, out, error);
}

enum deft_status wire_tokens_decode(const char *text, size_t n_bytes, struct wire_tokens *out,
                                    struct deft_error *error) {
    return wire_shape_decode(&tokens_shape, "the list of tokens", text, n_bytes, out, error);
}

void wire_tokens_done(struct wire_tokens *tokens) {
    wire_shape_done(&tokens_shape, tokens);
}

enum deft_status wire_reason_decode(const char *text, size_t n_bytes, char out[WIRE_TEXT_BYTES],
                                    struct deft_error *error) {
    struct access_reason message = {0};
    enum deft_status status =
        wire_shape_decode(&reason_shape, "the body", text, n_bytes, &message, error);
    if (status == DEFT_OK) {
        memcpy(out, message.reason, sizeof(message.reason));
    }
    return status;
}
