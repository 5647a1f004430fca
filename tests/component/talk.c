#include "talk.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

#define TALK_DEADLINE_S 60
#define TALK_MAX_BYTES  ((size_t)64 << 20)
#define TALK_LINE_BYTES ((size_t)64 << 10)

struct talk_text {
    char *bytes;
    size_t n_bytes;
    size_t capacity_bytes;
};

void talk_reply_done(struct talk_reply *reply) {
    free(reply->head);
    free(reply->body);
    memset(reply, 0, sizeof(*reply));
}

int talk_connect(uint16_t port) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
    return fd;
}

/* A server that answers early and closes makes the rest of a request fail: that is its right. */
void talk_send(int fd, const void *bytes, size_t n_bytes) {
    const char *at = bytes;
    while (n_bytes > 0) {
        ssize_t n = send(fd, at, n_bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n <= 0) {
            return;
        }
        at += n;
        n_bytes -= (size_t)n;
    }
}

/* 1: something came; 0: the other side has ended. Fails at the deadline. */
static int talk_more(int fd, struct talk_text *text, int64_t deadline_ns) {
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    int64_t left_ns = deadline_ns - clock_monotonic_ns();
    if (left_ns <= 0 || poll(&wait, 1, (int)(left_ns / 1000000) + 1) == 0) {
        fail_msg("nothing came before the deadline; so far: %.500s",
                 text->bytes != NULL ? text->bytes : "");
    }
    if (text->n_bytes + 65536 + 1 > text->capacity_bytes) {
        text->capacity_bytes = (text->n_bytes + 65536 + 1) * 2;
        assert_true(text->capacity_bytes < TALK_MAX_BYTES);
        text->bytes = realloc(text->bytes, text->capacity_bytes);
        assert_non_null(text->bytes);
    }
    ssize_t n = recv(fd, text->bytes + text->n_bytes, 65536, 0);
    if (n <= 0) {
        text->bytes[text->n_bytes] = '\0';
        return 0;
    }
    text->n_bytes += (size_t)n;
    text->bytes[text->n_bytes] = '\0';
    return 1;
}

static size_t talk_dechunk(char *bytes) {
    char *to = bytes;
    char *from = bytes;
    for (;;) {
        char *end = NULL;
        size_t n = strtoul(from, &end, 16);
        if (n == 0) {
            break;
        }
        from = end + 2;
        memmove(to, from, n);
        to += n;
        from += n + 2;
    }
    *to = '\0';
    return (size_t)(to - bytes);
}

void talk_receive(int fd, int is_head, struct talk_reply *out) {
    struct talk_text text = {0};
    int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(TALK_DEADLINE_S);
    char *body = NULL;
    memset(out, 0, sizeof(*out));
    while (body == NULL) {
        if (!talk_more(fd, &text, deadline_ns)) {
            free(text.bytes);
            return;
        }
        body = strstr(text.bytes, "\r\n\r\n");
    }
    size_t n_head = (size_t)(body - text.bytes) + 4;
    out->head = strndup(text.bytes, n_head);
    assert_non_null(out->head);
    out->status = (int)strtol(out->head + strlen("HTTP/1.1 "), NULL, 10);
    const char *length = strcasestr(out->head, "\r\nContent-Length: ");
    int chunked = strcasestr(out->head, "\r\nTransfer-Encoding: chunked") != NULL;
    size_t wanted = length != NULL ? strtoul(length + 18, NULL, 10) : 0;
    if (!is_head) {
        while ((chunked && strstr(text.bytes + n_head, "0\r\n\r\n") == NULL) ||
               text.n_bytes < n_head + wanted) {
            if (!talk_more(fd, &text, deadline_ns)) {
                break;
            }
        }
    }
    out->body = strdup(is_head ? "" : text.bytes + n_head);
    assert_non_null(out->body);
    out->n_body_bytes = chunked ? talk_dechunk(out->body) : strlen(out->body);
    free(text.bytes);
}

