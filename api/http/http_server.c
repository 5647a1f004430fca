#include "http_server.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "http_impl.h"
#include "http_secret.h"
#include "http_socket.h"

/* Handlers parse JSON that nests at most 32 deep; a megabyte is ample, and the default of 8 MiB
 * per thread counts against locked-down containers. */
#define SERVER_STACK_BYTES ((size_t)1 << 20)
/* For clients to take the answers that they have waited for. */
#define SERVER_LAST_WORDS_NS INT64_C(1000000000)
/* No RSA key exchange, whose recorded traffic can be read with a key that is lost later, and no
 * CBC, whose padding has been attacked again and again. */
static const char server_tls[] =
    "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2:-RSA:-AES-128-CBC:-AES-256-CBC:-3DES-CBC:-SHA1";

/* --- connections -------------------------------------------------------------------------------
 */

static void server_connected(struct http_server *server, struct MHD_Connection *connection,
                             void **socket_context) {
    const union MHD_ConnectionInfo *address =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
    struct http_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return; /* its requests find nothing and close it */
    }
    conn->server = server;
    conn->client = http_rate_client(address != NULL ? address->client_addr : NULL);
    if (server->options.tls != NULL) {
        conn->material = http_tls_take(server->options.tls);
    }
    const union MHD_ConnectionInfo *fd =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    conn->fd = fd != NULL ? fd->connect_fd : -1;
    http_watch_add(&server->watch, conn);
    (void)atomic_fetch_add(&server->meter->n_connections, 1);
    (void)atomic_fetch_add(&server->meter->n_accepted, 1);
    *socket_context = conn;
}

static void server_connection(void *context, struct MHD_Connection *connection,
                              void **socket_context, enum MHD_ConnectionNotificationCode what) {
    struct http_server *server = context;
    struct http_conn *conn = *socket_context;
    if (what == MHD_CONNECTION_NOTIFY_STARTED) {
        server_connected(server, connection, socket_context);
    } else if (conn != NULL) {
        http_watch_remove(&server->watch, conn);
        (void)atomic_fetch_sub(&server->meter->n_connections, 1);
        http_tls_give(conn->material);
        free(conn);
        *socket_context = NULL;
    }
}

/* Which certificate a handshake uses: the one that was in use when the connection came.
 * libmicrohttpd leaves the connection with the session. */
static int server_certificate(gnutls_session_t session, const gnutls_datum_t *authorities,
                              int n_authorities, const gnutls_pk_algorithm_t *algorithms,
                              int n_algorithms, gnutls_pcert_st **out_chain, unsigned *out_n,
                              gnutls_privkey_t *out_key) {
    struct MHD_Connection *connection = gnutls_session_get_ptr(session);
    const union MHD_ConnectionInfo *info =
        connection != NULL ? MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT)
                           : NULL;
    const struct http_conn *conn = info != NULL ? info->socket_context : NULL;
    (void)authorities;
    (void)n_authorities;
    (void)algorithms;
    (void)n_algorithms;
    if (conn == NULL) {
        return -1;
    }
    http_tls_chain(conn->material, out_chain, out_n, out_key);
    return 0;
}

/* Escapes are ours to decode, strictly. */
static size_t server_keep_escapes(void *context, struct MHD_Connection *connection, char *text) {
    (void)context;
    (void)connection;
    return strlen(text);
}

/* --- start and stop -----------------------------------------------------------------------------
 */

static struct MHD_Daemon *server_daemon(struct http_server *server, int listen_fd) {
    const struct http_server_options *options = &server->options;
    unsigned n_threads = options->n_threads > 1 ? options->n_threads : 0; /* 0: no pool, one */
    unsigned limit =
        options->max_connections > n_threads ? options->max_connections : n_threads + 1;
    unsigned patience_ms = options->patience_ms > 0 ? options->patience_ms : HTTP_PATIENCE_MS;
    unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME;
    struct MHD_OptionItem items[12] = {
        {MHD_OPTION_LISTEN_SOCKET, listen_fd, NULL},
        {MHD_OPTION_CONNECTION_LIMIT, (intptr_t)limit, NULL},
        /* Coarser than http_watch, which cuts off whoever is not merely silent. */
        {MHD_OPTION_CONNECTION_TIMEOUT, (intptr_t)(patience_ms / 1000 + 1), NULL},
        {MHD_OPTION_CONNECTION_MEMORY_LIMIT, HTTP_MAX_HEADER_BYTES, NULL},
        {MHD_OPTION_THREAD_STACK_SIZE, (intptr_t)SERVER_STACK_BYTES, NULL},
        {MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)n_threads, NULL},
        {MHD_OPTION_PER_IP_CONNECTION_LIMIT, (intptr_t)options->max_connections_per_client, NULL}};
    size_t n = 7;
    if (options->tls != NULL) {
        flags |= MHD_USE_TLS;
        items[n++] =
            (struct MHD_OptionItem){MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)server_tls};
        if (server->client_ca != NULL) {
            items[n++] = (struct MHD_OptionItem){MHD_OPTION_HTTPS_MEM_TRUST, 0, server->client_ca};
        }
    }
    items[n] = (struct MHD_OptionItem){MHD_OPTION_END, 0, NULL};
    return MHD_start_daemon(
        flags, 0, NULL, NULL, http_request_access, server, MHD_OPTION_NOTIFY_COMPLETED,
        http_request_completed, NULL, MHD_OPTION_NOTIFY_CONNECTION, server_connection, server,
        MHD_OPTION_UNESCAPE_CALLBACK, server_keep_escapes, NULL, MHD_OPTION_ARRAY, items,
        options->tls != NULL ? MHD_OPTION_HTTPS_CERT_CALLBACK : MHD_OPTION_END, server_certificate,
        MHD_OPTION_END);
}

