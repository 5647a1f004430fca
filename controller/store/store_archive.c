#include "store/store_archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zlib.h>

/* Read at a time. */
#define ARCHIVE_PIECE_BYTES 65536

const struct json_scan_limits store_archive_limits = {.max_depth = 4, .max_values = SIZE_MAX};

#define ARCHIVE_OF_JOB(table, order)                                                               \
    "SELECT t.* FROM incarnations i JOIN " table                                                   \
    " t ON t.incarnation = i.id WHERE i.job = ?1 ORDER BY i.id, " order

const struct store_archive_table store_archive_tables[STORE_ARCHIVE_N_KNOWN] = {
    {"jobs", "SELECT * FROM jobs WHERE id = ?1"},
    {"job_keep", "SELECT * FROM job_keep WHERE job = ?1"},
    {"incarnations", "SELECT * FROM incarnations WHERE job = ?1 ORDER BY id"},
    {"agents", ARCHIVE_OF_JOB("agents", "t.agent")},
    {"upkeep", ARCHIVE_OF_JOB("upkeep", "1")},
    {"plans", ARCHIVE_OF_JOB("plans", "t.seq")},
    {"decisions", ARCHIVE_OF_JOB("decisions", "t.id")},
    {"activations", ARCHIVE_OF_JOB("activations", "t.plan_seq")},
    {"ends", ARCHIVE_OF_JOB("ends", "t.rank")},
    {"readiness", ARCHIVE_OF_JOB("readiness", "t.rank")},
    {"link_totals", ARCHIVE_OF_JOB("link_totals", "t.link, t.bytes")},
    {"rollups", ARCHIVE_OF_JOB("rollups", "t.period_s, t.first")},
    {"iterations", ARCHIVE_OF_JOB("iterations", "t.iteration, t.rank")},
    {"events", ARCHIVE_OF_JOB("events", "t.agent, t.seq, t.position")},
    {"ops", NULL},
};

/* --- lines --------------------------------------------------------------------------------------
 */

enum deft_status store_archive_open(const char *from, struct store_archive_reader *out,
                                    struct deft_error *error) {
    int fd = strcmp(from, "-") == 0 ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0)
                                    : open(from, O_RDONLY | O_CLOEXEC);
    gzFile file = fd >= 0 ? gzdopen(fd, "rb") : NULL;
    if (file == NULL) {
        int code = errno;
        if (fd >= 0) {
            (void)close(fd);
        }
        return deft_fail(error, DEFT_NOT_FOUND, code, "'%s' cannot be read: %s", from,
                         strerrordesc_np(code));
    }
    *out = (struct store_archive_reader){.name = from, .file = file};
    return DEFT_OK;
}

void store_archive_close(struct store_archive_reader *reader) {
    if (reader->file != NULL) {
        (void)gzclose_r(reader->file);
    }
    free(reader->line);
}

enum deft_status store_archive_wrong(const struct store_archive_reader *reader, const char *what,
                                     struct deft_error *error) {
    return deft_fail(error, DEFT_INVALID, 0, "'%s' is no whole archive of a job: line %lu: %s",
                     reader->name, reader->n_lines, what);
}

/* A stream that is cut off reads like one that ends; only the error tells. */
static enum deft_status archive_check(const struct store_archive_reader *reader,
                                      struct deft_error *error) {
    int saved = errno;
    int code = Z_OK;
    const char *text = gzerror(reader->file, &code);
    if (code == Z_OK || code == Z_STREAM_END) {
        return DEFT_OK;
    }
    if (code == Z_BUF_ERROR) {
        return store_archive_wrong(reader, "the file was cut off", error);
    }
    return deft_fail(error, code == Z_ERRNO ? DEFT_IO : DEFT_INVALID, code,
                     "'%s' cannot be read: %s", reader->name,
                     code == Z_ERRNO ? strerrordesc_np(saved) : text);
}

enum deft_status store_archive_next(struct store_archive_reader *reader, size_t *out_n_bytes,
                                    int *out_more, struct deft_error *error) {
    size_t n = 0;
    reader->n_lines++;
    for (;;) {
        if (reader->capacity < n + ARCHIVE_PIECE_BYTES) {
            size_t capacity = reader->capacity * 2 + 2 * (size_t)ARCHIVE_PIECE_BYTES;
            char *grown = n < STORE_ARCHIVE_MAX_LINE ? realloc(reader->line, capacity) : NULL;
            if (grown == NULL) {
                return store_archive_wrong(reader, "it is longer than lines of archives are",
                                           error);
            }
            reader->line = grown;
            reader->capacity = capacity;
        }
        if (gzgets(reader->file, reader->line + n, ARCHIVE_PIECE_BYTES) == NULL) {
            *out_n_bytes = n;
            *out_more = n > 0;
            return archive_check(reader, error);
        }
        n += strlen(reader->line + n);
        if (n > 0 && reader->line[n - 1] == '\n') {
            reader->line[--n] = '\0';
            *out_n_bytes = n;
            *out_more = 1;
            return DEFT_OK;
        }
    }
}

static void archive_skip(struct store_archive_cursor *cursor, const char *set) {
    cursor->at += strspn(cursor->at, set);
}

