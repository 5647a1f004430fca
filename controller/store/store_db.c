#include "store/store_db.h"

#include <sqlite3.h>
#include <stdlib.h>

enum deft_status store_db_fail(const struct store_db *db, const char *what,
                               struct deft_error *error) {
    int code = sqlite3_extended_errcode(db->handle);
    enum deft_status status = code == SQLITE_NOMEM ? DEFT_NO_MEMORY : DEFT_STORE;
    return deft_fail(error, status, code, "the database cannot %s: %s", what,
                     sqlite3_errmsg(db->handle));
}

enum deft_status store_db_open(const char *path, int read_only, struct store_db **out,
                               struct deft_error *error) {
    struct store_db *db = calloc(1, sizeof(*db));
    if (db == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a database connection");
    }
    int flags = read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    int code = sqlite3_open_v2(path, &db->handle, flags | SQLITE_OPEN_NOMUTEX, NULL);
    if (code != SQLITE_OK) {
        enum deft_status status =
            deft_fail(error, DEFT_STORE, code, "the database '%s' cannot be opened: %s", path,
                      db->handle != NULL ? sqlite3_errmsg(db->handle) : sqlite3_errstr(code));
        store_db_close(db);
        return status;
    }
    (void)sqlite3_busy_timeout(db->handle, STORE_DB_BUSY_MS);
    *out = db;
    return DEFT_OK;
}

void store_db_close(struct store_db *db) {
    if (db != NULL) {
        for (unsigned i = 0; i < STORE_DB_SLOTS; i++) {
            (void)sqlite3_finalize(db->statements[i]);
        }
        (void)sqlite3_close(db->handle);
        free(db);
    }
}

void store_db_reset(struct store_db *db) {
    for (unsigned i = 0; i < STORE_DB_SLOTS; i++) {
        (void)sqlite3_reset(db->statements[i]);
    }
}

enum deft_status store_db_exec(struct store_db *db, const char *sql, struct deft_error *error) {
    if (sqlite3_exec(db->handle, sql, NULL, NULL, NULL) != SQLITE_OK) {
        return store_db_fail(db, "run a statement", error);
    }
    return DEFT_OK;
}

/* Where the statement is, or the free slot where it may be put. */
static unsigned store_db_slot(const struct store_db *db, const char *sql) {
    uint64_t mixed = (uint64_t)(uintptr_t)sql * UINT64_C(0x9E3779B97F4A7C15);
    unsigned slot = (unsigned)(mixed >> 32) % STORE_DB_SLOTS;
    while (db->sql[slot] != NULL && db->sql[slot] != sql) {
        slot = (slot + 1) % STORE_DB_SLOTS;
    }
    return slot;
}

sqlite3_stmt *store_db_statement(struct store_db *db, const char *sql) {
    unsigned slot = store_db_slot(db, sql);
    sqlite3_stmt *statement = db->statements[slot];
    if (db->sql[slot] != NULL) {
        (void)sqlite3_reset(statement);
        (void)sqlite3_clear_bindings(statement);
        return statement;
    }
    if (db->n_statements == STORE_DB_MAX_STATEMENTS ||
        sqlite3_prepare_v3(db->handle, sql, -1, SQLITE_PREPARE_PERSISTENT, &statement, NULL) !=
            SQLITE_OK) {
        return NULL;
    }
    db->sql[slot] = sql;
    db->statements[slot] = statement;
    db->n_statements++;
    return statement;
}

enum deft_status store_db_step(struct store_db *db, sqlite3_stmt *statement, const char *what,
                               struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    if (sqlite3_step(statement) != SQLITE_DONE) {
        status = store_db_fail(db, what, error);
    }
    (void)sqlite3_reset(statement);
    return status;
}

enum deft_status store_db_int(struct store_db *db, const char *sql, int64_t *out,
                              struct deft_error *error) {
    sqlite3_stmt *statement = store_db_statement(db, sql);
    int code = statement != NULL ? sqlite3_step(statement) : SQLITE_ERROR;
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        return store_db_fail(db, "be read", error);
    }
    *out = code == SQLITE_ROW ? sqlite3_column_int64(statement, 0) : 0;
    (void)sqlite3_reset(statement);
    return DEFT_OK;
}

const char *store_db_text(sqlite3_stmt *statement, int column) {
    const unsigned char *text = sqlite3_column_text(statement, column);
    return text != NULL ? (const char *)text : "";
}
