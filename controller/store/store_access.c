#include "store/store_access.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "store/store_bind.h"
#include "store/store_db.h"

/* --- the record --------------------------------------------------------------------------------
 */

enum deft_status store_audit_insert(struct store_db *db, const struct store_audit *audit,
                                    struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT INTO audit (at_ns, who, source, action, subject, before, after, reason)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
    if (s == NULL) {
        return store_db_fail(db, "take a record", error);
    }
    store_bind_int(s, 1, audit->now_ns);
    store_bind_text(s, 2, audit->who);
    store_bind_text(s, 3, audit->source);
    store_bind_text(s, 4, audit->action);
    store_bind_text(s, 5, audit->subject);
    store_bind_text(s, 6, audit->before);
    store_bind_text(s, 7, audit->after);
    store_bind_text(s, 8, audit->reason);
    return store_db_step(db, s, "take a record", error);
}

static void access_print_value(struct json_out *out, const char *key, const char *json) {
    if (json[0] == '\0') {
        json_out_null(out, key);
    } else {
        json_out_raw(out, key, json);
    }
}

static void access_print_record(sqlite3_stmt *s, struct json_out *out) {
    char at[32];
    store_time_text(sqlite3_column_int64(s, 1), at);
    json_out_begin_object(out, NULL);
    json_out_uint(out, "id", (uint64_t)sqlite3_column_int64(s, 0));
    json_out_text(out, "at", at);
    json_out_text(out, "who", store_db_text(s, 2));
    json_out_text(out, "source", store_db_text(s, 3));
    json_out_text(out, "action", store_db_text(s, 4));
    json_out_text(out, "subject", store_db_text(s, 5));
    access_print_value(out, "before", store_db_text(s, 6));
    access_print_value(out, "after", store_db_text(s, 7));
    json_out_text(out, "reason", store_db_text(s, 8));
    json_out_end_object(out);
}

static sqlite3_stmt *access_audit_statement(struct store_db *db,
                                            const struct store_audit_filter *filter) {
    sqlite3_stmt *s =
        filter->subject != NULL
            ? store_db_statement(db, "SELECT id, at_ns, who, source, action, subject, before,"
                                     " after, reason FROM audit WHERE subject = ?3 AND id < ?1"
                                     " ORDER BY id DESC LIMIT ?2")
            : store_db_statement(db, "SELECT id, at_ns, who, source, action, subject, before,"
                                     " after, reason FROM audit WHERE id < ?1"
                                     " ORDER BY id DESC LIMIT ?2");
    if (s != NULL) {
        store_bind_int(s, 1, filter->before > 0 ? (int64_t)filter->before : INT64_MAX);
        store_bind_int(s, 2, (int64_t)filter->limit);
        if (filter->subject != NULL) {
            store_bind_text(s, 3, filter->subject);
        }
    }
    return s;
}

enum deft_status store_print_audit(struct store *store, const struct store_audit_filter *filter,
                                   struct json_out *out, struct deft_error *error) {
    struct store_db *db = NULL;
    int64_t last = 0;
    uint64_t n = 0;
    int code = SQLITE_ERROR;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s = access_audit_statement(db, filter);
    json_out_begin_array(out, "records");
    while (s != NULL && (code = sqlite3_step(s)) == SQLITE_ROW) {
        access_print_record(s, out);
        last = sqlite3_column_int64(s, 0);
        n++;
    }
    json_out_end_array(out);
    if (n == filter->limit && last > 1) {
        json_out_uint(out, "next", (uint64_t)last);
    } else {
        json_out_null(out, "next");
    }
    if (code != SQLITE_DONE) {
        status = store_db_fail(db, "be read", error);
    }
    store_reader_give(store, db);
    return status;
}

/* --- tokens ------------------------------------------------------------------------------------
 */

#define ACCESS_COLUMNS                                                                             \
    "SELECT id, name, hash, role, job, is_prefix, created_ns, created_by, expires_ns, revoked_ns"  \
    " FROM tokens"

static void access_copy(sqlite3_stmt *s, int column, char *out, size_t capacity_bytes) {
    (void)snprintf(out, capacity_bytes, "%s", store_db_text(s, column));
}