int store_archive_enter(struct store_archive_cursor *cursor, char bracket) {
    archive_skip(cursor, " \t\r\n");
    if (*cursor->at != bracket) {
        return 0;
    }
    cursor->at++;
    return 1;
}

static unsigned archive_hex(const char *at) {
    char digits[5] = {at[0], at[1], at[2], at[3], '\0'};
    return (unsigned)strtoul(digits, NULL, 16);
}

static char *archive_put_utf8(char *to, unsigned point) {
    if (point < 0x80) {
        *to++ = (char)point;
    } else if (point < 0x800) {
        *to++ = (char)(0xC0 | point >> 6);
        *to++ = (char)(0x80 | (point & 0x3F));
    } else if (point < 0x10000) {
        *to++ = (char)(0xE0 | point >> 12);
        *to++ = (char)(0x80 | (point >> 6 & 0x3F));
        *to++ = (char)(0x80 | (point & 0x3F));
    } else {
        *to++ = (char)(0xF0 | point >> 18);
        *to++ = (char)(0x80 | (point >> 12 & 0x3F));
        *to++ = (char)(0x80 | (point >> 6 & 0x3F));
        *to++ = (char)(0x80 | (point & 0x3F));
    }
    return to;
}

/* The cursor stands on the backslash; nothing takes more bytes than its escape. */
static char *archive_escape(struct store_archive_cursor *cursor, char *to) {
    static const char from_letters[] = "bfnrt";
    static const char to_bytes[] = "\b\f\n\r\t";
    char letter = cursor->at[1];
    const char *known = strchr(from_letters, letter);
    cursor->at += 2;
    if (letter != 'u') {
        if (known != NULL) {
            letter = to_bytes[known - from_letters];
        }
        *to++ = letter;
        return to;
    }
    unsigned point = archive_hex(cursor->at);
    cursor->at += 4;
    if (point >= 0xD800 && point <= 0xDBFF) { /* the other half follows: it was scanned */
        point = 0x10000 + ((point - 0xD800) << 10) + (archive_hex(cursor->at + 2) - 0xDC00);
        cursor->at += 6;
    }
    return archive_put_utf8(to, point);
}

static void archive_text(struct store_archive_cursor *cursor, struct store_archive_value *out) {
    char *begin = cursor->at + 1;
    char *to = begin;
    cursor->at++;
    while (*cursor->at != '"') {
        if (*cursor->at == '\\') {
            to = archive_escape(cursor, to);
        } else {
            *to++ = *cursor->at++;
        }
    }
    cursor->at++;
    *to = '\0';
    *out = (struct store_archive_value){
        .type = STORE_ARCHIVE_TEXT, .text = begin, .n_bytes = (size_t)(to - begin)};
}

static void archive_number(struct store_archive_cursor *cursor, struct store_archive_value *out) {
    size_t length = strspn(cursor->at, "+-.0123456789eE");
    int is_whole = strspn(cursor->at, "-0123456789") == length;
    errno = 0;
    out->integer = is_whole ? strtoll(cursor->at, NULL, 10) : 0;
    out->type = is_whole && errno == 0 ? STORE_ARCHIVE_INT : STORE_ARCHIVE_REAL;
    out->real = strtod(cursor->at, NULL);
    cursor->at += length;
}

/* An object or array that nobody has asked for. */
static void archive_other(struct store_archive_cursor *cursor) {
    struct store_archive_value ignored;
    int depth = 0;
    do {
        archive_skip(cursor, " \t\r\n,:");
        if (*cursor->at == '{' || *cursor->at == '[') {
            depth++;
            cursor->at++;
        } else if (*cursor->at == '}' || *cursor->at == ']') {
            depth--;
            cursor->at++;
        } else {
            store_archive_value(cursor, &ignored);
        }
    } while (depth > 0);
}

void store_archive_value(struct store_archive_cursor *cursor, struct store_archive_value *out) {
    memset(out, 0, sizeof(*out));
    archive_skip(cursor, " \t\r\n");
    switch (*cursor->at) {
    case '"':
        archive_text(cursor, out);
        break;
    case 'n':
        cursor->at += 4;
        break;
    case 't':
    case 'f':
        out->type = STORE_ARCHIVE_OTHER;
        cursor->at += *cursor->at == 't' ? 4 : 5;
        break;
    case '{':
    case '[':
        archive_other(cursor);
        out->type = STORE_ARCHIVE_OTHER;
        break;
    default:
        archive_number(cursor, out);
        break;
    }
}

int store_archive_more(struct store_archive_cursor *cursor) {
    archive_skip(cursor, " \t\r\n,");
    if (*cursor->at == ']' || *cursor->at == '}' || *cursor->at == '\0') {
        cursor->at += *cursor->at != '\0';
        return 0;
    }
    return 1;
}

int store_archive_key(struct store_archive_cursor *cursor, const char **out) {
    struct store_archive_value key;
    if (!store_archive_more(cursor)) {
        return 0;
    }
    store_archive_value(cursor, &key);
    archive_skip(cursor, " \t\r\n:");
    *out = key.text;
    return 1;
}
