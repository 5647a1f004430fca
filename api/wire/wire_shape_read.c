#include "wire_shape.h"

#include "json_scan.h"
#include "wire.h"

#include <cjson/cJSON.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct read_state {
    const char *what;
    char path[256]; /* "iterations[3].rank"; cut when longer */
    size_t n_path;
    struct deft_error *error;
};

static enum deft_status read_node(struct read_state *state, const struct wire_shape *shape,
                                  const cJSON *node, void *base);

/* Fields come by the hundred and hardly any is refused: their path must cost next to nothing. */
static void read_append(struct read_state *state, const char *text, size_t n) {
    size_t room = sizeof(state->path) - 1 - state->n_path;
    n = n < room ? n : room;
    memcpy(state->path + state->n_path, text, n);
    state->n_path += n;
    state->path[state->n_path] = '\0';
}

/* Returns the old length, to be given to read_leave. */
static size_t read_enter(struct read_state *state, const char *key) {
    size_t old = state->n_path;
    if (old > 0) {
        read_append(state, ".", 1);
    }
    read_append(state, key, strlen(key));
    return old;
}

static size_t read_enter_index(struct read_state *state, size_t index) {
    size_t old = state->n_path;
    char text[24];
    size_t at = sizeof(text);
    text[--at] = ']';
    do {
        text[--at] = (char)('0' + index % 10);
        index /= 10;
    } while (index > 0);
    text[--at] = '[';
    read_append(state, text + at, sizeof(text) - at);
    return old;
}

static void read_leave(struct read_state *state, size_t old) {
    state->n_path = old;
    state->path[old] = '\0';
}

static enum deft_status read_refuse(const struct read_state *state, const char *expected) {
    return deft_fail(state->error, DEFT_INVALID, 0, "%s: %s",
                     state->n_path > 0 ? state->path : state->what, expected);
}

static enum deft_status read_no_memory(const struct read_state *state) {
    return deft_fail(state->error, DEFT_NO_MEMORY, 0, "no memory to read %s", state->what);
}

/* Members of structs have their own widths; memcpy keeps that free of aliasing questions. */
static void read_store(const struct wire_field *field, void *base, uint64_t value) {
    unsigned char *at = (unsigned char *)base + field->offset;
    const uint8_t v8 = (uint8_t)value;
    const uint16_t v16 = (uint16_t)value;
    const uint32_t v32 = (uint32_t)value;
    switch (field->size) {
    case 1:
        memcpy(at, &v8, 1);
        break;
    case 2:
        memcpy(at, &v16, 2);
        break;
    case 4:
        memcpy(at, &v32, 4);
        break;
    default:
        memcpy(at, &value, 8);
        break;
    }
}

static enum deft_status read_name(const struct read_state *state, const struct wire_field *field,
                                  const cJSON *item, void *base) {
    if (!cJSON_IsString(item)) {
        return read_refuse(state, "a string was expected");
    }
    for (size_t i = 0; field->names[i] != NULL; i++) {
        if (strcmp(field->names[i], item->valuestring) == 0) {
            read_store(field, base, i);
            return DEFT_OK;
        }
    }
    return deft_fail(state->error, DEFT_INVALID, 0, "%s: '%.40s' is not a known value", state->path,
                     item->valuestring);
}

static enum deft_status read_integer(const struct read_state *state, const struct wire_field *field,
                                     const cJSON *item, void *base) {
    if (field->names != NULL) {
        return read_name(state, field, item, base);
    }
    double value = cJSON_IsNumber(item) ? item->valuedouble : NAN;
    if (!isfinite(value) || value != floor(value) || fabs(value) > (double)WIRE_MAX_INTEGER) {
        return read_refuse(state, "an integer within 2^53 was expected");
    }
    int64_t integer = (int64_t)value;
    if (integer < field->min || (integer > 0 && (uint64_t)integer > field->max)) {
        return deft_fail(state->error, DEFT_INVALID, 0,
                         "%s: %" PRId64 " is outside %" PRId64 "..%" PRIu64, state->path, integer,
                         field->min, field->max);
    }
    read_store(field, base, (uint64_t)integer);
    return DEFT_OK;
}

