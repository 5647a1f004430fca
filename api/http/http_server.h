/* An HTTP/1.1 server with a route table and server-sent events. The only room that knows
 * libmicrohttpd. Handlers run on the server's threads, several at a time. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

struct http_server;
struct http_request;

/* A route pattern is a path whose segments may be {name}: "/api/v1/jobs/{job}/mode". */
struct http_route {
    const char *method; /* "GET" (serves HEAD too), "POST", "PUT", "DELETE" */
    const char *pattern;
    void (*handle)(struct http_request *request, void *context);
};

struct http_server_options {
    const char *listen_host; /* "127.0.0.1" */
    uint16_t port;           /* 0: the system chooses; ask http_server_port */
    uint32_t n_threads;
    uint32_t max_connections;
    size_t max_body_bytes; /* more: 413 */
    const struct http_route *routes;
    size_t n_routes;
    void *context;
};

DEFT_NODISCARD enum deft_status http_server_start(const struct http_server_options *options,
                                                  struct http_server **out,
                                                  struct deft_error *error);
uint16_t http_server_port(const struct http_server *server);
/* Ends streams and connections, waits for handlers. Takes NULL. */
void http_server_stop(struct http_server *server);

/* --- inside a handler ------------------------------------------------------------------------- */
/* Percent-decoded value of {name}; NULL if the pattern has none. */
const char *http_request_param(const struct http_request *request, const char *name);
const char *http_request_query(const struct http_request *request, const char *name);  /* or NULL */
const char *http_request_header(const struct http_request *request, const char *name); /* or NULL */
const char *http_request_body(const struct http_request *request, size_t *out_bytes);
/* Exactly one of these per request. Bodies are copied. */
void http_respond(struct http_request *request, int status, const char *content_type,
                  const void *body, size_t n_bytes);
void http_respond_problem(struct http_request *request, int status, const char *code,
                          const char *field, const char *detail_format, ...) DEFT_PRINTF(5, 6);

/* A server-sent event stream that ends when either side closes it. */
struct http_stream;
/* Answers the request with a stream and hands it out; the caller owns one reference. */
struct http_stream *http_respond_stream(struct http_request *request);
/* Queues one event from any thread; `id` and `event` may be NULL; data may have newlines. Returns
 * DEFT_CLOSED once the client has gone, DEFT_LIMIT when its queue is full (the stream is ended). */
DEFT_NODISCARD enum deft_status http_stream_send(struct http_stream *stream, const char *id,
                                                 const char *event, const char *data);
/* 1 once the client has gone. */
int http_stream_closed(const struct http_stream *stream);
/* Ends the stream and drops the caller's reference. Takes NULL. */
void http_stream_release(struct http_stream *stream);

#endif
