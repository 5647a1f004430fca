#include "http_server.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http_route.h"
#include "http_socket.h"
#include "http_stream.h"
#include "wire/wire.h"

/* Handlers parse JSON that nests at most 32 deep; a megabyte is ample, and the default of 8 MiB
 * per thread counts against locked-down containers. */
#define SERVER_STACK_BYTES ((size_t)1 << 20)
/* A client that sends on after its body was too large is listened to this much longer, so that it
 * can read the answer; then the connection is closed. */
#define SERVER_MAX_DISCARD_BYTES ((size_t)64 << 20)

struct http_server {
    struct http_server_options options;
    struct MHD_Daemon *daemon;
    struct http_streams *streams;
    uint16_t port;
    pthread_mutex_t lock;
    pthread_cond_t quiet;
    unsigned n_deferred;
};

struct http_request {
    struct http_server *server;
    struct MHD_Connection *connection;
    struct http_route_match match;
    char *path; /* decoded; parameters point into it */
    size_t n_queries;
    char *query_keys[HTTP_MAX_QUERIES];
    char *query_values[HTTP_MAX_QUERIES];
    char *body;
    size_t n_body_bytes;
    size_t body_capacity_bytes;
    size_t discarded_bytes;
    int handled; /* the handler has been called */
    int invalid_query;

    pthread_mutex_t lock; /* the answer may come from another thread */
    int deferred;
    int suspended;
    int status;
    struct MHD_Response *response;
    struct http_stream *stream; /* the connection's reference */
};

static void request_free(struct http_request *request) {
    if (request == NULL) {
        return;
    }
    if (request->response != NULL) {
        MHD_destroy_response(request->response);
    }
    for (size_t i = 0; i < request->n_queries; i++) {
        free(request->query_keys[i]);
        free(request->query_values[i]);
    }
    (void)pthread_mutex_destroy(&request->lock);
    free(request->body);
    free(request->path);
    free(request);
}

/* --- answers ---------------------------------------------------------------------------------- */

