#include "runtime/star_state.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "runtime/star_io.h"

#define STAR_NS_PER_S INT64_C(1000000000)
/* Between two attempts to reach a rank 0 that has not started yet. */
#define STAR_RETRY_NS INT64_C(50000000)

static void star_fill_hello(const struct star *star, struct star_io_hello *hello) {
    memset(hello, 0, sizeof(*hello));
    hello->rank = star->rank;
    hello->n_ranks = star->n_ranks;
    if (gethostname(hello->host, sizeof(hello->host) - 1) != 0) {
        memcpy(hello->host, "unknown", sizeof("unknown"));
    }
}

/* --- rank 0: accept everybody ----------------------------------------------------------------- */

/* The listener is dual-stack: IPv4 addresses show as ::ffff:10.0.0.1. */
static void star_address_text(const struct sockaddr_storage *address, socklen_t length, char *out,
                              size_t n_bytes) {
    char text[NI_MAXHOST] = "?";
    (void)getnameinfo((const struct sockaddr *)address, length, text, sizeof(text), NULL, 0,
                      NI_NUMERICHOST);
    (void)snprintf(out, n_bytes, "%s", strncmp(text, "::ffff:", 7) == 0 ? text + 7 : text);
}

static void star_name_peer(struct star_peer *peer, const char *host, int32_t rank) {
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    char where[NI_MAXHOST] = "?";
    if (getpeername(peer->fd, (struct sockaddr *)&address, &length) == 0) {
        star_address_text(&address, length, where, sizeof(where));
    }
    (void)snprintf(peer->name, sizeof(peer->name), "rank %d (%.63s, %.45s)", rank, host, where);
}

static void star_refuse(int fd, int64_t deadline_ns, const char *text) {
    deft_ignore(star_io_send(fd, STAR_IO_REFUSE, text, strlen(text) + 1, deadline_ns, NULL));
    (void)close(fd);
}

/* A stranger on the port must not end the job; only a rank of a wrong world does. */
static enum deft_status star_admit(struct star *star, int fd, int64_t deadline_ns,
                                   struct deft_error *error) {
    struct star_io_header header;
    struct star_io_hello hello;
    int64_t patience_ns = clock_monotonic_ns() + 5 * STAR_NS_PER_S;
    star_io_tune(fd);
    if (star_io_header(fd, &header, patience_ns, NULL) != DEFT_OK || header.type != STAR_IO_HELLO ||
        header.n_bytes != sizeof(hello) ||
        star_io_body(fd, &hello, sizeof(hello), patience_ns, NULL) != DEFT_OK) {
        (void)close(fd);
        return DEFT_OK;
    }
    hello.host[sizeof(hello.host) - 1] = '\0';
    char text[STAR_IO_TEXT_BYTES];
    if (hello.n_ranks != star->n_ranks || hello.rank < 1 || hello.rank >= star->n_ranks) {
        (void)snprintf(text, sizeof(text),
                       "rank %d of a world of %d met rank 0 of a world of %d ranks", hello.rank,
                       hello.n_ranks, star->n_ranks);
        star_refuse(fd, deadline_ns, text);
        return deft_fail(error, DEFT_MISMATCH, 0, "%s", text);
    }
    struct star_peer *peer = &star->peers[hello.rank];
    if (peer->fd >= 0) {
        (void)snprintf(text, sizeof(text), "rank %d came twice: first from %s, then from %s",
                       hello.rank, peer->name, hello.host);
        star_refuse(fd, deadline_ns, text);
        return deft_fail(error, DEFT_MISMATCH, 0, "%s", text);
    }
    peer->fd = fd;
    star_name_peer(peer, hello.host, hello.rank);
    return DEFT_OK;
}

static enum deft_status star_missing(const struct star *star, int64_t timeout_ns,
                                     struct deft_error *error) {
    char list[128] = "";
    size_t length = 0;
    for (int32_t r = 1; r < star->n_ranks && length + 16 < sizeof(list); r++) {
        if (star->peers[r].fd < 0) {
            length += (size_t)snprintf(list + length, sizeof(list) - length, "%s%d",
                                       length > 0 ? ", " : "", r);
        }
    }
    return deft_fail(error, DEFT_TIMEOUT, 0,
                     "rank 0 waited %lld s on port %u, but these ranks did not come: %s",
                     (long long)(timeout_ns / STAR_NS_PER_S), star->port, list);
}

