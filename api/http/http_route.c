#include "http_route.h"

#include "wire/utf8.h"

#include <stdio.h>
#include <string.h>

/* Deeper paths than any route has are unknown paths. */
#define ROUTE_MAX_SEGMENTS 12u

static int route_hex(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    if (c >= 'a' && c <= 'f') {
        return c - 'a' + 10;
    }
    if (c >= 'A' && c <= 'F') {
        return c - 'A' + 10;
    }
    return -1;
}

int http_route_unescape(char *text) {
    char *to = text;
    const char *from = text;
    while (*from != '\0') {
        if (*from == '%') {
            int high = route_hex(from[1]);
            int low = high < 0 ? -1 : route_hex(from[2]);
            if (low < 0) {
                return 0;
            }
            *to++ = (char)(high * 16 + low);
            from += 3;
        } else {
            *to++ = *from++;
        }
    }
    size_t n = (size_t)(to - text);
    *to = '\0';
    for (size_t i = 0; i < n;) {
        unsigned char c = (unsigned char)text[i];
        size_t length = utf8_sequence_bytes(text + i, n - i);
        if (length == 0 || c < 0x20u || c == 0x7Fu) {
            return 0;
        }
        i += length;
    }
    return 1;
}

/* Cuts at slashes; "/a/b" gives two segments. 0 when there are too many or no leading slash. */
static size_t route_split(char *path, char *segments[ROUTE_MAX_SEGMENTS]) {
    size_t n = 0;
    if (path[0] != '/') {
        return 0;
    }
    for (char *at = path; at != NULL; n++) {
        if (n == ROUTE_MAX_SEGMENTS) {
            return 0;
        }
        *at++ = '\0';
        segments[n] = at;
        at = strchr(at, '/');
    }
    return n;
}

static int route_matches(const char *pattern, char *const segments[], size_t n_segments,
                         struct http_route_match *match) {
    size_t n_params = 0;
    const char *at = pattern;
    for (size_t i = 0; i < n_segments; i++) {
        if (*at != '/') {
            return 0;
        }
        at++;
        size_t length = strcspn(at, "/");
        if (length > 2 && at[0] == '{') {
            if (segments[i][0] == '\0' || n_params == HTTP_MAX_PARAMS) {
                return 0;
            }
            match->names[n_params] = at + 1;
            match->name_bytes[n_params] = length - 2;
            match->values[n_params] = segments[i];
            n_params++;
        } else if (strlen(segments[i]) != length || memcmp(segments[i], at, length) != 0) {
            return 0;
        }
        at += length;
    }
    match->n_params = n_params;
    return *at == '\0';
}

static void route_allow(struct http_route_match *match, const char *method) {
    size_t n = strlen(match->allow);
    (void)snprintf(match->allow + n, sizeof(match->allow) - n, "%s%s%s", n > 0 ? ", " : "", method,
                   strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

enum deft_status http_route_find(const struct http_route *routes, size_t n_routes,
                                 const char *method, char *path, struct http_route_match *out) {
    char *segments[ROUTE_MAX_SEGMENTS];
    struct http_route_match found = {0};
    size_t n_segments = route_split(path, segments);
    if (strcmp(method, "HEAD") == 0) {
        method = "GET";
    }
    for (size_t i = 0; i < n_segments; i++) {
        if (!http_route_unescape(segments[i])) {
            return DEFT_INVALID;
        }
    }
    for (size_t i = 0; n_segments > 0 && i < n_routes; i++) {
        struct http_route_match candidate = {0};
        if (route_matches(routes[i].pattern, segments, n_segments, &candidate)) {
            route_allow(&found, routes[i].method);
            found.path_known = 1;
            if (found.route == NULL && strcmp(routes[i].method, method) == 0) {
                memcpy(candidate.allow, found.allow, sizeof(found.allow));
                candidate.path_known = 1;
                candidate.route = &routes[i];
                found = candidate;
            }
        }
    }
    *out = found;
    return DEFT_OK;
}
