/* What the files of the server share; nobody else includes it. */
#ifndef HTTP_IMPL_H
#define HTTP_IMPL_H

#include <microhttpd.h>
#include <pthread.h>
#include <stdatomic.h>

#include "http_meter.h"
#include "http_own.h"
#include "http_rate.h"
#include "http_route.h"
#include "http_server.h"
#include "http_stream.h"
#include "http_watch.h"

struct http_server {
    struct http_server_options options;
    struct MHD_Daemon *daemon;
    struct http_streams *streams;
    struct http_meter *meter;
    struct http_rate rate;
    struct http_watch watch;
    http_own_queue_fn queue; /* libmicrohttpd's MHD_queue_response */
    char *client_ca;         /* PEM that libmicrohttpd asks clients by; NULL: it does not ask */
    uint16_t port;
    _Atomic size_t n_body_bytes; /* of all requests */
    pthread_mutex_t lock;
    pthread_cond_t quiet;
    int stopping;
    unsigned n_handling; /* handlers that are at work */
    unsigned n_deferred; /* requests whose answer comes later */
    unsigned n_unsent;   /* of them, and of those answered since: not sent yet */
};

struct http_request {
    struct http_server *server;
    struct MHD_Connection *connection;
    struct http_conn *conn;
    struct http_route_match match;
    char *path; /* decoded; parameters point into it */
    size_t n_queries;
    char *query_keys[HTTP_MAX_QUERIES];
    char *query_values[HTTP_MAX_QUERIES];
    char *body;
    size_t n_body_bytes;
    size_t body_capacity_bytes;
    size_t discarded_bytes;
    int64_t begin_ns;
    int handled; /* the handler has been called */
    int invalid_query;
    int is_packed;    /* the body comes in gzip */
    int takes_gzip;   /* the client does */
    int wants_close;  /* what follows on this connection cannot be trusted */
    int is_expecting; /* it waits for 100 Continue before it sends the body */
    char peer[HTTP_PEER_BYTES];
    char user[HTTP_USER_BYTES];
    uint64_t user_number;

    pthread_mutex_t lock; /* the answer may come from another thread */
    int deferred;
    int suspended;
    int status;
    size_t n_response_bytes;
    struct MHD_Response *response;
    struct http_stream *stream; /* the connection's reference */
};

/* The rows that every answer has, to `response`. */
void http_answer_common(struct MHD_Response *response, int status, int64_t wait_ns);
/* A problem's response; NULL when memory is short even for an empty one. */
struct MHD_Response *http_answer_problem(int status, const char *code, const char *field,
                                         const char *detail);
/* A refusal with Allow. */
void http_answer_method(struct http_request *request);

/* libmicrohttpd's callbacks; the context is the server. */
enum MHD_Result http_request_access(void *context, struct MHD_Connection *connection,
                                    const char *url, const char *method, const char *version,
                                    const char *upload, size_t *n_upload_bytes, void **state);
void http_request_completed(void *context, struct MHD_Connection *connection, void **state,
                            enum MHD_RequestTerminationCode why);

/* Answers what can be answered without a body. */
void http_check_head(struct http_request *request, const char *method, const char *version,
                     const char *url);

#endif
