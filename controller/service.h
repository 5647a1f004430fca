/* The REST API: routes, and nothing that another room could do. */
#ifndef SERVICE_H
#define SERVICE_H

#include <stdatomic.h>
#include <stddef.h>

#include "access.h"
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

struct config;
struct service_changes;

struct service {
    struct store *store;
    struct jobs *jobs;
    struct access *access;
    struct config *config;
    struct service_changes *changes;
    int wants_certificates;   /* of clients */
    unsigned n_metric_jobs;   /* running jobs with metrics of their own, at most */
    struct http_tls *tls;     /* NULL: plain */
    atomic_int is_simulating; /* POST /simulate is at work */
};

/* Handlers take a `struct service *` as context. */
extern const struct http_route service_routes[];
extern const size_t service_n_routes;

/* For http_server_options: whether the request may do what its route does. */
int service_authorize(struct http_request *request, const struct http_route *route, void *context);
/* For http_server_check_streams: whether a stream's token still holds. */
int service_keeps_stream(uint64_t user, void *context);

#endif
