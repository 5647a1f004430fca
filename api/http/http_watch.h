/* Connections and how long each may take. libmicrohttpd's own time-out starts anew with every byte,
 * so a client that sends one byte a minute would stay for ever. */
#ifndef HTTP_WATCH_H
#define HTTP_WATCH_H

#include <pthread.h>
#include <stdint.h>
#include <sys/socket.h>

#include <deft/status.h>

#include "http_tls_use.h"

struct http_server;

/* What a connection is waited for. */
enum http_step {
    HTTP_STEP_READ,  /* the client's head or body */
    HTTP_STEP_WRITE, /* the client must take the answer */
    HTTP_STEP_OURS,  /* a handler, or a stream: no deadline */
};

/* One connection, from accept to close. */
struct http_conn {
    struct http_server *server;
    int fd;
    uint64_t client;                    /* of http_rate_client */
    struct http_tls_material *material; /* NULL: plain */
    int client_verdict;                 /* of its certificate; 0: not looked at, 1: good, -1: bad */
    enum http_step step;                /* watch->lock, as below */
    int64_t deadline_ns;
    struct http_conn *previous;
    struct http_conn *next;
};

struct http_watch {
    pthread_t thread;
    int has_thread;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    int stopping;
    int64_t patience_ns;
    struct http_conn *first;
    uint64_t n_too_slow;
};

/* A connection that exceeds its deadline is shut down; libmicrohttpd then closes it. So is one
 * whose client has gone, which libmicrohttpd does not see when the end came right behind some data.
 */
DEFT_NODISCARD enum deft_status http_watch_start(struct http_watch *watch, int64_t patience_ns,
                                                 struct deft_error *error);
void http_watch_stop(struct http_watch *watch); /* after the last connection */

void http_watch_add(struct http_watch *watch, struct http_conn *conn);
void http_watch_remove(struct http_watch *watch, struct http_conn *conn);
/* The step must be done within the server's patience and `extra_ns`. */
void http_watch_expect(struct http_watch *watch, struct http_conn *conn, enum http_step step,
                       int64_t extra_ns);
uint64_t http_watch_too_slow(struct http_watch *watch);

#endif
