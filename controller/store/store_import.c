/* An archive into a database, as a job. */
#include "store/store_file.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "store/store.h"
#include "store/store_archive.h"
#include "store/store_bind.h"
#include "store/store_earlier.h"
#include "store/store_place.h"

#define IMPORT_MAX_COLUMNS 48u
/* Rows of a transaction: what fails or is interrupted in between is removed by upkeep. */
#define IMPORT_BATCH_ROWS 20000u
/* Beside a controller all rows are one transaction, for which its own writes wait: a second or so,
 * of the five that they have. */
#define IMPORT_MAX_BESIDE 200000u

/* Of the new database's columns which an archive's go to. */
struct import_column {
    int parameter; /* 0: left out */
    char type;     /* first letter of the column's */
    int is_job;
    int is_incarnation;
    int is_state;
};
struct import_map {
    int64_t from;
    int64_t to;
};
struct import {
    struct store_archive_reader reader;
    const char *as; /* NULL: as it was */
    char job[WIRE_ID_BYTES];
    char hidden[WIRE_ID_BYTES + 32]; /* its name until all of it is there */
    struct store_db *db;
    int is_beside; /* a controller has the database */
    int has_end;
    int is_earlier; /* of a database that told all-reduces one by one */
    int table;      /* of the rows that follow; -1: one that is left out */
    unsigned n_columns;
    struct import_column columns[IMPORT_MAX_COLUMNS];
    sqlite3_stmt *insert;
    uint64_t n_rows[STORE_ARCHIVE_N_KNOWN];
    unsigned n_in_batch;
    size_t n_maps;
    struct import_map *maps; /* numbers of starts */
};

static enum deft_status import_wrong(const struct import *import, const char *what,
                                     struct deft_error *error) {
    return store_archive_wrong(&import->reader, what, error);
}

/* --- transactions -------------------------------------------------------------------------------
 */

static enum deft_status import_commit(struct import *import, struct deft_error *error) {
    enum deft_status status = store_db_exec(import->db, "COMMIT", error);
    import->n_in_batch = 0;
    if (status == DEFT_OK) {
        (void)sqlite3_wal_checkpoint_v2(import->db->handle, NULL, SQLITE_CHECKPOINT_PASSIVE, NULL,
                                        NULL);
        status = store_db_exec(import->db, "BEGIN IMMEDIATE", error);
    }
    return status;
}

static enum deft_status import_next(struct import *import, const char *name, int64_t *out,
                                    struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        import->db, "INSERT INTO sequences VALUES (?1, 1) ON CONFLICT DO UPDATE SET last = last + 1"
                    " RETURNING last");
    if (s == NULL) {
        return store_db_fail(import->db, "take a job", error);
    }
    store_bind_text(s, 1, name);
    if (sqlite3_step(s) != SQLITE_ROW) {
        return store_db_fail(import->db, "take a job", error);
    }
    *out = sqlite3_column_int64(s, 0);
    return store_db_step(import->db, s, "take a job", error);
}

/* --- tables -------------------------------------------------------------------------------------
 */

