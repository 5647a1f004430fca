/* deft.job-archive/1, what export and import share. Only for the store's own files.
 *
 * Lines of JSON: first {"schema":"deft.job-archive/1","job":"..","database":4}, then per table
 * {"table":"..","columns":["..",...]} and behind it {"rows":[[..],...]}, last {"end":{"table":rows,
 * ...}}. Whole numbers beyond 2^53 are strings of digits, infinities 1e999, blobs strings of
 * hexadecimal digits. Tables and columns that a reader does not know are for it to leave out. */
#ifndef STORE_ARCHIVE_H
#define STORE_ARCHIVE_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "wire/json_scan.h"

#define STORE_ARCHIVE_SCHEMA "deft.job-archive/1"
/* A registration has up to 8 MiB, a decision's solve about as much. */
#define STORE_ARCHIVE_MAX_LINE ((size_t)64 << 20)
/* Rows of a line. */
#define STORE_ARCHIVE_LINE_BYTES ((size_t)64 << 10)
#define STORE_ARCHIVE_N_TABLES   14u
/* With those of earlier databases, which only an import sees. */
#define STORE_ARCHIVE_N_KNOWN 15u

/* Of a line. It is read as it lies there, whatever number of values it has. */
extern const struct json_scan_limits store_archive_limits;

/* In the order in which they are written; what others refer to comes first. */
struct store_archive_table {
    const char *name;
    const char *select; /* all columns, ?1: the job; NULL: is not written any more */
};
extern const struct store_archive_table store_archive_tables[STORE_ARCHIVE_N_KNOWN];

/* --- reading lines ------------------------------------------------------------------------------
 */

struct gzFile_s;
struct store_archive_reader {
    const char *name; /* of the file */
    struct gzFile_s *file;
    char *line; /* zero-terminated, without its end */
    size_t capacity;
    unsigned long n_lines;
};
/* Compressed or not; "-" is standard input. */
DEFT_NODISCARD enum deft_status
store_archive_open(const char *from, struct store_archive_reader *out, struct deft_error *error);
void store_archive_close(struct store_archive_reader *reader); /* also one that was not opened */
/* `*out_more` 0 at the end of the file. */
DEFT_NODISCARD enum deft_status store_archive_next(struct store_archive_reader *reader,
                                                   size_t *out_n_bytes, int *out_more,
                                                   struct deft_error *error);
/* DEFT_INVALID, with the number of the line. */
enum deft_status store_archive_wrong(const struct store_archive_reader *reader, const char *what,
                                     struct deft_error *error);

enum store_archive_type {
    STORE_ARCHIVE_NULL,
    STORE_ARCHIVE_INT,
    STORE_ARCHIVE_REAL,
    STORE_ARCHIVE_TEXT,
    STORE_ARCHIVE_OTHER /* true, false, an object or an array: skipped */
};
struct store_archive_value {
    enum store_archive_type type;
    int64_t integer;
    double real;
    const char *text; /* unescaped in place, zero-terminated */
    size_t n_bytes;
};
/* Walks a line that json_scan has found to be well-formed, and overwrites it. */
struct store_archive_cursor {
    char *at;
};
/* Into an object or array; 0 when something else stands there. */
int store_archive_enter(struct store_archive_cursor *cursor, char bracket);
/* The next member's key, 0 at the end of the object. */
int store_archive_key(struct store_archive_cursor *cursor, const char **out);
/* Whether another element follows; steps out of the array when none does. */
int store_archive_more(struct store_archive_cursor *cursor);
void store_archive_value(struct store_archive_cursor *cursor, struct store_archive_value *out);

#endif
