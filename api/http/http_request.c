/* The life of a request: head, body, handler, answer. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gzip/gzip.h"
#include "http_head.h"
#include "http_impl.h"

/* A client that sends on after its request was refused is listened to this much longer, so that it
 * can read the answer; then the connection is closed. */
#define REQUEST_MAX_DISCARD_BYTES ((size_t)16 << 20)

static void request_free_body(struct http_request *request) {
    (void)atomic_fetch_sub(&request->server->n_body_bytes, request->body_capacity_bytes);
    free(request->body);
    request->body = NULL;
    request->body_capacity_bytes = 0;
}

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
    request_free_body(request);
    (void)pthread_mutex_destroy(&request->lock);
    free(request->path);
    free(request);
}

void http_request_defer(struct http_request *request) {
    (void)pthread_mutex_lock(&request->server->lock);
    request->server->n_deferred++;
    request->server->n_unsent++;
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

struct http_server *http_request_server(const struct http_request *request) {
    return request->server;
}

static void request_name_peer(struct http_request *request) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    const struct sockaddr *address = info != NULL ? info->client_addr : NULL;
    char host[INET6_ADDRSTRLEN] = "?";
    if (address != NULL && address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        (void)inet_ntop(AF_INET, &v4->sin_addr, host, sizeof(host));
        (void)snprintf(request->peer, sizeof(request->peer), "%s:%u", host, ntohs(v4->sin_port));
    } else if (address != NULL && address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        (void)inet_ntop(AF_INET6, &v6->sin6_addr, host, sizeof(host));
        (void)snprintf(request->peer, sizeof(request->peer), "[%s]:%u", host, ntohs(v6->sin6_port));
    }
}

const char *http_request_peer(struct http_request *request) {
    if (request->peer[0] == '\0') {
        request_name_peer(request);
    }
    return request->peer;
}

int http_request_bearer(const struct http_request *request, const char **out_token,
                        size_t *out_bytes) {
    const char *value = http_request_header(request, "Authorization");
    if (value == NULL) {
        return 0;
    }
    return http_head_bearer(value, out_token, out_bytes) ? 1 : -1;
}

void http_request_set_user(struct http_request *request, const char *name, uint64_t number) {
    (void)snprintf(request->user, sizeof(request->user), "%s", name);
    request->user_number = number;
}

const char *http_request_user(const struct http_request *request) {
    return request->user;
}

int http_request_has_certificate(struct http_request *request) {
    struct http_conn *conn = request->conn;
    if (conn->material == NULL || http_tls_client_ca(conn->material) == NULL) {
        return conn->material != NULL;
    }
    if (conn->client_verdict == 0) {
        const union MHD_ConnectionInfo *info =
            MHD_get_connection_info(request->connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
        int good = info != NULL && http_tls_verify_client(conn->material, info->tls_session);
        conn->client_verdict = good ? 1 : -1;
    }
    return conn->client_verdict > 0;
}

/* --- head and body -----------------------------------------------------------------------------
 */

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
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);
    if (info == NULL || info->socket_context == NULL) {
        return NULL; /* memory was short when the connection came */
    }
    struct http_request *request = calloc(1, sizeof(*request));
    if (request == NULL) {
        return NULL;
    }
    request->path = malloc(strlen(url) + 2);
    if (request->path == NULL) {
        free(request);
        return NULL;
    }
    memcpy(request->path, url, strlen(url) + 1);
    (void)pthread_mutex_init(&request->lock, NULL);
    request->server = server;
    request->connection = connection;
    request->conn = info->socket_context;
    request->begin_ns = clock_monotonic_ns();
    (void)MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, request_take_query, request);
    return request;
}

/* Makes room for `n` bytes and a zero. 0: there is none. */
static int request_grow(struct http_request *request, size_t n) {
    size_t wanted = request->n_body_bytes + n + 1;
    if (wanted <= request->body_capacity_bytes) {
        return 1;
    }
    size_t capacity = wanted * 2;
    size_t more = capacity - request->body_capacity_bytes;
    _Atomic size_t *all = &request->server->n_body_bytes;
    if (atomic_fetch_add(all, more) + more > HTTP_MAX_BODIES_BYTES) {
        (void)atomic_fetch_sub(all, more);
        return 0;
    }
    char *grown = realloc(request->body, capacity);
    if (grown == NULL) {
        (void)atomic_fetch_sub(all, more);
        return 0;
    }
    request->body = grown;
    request->body_capacity_bytes = capacity;
    return 1;
}

/* MHD_NO: the connection must be closed. */
static enum MHD_Result request_take_body(struct http_request *request, const char *bytes,
                                         size_t *n_bytes) {
    size_t limit = request->server->options.max_body_bytes;
    size_t n = *n_bytes;
    *n_bytes = 0;
    if (request->response == NULL && request->n_body_bytes + n > limit) {
        http_respond_problem(request, 413, "too_large", NULL, "the body has more than %zu bytes",
                             limit);
    } else if (request->response == NULL && !request_grow(request, n)) {
        http_respond_problem(request, 503, "no_memory", NULL,
                             "there is no memory for this request's body");
    }
    if (request->response != NULL) {
        request->discarded_bytes += n;
        return request->discarded_bytes > REQUEST_MAX_DISCARD_BYTES ? MHD_NO : MHD_YES;
    }
    memcpy(request->body + request->n_body_bytes, bytes, n);
    request->n_body_bytes += n;
    request->body[request->n_body_bytes] = '\0';
    return MHD_YES;
}