static enum deft_status read_real(const struct read_state *state, const struct wire_field *field,
                                  const cJSON *item, void *base) {
    double value = NAN;
    if (cJSON_IsNumber(item) && isfinite(item->valuedouble)) {
        value = item->valuedouble;
    } else if (!cJSON_IsNull(item)) {
        return read_refuse(state, "a finite number or null was expected");
    }
    memcpy((unsigned char *)base + field->offset, &value, sizeof(value));
    return DEFT_OK;
}

static enum deft_status read_ratio(const struct read_state *state, const struct wire_field *field,
                                   const cJSON *item, void *base) {
    double scaled = cJSON_IsNumber(item) ? item->valuedouble * (double)field->max : NAN;
    if (!isfinite(scaled) || scaled < 0 || scaled > (double)UINT32_MAX) {
        return read_refuse(state, "a number from 0 on was expected");
    }
    read_store(field, base, (uint64_t)llround(scaled));
    return DEFT_OK;
}

static enum deft_status read_text(const struct read_state *state, const struct wire_field *field,
                                  const cJSON *item, void *base) {
    if (!cJSON_IsString(item)) {
        return read_refuse(state, "a string was expected");
    }
    size_t n = strlen(item->valuestring);
    if (n >= field->size) {
        return deft_fail(state->error, DEFT_INVALID, 0,
                         "%s: the string has %zu bytes, but at most %zu are allowed", state->path,
                         n, field->size - 1);
    }
    memcpy((unsigned char *)base + field->offset, item->valuestring, n + 1);
    return DEFT_OK;
}

/* 64-bit values in strings; `radix` 16 wants exactly 16 lower-case digits. */
static enum deft_status read_digits(const struct read_state *state, const struct wire_field *field,
                                    const cJSON *item, void *base) {
    const uint64_t radix = field->kind == WIRE_HEX ? 16 : 10;
    const char *expected = radix == 16 ? "a string of 16 hexadecimal digits was expected"
                                       : "a string of decimal digits was expected";
    const char *s = cJSON_IsString(item) ? item->valuestring : "";
    uint64_t value = 0;
    size_t n = 0;
    for (; s[n] != '\0'; n++) {
        uint64_t digit = 99;
        if (s[n] >= '0' && s[n] <= '9') {
            digit = (uint64_t)(s[n] - '0');
        } else if (s[n] >= 'a' && s[n] <= 'f') {
            digit = (uint64_t)(s[n] - 'a') + 10;
        }
        if (digit >= radix || n >= 20 || value > (UINT64_MAX - digit) / radix) {
            return read_refuse(state, expected);
        }
        value = value * radix + digit;
    }
    if (n == 0 || (radix == 16 && n != 16)) {
        return read_refuse(state, expected);
    }
    memcpy((unsigned char *)base + field->offset, &value, sizeof(value));
    return DEFT_OK;
}

static enum deft_status read_bits(const struct read_state *state, const struct wire_field *field,
                                  const cJSON *item, void *base) {
    uint32_t bits = 0;
    const cJSON *name = NULL;
    if (!cJSON_IsArray(item)) {
        return read_refuse(state, "an array of strings was expected");
    }
    cJSON_ArrayForEach(name, item) {
        if (!cJSON_IsString(name)) {
            return read_refuse(state, "an array of strings was expected");
        }
        for (unsigned i = 0; i < 32; i++) { /* a newer peer's names are none of ours */
            if (field->names[i] != NULL && strcmp(field->names[i], name->valuestring) == 0) {
                bits |= UINT32_C(1) << i;
            }
        }
    }
    read_store(field, base, bits);
    return DEFT_OK;
}

