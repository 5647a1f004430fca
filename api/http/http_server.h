/* An HTTP/1.1 server with a route table and server-sent events. The only room that knows
 * libmicrohttpd. Handlers run on the server's threads, several at a time. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

struct http_server;
struct http_request;

/* Parameters in one pattern and in one query. More in a query: 400. */
#define HTTP_MAX_PARAMS  4u
#define HTTP_MAX_QUERIES 16u
/* Request line and headers of one connection. */
#define HTTP_MAX_HEADER_BYTES 32768u
/* Events a stream holds for a slow client: the largest plan is a few MiB, and two must fit. */
#define HTTP_MAX_STREAM_QUEUE_BYTES (16u << 20)
/* An idle or stalled connection is closed; agents report at least every few seconds. */
#define HTTP_IDLE_TIMEOUT_S 60u

/* A route pattern is a path whose segments may be {name}: "/api/v1/jobs/{job}/mode". */
struct http_route {
    const char *method; /* "GET" (serves HEAD too), "POST", "PUT", "DELETE" */
    const char *pattern;
    void (*handle)(struct http_request *request, void *context);
};

struct http_server_options {
    const char *listen_host; /* numeric IPv4 or IPv6, or "localhost" */
    uint16_t port;           /* 0: the system chooses; ask http_server_port */
    uint32_t n_threads;
    uint32_t max_connections;
    size_t max_body_bytes; /* more: 413 */
    /* Heartbeat comments of silent streams; 0: every 10 s, well below the minute after which
     * middle boxes and clients give a silent connection up. */
    uint32_t heartbeat_ms;
    /* 1: answer only to address literals and "localhost" in Host, so that a web page whose name
     * resolves to this machine cannot make a browser talk to it. */
    int literal_hosts_only;
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
/* The handler returns without an answer; one of the calls below follows from any thread, at the
 * latest before http_server_stop can return. Meanwhile no server thread is held. */
void http_request_defer(struct http_request *request);

/* Exactly one of these per request; the request is gone afterwards. Bodies are copied. A status 429
 * or 503 carries Retry-After. */
void http_respond(struct http_request *request, int status, const char *content_type,
                  const void *body, size_t n_bytes);
void http_respond_problem(struct http_request *request, int status, const char *code,
                          const char *field, const char *detail_format, ...) DEFT_PRINTF(5, 6);

/* A server-sent event stream that ends when either side closes it. */
struct http_stream;
/* Answers the request with a stream and hands it out; the caller owns one reference. NULL when
 * memory is short: then the request has been answered with 503. */
struct http_stream *http_respond_stream(struct http_request *request);
/* Queues one event from any thread; `id` and `event` may be NULL and have no newlines, data may.
 * Returns
 * DEFT_CLOSED once the client has gone, DEFT_LIMIT when its queue is full (the stream is ended). */
DEFT_NODISCARD enum deft_status http_stream_send(struct http_stream *stream, const char *id,
                                                 const char *event, const char *data);
/* 1 once the client has gone. */
int http_stream_closed(const struct http_stream *stream);
/* Ends the stream and drops the caller's reference. Takes NULL. */
void http_stream_release(struct http_stream *stream);

#endif