static void request_answer(struct http_request *request, int status,
                           struct MHD_Response *response) {
    int late = 0;
    (void)MHD_add_response_header(response, "X-Content-Type-Options", "nosniff");
    (void)MHD_add_response_header(response, "Referrer-Policy", "no-referrer");
    (void)MHD_add_response_header(response, "Cache-Control", "no-store");
    if (status == MHD_HTTP_TOO_MANY_REQUESTS || status == MHD_HTTP_SERVICE_UNAVAILABLE) {
        (void)MHD_add_response_header(response, "Retry-After", "1");
    }
    struct http_server *server = request->server;
    (void)pthread_mutex_lock(&request->lock);
    if (request->response != NULL) {
        late = 1; /* the first answer stands */
    } else {
        request->response = response;
        request->status = status;
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

void http_respond(struct http_request *request, int status, const char *content_type,
                  const void *body, size_t n_bytes) {
    struct MHD_Response *response =
        n_bytes > 0 ? MHD_create_response_from_buffer(n_bytes, (void *)(uintptr_t)body,
                                                      MHD_RESPMEM_MUST_COPY)
                    : MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    if (response == NULL) {
        response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
        status = MHD_HTTP_SERVICE_UNAVAILABLE;
    }
    if (response == NULL) {
        return; /* without memory for an empty answer the client's time-out has to do */
    }
    if (content_type != NULL) {
        (void)MHD_add_response_header(response, "Content-Type", content_type);
    }
    request_answer(request, status, response);
}

static void request_problem(struct http_request *request, int status, const char *code,
                            const char *field, const char *detail, const char *allow) {
    char *body = NULL;
    struct MHD_Response *response = NULL;
    if (wire_problem_encode(status, code, detail, field, &body) == DEFT_OK) {
        response = MHD_create_response_from_buffer(strlen(body), body, MHD_RESPMEM_MUST_FREE);
    }
    if (response == NULL) {
        free(body);
        response = MHD_create_response_from_buffer(0, NULL, MHD_RESPMEM_PERSISTENT);
    }
    if (response == NULL) {
        return;
    }
    (void)MHD_add_response_header(response, "Content-Type", "application/problem+json");
    if (allow != NULL) {
        (void)MHD_add_response_header(response, "Allow", allow);
    }
    request_answer(request, status, response);
}

void http_respond_problem(struct http_request *request, int status, const char *code,
                          const char *field, const char *detail_format, ...) {
    char detail[WIRE_TEXT_BYTES];
    va_list arguments;
    va_start(arguments, detail_format);
    (void)vsnprintf(detail, sizeof(detail), detail_format, arguments);
    va_end(arguments);
    request_problem(request, status, code, field, detail, NULL);
}

struct http_stream *http_respond_stream(struct http_request *request) {
    struct http_stream *stream = NULL;
    struct MHD_Response *response = NULL;
    if (http_stream_open(request->server->streams, request->connection, &stream, &response) !=
        DEFT_OK) {
        http_respond_problem(request, MHD_HTTP_SERVICE_UNAVAILABLE, "no_memory", NULL,
                             "there is no memory for another event stream");
        return NULL;
    }
    (void)MHD_add_response_header(response, "Content-Type", "text/event-stream");
    request->stream = stream;
    request_answer(request, MHD_HTTP_OK, response);
    return stream;
}

void http_request_defer(struct http_request *request) {
    (void)pthread_mutex_lock(&request->server->lock);
    request->server->n_deferred++;
    (void)pthread_mutex_unlock(&request->server->lock);
    (void)pthread_mutex_lock(&request->lock);
    request->deferred = 1;
    (void)pthread_mutex_unlock(&request->lock);
}

/* --- what a handler may ask ------------------------------------------------------------------- */

const char *http_request_param(const struct http_request *request, const char *name) {
    const struct http_route_match *match = &request->match;
    for (size_t i = 0; i < match->n_params; i++) {
        if (strlen(name) == match->name_bytes[i] &&
            memcmp(name, match->names[i], match->name_bytes[i]) == 0) {
            return match->values[i];
        }
    }
    return NULL;
}

const char *http_request_query(const struct http_request *request, const char *name) {
    for (size_t i = 0; i < request->n_queries; i++) {
        if (strcmp(request->query_keys[i], name) == 0) {
            return request->query_values[i];
        }
    }
    return NULL;
}

const char *http_request_header(const struct http_request *request, const char *name) {
    return MHD_lookup_connection_value(request->connection, MHD_HEADER_KIND, name);
}

const char *http_request_body(const struct http_request *request, size_t *out_bytes) {
    *out_bytes = request->n_body_bytes;
    return request->body != NULL ? request->body : "";
}

/* --- the life of a request ---------------------------------------------------------------------
 */

/* Escapes are ours to decode, strictly. */
static size_t server_keep_escapes(void *context, struct MHD_Connection *connection, char *text) {
    (void)context;
    (void)connection;
    return strlen(text);
}

static enum MHD_Result request_take_query(void *context, enum MHD_ValueKind kind, const char *key,
                                          const char *value) {
    struct http_request *request = context;
    char *k = strdup(key);
    char *v = strdup(value != NULL ? value : "");
    (void)kind;
    if (k == NULL || v == NULL || request->n_queries == HTTP_MAX_QUERIES ||
        !http_route_unescape(k) || !http_route_unescape(v) ||
        http_request_query(request, k) != NULL) {
        request->invalid_query = 1;
        free(k);
        free(v);
        return MHD_NO;
    }
    request->query_keys[request->n_queries] = k;
    request->query_values[request->n_queries] = v;
    request->n_queries++;
    return MHD_YES;
}

static struct http_request *request_new(struct http_server *server,
                                        struct MHD_Connection *connection, const char *url) {
    struct http_request *request = calloc(1, sizeof(*request));
    if (request == NULL) {
        return NULL;
    }
    request->path = strdup(url);
    if (request->path == NULL) {
        free(request);
        return NULL;
    }
    (void)pthread_mutex_init(&request->lock, NULL);
    request->server = server;
    request->connection = connection;
    return request;
}

/* Answers what needs no body. */
static void request_check_head(struct http_request *request, const char *method) {
    const struct http_server_options *options = &request->server->options;
    const char *host = http_request_header(request, "Host");
    const char *length = http_request_header(request, "Content-Length");
    enum deft_status status =
        http_route_find(options->routes, options->n_routes, method, request->path, &request->match);
    (void)MHD_get_connection_values(request->connection, MHD_GET_ARGUMENT_KIND, request_take_query,
                                    request);
    if (options->literal_hosts_only && host != NULL && !http_route_host_is_literal(host)) {
        request_problem(request, 421, "host", "Host",
                        "the controller answers to addresses and localhost only", NULL);
    } else if (status != DEFT_OK) {
        request_problem(request, 400, "bad_path", NULL,
                        "the path holds a malformed escape, text that is not UTF-8 or a control "
                        "character",
                        NULL);
    } else if (request->invalid_query) {
        request_problem(request, 400, "bad_query", NULL,
                        "the query holds a malformed escape, a parameter twice or too many "
                        "parameters",
                        NULL);
    } else if (!request->match.path_known) {
        request_problem(request, 404, "not_found", NULL, "there is nothing at this path", NULL);
    } else if (request->match.route == NULL) {
        request_problem(request, 405, "method_not_allowed", NULL,
                        "this path does not take this method", request->match.allow);
    } else if (length != NULL && strtoull(length, NULL, 10) > options->max_body_bytes) {
        http_respond_problem(request, 413, "too_large", NULL,
                             "the body has %.20s bytes, but at most %zu are allowed", length,
                             options->max_body_bytes);
    }
}

/* MHD_NO: the connection must be closed. */
static enum MHD_Result request_take_body(struct http_request *request, const char *bytes,
                                         size_t *n_bytes) {
    size_t limit = request->server->options.max_body_bytes;
    size_t n = *n_bytes;
    *n_bytes = 0;
    if (request->response != NULL || request->n_body_bytes + n > limit) {
        if (request->response == NULL) {
            http_respond_problem(request, 413, "too_large", NULL,
                                 "the body has more than %zu bytes", limit);
        }
        request->discarded_bytes += n;
        return request->discarded_bytes > SERVER_MAX_DISCARD_BYTES ? MHD_NO : MHD_YES;
    }
    if (request->n_body_bytes + n + 1 > request->body_capacity_bytes) {
        size_t capacity = (request->n_body_bytes + n + 1) * 2;
        char *grown = realloc(request->body, capacity);
        if (grown == NULL) {
            http_respond_problem(request, 503, "no_memory", NULL,
                                 "there is no memory for this request's body");
            return MHD_YES;
        }
        request->body = grown;
        request->body_capacity_bytes = capacity;
    }
    memcpy(request->body + request->n_body_bytes, bytes, n);
    request->n_body_bytes += n;
    request->body[request->n_body_bytes] = '\0';
    return MHD_YES;
}

/* The request is whole: calls the handler once, then queues the answer or parks the connection. */
static enum MHD_Result request_finish(struct http_request *request) {
    enum MHD_Result result = MHD_YES;
    if (!request->handled && request->response == NULL) {
        request->handled = 1;
        request->match.route->handle(request, request->server->options.context);
    }
    (void)pthread_mutex_lock(&request->lock);
    if (request->response != NULL) {
        result =
            MHD_queue_response(request->connection, (unsigned)request->status, request->response);
    } else if (request->deferred) {
        request->suspended = 1;
        MHD_suspend_connection(request->connection);
    } else {
        result = MHD_NO; /* no answer could be made: close rather than hang */
    }
    (void)pthread_mutex_unlock(&request->lock);
    return result;
}

static enum MHD_Result server_access(void *context, struct MHD_Connection *connection,
                                     const char *url, const char *method, const char *version,
                                     const char *upload, size_t *n_upload_bytes, void **state) {
    struct http_request *request = *state;
    (void)version;
    if (request == NULL) {
        request = request_new(context, connection, url);
        if (request == NULL) {
            return MHD_NO;
        }
        *state = request;
        request_check_head(request, method);
        /* A body that is too large is not worth waiting for: answering now closes the
         * connection. Other refusals let the body pass, so that the connection stays usable. */
        return request->status == 413 ? request_finish(request) : MHD_YES;
    }
    if (*n_upload_bytes > 0) {
        return request_take_body(request, upload, n_upload_bytes);
    }
    return request_finish(request);
}

static void server_completed(void *context, struct MHD_Connection *connection, void **state,
                             enum MHD_RequestTerminationCode why) {
    struct http_request *request = *state;
    (void)context;
    (void)connection;
    (void)why;
    if (request != NULL) {
        if (request->stream != NULL) {
            http_stream_detach(request->stream);
        }
        request_free(request);
        *state = NULL;
    }
}

/* --- the server ------------------------------------------------------------------------------- */

static struct MHD_Daemon *server_daemon(struct http_server *server, int listen_fd) {
    const struct http_server_options *options = &server->options;
    unsigned n_threads = options->n_threads > 1 ? options->n_threads : 0; /* 0: no pool, one */
    unsigned limit =
        options->max_connections > n_threads ? options->max_connections : n_threads + 1;
    const struct MHD_OptionItem items[] = {
        {MHD_OPTION_LISTEN_SOCKET, listen_fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, (intptr_t)limit, NULL},
        {MHD_OPTION_CONNECTION_TIMEOUT, HTTP_IDLE_TIMEOUT_S, NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, HTTP_MAX_HEADER_BYTES, NULL},
        {MHD_OPTION_THREAD_STACK_SIZE, (intptr_t)SERVER_STACK_BYTES, NULL},
        {MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)n_threads, NULL},
        {MHD_OPTION_END, 0, NULL}};
    return MHD_start_daemon(MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL,
                            server_access, server, MHD_OPTION_NOTIFY_COMPLETED, server_completed,
                            NULL, MHD_OPTION_UNESCAPE_CALLBACK, server_keep_escapes, NULL,
                            MHD_OPTION_ARRAY, items, MHD_OPTION_END);
}

enum deft_status http_server_start(const struct http_server_options *options,
                                   struct http_server **out, struct deft_error *error) {
    int listen_fd = -1;
    struct http_server *server = calloc(1, sizeof(*server));
    if (server == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a server");
    }
    server->options = *options;
    (void)pthread_mutex_init(&server->lock, NULL);
    (void)pthread_cond_init(&server->quiet, NULL);
    enum deft_status status =
        http_socket_listen(options->listen_host, options->port, &listen_fd, &server->port, error);
    if (status != DEFT_OK) {
        goto done;
    }
    status = http_streams_start(options->heartbeat_ms, &server->streams, error);
    if (status != DEFT_OK) {
        goto done;
    }
    server->daemon = server_daemon(server, listen_fd);
    if (server->daemon == NULL) {
        status = deft_fail(error, DEFT_IO, 0, "the HTTP server's threads could not be started");
        goto done;
    }
    listen_fd = -1; /* the daemon's now */
    *out = server;
    server = NULL;
done:
    if (listen_fd >= 0) {
        (void)close(listen_fd);
    }
    http_server_stop(server);
    return status;
}

uint16_t http_server_port(const struct http_server *server) {
    return server->port;
}

void http_server_stop(struct http_server *server) {
    if (server == NULL) {
        return;
    }
    if (server->daemon != NULL) {
        int listen_fd = MHD_quiesce_daemon(server->daemon);
        if (listen_fd >= 0) {
            (void)close(listen_fd);
        }
        http_streams_end(server->streams);
        (void)pthread_mutex_lock(&server->lock);
        while (server->n_deferred > 0) {
            (void)pthread_cond_wait(&server->quiet, &server->lock);
        }
        (void)pthread_mutex_unlock(&server->lock);
        MHD_stop_daemon(server->daemon);
    }
    http_streams_stop(server->streams);
    (void)pthread_cond_destroy(&server->quiet);
    (void)pthread_mutex_destroy(&server->lock);
    free(server);
}
