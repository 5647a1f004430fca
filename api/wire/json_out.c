#include "json_out.h"

#include "utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int json_out_reserve(struct json_out *out, size_t n_bytes) {
    if (out->failed) {
        return 0;
    }
    size_t needed = out->n_bytes + n_bytes + 1;
    if (needed <= out->capacity_bytes) {
        return 1;
    }
    size_t capacity = out->capacity_bytes < 256 ? 256 : out->capacity_bytes * 2;
    if (capacity < needed) {
        capacity = needed;
    }
    char *grown = realloc(out->text, capacity);
    if (grown == NULL) {
        out->failed = 1;
        return 0;
    }
    out->text = grown;
    out->capacity_bytes = capacity;
    return 1;
}

static void json_out_append(struct json_out *out, const char *bytes, size_t n_bytes) {
    if (json_out_reserve(out, n_bytes)) {
        memcpy(out->text + out->n_bytes, bytes, n_bytes);
        out->n_bytes += n_bytes;
        out->text[out->n_bytes] = '\0';
    }
}

static void json_out_string(struct json_out *out, const char *value) {
    size_t n = strlen(value);
    size_t i = 0;
    json_out_append(out, "\"", 1);
    while (i < n) {
        unsigned char c = (unsigned char)value[i];
        size_t length = utf8_sequence_bytes(value + i, n - i);
        if (length == 0) {
            json_out_append(out, "\xEF\xBF\xBD", 3);
            length = 1;
        } else if (c == '"' || c == '\\') {
            const char escape[2] = {'\\', (char)c};
            json_out_append(out, escape, 2);
        } else if (c < 0x20u) {
            char escape[8];
            int written = snprintf(escape, sizeof(escape), "\\u%04x", c);
            json_out_append(out, escape, (size_t)written);
        } else {
            json_out_append(out, value + i, length);
        }
        i += length;
    }
    json_out_append(out, "\"", 1);
}

/* What precedes every value. */
static void json_out_lead(struct json_out *out, const char *key) {
    if (out->comma) {
        json_out_append(out, ",", 1);
    }
    out->comma = 1;
    if (key != NULL) {
        json_out_string(out, key);
        json_out_append(out, ":", 1);
    }
}

static void json_out_plain(struct json_out *out, const char *key, const char *token) {
    json_out_lead(out, key);
    json_out_append(out, token, strlen(token));
}

static void json_out_open(struct json_out *out, const char *key, const char *bracket) {
    json_out_plain(out, key, bracket);
    out->comma = 0;
}

static void json_out_shut(struct json_out *out, const char *bracket) {
    json_out_append(out, bracket, 1);
    out->comma = 1;
}

void json_out_begin_object(struct json_out *out, const char *key) {
    json_out_open(out, key, "{");
}

void json_out_end_object(struct json_out *out) {
    json_out_shut(out, "}");
}

void json_out_begin_array(struct json_out *out, const char *key) {
    json_out_open(out, key, "[");
}

void json_out_end_array(struct json_out *out) {
    json_out_shut(out, "]");
}

void json_out_text(struct json_out *out, const char *key, const char *value) {
    json_out_lead(out, key);
    json_out_string(out, value);
}

void json_out_uint(struct json_out *out, const char *key, uint64_t value) {
    char token[24];
    (void)snprintf(token, sizeof(token), "%" PRIu64, value);
    json_out_plain(out, key, token);
}

void json_out_int(struct json_out *out, const char *key, int64_t value) {
    char token[24];
    (void)snprintf(token, sizeof(token), "%" PRId64, value);
    json_out_plain(out, key, token);
}

void json_out_number(struct json_out *out, const char *key, double value) {
    char token[40];
    if (!isfinite(value)) {
        json_out_null(out, key);
        return;
    }
    /* 15 digits read well ("0.1"); 17 always survive the way back. */
    (void)snprintf(token, sizeof(token), "%.15g", value);
    if (strtod(token, NULL) != value) {
        (void)snprintf(token, sizeof(token), "%.17g", value);
    }
    char *comma = strchr(token, ','); /* a caller's locale */
    if (comma != NULL) {
        *comma = '.';
    }
    json_out_plain(out, key, token);
}

void json_out_bool(struct json_out *out, const char *key, int value) {
    json_out_plain(out, key, value ? "true" : "false");
}

void json_out_null(struct json_out *out, const char *key) {
    json_out_plain(out, key, "null");
}

void json_out_hex(struct json_out *out, const char *key, uint64_t value) {
    char token[24];
    (void)snprintf(token, sizeof(token), "\"%016" PRIx64 "\"", value);
    json_out_plain(out, key, token);
}

void json_out_raw(struct json_out *out, const char *key, const char *json) {
    json_out_plain(out, key, json);
}

enum deft_status json_out_finish(struct json_out *out, char **out_text, struct deft_error *error) {
    (void)json_out_reserve(out, 0);
    if (out->failed) {
        json_out_done(out);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to print a JSON message");
    }
    out->text[out->n_bytes] = '\0';
    *out_text = out->text;
    memset(out, 0, sizeof(*out));
    return DEFT_OK;
}

void json_out_done(struct json_out *out) {
    free(out->text);
    memset(out, 0, sizeof(*out));
}