static enum deft_status read_array(struct read_state *state, const struct wire_field *field,
                                   const cJSON *item, void *base) {
    if (!cJSON_IsArray(item)) {
        return read_refuse(state, "an array was expected");
    }
    size_t n = 0;
    for (const cJSON *element = item->child; element != NULL; element = element->next) {
        n++;
    }
    if (n > field->max) {
        return deft_fail(state->error, DEFT_INVALID, 0,
                         "%s: %zu elements, but at most %" PRIu64 " are allowed", state->path, n,
                         field->max);
    }
    if (n == 0) {
        return DEFT_OK;
    }
    unsigned char *elements = calloc(n, field->shape->size_bytes);
    if (elements == NULL) {
        return read_no_memory(state);
    }
    /* In place at once, so that wire_shape_done finds it whatever happens below. */
    const uint32_t count = (uint32_t)n;
    memcpy((unsigned char *)base + field->offset, &elements, sizeof(elements));
    memcpy((unsigned char *)base + field->count_offset, &count, sizeof(count));
    size_t i = 0;
    for (const cJSON *element = item->child; element != NULL; element = element->next, i++) {
        size_t old = read_enter_index(state, i);
        enum deft_status status =
            read_node(state, field->shape, element, elements + i * field->shape->size_bytes);
        if (status != DEFT_OK) {
            return status;
        }
        read_leave(state, old);
    }
    return DEFT_OK;
}

static enum deft_status read_present(struct read_state *state, const struct wire_field *field,
                                     const cJSON *item, void *base) {
    switch (field->kind) {
    case WIRE_UINT:
    case WIRE_INT:
        return read_integer(state, field, item, base);
    case WIRE_REAL:
        return read_real(state, field, item, base);
    case WIRE_RATIO:
        return read_ratio(state, field, item, base);
    case WIRE_FLAG:
        if (!cJSON_IsBool(item)) {
            return read_refuse(state, "true or false was expected");
        }
        read_store(field, base, cJSON_IsTrue(item) ? 1 : 0);
        return DEFT_OK;
    case WIRE_TEXT:
        return read_text(state, field, item, base);
    case WIRE_HEX:
    case WIRE_DIGITS:
        return read_digits(state, field, item, base);
    case WIRE_BITS:
        return read_bits(state, field, item, base);
    case WIRE_OBJECT:
        return read_node(state, field->shape, item, (unsigned char *)base + field->offset);
    case WIRE_GROUP:
        return read_node(state, field->shape, item, base);
    case WIRE_ARRAY:
        return read_array(state, field, item, base);
    }
    return read_refuse(state, "this kind of field is unknown");
}

/* The stated defaults; the struct was zeroed before. */
static void read_absent(const struct wire_field *field, void *base) {
    const struct wire_shape *inner = field->shape;
    switch (field->kind) {
    case WIRE_UINT:
    case WIRE_INT:
    case WIRE_RATIO:
    case WIRE_FLAG:
        read_store(field, base, field->initial);
        break;
    case WIRE_REAL: {
        const double none = NAN;
        memcpy((unsigned char *)base + field->offset, &none, sizeof(none));
        break;
    }
    case WIRE_OBJECT:
    case WIRE_GROUP:
        for (size_t i = 0; i < inner->n_fields; i++) {
            read_absent(&inner->fields[i], field->kind == WIRE_OBJECT
                                               ? (unsigned char *)base + field->offset
                                               : (unsigned char *)base);
        }
        break;
    default:
        break;
    }
}

static enum deft_status read_field(struct read_state *state, const struct wire_field *field,
                                   const cJSON *item, void *base) {
    size_t old = field->key != NULL ? read_enter(state, field->key) : state->n_path;
    enum deft_status status = DEFT_OK;
    if (item != NULL) {
        status = read_present(state, field, item, base);
    } else if (field->required) {
        status = read_refuse(state, "the field is missing");
    } else {
        read_absent(field, base);
    }
    if (status == DEFT_OK) {
        read_leave(state, old);
    }
    return status;
}

