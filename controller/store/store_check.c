/* Whether a database holds what the schema promises. */
#include "store/store_file.h"

#include <sqlite3.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "store/store_bind.h"
#include "store/store_copy.h"
#include "store/store_schema.h"

/* Longer lists of one check say nothing new. */
#define CHECK_MAX_ROWS 20

static void check_finding(struct store_file_check *check, const char *format, ...)
    DEFT_PRINTF(2, 3);
static void check_finding(struct store_file_check *check, const char *format, ...) {
    if (check->n_findings < STORE_FILE_MAX_FINDINGS) {
        va_list arguments;
        va_start(arguments, format);
        (void)vsnprintf(check->findings[check->n_findings], STORE_FILE_FINDING_BYTES, format,
                        arguments);
        va_end(arguments);
    }
    check->n_findings++;
}

/* Rows of text, each a finding behind `what`; "ok" is none. */
static void check_rows(struct store_db *db, const char *sql, const char *what,
                       struct store_file_check *check) {
    sqlite3_stmt *s = NULL;
    int n = 0;
    int code = sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL);
    for (code = code == SQLITE_OK ? sqlite3_step(s) : code;
         code == SQLITE_ROW && n < CHECK_MAX_ROWS; code = sqlite3_step(s)) {
        const char *text = store_db_text(s, 0);
        if (strcmp(text, "ok") != 0) {
            check_finding(check, "%s: %.*s", what, (int)strcspn(text, "\n"), text);
            n++;
        }
    }
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        check_finding(check, "%s: %s", what, sqlite3_errmsg(db->handle));
    }
    (void)sqlite3_finalize(s);
}

/* --- the schema ---------------------------------------------------------------------------------
 */

/* Tables and indices as they ought to be: of the database's own version. */
static enum deft_status check_reference(int64_t version, sqlite3 **out, struct deft_error *error) {
    sqlite3 *reference = NULL;
    int code = sqlite3_open(":memory:", &reference);
    for (int64_t step = 0; step < version && code == SQLITE_OK; step++) {
        code = sqlite3_exec(reference, store_schema[step], NULL, NULL, NULL);
    }
    if (code != SQLITE_OK) {
        (void)sqlite3_close(reference);
        return deft_fail(error, DEFT_NO_MEMORY, code, "no memory for a database of comparison");
    }
    *out = reference;
    return DEFT_OK;
}

#define CHECK_SCHEMA                                                                               \
    "SELECT name, coalesce(sql, '') FROM sqlite_master WHERE name NOT LIKE 'sqlite_stat%'"         \
    " ORDER BY name"

/* Two sorted lists side by side. */
static void check_schema(struct store_db *db, sqlite3 *reference, struct store_file_check *check) {
    sqlite3_stmt *have = NULL;
    sqlite3_stmt *want = NULL;
    if (sqlite3_prepare_v2(db->handle, CHECK_SCHEMA, -1, &have, NULL) == SQLITE_OK &&
        sqlite3_prepare_v2(reference, CHECK_SCHEMA, -1, &want, NULL) == SQLITE_OK) {
        int a = sqlite3_step(have);
        int b = sqlite3_step(want);
        while (a == SQLITE_ROW || b == SQLITE_ROW) {
            int order = a != SQLITE_ROW   ? 1
                        : b != SQLITE_ROW ? -1
                                          : strcmp(store_db_text(have, 0), store_db_text(want, 0));
            if (order < 0) {
                check_finding(check, "schema: '%.100s' is not one of ours", store_db_text(have, 0));
            } else if (order > 0) {
                check_finding(check, "schema: '%.100s' is missing", store_db_text(want, 0));
            } else if (strcmp(store_db_text(have, 1), store_db_text(want, 1)) != 0) {
                check_finding(check, "schema: '%.100s' is not what it should be",
                              store_db_text(have, 0));
            }
            a = order <= 0 ? sqlite3_step(have) : a;
            b = order >= 0 ? sqlite3_step(want) : b;
        }
    }
    (void)sqlite3_finalize(have);
    (void)sqlite3_finalize(want);
}

/* --- sizes --------------------------------------------------------------------------------------
 */

static int64_t check_bytes(struct store_db *db, const char *table) {
    sqlite3_stmt *s = NULL; /* not every SQLite can tell */
    int64_t n_bytes = -1;
    if (sqlite3_prepare_v2(db->handle,
                           "SELECT sum(d.pgsize) FROM sqlite_master m JOIN dbstat d"
                           " ON d.name = m.name AND d.aggregate = TRUE WHERE m.tbl_name = ?1",
                           -1, &s, NULL) == SQLITE_OK) {
        store_bind_text(s, 1, table);
        n_bytes = sqlite3_step(s) == SQLITE_ROW ? sqlite3_column_int64(s, 0) : -1;
    }
    (void)sqlite3_finalize(s);
    return n_bytes;
}

