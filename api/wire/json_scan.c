#include "json_scan.h"

#include "utf8.h"

#include <stdint.h>
#include <string.h>

struct json_scan {
    const char *text;
    size_t n_bytes;
    size_t at;
    unsigned depth;
    size_t n_values;
    const struct json_scan_limits *limits;
    const char *wrong; /* what was wrong at `at` */
};

static int json_scan_peek(const struct json_scan *s) {
    return s->at < s->n_bytes ? (unsigned char)s->text[s->at] : -1;
}

static int json_scan_refuse(struct json_scan *s, const char *wrong) {
    s->wrong = wrong;
    return 0;
}

static void json_scan_space(struct json_scan *s) {
    int c = json_scan_peek(s);
    while (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        s->at++;
        c = json_scan_peek(s);
    }
}

static int json_scan_is_digit(int c) {
    return c >= '0' && c <= '9';
}

static int json_scan_digits(struct json_scan *s) {
    if (!json_scan_is_digit(json_scan_peek(s))) {
        return json_scan_refuse(s, "a digit was expected");
    }
    while (json_scan_is_digit(json_scan_peek(s))) {
        s->at++;
    }
    return 1;
}

static int json_scan_number(struct json_scan *s) {
    if (json_scan_peek(s) == '-') {
        s->at++;
    }
    if (json_scan_peek(s) == '0') {
        s->at++;
        if (json_scan_is_digit(json_scan_peek(s))) {
            return json_scan_refuse(s, "a number may not begin with a zero");
        }
    } else if (!json_scan_digits(s)) {
        return 0;
    }
    if (json_scan_peek(s) == '.') {
        s->at++;
        if (!json_scan_digits(s)) {
            return 0;
        }
    }
    if (json_scan_peek(s) == 'e' || json_scan_peek(s) == 'E') {
        s->at++;
        if (json_scan_peek(s) == '+' || json_scan_peek(s) == '-') {
            s->at++;
        }
        return json_scan_digits(s);
    }
    return 1;
}

static int json_scan_hex(struct json_scan *s, unsigned *out) {
    unsigned value = 0;
    for (unsigned i = 0; i < 4; i++) {
        int c = json_scan_peek(s);
        unsigned digit = 0;
        if (json_scan_is_digit(c)) {
            digit = (unsigned)(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            digit = (unsigned)(c - 'a') + 10;
        } else if (c >= 'A' && c <= 'F') {
            digit = (unsigned)(c - 'A') + 10;
        } else {
            return json_scan_refuse(s, "four hexadecimal digits were expected");
        }
        value = value * 16 + digit;
        s->at++;
    }
    *out = value;
    return 1;
}

static int json_scan_escape(struct json_scan *s) {
    int c = json_scan_peek(s);
    if (c < 0 || strchr("\"\\/bfnrtu", c) == NULL || c == '\0') {
        return json_scan_refuse(s, "there is no such escape");
    }
    s->at++;
    if (c != 'u') {
        return 1;
    }
    unsigned unit = 0;
    if (!json_scan_hex(s, &unit)) {
        return 0;
    }
    if (unit == 0) {
        return json_scan_refuse(s, "a NUL character is not allowed");
    }
    if (unit >= 0xDC00u && unit <= 0xDFFFu) {
        return json_scan_refuse(s, "a surrogate stands alone");
    }
    if (unit >= 0xD800u && unit <= 0xDBFFu) {
        unsigned low = 0;
        if (json_scan_peek(s) != '\\') {
            return json_scan_refuse(s, "a surrogate stands alone");
        }
        s->at++;
        if (json_scan_peek(s) != 'u') {
            return json_scan_refuse(s, "a surrogate stands alone");
        }
        s->at++;
        if (!json_scan_hex(s, &low)) {
            return 0;
        }
        if (low < 0xDC00u || low > 0xDFFFu) {
            return json_scan_refuse(s, "a surrogate stands alone");
        }
    }
    return 1;
}

static int json_scan_string(struct json_scan *s) {
    s->at++; /* the quote */
    for (;;) {
        int c = json_scan_peek(s);
        if (c < 0) {
            return json_scan_refuse(s, "a string has no end");
        }
        if (c == '"') {
            s->at++;
            return 1;
        }
        if (c < 0x20) {
            return json_scan_refuse(s, "a control character stands in a string");
        }
        if (c == '\\') {
            s->at++;
            if (!json_scan_escape(s)) {
                return 0;
            }
            continue;
        }
        size_t length = utf8_sequence_bytes(s->text + s->at, s->n_bytes - s->at);
        if (length == 0) {
            return json_scan_refuse(s, "the text is not UTF-8");
        }
        s->at += length;
    }
}

static int json_scan_word(struct json_scan *s, const char *word) {
    size_t length = strlen(word);
    if (s->n_bytes - s->at < length || memcmp(s->text + s->at, word, length) != 0) {
        return json_scan_refuse(s, "a value was expected");
    }
    s->at += length;
    return 1;
}

static int json_scan_value(struct json_scan *s);

/* One member of an object or element of an array. */
static int json_scan_item(struct json_scan *s, int is_object) {
    if (is_object) {
        if (json_scan_peek(s) != '"') {
            return json_scan_refuse(s, "a key was expected");
        }
        if (!json_scan_string(s)) {
            return 0;
        }
        json_scan_space(s);
        if (json_scan_peek(s) != ':') {
            return json_scan_refuse(s, "a colon was expected");
        }
        s->at++;
        json_scan_space(s);
    }
    return json_scan_value(s);
}

static int json_scan_container(struct json_scan *s, int is_object) {
    const int end = is_object ? '}' : ']';
    if (s->depth >= s->limits->max_depth) {
        return json_scan_refuse(s, "the nesting is too deep");
    }
    s->depth++;
    s->at++;
    json_scan_space(s);
    int empty = json_scan_peek(s) == end;
    while (!empty) {
        if (!json_scan_item(s, is_object)) {
            return 0;
        }
        json_scan_space(s);
        int c = json_scan_peek(s);
        if (c == end) {
            break;
        }
        if (c != ',') {
            return json_scan_refuse(s, "a comma or a closing bracket was expected");
        }
        s->at++;
        json_scan_space(s);
    }
    s->at++;
    s->depth--;
    return 1;
}

static int json_scan_value(struct json_scan *s) {
    if (s->n_values++ == s->limits->max_values) {
        return json_scan_refuse(s, "there are too many values");
    }
    switch (json_scan_peek(s)) {
    case '{':
        return json_scan_container(s, 1);
    case '[':
        return json_scan_container(s, 0);
    case '"':
        return json_scan_string(s);
    case 't':
        return json_scan_word(s, "true");
    case 'f':
        return json_scan_word(s, "false");
    case 'n':
        return json_scan_word(s, "null");
    case -1:
        return json_scan_refuse(s, "the text ends too early");
    default:
        break;
    }
    if (json_scan_peek(s) == '-' || json_scan_is_digit(json_scan_peek(s))) {
        return json_scan_number(s);
    }
    return json_scan_refuse(s, "a value was expected");
}

enum deft_status json_scan(const char *text, size_t n_bytes, const struct json_scan_limits *limits,
                           struct deft_error *error) {
    struct json_scan s = {.text = text, .n_bytes = n_bytes, .limits = limits};
    json_scan_space(&s);
    if (json_scan_value(&s)) {
        json_scan_space(&s);
        if (s.at == n_bytes) {
            return DEFT_OK;
        }
        s.wrong = "text follows the end of the message";
    }
    return deft_fail(error, DEFT_INVALID, 0, "the JSON is malformed at byte %zu: %s", s.at,
                     s.wrong);
}