static enum deft_status star_listen(struct star *star, int *out_fd, struct deft_error *error) {
    int on = 1;
    int off = 0;
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6, .sin6_port = htons(star->port)};
    struct sockaddr_in any4 = {.sin_family = AF_INET, .sin_port = htons(star->port)};
    struct sockaddr *address = (struct sockaddr *)&any6;
    socklen_t length = sizeof(any6);
    if (fd < 0) { /* a kernel without IPv6 */
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        address = (struct sockaddr *)&any4;
        length = sizeof(any4);
    } else {
        (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    }
    if (fd < 0) {
        return deft_fail(error, DEFT_IO, errno, "rank 0 cannot make a socket: %s", strerror(errno));
    }
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, address, length) != 0 || listen(fd, 512) != 0) {
        int code = errno;
        (void)close(fd);
        return deft_fail(error, DEFT_IO, code, "rank 0 cannot listen on port %u: %s", star->port,
                         strerror(code));
    }
    *out_fd = fd;
    return DEFT_OK;
}

/* Closes `listener`. */
static enum deft_status star_gather_ranks(struct star *star, int listener, int64_t timeout_ns,
                                          struct deft_error *error) {
    int64_t deadline_ns = clock_monotonic_ns() + timeout_ns;
    enum deft_status status = DEFT_OK;
    if (listener < 0) {
        status = star_listen(star, &listener, error);
    }
    int32_t n_missing = star->n_ranks - 1;
    while (status == DEFT_OK && n_missing > 0) {
        if (!star_io_poll(listener, POLLIN, deadline_ns)) {
            status = star_missing(star, timeout_ns, error);
            break;
        }
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd >= 0) {
            status = star_admit(star, fd, deadline_ns, error);
        }
        n_missing = 0;
        for (int32_t r = 1; r < star->n_ranks; r++) {
            n_missing += star->peers[r].fd < 0;
        }
    }
    star_io_close(listener);
    return status;
}

/* --- other ranks: reach rank 0 ---------------------------------------------------------------- */

/* One attempt. Returns the socket or -1 with `*out_code` set. */
static int star_try_connect(const struct addrinfo *address, int64_t deadline_ns, int *out_code) {
    int fd = socket(address->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        *out_code = errno;
        return -1;
    }
    if (connect(fd, address->ai_addr, address->ai_addrlen) != 0) {
        int code = errno;
        socklen_t length = sizeof(code);
        if (code == EINPROGRESS) {
            code = ETIMEDOUT;
            if (star_io_poll(fd, POLLOUT, deadline_ns)) {
                (void)getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length);
            }
        }
        if (code != 0) {
            (void)close(fd);
            *out_code = code;
            return -1;
        }
    }
    return fd;
}

static enum deft_status star_connect(struct star *star, const char *host, int64_t timeout_ns,
                                     struct deft_error *error) {
    int64_t deadline_ns = clock_monotonic_ns() + timeout_ns;
    char port[8];
    (void)snprintf(port, sizeof(port), "%u", star->port);
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    int fd = -1;
    int code = 0;
    const char *why = "";
    while (fd < 0 && clock_monotonic_ns() < deadline_ns) {
        struct addrinfo *found = NULL;
        int lookup = getaddrinfo(host, port, &hints, &found);
        why = lookup != 0 ? gai_strerror(lookup) : "";
        for (struct addrinfo *a = found; a != NULL && fd < 0; a = a->ai_next) {
            fd = star_try_connect(a, deadline_ns, &code);
            why = strerror(code);
        }
        if (found != NULL) {
            freeaddrinfo(found);
        }
        if (fd < 0) {
            struct timespec pause = {.tv_nsec = STAR_RETRY_NS};
            (void)nanosleep(&pause, NULL);
        }
    }
    if (fd < 0) {
        return deft_fail(error, DEFT_TIMEOUT, code, "rank %d waited %lld s for rank 0 at %s:%s: %s",
                         star->rank, (long long)(timeout_ns / STAR_NS_PER_S), host, port, why);
    }
    star_io_tune(fd);
    star->peers[0].fd = fd;
    (void)snprintf(star->peers[0].name, sizeof(star->peers[0].name), "rank 0 (%.100s:%s)", host,
                   port);
    struct star_io_hello hello;
    star_fill_hello(star, &hello);
    return star_io_send(fd, STAR_IO_HELLO, &hello, sizeof(hello), deadline_ns, error);
}

/* --- public ----------------------------------------------------------------------------------- */

enum deft_status star_open(const char *master_host, uint16_t master_port, int listener,
                           int32_t rank, int32_t n_ranks, int64_t timeout_ns, struct star **out,
                           struct deft_error *error) {
    struct star *star = calloc(1, sizeof(*star));
    struct star_peer *peers = calloc((size_t)n_ranks, sizeof(*peers));
    if (star == NULL || peers == NULL) {
        free(star);
        free(peers);
        star_io_close(listener);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for %d connections", n_ranks);
    }
    for (int32_t r = 0; r < n_ranks; r++) {
        peers[r].fd = -1;
    }
    star->rank = rank;
    star->n_ranks = n_ranks;
    star->port = master_port;
    star->timeout_ns = timeout_ns;
    star->peers = peers;
    star->wake_fd = -1;
    star->departed = -1;
    (void)pthread_mutex_init(&star->lock, NULL);
    (void)thread_condition_init(&star->changed);
    enum deft_status status = DEFT_OK;
    if (n_ranks > 1) {
        status = rank == 0 ? star_gather_ranks(star, listener, timeout_ns, error)
                           : star_connect(star, master_host, timeout_ns, error);
    }
    if (n_ranks == 1 || rank != 0) {
        star_io_close(listener);
    }
    if (status != DEFT_OK) {
        star_close(star, NULL);
        return status;
    }
    *out = star;
    return DEFT_OK;
}

