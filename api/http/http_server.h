/* An HTTP/1.1 server with a route table and server-sent events. The only room that knows
 * libmicrohttpd and GnuTLS. Handlers run on the server's threads, several at a time.
 *
 * What the server does by itself: every answer that is not a handler's is problem JSON, also those
 * that libmicrohttpd gives of its own; bodies in gzip are unpacked, answers packed for who takes
 * them; HEAD is GET without the body; whoever sends or reads too slowly is cut off. */
#ifndef HTTP_SERVER_H
#define HTTP_SERVER_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

struct http_server;
struct http_request;
struct http_tls;

/* Parameters in one pattern and in one query. More in a query: 400. */
#define HTTP_MAX_PARAMS  4u
#define HTTP_MAX_QUERIES 16u
/* Request line and headers of one connection: libmicrohttpd keeps so much memory for each, and
 * clears all of it between two requests. */
#define HTTP_MAX_HEADER_BYTES 8192u
/* Events a stream holds for a slow client: the largest plan is a few MiB, and two must fit. */
#define HTTP_MAX_STREAM_QUEUE_BYTES (16u << 20)
/* How long a connection may be idle, and how long a head, a body and an answer may each take;
 * agents report at least every few seconds. */
#define HTTP_PATIENCE_MS 60000u
/* A body or answer may take this much longer for each second that it needs at this pace. */
#define HTTP_LEAST_BYTES_PER_S (64u << 10)
/* Bodies of all requests together; beyond, 503. */
#define HTTP_MAX_BODIES_BYTES ((size_t)256 << 20)
/* Answers from here on are packed for clients that take gzip: below, headers outweigh it. */
#define HTTP_GZIP_FROM_BYTES 1024u
/* "[address]:port" of a client. */
#define HTTP_PEER_BYTES 64u
/* The name of a user that `authorize` has found. */
#define HTTP_USER_BYTES 64u

/* A route pattern is a path whose segments may be {name}: "/api/v1/jobs/{job}/mode". */
struct http_route {
    const char *method; /* "GET" (serves HEAD too), "POST", "PUT", "DELETE" */
    const char *pattern;
    void (*handle)(struct http_request *request, void *context);
    int need; /* what `authorize` must find; its meaning is the program's */
};

struct http_server_options {
    const char *listen_host; /* numeric IPv4 or IPv6, or "localhost" */
    uint16_t port;           /* 0: the system chooses; ask http_server_port */
    uint32_t n_threads;
    uint32_t max_connections;
    size_t max_body_bytes;               /* more: 413; of a packed one: unpacked */
    uint32_t max_connections_per_client; /* more are closed; 0: no limit of their own */
    uint32_t max_requests_per_s;         /* of one client; more: 429; 0: no limit */
    uint32_t patience_ms;                /* 0: HTTP_PATIENCE_MS */
    struct http_tls *tls;                /* NULL: plain; outlives the server */
    /* Heartbeat comments of silent streams; 0: every 10 s, well below the minute after which
     * middle boxes and clients give a silent connection up. */
    uint32_t heartbeat_ms;
    /* 1: answer only to address literals and "localhost" in Host, so that a web page whose name
     * resolves to this machine cannot make a browser talk to it. */
    int literal_hosts_only;
    const char *const *hosts; /* [n_hosts] names that are answered to as well */
    size_t n_hosts;
    const struct http_route *routes;
    size_t n_routes;
    void *context;
    /* Called once the head of a request is there, before its body is read. 0: it has answered with
     * a refusal. NULL: everybody may do everything. */
    int (*authorize)(struct http_request *request, const struct http_route *route, void *context);
};

DEFT_NODISCARD enum deft_status http_server_start(const struct http_server_options *options,
                                                  struct http_server **out,
                                                  struct deft_error *error);
uint16_t http_server_port(const struct http_server *server);
/* Ends streams and connections, waits for handlers. Takes NULL. */
/* Another limit for every client, at once. Any thread. */
void http_server_set_rate(struct http_server *server, uint32_t max_requests_per_s);
void http_server_stop(struct http_server *server);

/* --- what it counts --------------------------------------------------------------------------- */

