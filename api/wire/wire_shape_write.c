#include "wire_shape.h"

#include <string.h>

struct write_state {
    const char *what;
    struct json_out *out;
    struct deft_error *error;
};

static enum deft_status write_node(const struct write_state *state, const struct wire_shape *shape,
                                   const char *key, const void *base);

static uint64_t write_load_uint(const struct wire_field *field, const void *base) {
    const unsigned char *at = (const unsigned char *)base + field->offset;
    uint64_t v64 = 0;
    uint32_t v32 = 0;
    uint16_t v16 = 0;
    switch (field->size) {
    case 1:
        return *at;
    case 2:
        memcpy(&v16, at, 2);
        return v16;
    case 4:
        memcpy(&v32, at, 4);
        return v32;
    default:
        memcpy(&v64, at, 8);
        return v64;
    }
}

static int64_t write_load_int(const struct wire_field *field, const void *base) {
    const unsigned char *at = (const unsigned char *)base + field->offset;
    int64_t v64 = 0;
    int32_t v32 = 0;
    if (field->size == 4) {
        memcpy(&v32, at, 4);
        return v32;
    }
    memcpy(&v64, at, 8);
    return v64;
}

static enum deft_status write_out_of_range(const struct write_state *state,
                                           const struct wire_field *field) {
    return deft_fail(state->error, DEFT_INVALID, 0, "%s: the value of '%s' is out of range",
                     state->what, field->key != NULL ? field->key : "element");
}

static enum deft_status write_uint(const struct write_state *state, const struct wire_field *field,
                                   const char *key, const void *base) {
    uint64_t value = write_load_uint(field, base);
    if (field->names != NULL) {
        for (uint64_t i = 0; field->names[i] != NULL; i++) {
            if (i == value) {
                json_out_text(state->out, key, field->names[i]);
                return DEFT_OK;
            }
        }
        return write_out_of_range(state, field);
    }
    if (value > field->max || value > WIRE_MAX_INTEGER ||
        (field->min > 0 && value < (uint64_t)field->min)) {
        return write_out_of_range(state, field);
    }
    json_out_uint(state->out, key, value);
    return DEFT_OK;
}

static enum deft_status write_int(const struct write_state *state, const struct wire_field *field,
                                  const char *key, const void *base) {
    int64_t value = write_load_int(field, base);
    if (value < field->min || (value > 0 && (uint64_t)value > field->max) ||
        value > (int64_t)WIRE_MAX_INTEGER || value < -(int64_t)WIRE_MAX_INTEGER) {
        return write_out_of_range(state, field);
    }
    json_out_int(state->out, key, value);
    return DEFT_OK;
}

static enum deft_status write_text(const struct write_state *state, const struct wire_field *field,
                                   const char *key, const void *base) {
    const char *text = (const char *)base + field->offset;
    if (memchr(text, '\0', field->size) == NULL) {
        return write_out_of_range(state, field);
    }
    json_out_text(state->out, key, text);
    return DEFT_OK;
}

static void write_bits(const struct write_state *state, const struct wire_field *field,
                       const char *key, const void *base) {
    uint64_t bits = write_load_uint(field, base);
    json_out_begin_array(state->out, key);
    for (unsigned i = 0; i < 32; i++) {
        if (field->names[i] != NULL && (bits >> i & 1u) != 0) {
            json_out_text(state->out, NULL, field->names[i]);
        }
    }
    json_out_end_array(state->out);
}

static void write_digits(const struct write_state *state, const char *key, uint64_t value) {
    char digits[24];
    size_t at = sizeof(digits) - 1;
    digits[at] = '\0';
    do {
        digits[--at] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    json_out_text(state->out, key, digits + at);
}

static enum deft_status write_array(const struct write_state *state, const struct wire_field *field,
                                    const char *key, const void *base) {
    const unsigned char *elements = NULL;
    uint32_t count = 0;
    enum deft_status status = DEFT_OK;
    memcpy(&elements, (const unsigned char *)base + field->offset, sizeof(elements));
    memcpy(&count, (const unsigned char *)base + field->count_offset, sizeof(count));
    if (count > field->max) {
        return write_out_of_range(state, field);
    }
    json_out_begin_array(state->out, key);
    for (uint32_t i = 0; i < count && status == DEFT_OK; i++) {
        status =
            write_node(state, field->shape, NULL, elements + (size_t)i * field->shape->size_bytes);
    }
    json_out_end_array(state->out);
    return status;
}

static enum deft_status write_field(const struct write_state *state, const struct wire_field *field,
                                    const char *key, const void *base) {
    const unsigned char *at = (const unsigned char *)base + field->offset;
    double real = 0;
    uint64_t wide = 0;
    switch (field->kind) {
    case WIRE_UINT:
        return write_uint(state, field, key, base);
    case WIRE_INT:
        return write_int(state, field, key, base);
    case WIRE_REAL:
        memcpy(&real, at, sizeof(real));
        json_out_number(state->out, key, real);
        return DEFT_OK;
    case WIRE_RATIO:
        json_out_number(state->out, key, (double)write_load_uint(field, base) / (double)field->max);
        return DEFT_OK;
    case WIRE_FLAG:
        json_out_bool(state->out, key, write_load_uint(field, base) != 0);
        return DEFT_OK;
    case WIRE_TEXT:
        return write_text(state, field, key, base);
    case WIRE_HEX:
        memcpy(&wide, at, sizeof(wide));
        json_out_hex(state->out, key, wide);
        return DEFT_OK;
    case WIRE_DIGITS:
        memcpy(&wide, at, sizeof(wide));
        write_digits(state, key, wide);
        return DEFT_OK;
    case WIRE_BITS:
        write_bits(state, field, key, base);
        return DEFT_OK;
    case WIRE_OBJECT:
        return write_node(state, field->shape, key, at);
    case WIRE_GROUP:
        return write_node(state, field->shape, key, base);
    case WIRE_ARRAY:
        return write_array(state, field, key, base);
    }
    return write_out_of_range(state, field);
}

static enum deft_status write_node(const struct write_state *state, const struct wire_shape *shape,
                                   const char *key, const void *base) {
    enum deft_status status = DEFT_OK;
    if (shape->layout == WIRE_BARE) {
        return write_field(state, &shape->fields[0], key, base);
    }
    if (shape->layout == WIRE_TUPLE) {
        json_out_begin_array(state->out, key);
    } else {
        json_out_begin_object(state->out, key);
    }
    for (size_t i = 0; i < shape->n_fields && status == DEFT_OK; i++) {
        const struct wire_field *field = &shape->fields[i];
        status = write_field(state, field, shape->layout == WIRE_TUPLE ? NULL : field->key, base);
    }
    if (shape->layout == WIRE_TUPLE) {
        json_out_end_array(state->out);
    } else {
        json_out_end_object(state->out);
    }
    return status;
}

enum deft_status wire_shape_write(const struct wire_shape *shape, const char *what, const char *key,
                                  const void *in, struct json_out *out, struct deft_error *error) {
    const struct write_state state = {.what = what, .out = out, .error = error};
    return write_node(&state, shape, key, in);
}

enum deft_status wire_shape_encode(const struct wire_shape *shape, const char *what, const void *in,
                                   char **out, struct deft_error *error) {
    struct json_out text = {0};
    enum deft_status status = wire_shape_write(shape, what, NULL, in, &text, error);
    if (status != DEFT_OK) {
        json_out_done(&text);
        return status;
    }
    return json_out_finish(&text, out, error);
}
