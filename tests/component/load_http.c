#include "load_http.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/http_client.h"
#include "gzip/gzip.h"

#define HTTP_READ_BYTES 16384u
/* A plan of a large job; more is none of ours. */
#define HTTP_MOST_BYTES ((size_t)8 << 20)

/* --- the socket ---------------------------------------------------------------------------------
 */

static int http_watch(struct load_http *http, int epoll_fd, uint64_t tag, uint32_t events) {
    struct epoll_event event = {.events = events, .data.u64 = tag};
    int how = http->watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    if (http->watched == events) {
        return 1;
    }
    http->watched = events;
    return epoll_ctl(epoll_fd, how, http->fd, &event) == 0;
}

int load_http_connect(struct load_http *http, int epoll_fd, uint64_t tag, unsigned source,
                      uint16_t port) {
    const int on = 1;
    const struct sockaddr_in from = {.sin_family = AF_INET,
                                     .sin_addr.s_addr = htonl(0x7F000000u | (source & 0xFFFFu))};
    const struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    http->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    http->watched = 0;
    http->n_in = http->n_head = 0;
    http->has_handled = 0;
    http->n_chunk = 0;
    http->chunk_part = 0;
    /* The port is chosen when both ends are known, so that it need only be free for this pair. */
    if (http->fd < 0 ||
        setsockopt(http->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on)) != 0 ||
        setsockopt(http->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) != 0 ||
        bind(http->fd, (const struct sockaddr *)(const void *)&from, sizeof(from)) != 0 ||
        (connect(http->fd, (const struct sockaddr *)(const void *)&to, sizeof(to)) != 0 &&
         errno != EINPROGRESS) ||
        !http_watch(http, epoll_fd, tag, EPOLLIN | EPOLLOUT)) {
        load_http_close(http);
        return 0;
    }
    return 1;
}

void load_http_close(struct load_http *http) {
    if (http->fd >= 0) {
        (void)close(http->fd);
    }
    http->fd = -1;
    free(http->out);
    free(http->in);
    http->out = NULL;
    http->in = NULL;
    http->n_out = http->n_sent = 0;
    http->n_in = http->capacity = 0;
}

/* 0: the connection broke. */
static int http_flush(struct load_http *http, int epoll_fd, uint64_t tag) {
    while (http->n_sent < http->n_out) {
        ssize_t n =
            send(http->fd, http->out + http->n_sent, http->n_out - http->n_sent, MSG_NOSIGNAL);
        if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) {
            return http_watch(http, epoll_fd, tag, EPOLLIN | EPOLLOUT);
        }
        if (n < 0) {
            return 0;
        }
        http->n_sent += (size_t)n;
    }
    free(http->out);
    http->out = NULL;
    http->n_out = http->n_sent = 0;
    return http_watch(http, epoll_fd, tag, EPOLLIN);
}

int load_http_send(struct load_http *http, int epoll_fd, uint64_t tag, char *bytes, size_t n) {
    free(http->out);
    http->out = bytes;
    http->n_out = n;
    http->n_sent = 0;
    if (!http_flush(http, epoll_fd, tag)) {
        load_http_close(http);
        return 0;
    }
    return 1;
}

/* --- answers ------------------------------------------------------------------------------------
 */

/* The value of a header, NULL when it is absent; `head` ends with a zero. */
static const char *http_header(const char *head, const char *name) {
    size_t n = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, n) == 0 && line[2 + n] == ':') {
            return line + 2 + n + 1;
        }
    }
    return NULL;
}

static int http_take_chunks(struct load_http *http, const char *bytes, size_t n) {
    size_t at = 0;
    while (at < n) {
        if (http->chunk_part == 0) {
            char c = bytes[at++];
            if (c == '\n') {
                http->chunk_part = 1;
                if (http->n_chunk == 0) { /* the stream's end */
                    return 0;
                }
            } else if (c != '\r') {
                const char digit[] = {c, '\0'};
                char *end = NULL;
                unsigned long value = strtoul(digit, &end, 16);
                if (*end != '\0' || http->n_chunk > HTTP_MOST_BYTES) {
                    return 0;
                }
                http->n_chunk = http->n_chunk * 16 + value;
            }
        } else if (http->chunk_part == 1) {
            size_t n_data = n - at < http->n_chunk ? n - at : http->n_chunk;
            if (http->take(http->context, bytes + at, n_data) != 0) {
                return 0;
            }
            at += n_data;
            http->n_chunk -= n_data;
            http->chunk_part = http->n_chunk > 0 ? 1 : 2;
        } else {
            http->chunk_part = bytes[at++] == '\n' ? 0 : 2;
        }
    }
    return 1;
}

