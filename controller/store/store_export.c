/* A job out of a database, into an archive. */
#include "store/store_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

#include "store/store_archive.h"
#include "store/store_bind.h"
#include "store/store_copy.h"
#include "wire/json_out.h"

/* Every JSON reader keeps whole numbers up to here. */
#define EXPORT_MAX_EXACT (INT64_C(1) << 53)

struct export {
    struct store_db *db;
    const char *job;
    const char *name; /* of the file, for people */
    gzFile file;
    uint64_t n_rows[STORE_ARCHIVE_N_TABLES];
};

static enum deft_status export_failed(const struct export *export, struct deft_error *error) {
    int saved = errno;
    int code = Z_OK;
    const char *text = gzerror(export->file, &code);
    return deft_fail(error, DEFT_IO, code == Z_ERRNO ? saved : code, "'%s' cannot be written: %s",
                     export->name, code == Z_ERRNO ? strerrordesc_np(saved) : text);
}

/* Ends the line that was printed. */
static enum deft_status export_line(struct export *export, struct json_out *line,
                                    struct deft_error *error) {
    char *text = NULL;
    enum deft_status status = json_out_finish(line, &text, error);
    if (status == DEFT_OK) {
        size_t n_bytes = strlen(text);
        text[n_bytes] = '\n';
        if (gzwrite(export->file, text, (unsigned)n_bytes + 1) != (int)n_bytes + 1) {
            status = export_failed(export, error);
        }
    }
    free(text);
    return status;
}

/* --- values -------------------------------------------------------------------------------------
 */

static void export_blob(struct json_out *line, sqlite3_stmt *s, int column) {
    static const char digits[] = "0123456789abcdef";
    const uint8_t *bytes = sqlite3_column_blob(s, column);
    size_t n_bytes = (size_t)sqlite3_column_bytes(s, column);
    char *text = malloc(2 * n_bytes + 1);
    if (text == NULL) {
        line->failed = 1;
        return;
    }
    for (size_t i = 0; i < n_bytes; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * n_bytes] = '\0';
    json_out_text(line, NULL, text);
    free(text);
}

static void export_value(struct json_out *line, sqlite3_stmt *s, int column) {
    char digits[24];
    switch (sqlite3_column_type(s, column)) {
    case SQLITE_INTEGER: {
        int64_t value = sqlite3_column_int64(s, column);
        if (value > EXPORT_MAX_EXACT || value < -EXPORT_MAX_EXACT) {
            (void)snprintf(digits, sizeof(digits), "%" PRId64, value);
            json_out_text(line, NULL, digits);
        } else {
            json_out_int(line, NULL, value);
        }
        break;
    }
    case SQLITE_FLOAT: {
        double value = sqlite3_column_double(s, column);
        if (isinf(value)) {
            json_out_raw(line, NULL, value > 0 ? "1e999" : "-1e999");
        } else {
            json_out_number(line, NULL, value);
        }
        break;
    }
    case SQLITE_BLOB:
        export_blob(line, s, column);
        break;
    case SQLITE_NULL:
        json_out_null(line, NULL);
        break;
    default:
        json_out_text(line, NULL, store_db_text(s, column));
        break;
    }
}

/* --- lines --------------------------------------------------------------------------------------
 */

static enum deft_status export_columns(struct export *export, const char *table, sqlite3_stmt *s,
                                       struct deft_error *error) {
    struct json_out line = {0};
    json_out_begin_object(&line, NULL);
    json_out_text(&line, "table", table);
    json_out_begin_array(&line, "columns");
    for (int i = 0; i < sqlite3_column_count(s); i++) {
        json_out_text(&line, NULL, sqlite3_column_name(s, i));
    }
    json_out_end_array(&line);
    json_out_end_object(&line);
    return export_line(export, &line, error);
}

/* As many rows as a line takes; `*code` is what the last step gave. */
static enum deft_status export_rows(struct export *export, sqlite3_stmt *s, int *code,
                                    uint64_t *n_rows, struct deft_error *error) {
    struct json_out line = {0};
    json_out_begin_object(&line, NULL);
    json_out_begin_array(&line, "rows");
    for (; *code == SQLITE_ROW && line.n_bytes < STORE_ARCHIVE_LINE_BYTES;
         *code = sqlite3_step(s)) {
        json_out_begin_array(&line, NULL);
        for (int i = 0; i < sqlite3_column_count(s); i++) {
            export_value(&line, s, i);
        }
        json_out_end_array(&line);
        ++*n_rows;
    }
    json_out_end_array(&line);
    json_out_end_object(&line);
    return export_line(export, &line, error);
}