static enum deft_status star_receive(struct star *star, int32_t from, void *out, size_t n_bytes,
                                     int64_t deadline_ns, struct deft_error *error) {
    struct star_io_header header;
    int fd = star->peers[from].fd;
    enum deft_status status = star_io_header(fd, &header, deadline_ns, error);
    if (status == DEFT_OK && header.type == STAR_IO_GATHER && header.n_bytes == n_bytes) {
        return star_io_body(fd, out, n_bytes, deadline_ns, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    char text[STAR_IO_TEXT_BYTES] = "";
    if (header.type == STAR_IO_GATHER || header.n_bytes >= sizeof(text) ||
        star_io_body(fd, text, (size_t)header.n_bytes, deadline_ns, NULL) != DEFT_OK) {
        return deft_fail(error, DEFT_MISMATCH, 0,
                         "it sent %llu bytes where %zu were expected: do all ranks run the same "
                         "program?",
                         (unsigned long long)header.n_bytes, n_bytes);
    }
    return deft_fail(error, DEFT_PEER_LOST, 0, "it ended: %s", text);
}

static enum deft_status star_exchange(struct star *star, const void *in, size_t n_bytes,
                                      uint8_t *out, int32_t *out_peer, struct deft_error *error) {
    int64_t deadline_ns = clock_monotonic_ns() + star->timeout_ns;
    size_t total = n_bytes * (size_t)star->n_ranks;
    enum deft_status status = DEFT_OK;
    memcpy(out + (size_t)star->rank * n_bytes, in, n_bytes);
    if (star->rank != 0) {
        *out_peer = 0;
        status = star_io_send(star->peers[0].fd, STAR_IO_GATHER, in, n_bytes, deadline_ns, error);
        if (status == DEFT_OK) {
            status = star_receive(star, 0, out, total, deadline_ns, error);
        }
        return status;
    }
    for (int32_t r = 1; r < star->n_ranks && status == DEFT_OK; r++) {
        *out_peer = r;
        status = star_receive(star, r, out + (size_t)r * n_bytes, n_bytes, deadline_ns, error);
    }
    for (int32_t r = 1; r < star->n_ranks && status == DEFT_OK; r++) {
        *out_peer = r;
        status = star_io_send(star->peers[r].fd, STAR_IO_GATHER, out, total, deadline_ns, error);
    }
    return status;
}

int star_allgather(void *context, const void *in, size_t n_bytes, void *out) {
    struct star *star = context;
    struct deft_error error = {.status = DEFT_OK};
    int32_t peer = 0;
    if (n_bytes > STAR_MAX_GATHER_BYTES) {
        (void)deft_fail(&star->failure, DEFT_LIMIT, 0,
                        "an all-gather of %zu bytes per rank was asked for, at most %u are allowed",
                        n_bytes, STAR_MAX_GATHER_BYTES);
        return 1;
    }
    if (star_exchange(star, in, n_bytes, out, &peer, &error) == DEFT_OK) {
        return 0;
    }
    (void)deft_fail(&star->failure, error.status == DEFT_CLOSED ? DEFT_PEER_LOST : error.status,
                    error.backend_code, "%s: %s", star->peers[peer].name, error.text);
    return 1;
}

enum deft_status star_own_address(const struct star *star, char *out, size_t n_bytes,
                                  struct deft_error *error) {
    struct sockaddr_storage address;
    socklen_t length = sizeof(address);
    int fd = star->n_ranks > 1 ? star->peers[star->rank == 0 ? 1 : 0].fd : -1;
    if (fd < 0 || getsockname(fd, (struct sockaddr *)&address, &length) != 0) {
        return deft_fail(error, DEFT_STATE, fd < 0 ? 0 : errno,
                         "rank %d has no connection that would tell its address", star->rank);
    }
    star_address_text(&address, length, out, n_bytes);
    return DEFT_OK;
}

const struct deft_error *star_failure(const struct star *star) {
    return &star->failure;
}

void star_forked(struct star *star) {
    for (int32_t r = 0; star != NULL && r < star->n_ranks; r++) {
        if (star->peers[r].fd >= 0) {
            (void)close(star->peers[r].fd);
            star->peers[r].fd = -1;
        }
    }
}
