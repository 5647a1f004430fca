#include "http_head.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

static const char *head_skip_space(const char *at) {
    return at + strspn(at, " \t");
}

int http_head_is_token(const char *name) {
    static const char token[] = "!#$%&'*+-.^_`|~0123456789"
                                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    return name[0] != '\0' && name[strspn(name, token)] == '\0';
}

int http_head_bearer(const char *value, const char **out_token, size_t *out_bytes) {
    static const char scheme[] = "Bearer";
    static const char token68[] = "-._~+/0123456789"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    size_t n = sizeof(scheme) - 1;
    if (strncasecmp(value, scheme, n) != 0 || value[n] != ' ') {
        return 0;
    }
    const char *token = value + n + strspn(value + n, " ");
    size_t length = strspn(token, token68);
    const char *end = token + length + strspn(token + length, "=");
    if (length == 0 || *head_skip_space(end) != '\0') {
        return 0;
    }
    *out_token = token;
    *out_bytes = (size_t)(end - token);
    return 1;
}

/* The weight behind a coding, of which only "none" matters: 0 for q=0, q=0.0, q=0.00, q=0.000. */
static int head_has_weight(const char *parameters, size_t length) {
    for (size_t i = 0; i + 2 < length; i++) {
        if ((parameters[i] == 'q' || parameters[i] == 'Q') && parameters[i + 1] == '=') {
            for (size_t c = i + 2; c < length && parameters[c] != ';'; c++) {
                if (parameters[c] >= '1' && parameters[c] <= '9') {
                    return 1;
                }
            }
            return 0;
        }
    }
    return 1;
}

int http_head_accepts(const char *value, const char *coding) {
    int any = 0; /* what "*" says of codings that are not named */
    for (const char *at = value; at != NULL && *at != '\0';) {
        at = head_skip_space(at);
        size_t length = strcspn(at, ",");
        size_t n_name = strcspn(at, ",; \t");
        int weight = head_has_weight(at + n_name, length - n_name);
        if (n_name == strlen(coding) && strncasecmp(at, coding, n_name) == 0) {
            return weight;
        }
        if (n_name == 1 && *at == '*') {
            any = weight;
        }
        at += length;
        at += *at == ',';
    }
    return any;
}

int http_head_matches(const char *value, const char *tag) {
    size_t n_tag = strlen(tag);
    const char *at = head_skip_space(value);
    if (at[0] == '*' && *head_skip_space(at + 1) == '\0') {
        return 1;
    }
    while (*at != '\0') {
        at += strncmp(at, "W/", 2) == 0 ? 2 : 0;
        const char *end = at[0] == '"' ? strchr(at + 1, '"') : NULL;
        if (end == NULL) {
            return 0;
        }
        size_t length = (size_t)(end + 1 - at);
        if (length == n_tag && memcmp(at, tag, n_tag) == 0) {
            return 1;
        }
        at = end + 1;
        at += strspn(at, " \t,");
    }
    return 0;
}

int http_head_length(const char *value, uint64_t *out) {
    uint64_t length = 0;
    const char *at = value;
    for (; *at >= '0' && *at <= '9'; at++) {
        uint64_t digit = (uint64_t)(*at - '0');
        if (length > (INT64_MAX - digit) / 10) {
            return 0;
        }
        length = length * 10 + digit;
    }
    if (at == value || *at != '\0') {
        return 0;
    }
    *out = length;
    return 1;
}

int http_head_target(const char *target, const char **out_path, char *out_host,
                     size_t capacity_bytes) {
    size_t scheme = strncasecmp(target, "http://", 7) == 0    ? 7
                    : strncasecmp(target, "https://", 8) == 0 ? 8
                                                              : 0;
    out_host[0] = '\0';
    if (target[0] == '/') {
        *out_path = target;
        return 1;
    }
    size_t length = strcspn(target + scheme, "/");
    if (scheme == 0 || length == 0 || length >= capacity_bytes) {
        return 0;
    }
    memcpy(out_host, target + scheme, length);
    out_host[length] = '\0';
    *out_path = target[scheme + length] != '\0' ? target + scheme + length : "/";
    return 1;
}

/* The host part of "HOST[:PORT]"; 0 bytes when it is none. */
static size_t head_host_bytes(const char *host) {
    size_t length = host[0] == '[' ? strcspn(host, "]") : strcspn(host, ":");
    if (host[0] == '[') {
        if (host[length] != ']') {
            return 0;
        }
        length++;
    }
    const char *port = host + length;
    size_t digits = *port == ':' ? strspn(port + 1, "0123456789") : 0;
    if (*port == ':' && (digits > 5 || port[1 + digits] != '\0')) {
        return 0;
    }
    return *port == ':' || *port == '\0' ? length : 0;
}

int http_head_host_is_literal(const char *host) {
    size_t length = head_host_bytes(host);
    if (length > 2 && host[0] == '[') {
        return strspn(host + 1, "0123456789abcdefABCDEF:.") == length - 2;
    }
    return http_head_host_is(host, "localhost") ||
           (length > 0 && isdigit((unsigned char)host[0]) && strspn(host, "0123456789.") == length);
}

int http_head_host_is(const char *host, const char *name) {
    size_t length = head_host_bytes(host);
    return length > 0 && length == strlen(name) && strncasecmp(host, name, length) == 0;
}
