#include "kineto_number.h"

/* Larger exponents than these are 0 or too large for every mantissa. */
#define KINETO_NUMBER_MAX_EXPONENT 1000

struct kineto_number_parts {
    uint64_t mantissa;
    int exponent;
    int too_long; /* more digits than a uint64 holds, before the point */
};

static int kineto_number_is_digit(char c) {
    return c >= '0' && c <= '9';
}

static void kineto_number_digit(struct kineto_number_parts *parts, char digit, int after_point) {
    if (parts->mantissa > (UINT64_MAX - 9) / 10) {
        parts->too_long |= !after_point; /* what is behind the 18th digit of a fraction is cut */
        return;
    }
    parts->mantissa = parts->mantissa * 10 + (uint64_t)(digit - '0');
    parts->exponent -= after_point;
}

static int kineto_number_exponent(const char *text, size_t n_bytes) {
    size_t i = 0;
    int negative = 0;
    int value = 0;
    if (i < n_bytes && (text[i] == '+' || text[i] == '-')) {
        negative = text[i++] == '-';
    }
    for (; i < n_bytes && kineto_number_is_digit(text[i]); i++) {
        if (value < KINETO_NUMBER_MAX_EXPONENT) {
            value = value * 10 + (text[i] - '0');
        }
    }
    return negative ? -value : value;
}

int kineto_number(const char *text, size_t n_bytes, int scale, int64_t *out) {
    struct kineto_number_parts parts = {0};
    int after_point = 0;
    size_t i = 0;
    int negative = n_bytes > 0 && text[0] == '-';
    for (i = (size_t)negative; i < n_bytes; i++) {
        if (kineto_number_is_digit(text[i])) {
            kineto_number_digit(&parts, text[i], after_point);
        } else if (text[i] == '.') {
            after_point = 1;
        } else {
            parts.exponent += kineto_number_exponent(text + i + 1, n_bytes - i - 1);
            break;
        }
    }
    parts.exponent += scale;
    if (parts.mantissa == 0) {
        *out = 0;
        return !parts.too_long;
    }
    for (; parts.exponent > 0; parts.exponent--) {
        if (parts.mantissa > (uint64_t)INT64_MAX / 10) {
            return 0;
        }
        parts.mantissa *= 10;
    }
    for (; parts.exponent < 0 && parts.mantissa > 0; parts.exponent++) {
        parts.mantissa /= 10;
    }
    if (parts.too_long || parts.mantissa > (uint64_t)INT64_MAX) {
        return 0;
    }
    *out = negative ? -(int64_t)parts.mantissa : (int64_t)parts.mantissa;
    return 1;
}
