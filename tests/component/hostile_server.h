/* A server with a few simple routes, for tests of what clients do to it. */
#ifndef HOSTILE_SERVER_H
#define HOSTILE_SERVER_H

#include "http/http_server.h"

#define HOSTILE_MAX_BODY_BYTES 100000u
/* The header that most requests have. */
#define HOST "Host: localhost\r\n"

/* POST /echo, GET /names/{name}, GET /long (20,000 bytes), GET /stream (one event). Whatever has
 * the header X-Refuse is refused with 401. */
struct hostile_server {
    struct http_server *server;
    uint16_t port;
    struct http_server_options options; /* to be changed before it starts */
};
void hostile_server_prepare(struct hostile_server *f);
void hostile_server_launch(struct hostile_server *f);
/* Both. */
void hostile_server_start(struct hostile_server *f);
void hostile_server_stop(struct hostile_server *f);

/* The answer to `text` must be a problem of this status and code. */
void hostile_server_problem(struct hostile_server *f, const char *text, int status,
                            const char *code);
/* The answer to `text` must be 200 with this body. */
void hostile_server_echo(struct hostile_server *f, const char *text, const char *body);

#endif
