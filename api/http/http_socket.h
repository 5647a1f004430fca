/* The listening socket. */
#ifndef HTTP_SOCKET_H
#define HTTP_SOCKET_H

#include <stdint.h>

#include <deft/status.h>

/* Binds and listens; `host` is a numeric address or "localhost". Port 0: the system chooses. */
DEFT_NODISCARD enum deft_status http_socket_listen(const char *host, uint16_t port, int *out_fd,
                                                   uint16_t *out_port, struct deft_error *error);

#endif
