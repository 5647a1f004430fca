/* A message as a table: one row per JSON key, read and written by the same walk.
 *
 * A row ties a key to a member of a C struct. What the table cannot say (a hash that must match, a
 * conversion) is done by the message's own file after decoding or before encoding. */
#ifndef WIRE_SHAPE_H
#define WIRE_SHAPE_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "json_out.h"

/* The largest integer that every JSON reader keeps exactly: 2^53 - 1. */
#define WIRE_MAX_INTEGER UINT64_C(9007199254740991)
/* No message of ours has more than 32 keys; the bound keeps the search for duplicates short. */
#define WIRE_MAX_MEMBERS 128

enum wire_kind {
    WIRE_UINT,   /* unsigned integer of the member's width; names[] given: one of these texts */
    WIRE_INT,    /* signed integer of the member's width */
    WIRE_REAL,   /* double; null and absence are NaN */
    WIRE_RATIO,  /* uint32_t in units of 1 / `max`, a decimal number in JSON */
    WIRE_FLAG,   /* int, true or false */
    WIRE_TEXT,   /* char[] with its terminating zero */
    WIRE_HEX,    /* uint64_t as 16 hexadecimal digits */
    WIRE_DIGITS, /* uint64_t as decimal digits in a string, for what may exceed 2^53 */
    WIRE_BITS,   /* uint32_t as an array of names; bit i is names[i], NULL where there is none */
    WIRE_OBJECT, /* a struct inside, of `shape` */
    WIRE_GROUP,  /* a JSON object whose rows describe the enclosing struct */
    WIRE_ARRAY,  /* pointer to `shape` elements, counted by the uint32_t at `count_offset` */
};

enum wire_layout {
    WIRE_KEYED, /* {"key": value, ...} */
    WIRE_TUPLE, /* [value, ...] in the order of the rows; further elements are ignored */
    WIRE_BARE,  /* the value of the only row, without a key: elements of plain arrays */
};

struct wire_field {
    const char *key;
    enum wire_kind kind;
    int required;
    size_t offset;
    size_t size;
    int64_t min;
    uint64_t max;     /* WIRE_UINT, WIRE_INT; the unit of WIRE_RATIO; elements of WIRE_ARRAY */
    uint64_t initial; /* value of an absent WIRE_UINT, WIRE_INT, WIRE_FLAG or WIRE_RATIO */
    size_t count_offset;
    const struct wire_shape *shape;
    const char *const *names; /* NULL-terminated for WIRE_UINT; 32 entries for WIRE_BITS */
};

struct wire_shape {
    const struct wire_field *fields;
    size_t n_fields;
    size_t size_bytes;
    enum wire_layout layout;
    size_t max_values; /* of a message that is read */
};

#define WIRE_N(array) (sizeof(array) / sizeof((array)[0]))
#define WIRE_SHAPE_OF(T, table, place, most)                                                       \
    { (table), WIRE_N(table), sizeof(T), (place), (most) }
#define WIRE_SHAPE(T, table, place) WIRE_SHAPE_OF(T, table, place, WIRE_MAX_VALUES)
#define WIRE_MEMBER(T, m)           .offset = offsetof(T, m), .size = sizeof(((T *)NULL)->m)

#define WIRE_ROW_UINT(T, m, name, need, low, high)                                                 \
    {                                                                                              \
        .key = (name), .kind = WIRE_UINT, .required = (need), WIRE_MEMBER(T, m), .min = (low),     \
        .max = (high)                                                                              \
    }
#define WIRE_ROW_INT(T, m, name, need, low, high)                                                  \
    {                                                                                              \
        .key = (name), .kind = WIRE_INT, .required = (need), WIRE_MEMBER(T, m), .min = (low),      \
        .max = (high)                                                                              \
    }
#define WIRE_ROW_NAME(T, m, name, need, texts)                                                     \
    { .key = (name), .kind = WIRE_UINT, .required = (need), WIRE_MEMBER(T, m), .names = (texts) }
#define WIRE_ROW_REAL(T, m, name)                                                                  \
    { .key = (name), .kind = WIRE_REAL, WIRE_MEMBER(T, m) }
#define WIRE_ROW_RATIO(T, m, name, unit, absent)                                                   \
    { .key = (name), .kind = WIRE_RATIO, WIRE_MEMBER(T, m), .max = (unit), .initial = (absent) }
#define WIRE_ROW_FLAG(T, m, name)                                                                  \
    { .key = (name), .kind = WIRE_FLAG, WIRE_MEMBER(T, m) }
#define WIRE_ROW_TEXT(T, m, name, need)                                                            \
    { .key = (name), .kind = WIRE_TEXT, .required = (need), WIRE_MEMBER(T, m) }
#define WIRE_ROW_HEX(T, m, name, need)                                                             \
    { .key = (name), .kind = WIRE_HEX, .required = (need), WIRE_MEMBER(T, m) }
#define WIRE_ROW_DIGITS(T, m, name, need)                                                          \
    { .key = (name), .kind = WIRE_DIGITS, .required = (need), WIRE_MEMBER(T, m) }
#define WIRE_ROW_BITS(T, m, name, texts)                                                           \
    { .key = (name), .kind = WIRE_BITS, WIRE_MEMBER(T, m), .names = (texts) }
#define WIRE_ROW_OBJECT(T, m, name, need, inner)                                                   \
    { .key = (name), .kind = WIRE_OBJECT, .required = (need), WIRE_MEMBER(T, m), .shape = (inner) }
#define WIRE_ROW_GROUP(name, need, inner)                                                          \
    { .key = (name), .kind = WIRE_GROUP, .required = (need), .shape = (inner) }
#define WIRE_ROW_ARRAY(T, m, count, name, need, high, inner)                                       \
    {                                                                                              \
        .key = (name), .kind = WIRE_ARRAY, .required = (need), .offset = offsetof(T, m),           \
        .max = (high), .count_offset = offsetof(T, count), .shape = (inner)                        \
    }

/* Fills the struct at `out`, which is untouched on failure. `what` names the message. */
DEFT_NODISCARD enum deft_status wire_shape_decode(const struct wire_shape *shape, const char *what,
                                                  const char *text, size_t n_bytes, void *out,
                                                  struct deft_error *error);
/* Refuses what the decoder would refuse, so that both ends agree on what can be said. */
DEFT_NODISCARD enum deft_status wire_shape_encode(const struct wire_shape *shape, const char *what,
                                                  const void *in, char **out,
                                                  struct deft_error *error);
/* The same into a message that is being printed. */
DEFT_NODISCARD enum deft_status wire_shape_write(const struct wire_shape *shape, const char *what,
                                                 const char *key, const void *in,
                                                 struct json_out *out, struct deft_error *error);
/* Frees every array and zeroes the struct. */
void wire_shape_done(const struct wire_shape *shape, void *value);

#endif
