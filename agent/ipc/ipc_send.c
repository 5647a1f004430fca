/* One frame onto a socket, within a time limit and without SIGPIPE. */
#include "ipc/ipc.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "base/clock.h"

#define IPC_SEND_PARTS 3

static void ipc_send_advance(struct iovec *parts, size_t n_bytes) {
    for (int i = 0; i < IPC_SEND_PARTS && n_bytes > 0; i++) {
        size_t n = n_bytes < parts[i].iov_len ? n_bytes : parts[i].iov_len;
        parts[i].iov_base = (uint8_t *)parts[i].iov_base + n;
        parts[i].iov_len -= n;
        n_bytes -= n;
    }
}

static enum deft_status ipc_send_wait(int fd, int64_t deadline_ns, int timeout_ms,
                                      struct deft_error *error) {
    int64_t left_ns = deadline_ns - clock_monotonic_ns();
    struct pollfd poll_fd = {.fd = fd, .events = POLLOUT};
    int n = left_ns <= 0 ? 0 : poll(&poll_fd, 1, (int)((left_ns + 999999) / 1000000));
    if (n > 0 || (n < 0 && errno == EINTR)) {
        return DEFT_OK;
    }
    if (n == 0) {
        return deft_fail(error, DEFT_TIMEOUT, 0, "the peer did not take a frame within %d ms",
                         timeout_ms);
    }
    return deft_fail(error, DEFT_IO, errno, "waiting for room to send failed: %s", strerror(errno));
}

enum deft_status ipc_send(int fd, uint16_t type, const void *head, size_t head_bytes,
                          const void *tail, size_t tail_bytes, int timeout_ms,
                          struct deft_error *error) {
    if (head_bytes > IPC_MAX_PAYLOAD_BYTES || tail_bytes > IPC_MAX_PAYLOAD_BYTES - head_bytes) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "a frame would have %zu + %zu payload bytes, at most %u are allowed",
                         head_bytes, tail_bytes, IPC_MAX_PAYLOAD_BYTES);
    }
    struct ipc_header header = {.magic = IPC_MAGIC,
                                .version = IPC_VERSION,
                                .type = type,
                                .payload_bytes = (uint32_t)(head_bytes + tail_bytes)};
    /* iov_base is not const, but sendmsg only reads. */
    union {
        const void *in;
        void *out;
    } head_base = {.in = head}, tail_base = {.in = tail};
    struct iovec parts[IPC_SEND_PARTS] = {
        {&header, sizeof(header)}, {head_base.out, head_bytes}, {tail_base.out, tail_bytes}};
    size_t left_bytes = sizeof(header) + head_bytes + tail_bytes;
    int64_t deadline_ns = clock_monotonic_ns() + (int64_t)timeout_ms * 1000000;
    while (left_bytes > 0) {
        struct msghdr message = {.msg_iov = parts, .msg_iovlen = IPC_SEND_PARTS};
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            ipc_send_advance(parts, (size_t)n);
            left_bytes -= (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            enum deft_status status = ipc_send_wait(fd, deadline_ns, timeout_ms, error);
            if (status != DEFT_OK) {
                return status;
            }
        } else if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN) {
            return deft_fail(error, DEFT_CLOSED, errno, "the peer has closed the connection");
        } else if (errno != EINTR) {
            return deft_fail(error, DEFT_IO, errno, "sending to the peer failed: %s",
                             strerror(errno));
        }
    }
    return DEFT_OK;
}
