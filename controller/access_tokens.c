/* Making and ending tokens, in a running controller and beside one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "base/clock.h"
#include "http/http_secret.h"

_Static_assert(HTTP_SECRET_BYTES <= WIRE_SECRET_BYTES, "a token fits into its message");
_Static_assert(HTTP_SECRET_HASH == STORE_TOKEN_HASH_BYTES, "a hash fits into its row");
_Static_assert(WIRE_TOKEN_NAME_BYTES == STORE_TOKEN_NAME_BYTES, "a name fits into its row");

static void tokens_time(int64_t wall_ns, char out[WIRE_TIME_BYTES]) {
    if (wall_ns != 0) {
        store_time_text(wall_ns, out);
    }
}

static void tokens_view(const struct store_token *token, int64_t now_ns, struct wire_token *out) {
    const char *state = token->revoked_ns != 0                                  ? "revoked"
                        : token->expires_ns != 0 && now_ns >= token->expires_ns ? "expired"
                                                                                : "live";
    memset(out, 0, sizeof(*out));
    memcpy(out->name, token->name, sizeof(out->name));
    memcpy(out->role, token->role, sizeof(out->role));
    memcpy(token->is_prefix ? out->job_prefix : out->job, token->job, sizeof(out->job));
    memcpy(out->state, state, strlen(state));
    memcpy(out->created_by, token->created_by, sizeof(out->created_by));
    tokens_time(token->created_ns, out->created_at);
    tokens_time(token->expires_ns, out->expires_at);
    tokens_time(token->revoked_ns, out->revoked_at);
}

static struct store_audit tokens_audit(const struct access_cause *cause, const char *action,
                                       const char *name, int64_t now_ns) {
    return (struct store_audit){.who = cause->who,
                                .source = cause->source,
                                .action = action,
                                .subject = name,
                                .before = "",
                                .after = "",
                                .reason = cause->reason,
                                .now_ns = now_ns};
}

/* Stores the hash of `secret`, 48 characters; `out` has its text. */
static enum deft_status tokens_store(struct store *store, const struct wire_token_request *request,
                                     const char *secret, const struct access_cause *cause,
                                     struct wire_token *out, struct deft_error *error) {
    struct store_token token = {0};
    struct store_token_create write;
    struct wire_token view;
    char *after = NULL;
    int64_t now_ns = clock_wall_ns();
    const char *job = request->job[0] != '\0' ? request->job : request->job_prefix;
    enum deft_status status = http_secret_hash(secret, strlen(secret), token.hash, error);
    if (status != DEFT_OK) {
        return status;
    }
    memcpy(token.name, request->name, sizeof(token.name));
    memcpy(token.role, request->role, sizeof(token.role));
    memcpy(token.job, job, sizeof(token.job));
    (void)snprintf(token.created_by, sizeof(token.created_by), "%s", cause->who);
    token.is_prefix = request->job_prefix[0] != '\0';
    token.created_ns = now_ns;
    token.expires_ns = request->expires_in_s > 0
                           ? now_ns + (int64_t)request->expires_in_s * INT64_C(1000000000)
                           : 0;
    tokens_view(&token, now_ns, &view);
    status = wire_token_encode(&view, &after, error); /* still without the token itself */
    if (status == DEFT_OK) {
        struct store_audit audit = tokens_audit(cause, "token.create", token.name, now_ns);
        audit.after = after;
        store_token_create_init(&write);
        write.token = &token;
        write.audit = &audit;
        status = store_run(store, &write.write, error);
    }
    if (status == DEFT_OK) {
        memcpy(view.token, secret, HTTP_SECRET_BYTES);
        *out = view;
    }
    free(after);
    return status;
}

enum deft_status access_create(struct store *store, const struct wire_token_request *request,
                               const struct access_cause *cause, struct wire_token *out,
                               struct deft_error *error) {
    char secret[HTTP_SECRET_BYTES];
    enum deft_status status = http_secret_make(secret, error);
    if (status == DEFT_OK) {
        status = tokens_store(store, request, secret, cause, out, error);
    }
    http_secret_wipe(secret, sizeof(secret));
    return status;
}

/* --- tokens that others made -------------------------------------------------------------------
 */

struct tokens_search {
    uint8_t hash[HTTP_SECRET_HASH];
    struct store_token found;
    int is_there;
};

