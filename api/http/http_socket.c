#include "http_socket.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* A whole cluster's agents reconnect at once after a restart. */
#define SOCKET_BACKLOG 1024

union socket_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static enum deft_status socket_parse(const char *host, uint16_t port, union socket_address *out,
                                     socklen_t *out_bytes, struct deft_error *error) {
    union socket_address address = {0};
    if (strcmp(host, "localhost") == 0) {
        host = "127.0.0.1";
    }
    if (inet_pton(AF_INET, host, &address.v4.sin_addr) == 1) {
        address.v4.sin_family = AF_INET;
        address.v4.sin_port = htons(port);
        *out_bytes = sizeof(address.v4);
    } else if (inet_pton(AF_INET6, host, &address.v6.sin6_addr) == 1) {
        address.v6.sin6_family = AF_INET6;
        address.v6.sin6_port = htons(port);
        *out_bytes = sizeof(address.v6);
    } else {
        return deft_fail(error, DEFT_INVALID, 0,
                         "'%s' is not an address to listen on; a numeric IPv4 or IPv6 address or "
                         "localhost was expected",
                         host);
    }
    *out = address;
    return DEFT_OK;
}

enum deft_status http_socket_listen(const char *host, uint16_t port, int *out_fd,
                                    uint16_t *out_port, struct deft_error *error) {
    const int on = 1;
    union socket_address address = {0};
    socklen_t n_bytes = 0;
    enum deft_status status = socket_parse(host, port, &address, &n_bytes, error);
    if (status != DEFT_OK) {
        return status;
    }
    int fd = socket(address.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
        bind(fd, &address.any, n_bytes) != 0 || listen(fd, SOCKET_BACKLOG) != 0 ||
        getsockname(fd, &address.any, &n_bytes) != 0) {
        status = deft_fail(error, DEFT_IO, errno, "cannot listen on %s port %u: %s", host,
                           (unsigned)port, strerrordesc_np(errno));
        goto done;
    }
    *out_port =
        ntohs(address.any.sa_family == AF_INET ? address.v4.sin_port : address.v6.sin6_port);
    *out_fd = fd;
    fd = -1;
done:
    if (fd >= 0) {
        (void)close(fd);
    }
    return status;
}
