/* Answers of handlers: tagged, packed, or a problem. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gzip/gzip.h"
#include "http_head.h"
#include "http_impl.h"
#include "http_secret.h"
#include "wire/wire.h"

/* Half of a SHA-256 in hexadecimal, in quotes. */
#define ANSWER_TAG_BYTES 35u

static void answer_header(struct MHD_Response *response, const char *name, const char *value) {
    (void)MHD_add_response_header(response, name, value);
}

/* Nothing here is a page, unless its handler says so: a browser that is led to an answer runs
 * nothing of it, guesses nothing about it and keeps nothing of it. */
void http_answer_common(struct MHD_Response *response, int status, int64_t wait_ns) {
    answer_header(response, "X-Content-Type-Options", "nosniff");
    answer_header(response, "Referrer-Policy", "no-referrer");
    answer_header(response, "Cross-Origin-Resource-Policy", "same-origin");
    if (MHD_get_response_header(response, "Content-Security-Policy") == NULL) {
        answer_header(response, "Content-Security-Policy",
                      "default-src 'none'; frame-ancestors 'none'");
    }
    if (MHD_get_response_header(response, "Cache-Control") == NULL) {
        answer_header(response, "Cache-Control", "no-store");
    }
    if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE) {
        char text[24];
        int64_t wait_s = (wait_ns + 999999999) / 1000000000;
        (void)snprintf(text, sizeof(text), "%lld", (long long)(wait_s > 1 ? wait_s : 1));
        answer_header(response, "Retry-After", text);
    }
    if (status == MHD_HTTP_UNAUTHORIZED) {
        answer_header(response, "WWW-Authenticate", "Bearer realm=\"deft\"");
    }
}

static void answer_count(struct http_request *request) {
    struct http_server *server = request->server;
    size_t route = request->match.route != NULL
                       ? (size_t)(request->match.route - server->options.routes)
                       : server->options.n_routes;
    http_meter_answer(server->meter, route, request->status,
                      request->stream != NULL ? -1 : clock_monotonic_ns() - request->begin_ns);
}

static void answer_send(struct http_request *request, int status, struct MHD_Response *response,
                        size_t n_bytes, int64_t wait_ns) {
    int late = 0;
    struct http_server *server = request->server;
    http_answer_common(response, status, wait_ns);
    if (request->wants_close) {
        answer_header(response, "Connection", "close");
    }
    (void)pthread_mutex_lock(&request->lock);
    if (request->response != NULL) {
        late = 1; /* the first answer stands */
    } else {
        request->response = response;
        request->status = status;
        request->n_response_bytes = n_bytes;
        answer_count(request);
    }
    int suspended = request->suspended;
    int deferred = request->deferred;
    request->suspended = 0;
    if (suspended) {
        MHD_resume_connection(request->connection);
    }
    (void)pthread_mutex_unlock(&request->lock);
    /* From here on the request belongs to the server's thread. */
    if (late) {
        MHD_destroy_response(response);
    } else if (deferred) {
        (void)pthread_mutex_lock(&server->lock);
        if (--server->n_deferred == 0) {
            (void)pthread_cond_broadcast(&server->quiet);
        }
        (void)pthread_mutex_unlock(&server->lock);
    }
}

static struct MHD_Response *answer_empty(void) {
    return MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
}

/* A response with the body, packed if that is wished for and worth it. */
static struct MHD_Response *answer_body(const struct http_request *request, const void *body,
                                        size_t *n_bytes) {
    char *packed = NULL;
    size_t n_packed = 0;
    struct MHD_Response *response = NULL;
    int may_pack = *n_bytes >= HTTP_GZIP_FROM_BYTES;
    if (*n_bytes == 0) {
        return answer_empty();
    }
    if (request->takes_gzip && may_pack &&
        gzip_pack(body, *n_bytes, &packed, &n_packed) == DEFT_OK) {
        response = MHD_create_response_from_buffer(n_packed, packed, MHD_RESPMEM_MUST_FREE);
        if (response == NULL) {
            free(packed);
            return NULL;
        }
        answer_header(response, "Content-Encoding", "gzip");
        *n_bytes = n_packed;
    } else {
        response = MHD_create_response_from_buffer(*n_bytes, (void *)(uintptr_t)body,
                                                   MHD_RESPMEM_MUST_COPY);
    }
    if (response != NULL && may_pack) {
        answer_header(response, "Vary", "Accept-Encoding");
    }
    return response;
}