static int import_find_table(const struct import *import, const char *name) {
    for (unsigned i = 0; i < (import->is_earlier ? STORE_ARCHIVE_N_KNOWN : STORE_ARCHIVE_N_TABLES);
         i++) {
        if (strcmp(store_archive_tables[i].name, name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

/* The type of a column of ours; '\0' when there is none. */
static char import_column_type(struct import *import, const char *table, const char *column) {
    sqlite3_stmt *s =
        store_db_statement(import->db, "SELECT type FROM pragma_table_info(?1) WHERE name = ?2");
    char type = '\0';
    if (s != NULL) {
        store_bind_text(s, 1, table);
        store_bind_text(s, 2, column);
        if (sqlite3_step(s) == SQLITE_ROW) {
            type = store_db_text(s, 0)[0];
        }
        (void)sqlite3_reset(s);
    }
    return type;
}

/* Numbers of plans and decisions are given anew; nothing refers to them but a pin, which is of the
 * database that it comes from. */
static void import_take_column(struct import *import, const char *table, const char *column,
                               int *n_parameters) {
    struct import_column *to = &import->columns[import->n_columns++];
    int is_jobs = strcmp(table, "jobs") == 0;
    int is_starts = strcmp(table, "incarnations") == 0;
    int is_id = strcmp(column, "id") == 0;
    int is_pin = is_jobs && strcmp(column, "pin") == 0;
    memset(to, 0, sizeof(*to));
    to->type = import_column_type(import, table, column);
    to->is_job = (is_jobs && is_id) || strcmp(column, "job") == 0;
    to->is_incarnation = (is_starts && is_id) || strcmp(column, "incarnation") == 0;
    to->is_state = (is_jobs || is_starts) && strcmp(column, "state") == 0;
    if (to->type != '\0' && !is_pin && (!is_id || is_jobs || is_starts)) {
        to->parameter = ++*n_parameters;
    }
}

static enum deft_status import_prepare(struct import *import, const char *table,
                                       sqlite3_str *columns, int n_parameters,
                                       struct deft_error *error) {
    sqlite3_str *sql = sqlite3_str_new(import->db->handle);
    char *names = sqlite3_str_finish(columns);
    sqlite3_str_appendf(sql, "INSERT INTO %s (%s) VALUES (", table, names != NULL ? names : "");
    for (int i = 1; i <= n_parameters; i++) {
        sqlite3_str_appendf(sql, "%s?%d", i > 1 ? ", " : "", i);
    }
    sqlite3_str_appendall(sql, ")");
    char *text = sqlite3_str_finish(sql);
    int code = text != NULL && names != NULL && n_parameters > 0
                   ? sqlite3_prepare_v2(import->db->handle, text, -1, &import->insert, NULL)
                   : SQLITE_ERROR;
    sqlite3_free(text);
    sqlite3_free(names);
    return code == SQLITE_OK ? DEFT_OK
                             : import_wrong(import, "a table without columns of ours", error);
}

static enum deft_status import_table(struct import *import, const char *name,
                                     struct store_archive_cursor *cursor,
                                     struct deft_error *error) {
    int n_parameters = 0;
    (void)sqlite3_finalize(import->insert);
    import->insert = NULL;
    import->n_columns = 0;
    import->table = import_find_table(import, name);
    if (import->table < 0) {
        return DEFT_OK;
    }
    const char *table = store_archive_tables[import->table].name;
    sqlite3_str *columns = sqlite3_str_new(import->db->handle);
    while (store_archive_more(cursor)) {
        struct store_archive_value value;
        store_archive_value(cursor, &value);
        if (value.type != STORE_ARCHIVE_TEXT || import->n_columns == IMPORT_MAX_COLUMNS) {
            sqlite3_free(sqlite3_str_finish(columns));
            return import_wrong(import, "names of columns were expected", error);
        }
        import_take_column(import, table, value.text, &n_parameters);
        if (import->columns[import->n_columns - 1].parameter != 0) {
            sqlite3_str_appendf(columns, "%s\"%w\"", n_parameters > 1 ? ", " : "", value.text);
        }
    }
    return import_prepare(import, table, columns, n_parameters, error);
}

/* --- rows ---------------------------------------------------------------------------------------
 */

static enum deft_status import_map(struct import *import, int64_t from, int64_t *out,
                                   struct deft_error *error) {
    for (size_t i = import->n_maps; i-- > 0;) {
        if (import->maps[i].from == from) {
            *out = import->maps[i].to;
            return DEFT_OK;
        }
    }
    if (strcmp(store_archive_tables[import->table].name, "incarnations") != 0) {
        return import_wrong(import, "a row of a start that is not there", error);
    }
    struct import_map *grown = realloc(import->maps, (import->n_maps + 1) * sizeof(*import->maps));
    if (grown == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to import a job");
    }
    import->maps = grown;
    grown[import->n_maps].from = from;
    enum deft_status status = import_next(import, "incarnations", &grown[import->n_maps].to, error);
    if (status == DEFT_OK) {
        *out = grown[import->n_maps++].to;
    }
    return status;
}

/* Half-bytes; -1: something else. */
static int import_nibble(char digit) {
    const char *digits = "0123456789abcdef";
    const char *at = digit != '\0' ? strchr(digits, digit) : NULL;
    return at != NULL ? (int)(at - digits) : -1;
}

static int import_bind_blob(sqlite3_stmt *s, int parameter,
                            const struct store_archive_value *value) {
    size_t n_bytes = value->n_bytes / 2;
    uint8_t *bytes = malloc(n_bytes + 1);
    int ok = bytes != NULL && value->n_bytes % 2 == 0;
    for (size_t i = 0; i < n_bytes && ok; i++) {
        int high = import_nibble(value->text[2 * i]);
        int low = import_nibble(value->text[2 * i + 1]);
        ok = high >= 0 && low >= 0;
        bytes[i] = (uint8_t)(high * 16 + low);
    }
    if (!ok) {
        free(bytes);
        return 0;
    }
    return sqlite3_bind_blob(s, parameter, bytes, (int)n_bytes, free) == SQLITE_OK;
}

static int import_bind_plain(sqlite3_stmt *s, const struct import_column *column,
                             const struct store_archive_value *value) {
    switch (value->type) {
    case STORE_ARCHIVE_NULL:
        return sqlite3_bind_null(s, column->parameter) == SQLITE_OK;
    case STORE_ARCHIVE_INT:
        return sqlite3_bind_int64(s, column->parameter, value->integer) == SQLITE_OK;
    case STORE_ARCHIVE_REAL:
        return sqlite3_bind_double(s, column->parameter, value->real) == SQLITE_OK;
    case STORE_ARCHIVE_TEXT:
        return column->type == 'B'
                   ? import_bind_blob(s, column->parameter, value)
                   : sqlite3_bind_text(s, column->parameter, value->text, (int)value->n_bytes,
                                       SQLITE_STATIC) == SQLITE_OK;
    default:
        return 0;
    }
}

static enum deft_status import_bind(struct import *import, const struct import_column *column,
                                    const struct store_archive_value *value,
                                    struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    int64_t id = 0;
    if (column->parameter == 0) {
        return DEFT_OK;
    }
    if (column->is_job) {
        store_bind_text(import->insert, column->parameter, import->hidden);
    } else if (column->is_state) {
        store_bind_text(import->insert, column->parameter, "removing");
    } else if (column->is_incarnation) {
        status = value->type == STORE_ARCHIVE_INT
                     ? import_map(import, value->integer, &id, error)
                     : import_wrong(import, "the number of a start was expected", error);
        store_bind_int(import->insert, column->parameter, id);
    } else if (!import_bind_plain(import->insert, column, value)) {
        status = import_wrong(import, "a value is not of its column's type", error);
    }
    return status;
}

static enum deft_status import_row(struct import *import, struct store_archive_cursor *cursor,
                                   struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    unsigned n = 0;
    if (!store_archive_enter(cursor, '[')) {
        return import_wrong(import, "a row was expected", error);
    }
    (void)sqlite3_reset(import->insert);
    (void)sqlite3_clear_bindings(import->insert);
    while (status == DEFT_OK && store_archive_more(cursor)) {
        struct store_archive_value value;
        store_archive_value(cursor, &value);
        status = n < import->n_columns
                     ? import_bind(import, &import->columns[n], &value, error)
                     : import_wrong(import, "a row has more values than there are columns", error);
        n++;
    }
    if (status == DEFT_OK && n != import->n_columns) {
        status = import_wrong(import, "a row has fewer values than there are columns", error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    int code = sqlite3_step(import->insert);
    if ((code & 0xff) == SQLITE_CONSTRAINT || (code & 0xff) == SQLITE_MISMATCH) {
        return import_wrong(import, sqlite3_errmsg(import->db->handle), error);
    }
    import->n_rows[import->table]++;
    import->n_in_batch++;
    return code == SQLITE_DONE ? DEFT_OK : store_db_fail(import->db, "take a job", error);
}

static enum deft_status import_rows(struct import *import, struct store_archive_cursor *cursor,
                                    struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    while (status == DEFT_OK && store_archive_more(cursor)) {
        status = import_row(import, cursor, error);
    }
    if (import->insert != NULL) {
        (void)sqlite3_reset(import->insert);
    }
    if (status != DEFT_OK || import->n_in_batch < IMPORT_BATCH_ROWS) {
        return status;
    }
    if (!import->is_beside) {
        return import_commit(import, error);
    }
    return import->n_in_batch <= IMPORT_MAX_BESIDE
               ? DEFT_OK
               : deft_fail(error, DEFT_LIMIT, 0,
                           "the archive has more than %u rows, which is too much beside a "
                           "controller: stop it first",
                           IMPORT_MAX_BESIDE);
}

/* --- head and end -------------------------------------------------------------------------------
 */

static enum deft_status import_check_free(struct import *import, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(import->db, "SELECT 1 FROM jobs WHERE id = ?1");
    if (s == NULL) {
        return store_db_fail(import->db, "be searched for a job", error);
    }
    store_bind_text(s, 1, import->job);
    int code = sqlite3_step(s);
    (void)sqlite3_reset(s);
    return code == SQLITE_ROW
               ? deft_fail(error, DEFT_MISMATCH, 0,
                           "there is a job '%s' already: give it another name with --as",
                           import->job)
           : code == SQLITE_DONE ? DEFT_OK
                                 : store_db_fail(import->db, "be searched for a job", error);
}

static enum deft_status import_head(struct import *import, struct deft_error *error) {
    struct store_archive_cursor cursor;
    struct store_archive_value value;
    const char *key = NULL;
    size_t n = 0;
    int more = 0;
    int is_archive = 0;
    int64_t number = 0;
    enum deft_status status = store_archive_next(&import->reader, &n, &more, error);
    if (status != DEFT_OK) {
        return status;
    }
    cursor.at = import->reader.line;
    if (!more || json_scan(cursor.at, n, &store_archive_limits, NULL) != DEFT_OK ||
        !store_archive_enter(&cursor, '{')) {
        return import_wrong(import, "there is no line of JSON", error);
    }
    while (store_archive_key(&cursor, &key)) {
        store_archive_value(&cursor, &value);
        if (value.type == STORE_ARCHIVE_TEXT && strcmp(key, "schema") == 0) {
            is_archive = strcmp(value.text, STORE_ARCHIVE_SCHEMA) == 0;
        } else if (value.type == STORE_ARCHIVE_TEXT && strcmp(key, "job") == 0 &&
                   value.n_bytes < sizeof(import->job)) {
            memcpy(import->job, value.text, value.n_bytes + 1);
        } else if (value.type == STORE_ARCHIVE_INT && strcmp(key, "database") == 0) {
            import->is_earlier = store_earlier_is(value.integer);
        }
    }
    if (import->as != NULL) {
        (void)snprintf(import->job, sizeof(import->job), "%s", import->as);
    }
    if (!is_archive || import->job[0] == '\0') {
        return import_wrong(import, "it does not say " STORE_ARCHIVE_SCHEMA, error);
    }
    status = import_check_free(import, error);
    if (status == DEFT_OK && import->is_earlier) {
        status = store_earlier_begin(import->db, error);
    }
    if (status == DEFT_OK) {
        status = import_next(import, "removals", &number, error);
    }
    (void)snprintf(import->hidden, sizeof(import->hidden), "removed %0*lld", (int)WIRE_ID_BYTES,
                   (long long)number);
    return status;
}

static enum deft_status import_end(struct import *import, struct store_archive_cursor *cursor,
                                   struct deft_error *error) {
    const char *key = NULL;
    while (store_archive_key(cursor, &key)) {
        struct store_archive_value value;
        int table = import_find_table(import, key);
        store_archive_value(cursor, &value);
        if (table >= 0 &&
            (value.type != STORE_ARCHIVE_INT || (uint64_t)value.integer != import->n_rows[table])) {
            return import_wrong(import, "there are not as many rows as it says", error);
        }
    }
    if (import->n_rows[0] != 1) {
        return import_wrong(import, "there is no job in it", error);
    }
    import->has_end = 1;
    return DEFT_OK;
}

static enum deft_status import_one_line(struct import *import, size_t n, struct deft_error *error) {
    struct store_archive_cursor cursor = {import->reader.line};
    struct deft_error why = {0};
    const char *key = NULL;
    char table[64] = "";
    enum deft_status status = json_scan(cursor.at, n, &store_archive_limits, &why);
    if (status != DEFT_OK || !store_archive_enter(&cursor, '{')) {
        return import_wrong(import, status != DEFT_OK ? why.text : "an object was expected", error);
    }
    if (import->has_end) {
        return import_wrong(import, "something follows the end", error);
    }
    while (status == DEFT_OK && store_archive_key(&cursor, &key)) {
        struct store_archive_value value;
        if (strcmp(key, "columns") == 0 && store_archive_enter(&cursor, '[')) {
            status = import_table(import, table, &cursor, error);
        } else if (strcmp(key, "rows") == 0 && import->insert != NULL &&
                   store_archive_enter(&cursor, '[')) {
            status = import_rows(import, &cursor, error);
        } else if (strcmp(key, "end") == 0 && store_archive_enter(&cursor, '{')) {
            status = import_end(import, &cursor, error);
        } else {
            store_archive_value(&cursor, &value);
            if (strcmp(key, "table") == 0 && value.type == STORE_ARCHIVE_TEXT) {
                (void)snprintf(table, sizeof(table), "%s", value.text);
            }
        }
    }
    return status;
}

/* --- giving it its name -------------------------------------------------------------------------
 */

/* The job as the API shows it names itself, its start and its plan. */
static enum deft_status import_summary(struct import *import, char **out,
                                       struct deft_error *error) {
    struct wire_job job;
    sqlite3_stmt *s = store_db_statement(import->db, "SELECT summary FROM jobs WHERE id = ?1");
    if (s == NULL) {
        return store_db_fail(import->db, "be read", error);
    }
    store_bind_text(s, 1, import->hidden);
    const char *text = sqlite3_step(s) == SQLITE_ROW ? store_db_text(s, 0) : "";
    enum deft_status status = wire_job_decode(text, strlen(text), &job, NULL);
    (void)sqlite3_reset(s);
    if (status != DEFT_OK || import->n_maps == 0) { /* there may be none yet */
        *out = strdup("");
        return *out != NULL ? DEFT_OK
                            : deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to import a job");
    }
    int64_t newest = import->maps[import->n_maps - 1].to;
    (void)snprintf(job.id, sizeof(job.id), "%s", import->job);
    store_id_text(newest, job.incarnation);
    if (job.plan_seq > 0) {
        store_plan_id_text(newest, job.plan_seq, job.plan);
    }
    if (strcmp(job.state, "running") == 0) { /* not here */
        (void)snprintf(job.state, sizeof(job.state), "lost");
    }
    return wire_job_encode(&job, out, error);
}

static enum deft_status import_run(struct import *import, const char *sql, const char *summary,
                                   struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(import->db, sql);
    if (s == NULL) {
        return store_db_fail(import->db, "take a job", error);
    }
    const int n = sqlite3_bind_parameter_count(s);
    store_bind_text(s, 1, import->hidden);
    store_bind_text(s, 2, import->job);
    if (n > 2) {
        store_bind_text(s, 3, summary);
        store_bind_int(s, 4, clock_wall_ns());
    }
    return store_db_step(import->db, s, "take a job", error);
}

/* It appears at once, and whole. A job that ran where it comes from is lost here. */
static enum deft_status import_show(struct import *import, struct deft_error *error) {
    static const char *const steps[] = {
        ("UPDATE incarnations SET job = ?2, state = coalesce((SELECT iif(max(failed), 'failed',"
         " 'finished') FROM ends e WHERE e.incarnation = id GROUP BY e.incarnation"
         " HAVING count(*) >= n_ranks), 'lost') WHERE job = ?1"),
        ("UPDATE jobs SET id = ?2, state = coalesce((SELECT state FROM incarnations WHERE job = ?2"
         " ORDER BY id DESC LIMIT 1), 'lost'), summary = ?3, updated_ns = ?4 WHERE id = ?1"),
        "UPDATE job_keep SET job = ?2 WHERE job = ?1",
    };
    char *summary = NULL;
    enum deft_status status = import_summary(import, &summary, error);
    if (status == DEFT_OK) {
        status = store_db_exec(import->db, "PRAGMA defer_foreign_keys = ON", error);
    }
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]) && status == DEFT_OK; i++) {
        status = import_run(import, steps[i], summary, error);
    }
    free(summary);
    return status == DEFT_OK ? store_db_exec(import->db, "COMMIT", error) : status;
}

static enum deft_status import_all(struct import *import, struct deft_error *error) {
    size_t n = 0;
    int more = 1;
    enum deft_status status = store_db_exec(import->db, "BEGIN IMMEDIATE", error);
    if (status == DEFT_OK) {
        status = import_head(import, error);
    }
    while (status == DEFT_OK) {
        status = store_archive_next(&import->reader, &n, &more, error);
        if (status != DEFT_OK || !more) {
            break;
        }
        status = import_one_line(import, n, error);
    }
    if (status == DEFT_OK && !import->has_end) {
        status = import_wrong(import, "the file was cut off", error);
    }
    (void)sqlite3_finalize(import->insert);
    if (status == DEFT_OK && import->is_earlier) {
        status = store_earlier_end(import->db, error);
    }
    if (status == DEFT_OK) {
        status = import_show(import, error);
    }
    if (status != DEFT_OK) {
        (void)sqlite3_exec(import->db->handle, "ROLLBACK", NULL, NULL, NULL);
    }
    return status;
}

/* With the lock, or beside the controller that has it. */
static enum deft_status import_open(struct import *import, const char *path, int *out_lock_fd,
                                    struct deft_error *error) {
    int exists = 0;
    enum deft_status status = store_place_lock(path, out_lock_fd, error);
    if (status == DEFT_STATE) {
        import->is_beside = 1;
        status = store_db_open(path, 0, &import->db, error);
        if (status == DEFT_OK) {
            status = store_db_exec(import->db, "PRAGMA synchronous = FULL", error);
        }
        return status == DEFT_OK ? store_check_version(import->db, error) : status;
    }
    if (status == DEFT_OK) {
        status = store_place_look(path, &exists, error);
    }
    if (status == DEFT_OK && !exists) {
        status = store_place_create(path, error);
    }
    return status == DEFT_OK ? store_place_open(path, &import->db, error) : status;
}

enum deft_status store_file_import(const char *path, const char *from, const char *as,
                                   char *out_job, struct deft_error *error) {
    struct import import = {.as = as, .table = -1};
    int lock_fd = -1;
    if (as != NULL && (as[0] == '\0' || strlen(as) >= sizeof(import.job))) {
        return deft_fail(error, DEFT_INVALID, 0, "a job id has 1 to %zu bytes",
                         sizeof(import.job) - 1);
    }
    enum deft_status status = store_archive_open(from, &import.reader, error);
    if (status == DEFT_OK) {
        status = import_open(&import, path, &lock_fd, error);
    }
    if (status == DEFT_OK) {
        status = import_all(&import, error);
    }
    if (status == DEFT_OK) {
        memcpy(out_job, import.job, sizeof(import.job));
    }
    store_db_close(import.db);
    store_archive_close(&import.reader);
    if (lock_fd >= 0) {
        (void)close(lock_fd);
    }
    free(import.maps);
    return status;
}