static enum deft_status tokens_match(void *context, const struct store_token *token) {
    struct tokens_search *search = context;
    if (http_secret_equal(search->hash, token->hash)) {
        search->found = *token;
        search->is_there = 1;
    }
    return DEFT_OK;
}

enum deft_status access_adopt(struct store *store, const struct wire_token_request *request,
                              const char *secret, const struct access_cause *cause,
                              struct wire_token *out, int *out_is_new, struct deft_error *error) {
    struct tokens_search search = {0};
    struct wire_token_request named = *request;
    enum deft_status status = DEFT_OK;
    if (!http_secret_is_text(secret)) {
        return deft_fail(
            error, DEFT_INVALID, 0,
            "the token is unfit, expected deft_ and 43 random letters, digits, - or _");
    }
    status = http_secret_hash(secret, strlen(secret), search.hash, error);
    if (status == DEFT_OK) {
        status = store_read_tokens(store, tokens_match, &search, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    if (search.is_there &&
        (strcmp(search.found.role, request->role) != 0 || search.found.job[0] != '\0' ||
         request->job[0] != '\0' || request->job_prefix[0] != '\0')) {
        return deft_fail(error, DEFT_MISMATCH, 0,
                         "the token is there as '%s', with the role %s, expected a new one",
                         search.found.name, search.found.role);
    }
    if (search.is_there) {
        tokens_view(&search.found, clock_wall_ns(), out);
        *out_is_new = 0;
        return DEFT_OK;
    }
    int n = snprintf(named.name, sizeof(named.name), "%s-%02x%02x%02x%02x", request->name,
                     search.hash[0], search.hash[1], search.hash[2], search.hash[3]);
    if (n < 0 || (size_t)n >= sizeof(named.name)) {
        return deft_fail(error, DEFT_INVALID, 0, "name: at most %zu bytes were expected here",
                         sizeof(named.name) - 10);
    }
    status = tokens_store(store, &named, secret, cause, out, error);
    if (status == DEFT_OK) {
        *out_is_new = 1;
    }
    return status;
}

enum deft_status access_revoke(struct store *store, const char *name,
                               const struct access_cause *cause, struct wire_token *out,
                               struct deft_error *error) {
    struct store_token token;
    struct store_token_revoke write;
    struct wire_token view;
    char *before = NULL;
    int64_t now_ns = clock_wall_ns();
    enum deft_status status = store_read_token(store, name, &token, error);
    if (status == DEFT_OK) {
        tokens_view(&token, now_ns, &view);
        status = wire_token_encode(&view, &before, error);
    }
    if (status == DEFT_OK) {
        struct store_audit audit = tokens_audit(cause, "token.revoke", name, now_ns);
        audit.before = before;
        store_token_revoke_init(&write);
        write.name = name;
        write.audit = &audit;
        status = store_run(store, &write.write, error);
    }
    if (status == DEFT_OK) {
        status = store_read_token(store, name, &token, error);
    }
    if (status == DEFT_OK) {
        tokens_view(&token, now_ns, out);
    }
    free(before);
    return status;
}

struct tokens_page {
    struct wire_tokens tokens;
    uint32_t capacity;
    int64_t now_ns;
};

static enum deft_status tokens_row(void *context, const struct store_token *token) {
    struct tokens_page *page = context;
    if (page->tokens.n_tokens == page->capacity) {
        uint32_t capacity = page->capacity == 0 ? 16 : page->capacity * 2;
        struct wire_token *grown = realloc(page->tokens.tokens, capacity * sizeof(*grown));
        if (grown == NULL) {
            return DEFT_NO_MEMORY;
        }
        page->tokens.tokens = grown;
        page->capacity = capacity;
    }
    tokens_view(token, page->now_ns, &page->tokens.tokens[page->tokens.n_tokens++]);
    return DEFT_OK;
}

enum deft_status access_list(struct store *store, struct wire_tokens *out,
                             struct deft_error *error) {
    struct tokens_page page = {.now_ns = clock_wall_ns()};
    enum deft_status status = store_read_tokens(store, tokens_row, &page, error);
    if (status != DEFT_OK) {
        wire_tokens_done(&page.tokens);
        return status == DEFT_NO_MEMORY
                   ? deft_fail(error, status, 0, "no memory for a list of tokens")
                   : status;
    }
    *out = page.tokens;
    return DEFT_OK;
}