static enum deft_status export_table(struct export *export, unsigned table,
                                     struct deft_error *error) {
    const struct store_archive_table *from = &store_archive_tables[table];
    sqlite3_stmt *s = store_db_statement(export->db, from->select);
    if (s == NULL) {
        return store_db_fail(export->db, "be read", error);
    }
    store_bind_text(s, 1, export->job);
    enum deft_status status = export_columns(export, from->name, s, error);
    int code = sqlite3_step(s);
    while (status == DEFT_OK && code == SQLITE_ROW) {
        status = export_rows(export, s, &code, &export->n_rows[table], error);
    }
    if (status == DEFT_OK && code != SQLITE_DONE) {
        status = store_db_fail(export->db, "be read", error);
    }
    (void)sqlite3_reset(s);
    return status;
}

static enum deft_status export_head(struct export *export, struct deft_error *error) {
    struct json_out line = {0};
    int64_t version = 0;
    enum deft_status status = store_db_int(export->db, "PRAGMA user_version", &version, error);
    if (status != DEFT_OK) {
        return status;
    }
    json_out_begin_object(&line, NULL);
    json_out_text(&line, "schema", STORE_ARCHIVE_SCHEMA);
    json_out_text(&line, "job", export->job);
    json_out_int(&line, "database", version);
    json_out_end_object(&line);
    return export_line(export, &line, error);
}

static enum deft_status export_end(struct export *export, struct deft_error *error) {
    struct json_out line = {0};
    json_out_begin_object(&line, NULL);
    json_out_begin_object(&line, "end");
    for (unsigned i = 0; i < STORE_ARCHIVE_N_TABLES; i++) {
        json_out_uint(&line, store_archive_tables[i].name, export->n_rows[i]);
    }
    json_out_end_object(&line);
    json_out_end_object(&line);
    return export_line(export, &line, error);
}

static enum deft_status export_find(struct export *export, struct deft_error *error) {
    sqlite3_stmt *s =
        store_db_statement(export->db, "SELECT 1 FROM jobs WHERE id = ?1 AND state <> 'removing'");
    if (s == NULL) {
        return store_db_fail(export->db, "be read", error);
    }
    store_bind_text(s, 1, export->job);
    int code = sqlite3_step(s);
    (void)sqlite3_reset(s);
    return code == SQLITE_ROW ? DEFT_OK
           : code == SQLITE_DONE
               ? deft_fail(error, DEFT_NOT_FOUND, 0, "there is no job '%s'", export->job)
               : store_db_fail(export->db, "be read", error);
}

/* As of one moment. */
static enum deft_status export_job(struct export *export, struct deft_error *error) {
    enum deft_status status = export_head(export, error);
    for (unsigned i = 0; i < STORE_ARCHIVE_N_TABLES && status == DEFT_OK; i++) {
        status = export_table(export, i, error);
    }
    return status == DEFT_OK ? export_end(export, error) : status;
}

/* --- the file -----------------------------------------------------------------------------------
 */

static enum deft_status export_to(struct export *export, int fd, const char *mode,
                                  struct deft_error *error) {
    export->file = fd >= 0 ? gzdopen(fd, mode) : NULL;
    if (export->file == NULL) {
        enum deft_status status = deft_fail(error, DEFT_IO, errno, "'%s' cannot be written: %s",
                                            export->name, strerrordesc_np(errno));
        if (fd >= 0) {
            (void)close(fd);
        }
        return status;
    }
    enum deft_status status = export_job(export, error);
    int code = gzclose_w(export->file);
    if (status == DEFT_OK && code != Z_OK) {
        status = deft_fail(error, DEFT_IO, errno, "'%s' cannot be written: %s", export->name,
                           code == Z_ERRNO ? strerrordesc_np(errno) : zError(code));
    }
    return status;
}

static enum deft_status export_open(struct export *export, const char *to,
                                    struct deft_error *error) {
    struct store_copy_target target = {0};
    size_t length = strlen(to);
    int is_gz = length > 3 && strcmp(to + length - 3, ".gz") == 0;
    if (strcmp(to, "-") == 0) {
        export->name = "standard output";
        return export_to(export, fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 0), "wbT", error);
    }
    export->name = to;
    enum deft_status status = store_copy_begin(to, &target, error);
    if (status == DEFT_OK) {
        status = export_to(export, open(target.name, O_WRONLY | O_CLOEXEC), is_gz ? "wb6" : "wbT",
                           error);
    }
    return store_copy_end(&target, status, error);
}

enum deft_status store_file_export(const char *path, const char *job, const char *to,
                                   struct deft_error *error) {
    struct export export = {.job = job};
    enum deft_status status = store_copy_open_source(path, &export.db, error);
    if (status == DEFT_OK) {
        status = store_check_version(export.db, error);
    }
    if (status == DEFT_OK) {
        status = store_db_exec(export.db, "BEGIN", error);
    }
    if (status == DEFT_OK) {
        status = export_find(&export, error);
    }
    if (status == DEFT_OK) {
        status = export_open(&export, to, error);
    }
    if (export.db != NULL) {
        store_db_reset(export.db);
        (void)sqlite3_exec(export.db->handle, "ROLLBACK", NULL, NULL, NULL);
    }
    store_db_close(export.db);
    return status;
}