static int64_t check_count(struct store_db *db, const char *table) {
    sqlite3_stmt *s = NULL;
    int64_t n_rows = -1;
    char sql[128];
    (void)snprintf(sql, sizeof(sql), "SELECT count(*) FROM \"%.64s\"", table);
    if (sqlite3_prepare_v2(db->handle, sql, -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW) {
        n_rows = sqlite3_column_int64(s, 0);
    }
    (void)sqlite3_finalize(s);
    return n_rows;
}

static void check_tables(struct store_db *db, sqlite3 *reference, struct store_file_check *check) {
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(reference,
                           "SELECT name FROM sqlite_master WHERE type = 'table'"
                           " ORDER BY name",
                           -1, &s, NULL) == SQLITE_OK) {
        while (sqlite3_step(s) == SQLITE_ROW && check->n_tables < STORE_FILE_MAX_TABLES) {
            struct store_file_table *table = &check->tables[check->n_tables++];
            (void)snprintf(table->name, sizeof(table->name), "%s", store_db_text(s, 0));
            table->n_rows = check_count(db, table->name);
            table->n_bytes = check_bytes(db, table->name);
        }
    }
    (void)sqlite3_finalize(s);
}

/* --- our own books: what upkeep relies on -------------------------------------------------------
 */

static const char check_books[] =
    "SELECT 'roll-ups of incarnation ' || incarnation || ' overlap at iteration ' || first FROM"
    " (SELECT incarnation, first, lag(last) OVER (PARTITION BY incarnation, period_s ORDER BY "
    "first)"
    " AS before FROM rollups) WHERE first <= before"
    " UNION ALL SELECT 'iterations of incarnation ' || incarnation || ' are not in the books' FROM"
    " (SELECT DISTINCT incarnation FROM iterations) t WHERE NOT EXISTS (SELECT 1 FROM upkeep u "
    "WHERE"
    " u.incarnation = t.incarnation AND u.raw_ns IS NOT NULL)"
    " UNION ALL SELECT 'the books have an incarnation ' || incarnation || ' that is not there' FROM"
    " upkeep u WHERE NOT EXISTS (SELECT 1 FROM incarnations i WHERE i.id = u.incarnation)"
    " UNION ALL SELECT 'roll-ups of incarnation ' || u.incarnation || ' go beyond its books' FROM"
    " upkeep u WHERE (SELECT max(last) FROM rollups r WHERE r.incarnation = u.incarnation AND"
    " period_s = 60) > u.rolled_to"
    " UNION ALL SELECT 'a new incarnation would get the number of ' || max(id) FROM incarnations"
    " HAVING max(id) > (SELECT last FROM sequences WHERE name = 'incarnations')";

static void check_contents(struct store_db *db, struct store_file_check *check) {
    check_rows(db, "PRAGMA integrity_check(20)", "integrity", check);
    check_rows(
        db,
        "SELECT 'row ' || coalesce(rowid, '?') || ' of ' || \"table\" || ' refers to nothing in "
        "' || parent FROM pragma_foreign_key_check",
        "foreign keys", check);
    if (check->version == (int64_t)store_schema_steps) {
        check_rows(db, check_books, "books", check);
    }
}

static enum deft_status check_all(struct store_db *db, struct store_file_check *check,
                                  struct deft_error *error) {
    sqlite3 *reference = NULL;
    enum deft_status status = store_db_int(db, "PRAGMA user_version", &check->version, error);
    if (status == DEFT_OK) {
        status = check_reference(check->version, &reference, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    if (store_db_int(db,
                     "SELECT freelist_count * page_size FROM pragma_freelist_count,"
                     " pragma_page_size",
                     &check->free_bytes, NULL) != DEFT_OK) {
        check->free_bytes = 0;
    }
    check_schema(db, reference, check);
    check_tables(db, reference, check);
    check_contents(db, check);
    (void)sqlite3_close(reference);
    return DEFT_OK;
}

enum deft_status store_file_check(const char *path, struct store_file_check *out,
                                  struct deft_error *error) {
    struct store_db *db = NULL;
    struct stat stat_of;
    char log[4096];
    struct deft_error why = {0};
    memset(out, 0, sizeof(*out));
    (void)snprintf(log, sizeof(log), "%s-wal", path);
    out->log_bytes = stat(log, &stat_of) == 0 ? (int64_t)stat_of.st_size : 0;
    out->n_bytes = stat(path, &stat_of) == 0 ? (int64_t)stat_of.st_size : 0;
    enum deft_status status = store_copy_open_source(path, &db, &why);
    if (status == DEFT_OK) {
        status = check_all(db, out, &why);
    }
    store_db_close(db);
    if (status == DEFT_STORE) { /* so damaged that nothing more can be said */
        check_finding(out, "%.*s", (int)sizeof(why.text), why.text);
        return DEFT_OK;
    }
    if (status != DEFT_OK && error != NULL) {
        *error = why;
    }
    return status;
}