void talk_raw(uint16_t port, const void *bytes, size_t n_bytes, struct talk_reply *out) {
    int fd = talk_connect(port);
    talk_send(fd, bytes, n_bytes);
    (void)shutdown(fd, SHUT_WR);
    talk_receive(fd, 0, out);
    (void)close(fd);
}

void talk_request_with(uint16_t port, const char *lines, const char *method, const char *path,
                       const char *body, struct talk_reply *out) {
    char head[1024];
    int fd = talk_connect(port);
    int n =
        snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n%s",
                 method, path, lines != NULL ? lines : "");
    assert_true(n > 0 && (size_t)n < sizeof(head));
    talk_send(fd, head, (size_t)n);
    if (body != NULL) {
        n = snprintf(head, sizeof(head),
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n", strlen(body));
        talk_send(fd, head, (size_t)n);
    }
    talk_send(fd, "\r\n", 2);
    if (body != NULL) {
        talk_send(fd, body, strlen(body));
    }
    talk_receive(fd, strcmp(method, "HEAD") == 0, out);
    (void)close(fd);
}

void talk_request(uint16_t port, const char *method, const char *path, const char *body,
                  struct talk_reply *out) {
    talk_request_with(port, NULL, method, path, body, out);
}

char *talk_expect(uint16_t port, const char *method, const char *path, const char *body,
                  int status) {
    struct talk_reply reply;
    talk_request(port, method, path, body, &reply);
    if (reply.status != status) {
        fail_msg("%s %s gave %d, expected %d: %s", method, path, reply.status, status,
                 reply.body != NULL ? reply.body : "");
    }
    char *text = reply.body;
    reply.body = NULL;
    talk_reply_done(&reply);
    return text;
}

int talk_stream(uint16_t port, const char *path, const char *last_id) {
    char head[1024];
    int fd = talk_connect(port);
    int n = snprintf(head, sizeof(head), "GET %s HTTP/1.1\r\nHost: localhost\r\n%s%s%s\r\n", path,
                     last_id != NULL ? "Last-Event-ID: " : "", last_id != NULL ? last_id : "",
                     last_id != NULL ? "\r\n" : "");
    talk_send(fd, head, (size_t)n);
    return fd;
}

char *talk_read_until(int fd, const char *needle) {
    struct talk_text text = {0};
    int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(TALK_DEADLINE_S);
    while (text.bytes == NULL || strstr(text.bytes, needle) == NULL) {
        if (!talk_more(fd, &text, deadline_ns)) {
            fail_msg("the stream ended before '%s' came: %.500s", needle, text.bytes);
        }
    }
    return text.bytes;
}

char *talk_read_up_to(int fd, const char *needle) {
    size_t n = 0;
    size_t n_needle = strlen(needle);
    char *text = calloc(1, TALK_LINE_BYTES);
    assert_non_null(text);
    while (n < n_needle || strcmp(text + n - n_needle, needle) != 0) {
        struct pollfd wait = {.fd = fd, .events = POLLIN};
        if (n + 1 == TALK_LINE_BYTES ||
            poll(&wait, 1, (int)(testing_deadline_ns(TALK_DEADLINE_S) / 1000000)) != 1 ||
            recv(fd, text + n, 1, 0) != 1) {
            fail_msg("'%s' has not come, but: %s", needle, text);
        }
        n++;
    }
    return text;
}

int talk_has_ended(int fd, int wait_ms) {
    char bytes[1024];
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    return poll(&wait, 1, wait_ms) == 1 && recv(fd, bytes, sizeof(bytes), 0) <= 0;
}

char *talk_read_to_end(int fd) {
    struct talk_text text = {0};
    int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(TALK_DEADLINE_S);
    while (talk_more(fd, &text, deadline_ns)) {
    }
    return text.bytes;
}

double talk_number(const char *json, const char *key) {
    char quoted[64];
    (void)snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    const char *at = strstr(json, quoted);
    if (at == NULL) {
        fail_msg("there is no %s in %.500s", key, json);
        return 0;
    }
    return strtod(at + strlen(quoted), NULL);
}
