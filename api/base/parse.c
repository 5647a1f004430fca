#include "base/parse.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum deft_status parse_u64(const char *name, const char *text, uint64_t least, uint64_t most,
                           uint64_t *out, struct deft_error *error) {
    uint64_t value = 0;
    const char *c = text;
    int fits = 1;
    while (*c >= '0' && *c <= '9' && fits) {
        uint64_t digit = (uint64_t)(*c - '0');
        fits = value <= (UINT64_MAX - digit) / 10;
        value = value * 10 + digit;
        c++;
    }
    if (!fits || c == text || *c != '\0' || value < least || value > most) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "%s is '%.60s', expected a whole number from %" PRIu64 " to %" PRIu64,
                         name, text, least, most);
    }
    *out = value;
    return DEFT_OK;
}

enum deft_status parse_word(const char *name, const char *text, const char *const *words,
                            size_t *out_index, struct deft_error *error) {
    char list[256];
    size_t n = 0;
    for (size_t i = 0; words[i] != NULL; i++) {
        if (strcmp(words[i], text) == 0) {
            *out_index = i;
            return DEFT_OK;
        }
        int length = snprintf(list + n, sizeof(list) - n, "%s%s", i > 0 ? ", " : "", words[i]);
        if (length > 0) {
            n += (size_t)length < sizeof(list) - n ? (size_t)length : sizeof(list) - n - 1;
        }
    }
    return deft_fail(error, DEFT_INVALID, 0, "%s is '%.60s', expected one of %s", name, text,
                     n > 0 ? list : "nothing");
}