void http_respond(struct http_request *request, int status, const char *content_type,
                  const void *body, size_t n_bytes) {
    struct MHD_Response *response = answer_body(request, body, &n_bytes);
    if (response == NULL) {
        response = answer_empty();
        status = MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    if (response == NULL) {
        return; /* without memory for an empty answer the client's time-out has to do */
    }
    if (content_type != NULL) {
        answer_header(response, "Content-Type", content_type);
    }
    answer_send(request, status, response, n_bytes, 0);
}

void http_respond_tagged(struct http_request *request, const char *content_type, const void *body,
                         size_t n_bytes) {
    static const char digits[] = "0123456789abcdef";
    uint8_t hash[HTTP_SECRET_HASH];
    char tag[ANSWER_TAG_BYTES];
    char weak[ANSWER_TAG_BYTES + 2];
    const char *known = http_request_header(request, "If-None-Match");
    int status = MHD_HTTP_OK;
    if (http_secret_hash(body, n_bytes, hash, NULL) != DEFT_OK) {
        http_respond(request, status, content_type, body, n_bytes);
        return;
    }
    tag[0] = tag[ANSWER_TAG_BYTES - 2] = '"';
    tag[ANSWER_TAG_BYTES - 1] = '\0';
    for (size_t i = 0; i < (ANSWER_TAG_BYTES - 3) / 2; i++) {
        tag[1 + 2 * i] = digits[hash[i] >> 4];
        tag[2 + 2 * i] = digits[hash[i] & 15];
    }
    /* Weak, since the packed body is another one. */
    (void)snprintf(weak, sizeof(weak), "W/%s", tag);
    struct MHD_Response *response;
    if (known != NULL && http_head_matches(known, tag)) {
        status = MHD_HTTP_NOT_MODIFIED;
        n_bytes = 0;
        response = answer_empty();
    } else {
        response = answer_body(request, body, &n_bytes);
    }
    if (response == NULL) {
        http_respond_problem(request, 503, "no_memory", NULL, "there is no memory for the answer");
        return;
    }
    answer_header(response, "ETag", weak);
    answer_header(response, "Cache-Control", "private, no-cache");
    if (status == MHD_HTTP_OK) {
        answer_header(response, "Content-Type", content_type);
    }
    answer_send(request, status, response, n_bytes, 0);
}

/* --- pages ------------------------------------------------------------------------------------ */

/* A page runs what lies beside it and talks to where it came from. Pictures are what it draws. */
static const char answer_page_policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data: blob:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'";

/* As it lies there, or unpacked for who does not take gzip. */
static struct MHD_Response *answer_page_body(const struct http_request *request,
                                             const struct http_page *page, size_t *n_bytes) {
    char *plain = NULL;
    struct MHD_Response *response = NULL;
    if (request->takes_gzip) {
        *n_bytes = page->n_packed;
        response = MHD_create_response_from_buffer(page->n_packed, (void *)(uintptr_t)page->packed,
                                                   MHD_RESPMEM_PERSISTENT);
        if (response != NULL) {
            answer_header(response, "Content-Encoding", "gzip");
        }
    } else if (gzip_unpack((const char *)page->packed, page->n_packed, page->n_bytes, &plain,
                           n_bytes) == DEFT_OK) {
        response = MHD_create_response_from_buffer(*n_bytes, plain, MHD_RESPMEM_MUST_FREE);
        if (response == NULL) {
            free(plain);
        }
    }
    return response;
}

void http_respond_page(struct http_request *request, const struct http_page *page) {
    char tag[ANSWER_TAG_BYTES];
    char weak[ANSWER_TAG_BYTES + 2];
    const char *known = http_request_header(request, "If-None-Match");
    int status = MHD_HTTP_OK;
    size_t n_bytes = 0;
    struct MHD_Response *response;
    (void)snprintf(tag, sizeof(tag), "\"%.*s\"", (int)(ANSWER_TAG_BYTES - 3), page->tag);
    (void)snprintf(weak, sizeof(weak), "W/%s", tag);
    if (known != NULL && http_head_matches(known, tag)) {
        status = MHD_HTTP_NOT_MODIFIED;
        response = answer_empty();
    } else {
        response = answer_page_body(request, page, &n_bytes);
    }
    if (response == NULL) {
        http_respond_problem(request, 503, "no_memory", NULL, "there is no memory for the page");
        return;
    }
    answer_header(response, "Content-Security-Policy", answer_page_policy);
    answer_header(response, "Cross-Origin-Opener-Policy", "same-origin");
    answer_header(response, "ETag", weak);
    answer_header(response, "Vary",
                  page->is_immutable ? "Accept-Encoding" : "Accept, Accept-Encoding");
    answer_header(response, "Cache-Control",
                  page->is_immutable ? "public, max-age=31536000, immutable" : "no-cache");
    if (status == MHD_HTTP_OK) {
        answer_header(response, "Content-Type", page->content_type);
    }
    answer_send(request, status, response, n_bytes, 0);
}

/* --- problems --------------------------------------------------------------------------------- */

struct MHD_Response *http_answer_problem(int status, const char *code, const char *field,
                                         const char *detail) {
    char *body = NULL;
    struct MHD_Response *response = NULL;
    if (wire_problem_encode(status, code, detail, field, &body) == DEFT_OK) {
        response = MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_MUST_FREE);
        if (response == NULL) {
            free(body);
        }
    }
    if (response == NULL) {
        response = answer_empty();
    }
    if (response != NULL) {
        answer_header(response, "Content-Type", "application/problem+json");
    }
    return response;
}

