/* Unix sockets: names, stale files, and who is at the other end. */
#include "ipc/ipc.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* Ranks of one node connect at the same moment. */
#define IPC_SOCKET_BACKLOG 256

static enum deft_status ipc_socket_address(const char *path, struct sockaddr_un *out,
                                           socklen_t *out_bytes, struct deft_error *error) {
    size_t length = strlen(path);
    if (length == 0 || (path[0] == '@' && length == 1)) {
        return deft_fail(error, DEFT_INVALID, 0, "the agent's socket has an empty name");
    }
    if (length >= sizeof(out->sun_path)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "the socket path '%.60s...' has %zu bytes, at most %zu are allowed", path,
                         length, sizeof(out->sun_path) - 1);
    }
    *out = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(out->sun_path, path, length);
    *out_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (path[0] == '@') {
        out->sun_path[0] = '\0';
    } else {
        (*out_bytes)++;
    }
    return DEFT_OK;
}

static enum deft_status ipc_socket_new(int *out_fd, struct deft_error *error) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        return deft_fail(error, DEFT_IO, errno, "a Unix socket cannot be made: %s",
                         strerror(errno));
    }
    *out_fd = fd;
    return DEFT_OK;
}

static enum deft_status ipc_socket_check_peer(int fd, struct deft_error *error) {
    struct ucred peer;
    socklen_t n_bytes = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n_bytes) != 0) {
        return deft_fail(error, DEFT_IO, errno, "the peer's user is unknown: %s", strerror(errno));
    }
    if (peer.uid != geteuid() && peer.uid != 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "the peer (pid %ld) runs as user %lu, expected user %lu or root",
                         (long)peer.pid, (unsigned long)peer.uid, (unsigned long)geteuid());
    }
    return DEFT_OK;
}

enum deft_status ipc_connect(const char *path, int *out_fd, struct deft_error *error) {
    struct sockaddr_un address = {0};
    socklen_t address_bytes = 0;
    int fd = -1;
    enum deft_status status = ipc_socket_address(path, &address, &address_bytes, error);
    if (status == DEFT_OK) {
        status = ipc_socket_new(&fd, error);
    }
    if (status == DEFT_OK && connect(fd, (const struct sockaddr *)&address, address_bytes) != 0) {
        int code = errno;
        status = deft_fail(error, code == ENOENT || code == ECONNREFUSED ? DEFT_NOT_FOUND : DEFT_IO,
                           code, "no agent answers on socket '%s': %s", path, strerror(code));
    }
    if (status == DEFT_OK) {
        status = ipc_socket_check_peer(fd, error);
    }
    if (status != DEFT_OK) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return status;
    }
    *out_fd = fd;
    return DEFT_OK;
}

/* Makes way at `path`: a socket whose listener died stays behind as a file. */
static enum deft_status ipc_socket_clear(const char *path, const struct sockaddr_un *address,
                                         socklen_t address_bytes, struct deft_error *error) {
    struct stat info;
    int probe = -1;
    if (path[0] == '@' || lstat(path, &info) != 0) {
        return DEFT_OK;
    }
    if (!S_ISSOCK(info.st_mode)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "'%s' exists and is not a socket; it is left alone", path);
    }
    enum deft_status status = ipc_socket_new(&probe, error);
    if (status != DEFT_OK) {
        return status;
    }
    int connected = connect(probe, (const struct sockaddr *)address, address_bytes) == 0;
    int code = errno;
    (void)close(probe);
    if (connected || code == EAGAIN) {
        return deft_fail(error, DEFT_STATE, 0, "another agent already listens on '%s'", path);
    }
    if (code == ECONNREFUSED && unlink(path) != 0 && errno != ENOENT) {
        return deft_fail(error, DEFT_IO, errno, "the stale socket '%s' cannot be removed: %s", path,
                         strerror(errno));
    }
    return DEFT_OK;
}

enum deft_status ipc_listen(const char *path, int *out_fd, struct deft_error *error) {
    struct sockaddr_un address = {0};
    socklen_t address_bytes = 0;
    int fd = -1;
    enum deft_status status = ipc_socket_address(path, &address, &address_bytes, error);
    if (status == DEFT_OK) {
        status = ipc_socket_clear(path, &address, address_bytes, error);
    }
    if (status == DEFT_OK) {
        status = ipc_socket_new(&fd, error);
    }
    /* Linux takes the mode of the file from the socket's inode, so there is no moment at which
     * others could connect. */
    if (status == DEFT_OK && (fchmod(fd, S_IRUSR | S_IWUSR) != 0 ||
                              bind(fd, (const struct sockaddr *)&address, address_bytes) != 0 ||
                              listen(fd, IPC_SOCKET_BACKLOG) != 0)) {
        status = deft_fail(error, errno == EADDRINUSE ? DEFT_STATE : DEFT_IO, errno,
                           "the agent cannot listen on '%s': %s", path, strerror(errno));
    }
    if (status != DEFT_OK) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return status;
    }
    *out_fd = fd;
    return DEFT_OK;
}

enum deft_status ipc_accept(int listen_fd, int *out_fd, struct deft_error *error) {
    int fd;
    do {
        fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0) {
        if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return deft_fail(error, DEFT_TIMEOUT, 0, "no rank waits to connect");
        }
        return deft_fail(error, DEFT_IO, errno, "a rank's connection cannot be accepted: %s",
                         strerror(errno));
    }
    enum deft_status status = ipc_socket_check_peer(fd, error);
    if (status != DEFT_OK) {
        (void)close(fd);
        return status;
    }
    *out_fd = fd;
    return DEFT_OK;
}