static void access_take_token(sqlite3_stmt *s, struct store_token *out) {
    memset(out, 0, sizeof(*out));
    out->id = sqlite3_column_int64(s, 0);
    access_copy(s, 1, out->name, sizeof(out->name));
    const void *hash = sqlite3_column_blob(s, 2);
    if (hash != NULL && sqlite3_column_bytes(s, 2) == (int)sizeof(out->hash)) {
        memcpy(out->hash, hash, sizeof(out->hash));
    }
    access_copy(s, 3, out->role, sizeof(out->role));
    access_copy(s, 4, out->job, sizeof(out->job));
    out->is_prefix = sqlite3_column_int(s, 5);
    out->created_ns = sqlite3_column_int64(s, 6);
    access_copy(s, 7, out->created_by, sizeof(out->created_by));
    out->expires_ns = sqlite3_column_int64(s, 8);
    out->revoked_ns = sqlite3_column_int64(s, 9);
}

static enum deft_status access_find(struct store_db *db, const char *name, struct store_token *out,
                                    struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(db, ACCESS_COLUMNS " WHERE name = ?1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    store_bind_text(s, 1, name);
    int code = sqlite3_step(s);
    enum deft_status status = DEFT_OK;
    if (code == SQLITE_ROW) {
        access_take_token(s, out);
    } else if (code == SQLITE_DONE) {
        status = deft_fail(error, DEFT_NOT_FOUND, 0, "there is no token named '%.63s'", name);
    } else {
        status = store_db_fail(db, "be read", error);
    }
    (void)sqlite3_reset(s);
    return status;
}

static enum deft_status access_count(struct store_db *db, int64_t *out, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(db, "SELECT count(*) FROM tokens");
    if (s == NULL || sqlite3_step(s) != SQLITE_ROW) {
        return store_db_fail(db, "be read", error);
    }
    *out = sqlite3_column_int64(s, 0);
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

static enum deft_status access_check_new(struct store_db *db, const char *name,
                                         struct deft_error *error) {
    struct store_token there;
    int64_t n = 0;
    enum deft_status status = access_find(db, name, &there, NULL);
    if (status == DEFT_OK) {
        return deft_fail(error, DEFT_MISMATCH, 0,
                         "name: there is or was a token '%s' already, and the record must not mean "
                         "two by one name",
                         name);
    }
    if (status != DEFT_NOT_FOUND) {
        return store_db_fail(db, "be read", error);
    }
    status = access_count(db, &n, error);
    if (status == DEFT_OK && n >= (int64_t)STORE_MAX_TOKENS) {
        status = deft_fail(error, DEFT_LIMIT, 0, "there are %lld tokens already", (long long)n);
    }
    return status;
}

static enum deft_status access_apply_create(struct store_db *db, struct store_write *write,
                                            struct deft_error *error) {
    const struct store_token_create *in = (const struct store_token_create *)write;
    const struct store_token *token = in->token;
    enum deft_status status = access_check_new(db, token->name, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT INTO tokens (name, hash, role, job, is_prefix, created_ns, created_by,"
            " expires_ns, revoked_ns, revision) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, 0,"
            " 1 + (SELECT coalesce(max(revision), 0) FROM tokens))");
    if (s == NULL) {
        return store_db_fail(db, "take a token", error);
    }
    store_bind_text(s, 1, token->name);
    (void)sqlite3_bind_blob(s, 2, token->hash, sizeof(token->hash), SQLITE_STATIC);
    store_bind_text(s, 3, token->role);
    store_bind_text(s, 4, token->job);
    store_bind_int(s, 5, token->is_prefix);
    store_bind_int(s, 6, token->created_ns);
    store_bind_text(s, 7, token->created_by);
    store_bind_int(s, 8, token->expires_ns);
    status = store_db_step(db, s, "take a token", error);
    return status == DEFT_OK ? store_audit_insert(db, in->audit, error) : status;
}

void store_token_create_init(struct store_token_create *write) {
    memset(write, 0, sizeof(*write));
    write->write.apply = access_apply_create;
}

static enum deft_status access_apply_revoke(struct store_db *db, struct store_write *write,
                                            struct deft_error *error) {
    const struct store_token_revoke *in = (const struct store_token_revoke *)write;
    struct store_token token = {0};
    enum deft_status status = access_find(db, in->name, &token, error);
    if (status != DEFT_OK || token.revoked_ns != 0) {
        return status;
    }
    sqlite3_stmt *s = store_db_statement(
        db, "UPDATE tokens SET revoked_ns = ?2,"
            " revision = 1 + (SELECT max(revision) FROM tokens) WHERE name = ?1");
    if (s == NULL) {
        return store_db_fail(db, "revoke a token", error);
    }
    store_bind_text(s, 1, in->name);
    store_bind_int(s, 2, in->audit->now_ns);
    status = store_db_step(db, s, "revoke a token", error);
    return status == DEFT_OK ? store_audit_insert(db, in->audit, error) : status;
}

void store_token_revoke_init(struct store_token_revoke *write) {
    memset(write, 0, sizeof(*write));
    write->write.apply = access_apply_revoke;
}

/* A job of the same name would be another one, and not theirs to speak for. */
enum deft_status store_access_end_job(struct store_db *db, const char *job,
                                      const struct store_audit *cause, struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    char name[STORE_TOKEN_NAME_BYTES];
    struct store_audit audit = {.who = cause != NULL ? cause->who : "deft-controller",
                                .source = cause != NULL ? cause->source : "upkeep",
                                .action = "token.revoke",
                                .subject = name,
                                .before = "",
                                .after = "",
                                .reason = "its job was removed",
                                .now_ns = cause != NULL ? cause->now_ns : clock_wall_ns()};
    sqlite3_stmt *s = store_db_statement(
        db, "UPDATE tokens SET revoked_ns = ?2, revision = 1 + (SELECT max(revision) FROM tokens)"
            " WHERE role = 'agent' AND is_prefix = 0 AND job = ?1 AND revoked_ns = 0"
            " RETURNING name");
    if (s == NULL) {
        return store_db_fail(db, "revoke a token", error);
    }
    store_bind_text(s, 1, job);
    store_bind_int(s, 2, audit.now_ns);
    int code = sqlite3_step(s);
    for (; code == SQLITE_ROW && status == DEFT_OK; code = sqlite3_step(s)) {
        access_copy(s, 0, name, sizeof(name));
        status = store_audit_insert(db, &audit, error);
    }
    (void)sqlite3_reset(s);
    return status == DEFT_OK && code != SQLITE_DONE ? store_db_fail(db, "revoke a token", error)
                                                    : status;
}

enum deft_status store_read_tokens(struct store *store, store_token_fn found, void *context,
                                   struct deft_error *error) {
    struct store_db *db = NULL;
    int code = SQLITE_ERROR;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s = store_db_statement(db, ACCESS_COLUMNS " ORDER BY name");
    while (status == DEFT_OK && s != NULL && (code = sqlite3_step(s)) == SQLITE_ROW) {
        struct store_token token;
        access_take_token(s, &token);
        status = found(context, &token);
    }
    if (status == DEFT_OK && code != SQLITE_DONE) {
        status = store_db_fail(db, "be read", error);
    }
    store_reader_give(store, db);
    return status;
}

enum deft_status store_read_token(struct store *store, const char *name, struct store_token *out,
                                  struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status == DEFT_OK) {
        status = access_find(db, name, out, error);
        store_reader_give(store, db);
    }
    return status;
}

enum deft_status store_read_revision(struct store *store, uint64_t *out, struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s = store_db_statement(db, "SELECT coalesce(max(revision), 0) FROM tokens");
    if (s != NULL && sqlite3_step(s) == SQLITE_ROW) {
        *out = (uint64_t)sqlite3_column_int64(s, 0);
    } else {
        status = store_db_fail(db, "be read", error);
    }
    store_reader_give(store, db);
    return status;
}

/* --- counts ------------------------------------------------------------------------------------
 */

enum deft_status store_read_states(struct store *store, store_count_fn found, void *context,
                                   struct deft_error *error) {
    struct store_db *db = NULL;
    int code = SQLITE_ERROR;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s = store_db_statement(db, "SELECT state, count(*) FROM jobs GROUP BY state");
    while (s != NULL && (code = sqlite3_step(s)) == SQLITE_ROW) {
        found(context, store_db_text(s, 0), (uint64_t)sqlite3_column_int64(s, 1));
    }
    if (code != SQLITE_DONE) {
        status = store_db_fail(db, "be read", error);
    }
    store_reader_give(store, db);
    return status;
}
