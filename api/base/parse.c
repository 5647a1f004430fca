#include "base/parse.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
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

/* Bytes of the number in front of `text`; 0 when there is none. strtod alone would take spaces,
 * hexadecimal digits, inf and nan as well. */
static size_t parse_real_bytes(const char *text) {
    static const char digits[] = "0123456789";
    size_t n = text[0] == '-';
    size_t n_whole = strspn(text + n, digits);
    size_t n_fraction = 0;
    n += n_whole;
    if (text[n] == '.') {
        n_fraction = strspn(text + n + 1, digits);
        n += 1 + n_fraction;
    }
    if (n_whole + n_fraction == 0) {
        return 0;
    }
    if (text[n] == 'e' || text[n] == 'E') {
        size_t sign = text[n + 1] == '-' || text[n + 1] == '+';
        size_t n_exponent = strspn(text + n + 1 + sign, digits);
        n += n_exponent > 0 ? 1 + sign + n_exponent : 0;
    }
    return n;
}

enum deft_status parse_real(const char *name, const char *text, double least, double most,
                            double *out, struct deft_error *error) {
    size_t n = parse_real_bytes(text);
    double value = n > 0 && text[n] == '\0' ? strtod(text, NULL) : 0.0;
    if (n == 0 || text[n] != '\0' || !(value >= least && value <= most)) {
        return deft_fail(error, DEFT_INVALID, 0, "%s is '%.60s', expected a number from %g to %g",
                         name, text, least, most);
    }
    *out = value;
    return DEFT_OK;
}

enum deft_status parse_seconds(const char *name, const char *text, uint64_t most_s, uint64_t *out_s,
                               struct deft_error *error) {
    static const char units[] = "smhd";
    static const uint64_t unit_s[] = {1, 60, 3600, 86400};
    char digits[24];
    uint64_t number = 0;
    size_t n = strspn(text, "0123456789");
    const char *unit = text[n] != '\0' ? strchr(units, text[n]) : NULL;
    if (n > 0 && n < sizeof(digits) && unit != NULL && text[n + 1] == '\0') {
        memcpy(digits, text, n);
        digits[n] = '\0';
        uint64_t in_s = unit_s[unit - units];
        if (parse_u64(name, digits, 1, most_s / in_s, &number, NULL) == DEFT_OK) {
            *out_s = number * in_s;
            return DEFT_OK;
        }
    }
    return deft_fail(
        error, DEFT_INVALID, 0,
        "%s is '%.60s', expected a time such as 900s, 12h or 30d, of at most %llu days", name, text,
        (unsigned long long)(most_s / 86400));
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

int parse_wrong_file(int code) {
    return code == ENOENT || code == ENOTDIR || code == ENAMETOOLONG || code == ELOOP ||
           code == EACCES;
}