/* 0: it was answered instead. */
static int request_unpack(struct http_request *request) {
    char *text = NULL;
    size_t n = 0;
    size_t limit = request->server->options.max_body_bytes;
    const char *packed = request->body != NULL ? request->body : "";
    switch (gzip_unpack(packed, request->n_body_bytes, limit, &text, &n)) {
    case DEFT_OK:
        request_free_body(request);
        request->body = text;
        request->n_body_bytes = n;
        request->body_capacity_bytes = n + 1;
        (void)atomic_fetch_add(&request->server->n_body_bytes, n + 1);
        return 1;
    case DEFT_LIMIT:
        http_respond_problem(request, 413, "too_large", NULL,
                             "the body has more than %zu bytes when it is unpacked", limit);
        return 0;
    case DEFT_NO_MEMORY:
        http_respond_problem(request, 503, "no_memory", NULL,
                             "there is no memory for this request's body");
        return 0;
    default:
        http_respond_problem(request, 400, "bad_coding", "Content-Encoding",
                             "the body is not one whole gzip member");
        return 0;
    }
}

/* --- handler and answer ------------------------------------------------------------------------
 */

/* With the lock held: hands the answer over, or parks the connection until there is one. */
static enum MHD_Result request_queue(struct http_request *request) {
    struct http_watch *watch = &request->server->watch;
    if (request->response != NULL) {
        int64_t extra_ns =
            (int64_t)(request->n_response_bytes / HTTP_LEAST_BYTES_PER_S) * INT64_C(1000000000);
        http_watch_expect(watch, request->conn,
                          request->stream == NULL ? HTTP_STEP_WRITE : HTTP_STEP_OURS, extra_ns);
        return request->server->queue(request->connection, (unsigned)request->status,
                                      request->response);
    }
    if (request->deferred) {
        request->suspended = 1;
        MHD_suspend_connection(request->connection);
        return MHD_YES;
    }
    return MHD_NO; /* no answer could be made: close rather than hang */
}

/* 0: the server is about to stop, and waits for those who are in already. */
static int request_enter(struct http_server *server) {
    (void)pthread_mutex_lock(&server->lock);
    int may = !server->stopping;
    server->n_handling += (unsigned)may;
    (void)pthread_mutex_unlock(&server->lock);
    return may;
}

static void request_leave(struct http_server *server) {
    (void)pthread_mutex_lock(&server->lock);
    if (--server->n_handling == 0 && server->stopping) {
        (void)pthread_cond_broadcast(&server->quiet);
    }
    (void)pthread_mutex_unlock(&server->lock);
}

/* The request is whole: calls the handler once, then queues the answer or parks the connection. */
static enum MHD_Result request_finish(struct http_request *request) {
    if (!request->handled && request->response == NULL) {
        request->handled = 1;
        http_watch_expect(&request->server->watch, request->conn, HTTP_STEP_OURS, 0);
        if (!request_enter(request->server)) {
            http_respond_problem(request, 503, "stopping", NULL, "this server is stopping");
        } else {
            if (!request->is_packed || request_unpack(request)) {
                request->match.route->handle(request, request->server->options.context);
            }
            request_leave(request->server);
        }
        request_free_body(request); /* an answer that comes later needs it no more */
    }
    (void)pthread_mutex_lock(&request->lock);
    enum MHD_Result result = request_queue(request);
    (void)pthread_mutex_unlock(&request->lock);
    return result;
}

/* The head is there. A refusal goes out at once where the client waits for it before it sends its
 * body, where the body is not worth waiting for, or where it cannot be told from what follows;
 * answering now closes the connection if a body is to come. Other refusals let the body pass, so
 * that the connection stays usable. */
static enum MHD_Result request_begin(struct http_request *request, const char *method,
                                     const char *version, const char *url) {
    const char *length = http_request_header(request, "Content-Length");
    uint64_t n_bytes = 0;
    http_check_head(request, method, version, url);
    if (request->response != NULL &&
        (request->is_expecting || request->wants_close || request->status == 413)) {
        return request_finish(request);
    }
    if (length == NULL || !http_head_length(length, &n_bytes)) {
        n_bytes = 0;
    }
    http_watch_expect(&request->server->watch, request->conn, HTTP_STEP_READ,
                      (int64_t)(n_bytes / HTTP_LEAST_BYTES_PER_S) * INT64_C(1000000000));
    return MHD_YES;
}

enum MHD_Result http_request_access(void *context, struct MHD_Connection *connection,
                                    const char *url, const char *method, const char *version,
                                    const char *upload, size_t *n_upload_bytes, void **state) {
    struct http_request *request = *state;
    if (request == NULL) {
        request = request_new(context, connection, url);
        if (request == NULL) {
            return MHD_NO;
        }
        *state = request;
        return request_begin(request, method, version, url);
    }
    if (*n_upload_bytes > 0) {
        return request_take_body(request, upload, n_upload_bytes);
    }
    return request_finish(request);
}

static void request_sent(struct http_server *server) {
    (void)pthread_mutex_lock(&server->lock);
    if (--server->n_unsent == 0 && server->stopping) {
        (void)pthread_cond_broadcast(&server->quiet);
    }
    (void)pthread_mutex_unlock(&server->lock);
}

void http_request_completed(void *context, struct MHD_Connection *connection, void **state,
                            enum MHD_RequestTerminationCode why) {
    struct http_request *request = *state;
    (void)context;
    (void)connection;
    (void)why;
    if (request != NULL) {
        if (request->stream != NULL) {
            http_stream_detach(request->stream);
        }
        if (request->deferred) {
            request_sent(request->server);
        }
        http_watch_expect(&request->server->watch, request->conn, HTTP_STEP_READ, 0);
        request_free(request);
        *state = NULL;
    }
}