static enum deft_status server_prepare(struct http_server *server, struct deft_error *error) {
    const struct http_server_options *options = &server->options;
    unsigned patience_ms = options->patience_ms > 0 ? options->patience_ms : HTTP_PATIENCE_MS;
    server->queue = http_own_find();
    server->meter = http_meter_new(options->n_routes);
    int has_rate = http_rate_init(&server->rate, options->max_requests_per_s, http_secret_number());
    if (server->queue == NULL || server->meter == NULL || !has_rate) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a server");
    }
    if (options->tls != NULL) {
        if (MHD_is_feature_supported(MHD_FEATURE_HTTPS_CERT_CALLBACK) != MHD_YES) {
            return deft_fail(error, DEFT_UNSUPPORTED, 0,
                             "the libmicrohttpd of this system was built without TLS");
        }
        struct http_tls_material *material = http_tls_take(options->tls);
        const char *pem = http_tls_client_ca(material);
        server->client_ca = pem != NULL ? strdup(pem) : NULL;
        http_tls_give(material);
    }
    enum deft_status status =
        http_watch_start(&server->watch, (int64_t)patience_ms * INT64_C(1000000), error);
    return status == DEFT_OK ? http_streams_start(options->heartbeat_ms, &server->streams, error)
                             : status;
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
    (void)thread_condition_init(&server->quiet);
    enum deft_status status = server_prepare(server, error);
    if (status != DEFT_OK) {
        goto done;
    }
    status =
        http_socket_listen(options->listen_host, options->port, &listen_fd, &server->port, error);
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

void http_server_set_rate(struct http_server *server, uint32_t max_requests_per_s) {
    http_rate_set(&server->rate, max_requests_per_s);
}

/* Not MHD_quiesce_daemon: in 0.9.75 it and a thread of the pool may both take the listening socket
 * out of that thread's epoll, which ends the process; and requests on connections that are there
 * would go on coming. A connection that waits for its answer while libmicrohttpd stops ends the
 * process too. */
static void server_wait_for_answers(struct http_server *server) {
    (void)pthread_mutex_lock(&server->lock);
    server->stopping = 1;
    (void)pthread_mutex_unlock(&server->lock);
    http_streams_end(server->streams);
    (void)pthread_mutex_lock(&server->lock);
    while (server->n_handling > 0 || server->n_deferred > 0) {
        (void)pthread_cond_wait(&server->quiet, &server->lock);
    }
    int64_t until_ns = clock_monotonic_ns() + SERVER_LAST_WORDS_NS;
    while (server->n_unsent > 0 &&
           thread_condition_wait(&server->quiet, &server->lock, until_ns) == 0) {
    }
    (void)pthread_mutex_unlock(&server->lock);
}

void http_server_stop(struct http_server *server) {
    if (server == NULL) {
        return;
    }
    if (server->daemon != NULL) {
        server_wait_for_answers(server);
        MHD_stop_daemon(server->daemon);
    }
    http_streams_stop(server->streams);
    http_watch_stop(&server->watch);
    http_rate_done(&server->rate);
    http_meter_free(server->meter);
    (void)pthread_cond_destroy(&server->quiet);
    (void)pthread_mutex_destroy(&server->lock);
    free(server->client_ca);
    free(server);
}

/* --- what it counts -----------------------------------------------------------------------------
 */

void http_server_stats(struct http_server *server, struct http_stats *out) {
    http_meter_read(server->meter, out);
    out->n_streams = http_streams_count(server->streams);
    out->n_too_slow = http_watch_too_slow(&server->watch);
}

void http_server_route_stats(struct http_server *server, size_t route,
                             struct http_route_stats *out) {
    http_meter_read_route(server->meter, route, out);
}

void http_server_check_streams(struct http_server *server,
                               int (*keeps)(uint64_t user, void *context), void *context) {
    http_streams_check(server->streams, keeps, context);
}
