/* HTTP/1.1 of one agent's connection, over a socket that never blocks: thousands of them share one
 * thread and one epoll. libcurl, which real agents use, costs several times more per request, and
 * the machine is to be the controller's. */
#ifndef LOAD_HTTP_H
#define LOAD_HTTP_H

#include <stddef.h>
#include <stdint.h>

enum load_http_outcome {
    LOAD_HTTP_WAITING,
    LOAD_HTTP_ANSWERED, /* a whole answer is in `reply` */
    LOAD_HTTP_BROKEN,   /* the connection ended or what came is no HTTP; it is closed */
};

struct load_http_reply {
    int status;
    int64_t retry_after_s; /* 0: the header is absent */
    const char *body;      /* until the next call; not terminated */
    size_t n_body;
    int closes; /* the server keeps the connection no longer */
};

/* Zero-initialised with fd -1 is a closed one. */
struct load_http {
    int fd; /* -1: closed */
    char *out;
    size_t n_out;
    size_t n_sent;
    char *in;
    size_t n_in;
    size_t capacity;
    size_t n_head; /* bytes up to the body; 0: the head is not there */
    size_t n_whole;
    int has_handled;  /* the answer in `in` has been handed out */
    int is_stream;    /* the body is handed to `take` as it comes */
    size_t n_chunk;   /* of a stream: bytes of this chunk that are still to come */
    int chunk_part;   /* of a stream: 0 size, 1 data, 2 the end of the line behind it */
    uint32_t watched; /* what epoll watches for */
    /* Of a stream, from when its 200 is there; n 0: it stands. Non-zero ends it. */
    int (*take)(void *context, const char *bytes, size_t n);
    void *context;
};

/* Connects from 127.0.0.`source`, since one address has too few ports for all. `tag` comes back
 * with epoll's events. 0: it cannot. */
int load_http_connect(struct load_http *http, int epoll_fd, uint64_t tag, unsigned source,
                      uint16_t port);
/* Takes `bytes` over, malloc'ed: one request. 0: the connection broke. */
int load_http_send(struct load_http *http, int epoll_fd, uint64_t tag, char *bytes, size_t n);
/* After an event of epoll. */
enum load_http_outcome load_http_serve(struct load_http *http, int epoll_fd, uint64_t tag,
                                       struct load_http_reply *out);
/* Takes closed ones. */
void load_http_close(struct load_http *http);

/* A request as agents write it, malloc'ed; NULL: no memory. `body` NULL: none. From 4 KiB on it
 * goes in gzip, as theirs do. */
char *load_http_request(const char *method, const char *path, const char *body, const char *more,
                        size_t *out_bytes);

#endif
