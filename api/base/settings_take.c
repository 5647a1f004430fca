#include <limits.h>
#include <string.h>

#include "base/parse.h"
#include "base/settings.h"

static void take_store(const struct setting *row, void *target, const void *value, size_t n_bytes) {
    memcpy((char *)target + row->offset, value, n_bytes);
}

enum deft_status settings_take_text(const struct setting *row, const char *name, const char *text,
                                    void *target, struct deft_error *error) {
    size_t n_bytes = strlen(text);
    if (n_bytes == 0 || n_bytes >= PATH_MAX) {
        return deft_fail(error, DEFT_INVALID, 0, "%s has %zu bytes, expected 1 to %d", name,
                         n_bytes, PATH_MAX - 1);
    }
    take_store(row, target, &text, sizeof(text));
    return DEFT_OK;
}

enum deft_status settings_take_u64(const struct setting *row, const char *name, const char *text,
                                   void *target, struct deft_error *error) {
    uint64_t number = 0;
    enum deft_status status = parse_u64(name, text, row->least, row->most, &number, error);
    if (status == DEFT_OK) {
        take_store(row, target, &number, sizeof(number));
    }
    return status;
}

enum deft_status settings_take_u32(const struct setting *row, const char *name, const char *text,
                                   void *target, struct deft_error *error) {
    uint64_t number = 0;
    enum deft_status status = parse_u64(name, text, row->least, row->most, &number, error);
    const uint32_t narrow = (uint32_t)number;
    if (status == DEFT_OK) {
        take_store(row, target, &narrow, sizeof(narrow));
    }
    return status;
}

enum deft_status settings_take_u16(const struct setting *row, const char *name, const char *text,
                                   void *target, struct deft_error *error) {
    uint64_t number = 0;
    enum deft_status status = parse_u64(name, text, row->least, row->most, &number, error);
    const uint16_t narrow = (uint16_t)number;
    if (status == DEFT_OK) {
        take_store(row, target, &narrow, sizeof(narrow));
    }
    return status;
}

enum deft_status settings_take_int(const struct setting *row, const char *name, const char *text,
                                   void *target, struct deft_error *error) {
    uint64_t number = 0;
    enum deft_status status = parse_u64(name, text, row->least, row->most, &number, error);
    const int narrow = (int)number;
    if (status == DEFT_OK) {
        take_store(row, target, &narrow, sizeof(narrow));
    }
    return status;
}

enum deft_status settings_take_fraction(const struct setting *row, const char *name,
                                        const char *text, void *target, struct deft_error *error) {
    double number = 0;
    enum deft_status status = parse_real(name, text, 0, 1, &number, error);
    if (status == DEFT_OK) {
        take_store(row, target, &number, sizeof(number));
    }
    return status;
}

enum deft_status settings_take_switch(const struct setting *row, const char *name, const char *text,
                                      void *target, struct deft_error *error) {
    static const char *const words[] = {"no", "yes", NULL};
    size_t index = 0;
    enum deft_status status = parse_word(name, text, words, &index, error);
    const int is_on = (int)index;
    if (status == DEFT_OK) {
        take_store(row, target, &is_on, sizeof(is_on));
    }
    return status;
}
