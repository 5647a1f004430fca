/* A JSON printer: values are appended, commas and escapes are its business.
 *
 * Running out of memory is remembered and reported once, by json_out_finish, so that a message is
 * a plain list of calls. Zero-initialised is valid. `key` is NULL inside arrays and at the top.
 * NaN and infinities are printed as null: no reader ever meets them. */
#ifndef JSON_OUT_H
#define JSON_OUT_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

struct json_out {
    char *text;
    size_t n_bytes;
    size_t capacity_bytes;
    int failed;
    int comma; /* a value precedes at this level */
};

void json_out_begin_object(struct json_out *out, const char *key);
void json_out_end_object(struct json_out *out);
void json_out_begin_array(struct json_out *out, const char *key);
void json_out_end_array(struct json_out *out);

/* Bytes that are not UTF-8 come out as U+FFFD. */
void json_out_text(struct json_out *out, const char *key, const char *value);
void json_out_uint(struct json_out *out, const char *key, uint64_t value);
void json_out_int(struct json_out *out, const char *key, int64_t value);
void json_out_number(struct json_out *out, const char *key, double value);
void json_out_bool(struct json_out *out, const char *key, int value);
void json_out_null(struct json_out *out, const char *key);
/* 16 hexadecimal digits in a string: 64-bit values do not survive a JSON number. */
void json_out_hex(struct json_out *out, const char *key, uint64_t value);
/* `json` is a whole JSON value that was printed before. */
void json_out_raw(struct json_out *out, const char *key, const char *json);

/* Hands the zero-terminated text to the caller and leaves `out` zeroed. */
DEFT_NODISCARD enum deft_status json_out_finish(struct json_out *out, char **out_text,
                                                struct deft_error *error);
/* For giving up half-way. */
void json_out_done(struct json_out *out);

#endif