/* 0: what came is no HTTP. */
static int http_take_head(struct load_http *http) {
    http->in[http->n_in] = '\0';
    const char *end = strstr(http->in, "\r\n\r\n");
    if (end == NULL) {
        return http->n_in < HTTP_READ_BYTES;
    }
    http->n_head = (size_t)(end + 4 - http->in);
    char kept = http->in[http->n_head - 2];
    http->in[http->n_head - 2] = '\0';
    const char *length = http_header(http->in, "Content-Length");
    http->n_whole = http->n_head + (length != NULL ? strtoul(length, NULL, 10) : 0);
    http->in[http->n_head - 2] = kept;
    return strncmp(http->in, "HTTP/1.1 ", 9) == 0 && http->n_whole <= HTTP_MOST_BYTES;
}

static void http_fill_reply(struct load_http *http, struct load_http_reply *out) {
    http->in[http->n_head - 2] = '\0';
    const char *retry = http_header(http->in, "Retry-After");
    const char *connection = http_header(http->in, "Connection");
    *out = (struct load_http_reply){.status = (int)strtol(http->in + 9, NULL, 10),
                                    .retry_after_s = retry != NULL ? strtol(retry, NULL, 10) : 0,
                                    .body = http->in + http->n_head,
                                    .n_body = http->n_whole - http->n_head,
                                    .closes = connection != NULL &&
                                              strncasecmp(connection, " close", 6) == 0};
}

/* Room for one read behind what is there. */
static int http_reserve(struct load_http *http) {
    size_t wanted = http->n_in + HTTP_READ_BYTES + 1;
    if (wanted <= http->capacity) {
        return 1;
    }
    char *grown = wanted > 2 * HTTP_MOST_BYTES ? NULL : realloc(http->in, wanted * 2);
    if (grown != NULL) {
        http->in = grown;
        http->capacity = wanted * 2;
    }
    return grown != NULL;
}

/* What was read is an answer, a part of one, or a piece of a stream. */
static enum load_http_outcome http_judge(struct load_http *http, struct load_http_reply *out) {
    if (http->n_head == 0 && !http_take_head(http)) {
        return LOAD_HTTP_BROKEN;
    }
    if (http->n_head == 0) {
        return LOAD_HTTP_WAITING;
    }
    if (http->is_stream && strncmp(http->in + 9, "200", 3) == 0) {
        int goes_on = http->has_handled || http->take(http->context, NULL, 0) == 0;
        http->has_handled = 1;
        goes_on =
            goes_on && http_take_chunks(http, http->in + http->n_head, http->n_in - http->n_head);
        http->n_in = http->n_head; /* an open stream keeps its head only */
        return goes_on ? LOAD_HTTP_WAITING : LOAD_HTTP_BROKEN;
    }
    if (http->n_in < http->n_whole) {
        return LOAD_HTTP_WAITING;
    }
    http_fill_reply(http, out);
    http->has_handled = 1;
    return LOAD_HTTP_ANSWERED;
}

enum load_http_outcome load_http_serve(struct load_http *http, int epoll_fd, uint64_t tag,
                                       struct load_http_reply *out) {
    if (http->has_handled && !http->is_stream) { /* the last answer's bytes are not needed now */
        http->n_in = http->n_head = 0;
        http->has_handled = 0;
    }
    if (!http_flush(http, epoll_fd, tag) || !http_reserve(http)) {
        load_http_close(http);
        return LOAD_HTTP_BROKEN;
    }
    ssize_t n = recv(http->fd, http->in + http->n_in, HTTP_READ_BYTES, 0);
    if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) {
        return LOAD_HTTP_WAITING;
    }
    enum load_http_outcome outcome = LOAD_HTTP_BROKEN;
    if (n > 0) {
        http->n_in += (size_t)n;
        outcome = http_judge(http, out);
    }
    if (outcome == LOAD_HTTP_BROKEN) {
        load_http_close(http);
    }
    return outcome;
}

/* --- requests -----------------------------------------------------------------------------------
 */

char *load_http_request(const char *method, const char *path, const char *body, const char *more,
                        size_t *out_bytes) {
    char head[1024];
    char length[96] = "";
    char *packed = NULL;
    size_t n_body = body != NULL ? strlen(body) : 0;
    int is_packed =
        n_body >= HTTP_CLIENT_PACK_BYTES && gzip_pack(body, n_body, &packed, &n_body) == DEFT_OK;
    if (body != NULL) {
        (void)snprintf(length, sizeof(length),
                       "Content-Type: application/json\r\n%sContent-Length: %zu\r\n",
                       is_packed ? "Content-Encoding: gzip\r\n" : "", n_body);
    }
    int n = snprintf(head, sizeof(head),
                     "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: deft/" DEFT_VERSION_TEXT
                     "\r\nAccept: %s\r\n%s%s\r\n",
                     method, path, body != NULL ? "*/*" : "text/event-stream", more, length);
    char *bytes = n > 0 && (size_t)n < sizeof(head) ? malloc((size_t)n + n_body + 1) : NULL;
    if (bytes != NULL) {
        memcpy(bytes, head, (size_t)n);
        memcpy(bytes + n, is_packed ? packed : body != NULL ? body : "", n_body);
        *out_bytes = (size_t)n + n_body;
    }
    free(packed);
    return bytes;
}