#define HTTP_CLASSES   5  /* 1xx to 5xx */
#define HTTP_LATENCIES 12 /* bounds of a histogram */
extern const int64_t http_latencies_ns[HTTP_LATENCIES];

struct http_stats {
    uint64_t n_connections; /* now */
    uint64_t n_accepted;    /* since the start, as all below */
    uint64_t n_streams;     /* now */
    uint64_t n_malformed;   /* requests that libmicrohttpd refused */
    uint64_t n_too_slow;    /* connections cut off */
    uint64_t n_limited;     /* requests above a client's rate */
    uint64_t n_refused;     /* requests that `authorize` refused */
};
struct http_route_stats {
    uint64_t n_answers[HTTP_CLASSES];
    uint64_t n_within[HTTP_LATENCIES]; /* cumulative; from a whole head to the answer */
    uint64_t n_timed;                  /* answers but streams */
    uint64_t sum_ns;
};
void http_server_stats(struct http_server *server, struct http_stats *out);
/* `route`: a place in options.routes; beyond the last: requests that no route took. */
void http_server_route_stats(struct http_server *server, size_t route,
                             struct http_route_stats *out);

/* Ends the streams of users for which `keeps` gives 0; `user` is the number they were given. */
void http_server_check_streams(struct http_server *server,
                               int (*keeps)(uint64_t user, void *context), void *context);

/* --- inside a handler ------------------------------------------------------------------------- */
/* Percent-decoded value of {name}; NULL if the pattern has none. */
const char *http_request_param(const struct http_request *request, const char *name);
const char *http_request_query(const struct http_request *request, const char *name);  /* or NULL */
const char *http_request_header(const struct http_request *request, const char *name); /* or NULL */
struct http_server *http_request_server(const struct http_request *request);
/* "127.0.0.1:4711", "[::1]:4711". */
const char *http_request_peer(struct http_request *request);
/* The token of "Authorization: Bearer TOKEN", not terminated. 0: the header is absent; -1: it is
 * something else. */
int http_request_bearer(const struct http_request *request, const char **out_token,
                        size_t *out_bytes);
/* For `authorize`: who asks. The name is copied and cut; the number goes with streams. */
void http_request_set_user(struct http_request *request, const char *name, uint64_t number);
const char *http_request_user(const struct http_request *request); /* "" when nobody was set */
/* 1 when the connection is encrypted and, where the server wants one, the client's certificate is
 * good. */
int http_request_has_certificate(struct http_request *request);
/* Of the body that came, unpacked; it lives until the handler returns. */
const char *http_request_body(const struct http_request *request, size_t *out_bytes);
/* The handler returns without an answer; one of the calls below follows from any thread, at the
 * latest before http_server_stop can return. Meanwhile no server thread is held. */
void http_request_defer(struct http_request *request);

/* Exactly one of these per request; the request is gone afterwards. Bodies are copied. A status 429
 * or 503 carries Retry-After, a 401 the way to log in. */
void http_respond(struct http_request *request, int status, const char *content_type,
                  const void *body, size_t n_bytes);
/* 200 with an entity tag made of the body, or 304 if the client has it already. To be asked for
 * each time, by nobody but the client kept. Not for deferred requests. */
void http_respond_tagged(struct http_request *request, const char *content_type, const void *body,
                         size_t n_bytes);
/* Part of a page: packed by the build, and allowed to run the scripts beside it. */
struct http_page {
    const char *content_type;
    const char *tag;             /* hexadecimal digits of what is in it */
    const unsigned char *packed; /* gzip; it outlives the server */
    size_t n_packed;
    size_t n_bytes;   /* unpacked */
    int is_immutable; /* its name is made of what is in it: clients may keep it for ever */
};
/* 200 with the page, or 304 if the client has it already. Not for deferred requests. */
void http_respond_page(struct http_request *request, const struct http_page *page);
void http_respond_problem(struct http_request *request, int status, const char *code,
                          const char *field, const char *detail_format, ...) DEFT_PRINTF(5, 6);
/* The same, asking the client to wait that long, in whole seconds. */
void http_respond_later(struct http_request *request, int status, const char *code, int64_t wait_ns,
                        const char *detail);

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