void http_respond_problem(struct http_request *request, int status, const char *code,
                          const char *field, const char *detail_format, ...) {
    char detail[WIRE_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, detail_format);
    (void)vsnprintf(detail, sizeof(detail), detail_format, arguments);
    va_end(arguments);
    struct MHD_Response *response = http_answer_problem(status, code, field, detail);
    if (response != NULL) {
        answer_send(request, status, response, 0, 0);
    }
}

void http_respond_later(struct http_request *request, int status, const char *code, int64_t wait_ns,
                        const char *detail) {
    struct MHD_Response *response = http_answer_problem(status, code, NULL, detail);
    if (response != NULL) {
        answer_send(request, status, response, 0, wait_ns);
    }
}

void http_answer_method(struct http_request *request) {
    struct MHD_Response *response =
        http_answer_problem(405, "method_not_allowed", NULL, "this path does not take this method");
    if (response != NULL) {
        answer_header(response, "Allow", request->match.allow);
        answer_send(request, 405, response, 0, 0);
    }
}

struct http_stream *http_respond_stream(struct http_request *request) {
    struct http_stream *stream = NULL;
    struct MHD_Response *response = NULL;
    if (http_stream_open(request->server->streams, request->connection, request->user_number,
                         &stream, &response) != DEFT_OK) {
        http_respond_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE, "no_memory", NULL,
                             "there is no memory for another event stream");
        return NULL;
    }
    answer_header(response, "Content-Type", "text/event-stream");
    request->stream = stream;
    answer_send(request, MHD_HTTP_OK, response, 0, 0);
    return stream;
}
