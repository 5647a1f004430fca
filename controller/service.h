/* The REST API: routes, and nothing that another room could do. */
#ifndef SERVICE_H
#define SERVICE_H

#include <stddef.h>

#include "http/http_server.h"
#include "jobs.h"
#include "store/store.h"

/* What a route asks for. */
enum service_need {
    SERVICE_OPERATOR, /* also where nothing is said */
    SERVICE_VIEWER,   /* or an operator */
    SERVICE_AGENT,    /* of the job or incarnation in the path, or an operator */
    SERVICE_NOBODY,   /* open */
};

struct service {
    struct store *store;
    struct jobs *jobs;
};

/* Handlers take a `struct service *` as context. */
extern const struct http_route service_routes[];
extern const size_t service_n_routes;

#endif
