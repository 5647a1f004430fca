#include "runtime/star_io.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "runtime/star.h"

void star_io_close(int fd) {
    if (fd >= 0) {
        (void)close(fd);
    }
}

#define STAR_IO_NS_PER_MS INT64_C(1000000)
#define STAR_IO_POLL_MS   1000

int star_io_poll(int fd, short events, int64_t deadline_ns) {
    for (;;) {
        int64_t left_ms =
            (deadline_ns - clock_monotonic_ns() + STAR_IO_NS_PER_MS - 1) / STAR_IO_NS_PER_MS;
        if (left_ms <= 0) {
            left_ms = 0;
        }
        struct pollfd one = {.fd = fd, .events = events};
        int n = poll(&one, 1, left_ms > STAR_IO_POLL_MS ? STAR_IO_POLL_MS : (int)left_ms);
        if (n > 0) {
            return 1;
        }
        if ((n == 0 && left_ms <= STAR_IO_POLL_MS) || (n < 0 && errno != EINTR)) {
            return 0;
        }
    }
}

static enum deft_status io_fail(int code, struct deft_error *error) {
    if (code == EPIPE || code == ECONNRESET) {
        return deft_fail(error, DEFT_CLOSED, code, "its connection was closed");
    }
    return deft_fail(error, DEFT_IO, code, "%s", strerror(code));
}

static enum deft_status io_write(int fd, const void *bytes, size_t n_bytes, int64_t deadline_ns,
                                 struct deft_error *error) {
    const uint8_t *from = bytes;
    while (n_bytes > 0) {
        ssize_t n = send(fd, from, n_bytes, MSG_NOSIGNAL);
        if (n > 0) {
            from += n;
            n_bytes -= (size_t)n;
        } else if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            if (!star_io_poll(fd, POLLOUT, deadline_ns)) {
                return deft_fail(error, DEFT_TIMEOUT, 0, "it takes no data");
            }
        } else if (n < 0 && errno != EINTR) {
            return io_fail(errno, error);
        }
    }
    return DEFT_OK;
}

enum deft_status star_io_body(int fd, void *out, size_t n_bytes, int64_t deadline_ns,
                              struct deft_error *error) {
    uint8_t *into = out;
    while (n_bytes > 0) {
        ssize_t n = recv(fd, into, n_bytes, 0);
        if (n > 0) {
            into += n;
            n_bytes -= (size_t)n;
        } else if (n == 0) {
            return io_fail(ECONNRESET, error);
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!star_io_poll(fd, POLLIN, deadline_ns)) {
                return deft_fail(error, DEFT_TIMEOUT, 0, "it sends no data");
            }
        } else if (errno != EINTR) {
            return io_fail(errno, error);
        }
    }
    return DEFT_OK;
}

enum deft_status star_io_send(int fd, uint32_t type, const void *bytes, size_t n_bytes,
                              int64_t deadline_ns, struct deft_error *error) {
    struct star_io_header header = {.magic = STAR_IO_MAGIC, .type = type, .n_bytes = n_bytes};
    enum deft_status status = io_write(fd, &header, sizeof(header), deadline_ns, error);
    if (status == DEFT_OK && n_bytes > 0) {
        status = io_write(fd, bytes, n_bytes, deadline_ns, error);
    }
    return status;
}

enum deft_status star_io_header(int fd, struct star_io_header *out, int64_t deadline_ns,
                                struct deft_error *error) {
    struct star_io_header header;
    enum deft_status status = star_io_body(fd, &header, sizeof(header), deadline_ns, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (header.magic != STAR_IO_MAGIC) {
        return deft_fail(error, DEFT_MISMATCH, 0, "it does not speak this protocol");
    }
    *out = header;
    return DEFT_OK;
}

void star_io_tune(int fd) {
    int on = 1;
    int idle_s = STAR_SILENCE_S / 3;
    int interval_s = STAR_SILENCE_S / 3;
    int n_probes = 2;
    unsigned silence_ms = STAR_SILENCE_S * 1000u;
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    (void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof(idle_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval_s, sizeof(interval_s));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &n_probes, sizeof(n_probes));
    (void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &silence_ms, sizeof(silence_ms));
    (void)fcntl(fd, F_SETFD, FD_CLOEXEC);
    (void)fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}
