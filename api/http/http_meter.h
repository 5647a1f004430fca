/* What a server counts. Any thread; readers may see one counter ahead of another. */
#ifndef HTTP_METER_H
#define HTTP_METER_H

#include <stdatomic.h>

#include "http_server.h"

struct http_meter_route {
    _Atomic uint64_t n_answers[HTTP_CLASSES];
    _Atomic uint64_t n_within[HTTP_LATENCIES]; /* slower ones are in no place of these */
    _Atomic uint64_t n_timed;
    _Atomic uint64_t sum_ns;
};
struct http_meter {
    size_t n_routes;
    struct http_meter_route *routes; /* [n_routes + 1]; the last: paths of no route */
    _Atomic uint64_t n_connections;
    _Atomic uint64_t n_accepted;
    _Atomic uint64_t n_malformed;
    _Atomic uint64_t n_limited;
    _Atomic uint64_t n_refused;
};

/* NULL when memory is short. */
struct http_meter *http_meter_new(size_t n_routes);
void http_meter_free(struct http_meter *meter); /* takes NULL */

/* An answer with this status; `took_ns` < 0: it says nothing about speed (a stream). */
void http_meter_answer(struct http_meter *meter, size_t route, int status, int64_t took_ns);
void http_meter_read(const struct http_meter *meter, struct http_stats *out);
void http_meter_read_route(const struct http_meter *meter, size_t route,
                           struct http_route_stats *out);

#endif
