/* Tokens, and the record of what was done with them. */
#ifndef STORE_ACCESS_H
#define STORE_ACCESS_H

#include "store/store.h"

#define STORE_TOKEN_NAME_BYTES 64u
#define STORE_TOKEN_HASH_BYTES 32u
/* A cluster that mints one per job and keeps none longer than needed has thousands. */
#define STORE_MAX_TOKENS 100000u

struct store_token {
    int64_t id;
    char name[STORE_TOKEN_NAME_BYTES];
    uint8_t hash[STORE_TOKEN_HASH_BYTES];
    char role[16];
    char job[WIRE_ID_BYTES];
    int is_prefix;
    int64_t created_ns;
    char created_by[STORE_TOKEN_NAME_BYTES];
    int64_t expires_ns; /* 0: never */
    int64_t revoked_ns; /* 0: not */
};

/* One line of the record; it is written together with the change itself, or neither is. */
struct store_audit {
    const char *who;
    const char *source;
    const char *action;
    const char *subject;
    const char *before; /* JSON, or "" */
    const char *after;  /* JSON, or "" */
    const char *reason; /* "" when none was given */
    int64_t now_ns;
};
#define STORE_AUDIT_REASON_BYTES 512u

/* DEFT_MISMATCH when there is or was a token of this name, DEFT_LIMIT when there are too many. */
struct store_token_create {
    struct store_write write;
    const struct store_token *token; /* but its id */
    const struct store_audit *audit;
};
void store_token_create_init(struct store_token_create *write);

/* DEFT_NOT_FOUND when there is no such token; one that is revoked already stays as it is. */
struct store_token_revoke {
    struct store_write write;
    const char *name;
    const struct store_audit *audit; /* its time is that of the revocation */
};
void store_token_revoke_init(struct store_token_revoke *write);

/* Rows by name. `found` is called for each. */
typedef enum deft_status (*store_token_fn)(void *context, const struct store_token *token);
DEFT_NODISCARD enum deft_status store_read_tokens(struct store *store, store_token_fn found,
                                                  void *context, struct deft_error *error);
/* DEFT_NOT_FOUND when there is none of this name. */
DEFT_NODISCARD enum deft_status store_read_token(struct store *store, const char *name,
                                                 struct store_token *out, struct deft_error *error);
/* A number that grows with every change, whoever makes it; 0: there never was a token. */
DEFT_NODISCARD enum deft_status store_read_revision(struct store *store, uint64_t *out,
                                                    struct deft_error *error);

/* "records" and "next", newest first: those before `before` (0: all), at most `limit`, of `subject`
 * if it is not NULL. "next" goes into `before` for the next page, null after the last. */
struct store_audit_filter {
    uint64_t before;
    uint64_t limit;
    const char *subject;
};
DEFT_NODISCARD enum deft_status store_print_audit(struct store *store,
                                                  const struct store_audit_filter *filter,
                                                  struct json_out *out, struct deft_error *error);

/* Jobs of the database by state; `found` is called for each. */
typedef void (*store_count_fn)(void *context, const char *state, uint64_t n);
DEFT_NODISCARD enum deft_status store_read_states(struct store *store, store_count_fn found,
                                                  void *context, struct deft_error *error);

struct store_db;
/* For writes of the store's own: the record as a part of them, and the end of the tokens of agents
 * that are for this one job, with a record of each. `cause` NULL: upkeep. */
DEFT_NODISCARD enum deft_status store_access_end_job(struct store_db *db, const char *job,
                                                     const struct store_audit *cause,
                                                     struct deft_error *error);
DEFT_NODISCARD enum deft_status
store_audit_insert(struct store_db *db, const struct store_audit *audit, struct deft_error *error);

#endif
