/* The REST API: routes, and nothing that another room could do. */
#ifndef SERVICE_H
#define SERVICE_H

#include <stddef.h>

#include "http/http_server.h"
#include "jobs.h"
#include "store/store.h"

struct service {
    struct store *store;
    struct jobs *jobs;
};

/* Handlers take a `struct service *` as context. */
extern const struct http_route service_routes[];
extern const size_t service_n_routes;

#endif
