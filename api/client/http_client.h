/* HTTP requests and event streams to the controller. The only room that knows libcurl.
 *
 * Proxy variables are ignored. Redirects are not followed. Replies above a limit are refused. What
 * is sent from HTTP_CLIENT_PACK_BYTES on goes in gzip, unless the controller does not take it. A
 * server's certificate must be good for its name; there is no way to do without. */
#ifndef HTTP_CLIENT_H
#define HTTP_CLIENT_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

struct http_client_options {
    const char *base_url;   /* http://HOST[:PORT] or https://..., with an optional path prefix */
    const char *token;      /* NULL: none */
    const char *token_file; /* read before every request, so that a new token needs no restart */
    const char *ca_file;    /* PEM; NULL: the system's authorities */
    const char *cert_file;  /* PEM, shown to a server that asks; NULL: none */
    const char *key_file;
    const char *proxy; /* NULL: none */
};

/* A connection that is kept alive between requests. One thread at a time. The texts are copied.
 * libcurl is loaded here: DEFT_UNSUPPORTED when there is none. */
struct http_client;
DEFT_NODISCARD enum deft_status http_client_open(const struct http_client_options *options,
                                                 struct http_client **out,
                                                 struct deft_error *error);
void http_client_close(struct http_client *client); /* takes NULL */
/* Why a request may still be going on: checked twice a second; non-zero ends it with
 * DEFT_CANCELLED. NULL (the default): only the timeout does. */
void http_client_stop_flag(struct http_client *client, const volatile int *stop);

/* A reply of a job with thousands of decisions is a few MiB; more is not ours. */
#define HTTP_CLIENT_MAX_REPLY_BYTES (16u << 20)
/* Below, packing saves less than it costs. */
#define HTTP_CLIENT_PACK_BYTES 4096u
/* A plan event of 16,384 buckets x 8 generations is about 2 MiB of JSON. */
#define HTTP_CLIENT_MAX_EVENT_BYTES (8u << 20)

struct http_reply {
    int status; /* 100..599 */
    char *body; /* zero-terminated, owned by the reply */
    size_t n_bytes;
    int64_t retry_after_s; /* 0: the header is absent */
    int64_t date_s;        /* the server's clock, Unix time; 0: it does not say */
    int64_t expires_s;     /* of the server's certificate, Unix time; 0: without TLS */
};
void http_reply_done(struct http_reply *reply); /* takes NULL and zeroed replies */

/* `path` begins with "/". `body` NULL: none; otherwise JSON. DEFT_IO when no HTTP reply arrived
 * (the sentence names host and port and what failed), DEFT_TIMEOUT after `timeout_ms`, DEFT_LIMIT
 * when the reply is too large. Any HTTP status is DEFT_OK here. */
DEFT_NODISCARD enum deft_status http_client_request(struct http_client *client, const char *method,
                                                    const char *path, const char *body,
                                                    int timeout_ms, struct http_reply *out,
                                                    struct deft_error *error);

/* Percent-encodes one path segment into `out` (zero-terminated). DEFT_LIMIT if it does not fit. */
DEFT_NODISCARD enum deft_status http_client_escape(const char *segment, char *out,
                                                   size_t capacity_bytes);

/* Reads a server-sent event stream until it ends, `*stop` becomes non-zero (checked at least twice
 * a second) or `on_event` returns non-zero. `last_id` (may be NULL) is sent as Last-Event-ID.
 * Returns DEFT_CLOSED when the server ended it or on_event wished so, DEFT_CANCELLED on stop,
 * DEFT_NOT_FOUND on 404, DEFT_IO otherwise (any other HTTP status is in the error's backend_code).
 * A stream silent for `idle_ms` counts as dead (the server sends comments as heartbeats). */
typedef int (*http_event_fn)(void *context, const char *event, const char *id, const char *data);
DEFT_NODISCARD enum deft_status http_client_events(struct http_client *client, const char *path,
                                                   const char *last_id, int idle_ms,
                                                   const volatile int *stop, http_event_fn on_event,
                                                   void *context, struct deft_error *error);

#endif
