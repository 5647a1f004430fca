/* What is checked of a request's head, in this order: form, framing, host, rate, path, right,
 * size. */
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "http_head.h"
#include "http_impl.h"

struct check_names {
    struct http_request *request;
    const char *wrong; /* a field name that is none */
    const char *twice; /* a field that was given twice and may not be */
    unsigned seen;
};

/* Fields that mean one thing: two of them are a mistake at best, and at worst a way to make two
 * readers of one connection disagree about where a request ends. */
static const char *const check_single[] = {
    "Host",   "Content-Length", "Transfer-Encoding", "Content-Type", "Content-Encoding",
    "Expect", "Authorization",  "Last-Event-ID",     "Deft-Reason",
};

static enum MHD_Result check_name(void *context, enum MHD_ValueKind kind, const char *name,
                                  const char *value) {
    struct check_names *names = context;
    (void)kind;
    (void)value;
    if (!http_head_is_token(name)) {
        names->wrong = name;
        return MHD_NO;
    }
    for (unsigned i = 0; i < sizeof(check_single) / sizeof(check_single[0]); i++) {
        if (strcasecmp(name, check_single[i]) == 0) {
            names->twice = names->seen & 1u << i ? check_single[i] : names->twice;
            names->seen |= 1u << i;
        }
    }
    return MHD_YES;
}

/* Where this request ends must be beyond doubt; otherwise nothing more is read from the
 * connection. */
static int check_framing(struct http_request *request, const char *version) {
    struct check_names names = {.request = request};
    uint64_t ignored;
    const char *length = http_request_header(request, "Content-Length");
    const char *coding = http_request_header(request, "Transfer-Encoding");
    (void)MHD_get_connection_values(request->connection, MHD_HEADER_KIND, check_name, &names);
    request->wants_close = 1;
    if (names.wrong != NULL) {
        http_respond_problem(request, 400, "malformed", NULL, "a header's name is not a name");
    } else if (names.twice != NULL) {
        http_respond_problem(request, 400, "duplicate_header", names.twice,
                             "this header was given more than once");
    } else if (length != NULL && coding != NULL) {
        http_respond_problem(request, 400, "malformed", "Content-Length",
                             "a request with Transfer-Encoding has no Content-Length");
    } else if (coding != NULL && strcmp(version, "HTTP/1.0") == 0) {
        http_respond_problem(request, 400, "malformed", "Transfer-Encoding",
                             "HTTP/1.0 has no transfer codings");
    } else if (coding != NULL && strcasecmp(coding, "chunked") != 0) {
        http_respond_problem(request, 501, "transfer_coding", "Transfer-Encoding",
                             "chunked is the only transfer coding known here");
    } else if (length != NULL && !http_head_length(length, &ignored)) {
        http_respond_problem(request, 400, "malformed", "Content-Length",
                             "a number of bytes was expected");
    } else {
        request->wants_close = 0;
        return 1;
    }
    return 0;
}

static int check_host(struct http_request *request, const char *version, const char *in_target) {
    const struct http_server_options *options = &request->server->options;
    const char *host = http_request_header(request, "Host");
    if (host == NULL && strcmp(version, "HTTP/1.0") != 0) {
        request->wants_close = 1;
        http_respond_problem(request, 400, "malformed", "Host", "HTTP/1.1 needs a Host header");
        return 0;
    }
    host = in_target[0] != '\0' ? in_target : host; /* RFC 9112, 3.2.2 */
    if (!options->literal_hosts_only || host == NULL || http_head_host_is_literal(host)) {
        return 1;
    }
    for (size_t i = 0; i < options->n_hosts; i++) {
        if (http_head_host_is(host, options->hosts[i])) {
            return 1;
        }
    }
    http_respond_problem(request, 421, "host", "Host",
                         "the controller answers to addresses, localhost and the names that it was "
                         "started with");
    return 0;
}

static int check_rate(struct http_request *request) {
    struct http_server *server = request->server;
    int64_t wait_ns = http_rate_take(&server->rate, request->conn->client, clock_monotonic_ns());
    if (wait_ns == 0) {
        return 1;
    }
    (void)atomic_fetch_add(&server->meter->n_limited, 1);
    http_respond_later(request, 429, "too_many_requests", wait_ns,
                       "this client asks more often than it may");
    return 0;
}

static int check_path(struct http_request *request, const char *method) {
    const struct http_server_options *options = &request->server->options;
    if (http_route_find(options->routes, options->n_routes, method, request->path,
                        &request->match) != DEFT_OK) {
        http_respond_problem(request, 400, "bad_path", NULL,
                             "the path holds a malformed escape, text that is not UTF-8 or a "
                             "control character");
    } else if (request->invalid_query) {
        http_respond_problem(request, 400, "bad_query", NULL,
                             "the query holds a malformed escape, a parameter twice or too many "
                             "parameters");
    } else if (!request->match.path_known) {
        http_respond_problem(request, 404, "not_found", NULL, "there is nothing at this path");
    } else if (request->match.route == NULL) {
        http_answer_method(request);
    } else {
        return 1;
    }
    return 0;
}

static int check_right(struct http_request *request) {
    const struct http_server_options *options = &request->server->options;
    if (options->authorize == NULL ||
        options->authorize(request, request->match.route, options->context)) {
        return 1;
    }
    (void)atomic_fetch_add(&request->server->meter->n_refused, 1);
    return 0;
}

static void check_body(struct http_request *request) {
    const char *length = http_request_header(request, "Content-Length");
    const char *coding = http_request_header(request, "Content-Encoding");
    const char *expect = http_request_header(request, "Expect");
    size_t most = request->server->options.max_body_bytes;
    uint64_t n_bytes = 0;
    if (length != NULL && http_head_length(length, &n_bytes) && n_bytes > most) {
        http_respond_problem(request, 413, "too_large", NULL,
                             "the body has %.20s bytes, but at most %zu are allowed", length, most);
    } else if (expect != NULL && strcasecmp(expect, "100-continue") != 0) {
        http_respond_problem(request, 417, "expectation", "Expect",
                             "100-continue is the only expectation known here");
    } else if (coding != NULL && strcasecmp(coding, "gzip") == 0) {
        request->is_packed = 1;
    } else if (coding != NULL && strcasecmp(coding, "identity") != 0) {
        http_respond_problem(request, 415, "media_type", "Content-Encoding",
                             "gzip or no coding was expected");
    }
}

void http_check_head(struct http_request *request, const char *method, const char *version,
                     const char *url) {
    char host[256];
    const char *path = NULL;
    request->takes_gzip =
        http_head_accepts(http_request_header(request, "Accept-Encoding"), "gzip");
    request->is_expecting = http_request_header(request, "Expect") != NULL;
    if (!check_framing(request, version)) {
        return;
    }
    if (!http_head_target(url, &path, host, sizeof(host))) {
        http_respond_problem(request, 400, "bad_path", NULL,
                             "a path that begins with / was expected");
        return;
    }
    memcpy(request->path, path, strlen(path) + 1); /* never longer than the target */
    if (check_host(request, version, host) && check_rate(request) && check_path(request, method) &&
        check_right(request)) {
        check_body(request);
    }
}