static enum deft_status read_node(struct read_state *state, const struct wire_shape *shape,
                                  const cJSON *node, void *base) {
    enum deft_status status = DEFT_OK;
    if (shape->layout == WIRE_BARE) {
        return read_field(state, &shape->fields[0], node, base);
    }
    if (shape->layout == WIRE_TUPLE ? !cJSON_IsArray(node) : !cJSON_IsObject(node)) {
        return read_refuse(state, shape->layout == WIRE_TUPLE ? "an array was expected"
                                                              : "an object was expected");
    }
    const cJSON *next = node->child;
    for (size_t i = 0; i < shape->n_fields && status == DEFT_OK; i++) {
        const struct wire_field *field = &shape->fields[i];
        const cJSON *item = next;
        if (shape->layout == WIRE_KEYED) {
            item = cJSON_GetObjectItemCaseSensitive(node, field->key);
        } else if (next != NULL) {
            next = next->next;
        }
        status = read_field(state, field, item, base);
    }
    return status;
}

/* Recursion is bounded by json_scan's depth. */
static enum deft_status read_duplicates(const cJSON *node, struct deft_error *error) {
    size_t n = 0;
    for (const cJSON *child = node->child; child != NULL; child = child->next) {
        if (cJSON_IsObject(node)) {
            if (++n > WIRE_MAX_MEMBERS) {
                return deft_fail(error, DEFT_INVALID, 0, "an object has more than %d keys",
                                 WIRE_MAX_MEMBERS);
            }
            for (const cJSON *other = node->child; other != child; other = other->next) {
                if (strcmp(other->string, child->string) == 0) {
                    return deft_fail(error, DEFT_INVALID, 0, "%.80s: the key appears twice",
                                     child->string);
                }
            }
        }
        enum deft_status status = read_duplicates(child, error);
        if (status != DEFT_OK) {
            return status;
        }
    }
    return DEFT_OK;
}

enum deft_status wire_shape_decode(const struct wire_shape *shape, const char *what,
                                   const char *text, size_t n_bytes, void *out,
                                   struct deft_error *error) {
    struct read_state state = {.what = what, .error = error};
    const struct json_scan_limits limits = {WIRE_MAX_DEPTH, shape->max_values};
    void *value = NULL;
    cJSON *root = NULL;
    if (n_bytes > WIRE_MAX_BODY_BYTES) {
        return deft_fail(error, DEFT_LIMIT, 0, "%s has %zu bytes, but at most %u are allowed", what,
                         n_bytes, WIRE_MAX_BODY_BYTES);
    }
    enum deft_status status = json_scan(text, n_bytes, &limits, error);
    if (status != DEFT_OK) {
        return status;
    }
    value = calloc(1, shape->size_bytes);
    root = cJSON_ParseWithLength(text, n_bytes);
    if (value == NULL || root == NULL) {
        /* After json_scan a parser has no reason left to fail but memory. */
        status = read_no_memory(&state);
        goto done;
    }
    status = read_duplicates(root, error);
    if (status == DEFT_OK) {
        status = read_node(&state, shape, root, value);
    }
    if (status != DEFT_OK) {
        wire_shape_done(shape, value);
        goto done;
    }
    memcpy(out, value, shape->size_bytes);
done:
    cJSON_Delete(root);
    free(value);
    return status;
}

static void shape_free(const struct wire_shape *shape, void *value) {
    for (size_t i = 0; i < shape->n_fields; i++) {
        const struct wire_field *field = &shape->fields[i];
        unsigned char *at = (unsigned char *)value + field->offset;
        if (field->kind == WIRE_OBJECT) {
            shape_free(field->shape, at);
        } else if (field->kind == WIRE_GROUP) {
            shape_free(field->shape, value);
        } else if (field->kind == WIRE_ARRAY) {
            unsigned char *elements = NULL;
            uint32_t count = 0;
            memcpy(&elements, at, sizeof(elements));
            memcpy(&count, (unsigned char *)value + field->count_offset, sizeof(count));
            for (uint32_t e = 0; elements != NULL && e < count; e++) {
                shape_free(field->shape, elements + (size_t)e * field->shape->size_bytes);
            }
            free(elements);
        }
    }
}

void wire_shape_done(const struct wire_shape *shape, void *value) {
    if (value != NULL) {
        shape_free(shape, value);
        memset(value, 0, shape->size_bytes);
    }
}
