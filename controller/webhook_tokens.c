#include "webhook_tokens.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "http/http_secret.h"

/* Jobs that start at about the same time; beyond, one has a second token. */
#define TOKENS_MOST 1024u
#define TOKENS_NS   INT64_C(1000000000)

struct tokens_entry {
    char job[WIRE_ID_BYTES]; /* "": free */
    char token[WIRE_SECRET_BYTES];
    int64_t made_ns;
};

struct webhook_tokens {
    struct store *store;
    struct access *access;
    uint64_t expires_s;
    pthread_mutex_t lock; /* also while one is made, so that all pods of a job get that one */
    size_t next;          /* the oldest */
    struct tokens_entry entries[TOKENS_MOST];
};

enum deft_status webhook_tokens_open(struct store *store, struct access *access, uint64_t expires_s,
                                     struct webhook_tokens **out, struct deft_error *error) {
    struct webhook_tokens *tokens = calloc(1, sizeof(*tokens));
    if (tokens == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for tokens of jobs");
    }
    tokens->store = store;
    tokens->access = access;
    tokens->expires_s = expires_s;
    (void)pthread_mutex_init(&tokens->lock, NULL);
    *out = tokens;
    return DEFT_OK;
}

void webhook_tokens_close(struct webhook_tokens *tokens) {
    if (tokens != NULL) {
        (void)pthread_mutex_destroy(&tokens->lock);
        http_secret_wipe(tokens->entries, sizeof(tokens->entries));
        free(tokens);
    }
}

/* One that somebody has revoked is none, and a pod must not start with one that ends soon. */
static struct tokens_entry *tokens_find(struct webhook_tokens *tokens, const char *job,
                                        int64_t now_ns) {
    struct access_user user;
    for (size_t i = 0; i < TOKENS_MOST; i++) {
        struct tokens_entry *entry = &tokens->entries[i];
        if (strcmp(entry->job, job) == 0) {
            int is_young = now_ns - entry->made_ns < (int64_t)tokens->expires_s * TOKENS_NS / 2;
            return is_young && access_find(tokens->access, entry->token, strlen(entry->token),
                                           now_ns, &user)
                       ? entry
                       : NULL;
        }
    }
    return NULL;
}

static void tokens_keep(struct webhook_tokens *tokens, const char *job, const char *token,
                        int64_t now_ns) {
    struct tokens_entry *entry = NULL;
    for (size_t i = 0; i < TOKENS_MOST && entry == NULL; i++) {
        entry = strcmp(tokens->entries[i].job, job) == 0 ? &tokens->entries[i] : NULL;
    }
    if (entry == NULL) {
        entry = &tokens->entries[tokens->next];
        tokens->next = (tokens->next + 1) % TOKENS_MOST;
    }
    (void)snprintf(entry->job, sizeof(entry->job), "%s", job);
    (void)snprintf(entry->token, sizeof(entry->token), "%s", token);
    entry->made_ns = now_ns;
}

static enum deft_status tokens_make(struct webhook_tokens *tokens, const char *job, const char *uid,
                                    const struct access_cause *cause, char out[WIRE_SECRET_BYTES],
                                    struct deft_error *error) {
    struct wire_token made;
    struct wire_token_request wish = {.role = "agent", .expires_in_s = tokens->expires_s};
    /* A name is never given twice, and the same review may come again. */
    (void)snprintf(wish.name, sizeof(wish.name), "pod-%.40s-%08" PRIx32, uid,
                   (uint32_t)http_secret_number());
    (void)snprintf(wish.job, sizeof(wish.job), "%s", job);
    enum deft_status status = wire_token_request_check(&wish, error);
    if (status == DEFT_OK) {
        status = access_create(tokens->store, &wish, cause, &made, error);
    }
    if (status == DEFT_OK) {
        memcpy(out, made.token, sizeof(made.token));
        tokens_keep(tokens, job, made.token, clock_wall_ns());
        http_secret_wipe(made.token, sizeof(made.token));
        status = access_refresh(tokens->access, error);
    }
    return status;
}

enum deft_status webhook_tokens_get(struct webhook_tokens *tokens, const char *job, const char *uid,
                                    const struct access_cause *cause, char out[WIRE_SECRET_BYTES],
                                    struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    out[0] = '\0';
    if (access_is_open(tokens->access)) {
        return DEFT_OK;
    }
    (void)pthread_mutex_lock(&tokens->lock);
    const struct tokens_entry *entry = tokens_find(tokens, job, clock_wall_ns());
    if (entry != NULL) {
        memcpy(out, entry->token, WIRE_SECRET_BYTES);
    } else {
        status = tokens_make(tokens, job, uid, cause, out, error);
    }
    (void)pthread_mutex_unlock(&tokens->lock);
    return status;
}
