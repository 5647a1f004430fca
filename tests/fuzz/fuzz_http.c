/* Heads of requests from anybody: lines, of which the first is the target and the rest are values
 * of headers, each tried as every header that is parsed here. */
#include <string.h>

#include "fuzzing.h"
#include "gzip/gzip.h"
#include "http/http_head.h"
#include "http/http_route.h"
#include "http/http_secret.h"

#define FUZZ_HTTP_LINE_BYTES 4096u

static void fuzz_http_ignore(struct http_request *request, void *context) {
    (void)request;
    (void)context;
}

static const struct http_route fuzz_http_routes[] = {
    {"GET", "/", fuzz_http_ignore, 0},
    {"GET", "/api/v1/jobs", fuzz_http_ignore, 0},
    {"GET", "/api/v1/jobs/{job}", fuzz_http_ignore, 0},
    {"PUT", "/api/v1/jobs/{job}/mode", fuzz_http_ignore, 0},
    {"DELETE", "/api/v1/jobs/{job}/mode/{name}/x/{a}", fuzz_http_ignore, 0},
};
#define FUZZ_HTTP_ROUTES (sizeof(fuzz_http_routes) / sizeof(fuzz_http_routes[0]))

/* What is found is one of ours, has the method, and its parameters are whole names. */
static void fuzz_http_target(const char *line, const char *method) {
    static char path[FUZZ_HTTP_LINE_BYTES + 2];
    char host[64];
    const char *from = NULL;
    struct http_route_match match = {0};
    if (!http_head_target(line, &from, host, sizeof(host))) {
        return;
    }
    fuzzing_require(from[0] == '/', "a path begins with a slash");
    fuzzing_require(strlen(host) < sizeof(host), "a host fits");
    fuzzing_require(strlen(from) <= strlen(line) + 1, "a path is no longer than its target");
    memcpy(path, from, strlen(from) + 1);
    if (http_route_find(fuzz_http_routes, FUZZ_HTTP_ROUTES, method, path, &match) != DEFT_OK) {
        return;
    }
    fuzzing_require(match.route == NULL || match.path_known, "a route has a path that is known");
    fuzzing_require(match.n_params <= HTTP_MAX_PARAMS, "parameters are bounded");
    fuzzing_require(strlen(match.allow) < sizeof(match.allow), "the list of methods ends");
    for (size_t i = 0; match.route != NULL && i < match.n_params; i++) {
        fuzzing_require(match.values[i][0] != '\0', "a parameter is not empty");
        for (const char *c = match.values[i]; *c != '\0'; c++) {
            fuzzing_require((unsigned char)*c >= 0x20, "a parameter has no control characters");
        }
    }
}

static void fuzz_http_value(const char *line) {
    const char *token = NULL;
    size_t n_token = 0;
    uint64_t length = 0;
    uint8_t hash[HTTP_SECRET_HASH];
    if (http_head_bearer(line, &token, &n_token)) {
        fuzzing_require(n_token > 0 && token > line && token + n_token <= line + strlen(line),
                        "a token lies within its header");
        fuzzing_require(memchr(token, ' ', n_token) == NULL, "a token is one word");
        fuzzing_require(http_secret_hash(token, n_token, hash, NULL) == DEFT_OK, "it has a hash");
    }
    if (http_head_length(line, &length)) {
        fuzzing_require(length <= INT64_MAX && strspn(line, "0123456789") == strlen(line),
                        "a length is digits");
    }
    if (http_head_host_is_literal(line)) {
        fuzzing_require(!http_head_host_is(line, "evil.example"), "a literal is no name");
        fuzzing_require(strchr(line, '/') == NULL && strchr(line, '@') == NULL,
                        "a literal has no path and no user");
    }
    if (http_head_matches(line, "\"tag\"")) {
        fuzzing_require(strchr(line, '*') != NULL || strstr(line, "\"tag\"") != NULL,
                        "a tag that matches is there");
    }
    if (http_head_accepts(line, "gzip")) {
        fuzzing_require(strchr(line, '*') != NULL || strcasestr(line, "gzip") != NULL,
                        "a coding that is taken was named");
    }
    (void)http_head_is_token(line);
}

static void fuzz_http_body(const uint8_t *data, size_t size) {
    char *out = NULL;
    size_t n = 0;
    if (gzip_unpack((const char *)data, size, FUZZ_HTTP_LINE_BYTES, &out, &n) == DEFT_OK) {
        fuzzing_require(n <= FUZZ_HTTP_LINE_BYTES && out[n] == '\0', "a body fits and ends");
        free(out);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE", "BREW"};
    char line[FUZZ_HTTP_LINE_BYTES + 1];
    size_t n_lines = 0;
    fuzz_http_body(data, size);
    for (size_t at = 0; at < size; n_lines++) {
        const uint8_t *end = memchr(data + at, '\n', size - at);
        size_t length = end != NULL ? (size_t)(end - data) - at : size - at;
        size_t kept = length < FUZZ_HTTP_LINE_BYTES ? length : FUZZ_HTTP_LINE_BYTES;
        memcpy(line, data + at, kept);
        line[kept] = '\0';
        if (n_lines == 0) {
            fuzz_http_target(line, methods[size % 5]);
            if (http_route_unescape(line)) {
                fuzzing_require(strlen(line) <= kept, "decoding never grows a text");
            }
        } else {
            fuzz_http_value(line);
        }
        at += length + 1;
    }
    return 0;
}
