/* From one version of the schema to the next. */
#include "store/store_db.h"

#include <sqlite3.h>
#include <stdio.h>

#include "store/store_schema.h"

static enum deft_status migrate_version(struct store_db *db, int *out, struct deft_error *error) {
    sqlite3_stmt *statement = store_db_statement(db, "PRAGMA user_version");
    if (statement == NULL || sqlite3_step(statement) != SQLITE_ROW) {
        return store_db_fail(db, "be read", error);
    }
    *out = sqlite3_column_int(statement, 0);
    (void)sqlite3_reset(statement);
    return DEFT_OK;
}

/* One step and its version number are one transaction: a crash leaves the old schema whole. */
static enum deft_status migrate_step(struct store_db *db, size_t step, struct deft_error *error) {
    char version[64];
    (void)snprintf(version, sizeof(version), "PRAGMA user_version = %zu", step + 1);
    enum deft_status status = store_db_exec(db, "BEGIN IMMEDIATE", error);
    if (status != DEFT_OK) {
        return status;
    }
    status = store_db_exec(db, store_schema[step], error);
    if (status == DEFT_OK) {
        status = store_db_exec(db, version, error);
    }
    if (status == DEFT_OK) {
        status = store_db_exec(db, "COMMIT", error);
    }
    if (status != DEFT_OK) {
        (void)sqlite3_exec(db->handle, "ROLLBACK", NULL, NULL, NULL);
    }
    return status;
}

enum deft_status store_check_known(struct store_db *db, struct deft_error *error) {
    int version = 0;
    enum deft_status status = migrate_version(db, &version, error);
    if (status == DEFT_OK && (version < 0 || (size_t)version > store_schema_steps)) {
        return deft_fail(error, DEFT_UNSUPPORTED, 0,
                         "the database '%s' has schema %d, but this controller knows 0..%zu only: "
                         "a newer release made it",
                         sqlite3_db_filename(db->handle, "main"), version, store_schema_steps);
    }
    return status;
}

enum deft_status store_migrate(struct store_db *db, struct deft_error *error) {
    return store_migrate_to(db, store_schema_steps, error);
}

enum deft_status store_migrate_to(struct store_db *db, size_t target, struct deft_error *error) {
    int version = 0;
    enum deft_status status = store_check_known(db, error);
    if (status == DEFT_OK) {
        status = migrate_version(db, &version, error);
    }
    for (size_t step = (size_t)version; step < target && status == DEFT_OK; step++) {
        status = migrate_step(db, step, error);
    }
    return status;
}

enum deft_status store_check_version(struct store_db *db, struct deft_error *error) {
    int version = 0;
    enum deft_status status = migrate_version(db, &version, error);
    if (status == DEFT_OK && (version < 0 || (size_t)version != store_schema_steps)) {
        return deft_fail(error, DEFT_UNSUPPORTED, 0,
                         "the database '%s' has schema %d, but %zu is needed: a controller of this "
                         "release brings an older one up to date when it opens it",
                         sqlite3_db_filename(db->handle, "main"), version, store_schema_steps);
    }
    return status;
}
