#include "http_meter.h"

#include <stdlib.h>
#include <string.h>

const int64_t http_latencies_ns[HTTP_LATENCIES] = {1000000,   2500000,    5000000,    10000000,
                                                   25000000,  50000000,   100000000,  250000000,
                                                   500000000, 1000000000, 2500000000, 10000000000};

struct http_meter *http_meter_new(size_t n_routes) {
    struct http_meter *meter = calloc(1, sizeof(*meter));
    if (meter != NULL) {
        meter->n_routes = n_routes;
        meter->routes = calloc(n_routes + 1, sizeof(*meter->routes));
    }
    if (meter != NULL && meter->routes == NULL) {
        free(meter);
        meter = NULL;
    }
    return meter;
}

void http_meter_free(struct http_meter *meter) {
    if (meter != NULL) {
        free(meter->routes);
        free(meter);
    }
}

static void meter_add(_Atomic uint64_t *counter, uint64_t n) {
    (void)atomic_fetch_add_explicit(counter, n, memory_order_relaxed);
}

static uint64_t meter_get(const _Atomic uint64_t *counter) {
    return atomic_load_explicit(counter, memory_order_relaxed);
}

void http_meter_answer(struct http_meter *meter, size_t route, int status, int64_t took_ns) {
    struct http_meter_route *row =
        &meter->routes[route < meter->n_routes ? route : meter->n_routes];
    int class = status / 100 - 1;
    if (class >= 0 && class < HTTP_CLASSES) {
        meter_add(&row->n_answers[class], 1);
    }
    if (took_ns < 0) {
        return;
    }
    for (size_t i = 0; i < HTTP_LATENCIES; i++) {
        if (took_ns <= http_latencies_ns[i]) {
            meter_add(&row->n_within[i], 1);
            break;
        }
    }
    meter_add(&row->n_timed, 1);
    meter_add(&row->sum_ns, (uint64_t)took_ns);
}

void http_meter_read(const struct http_meter *meter, struct http_stats *out) {
    *out = (struct http_stats){.n_connections = meter_get(&meter->n_connections),
                               .n_accepted = meter_get(&meter->n_accepted),
                               .n_malformed = meter_get(&meter->n_malformed),
                               .n_limited = meter_get(&meter->n_limited),
                               .n_refused = meter_get(&meter->n_refused)};
}

void http_meter_read_route(const struct http_meter *meter, size_t route,
                           struct http_route_stats *out) {
    const struct http_meter_route *row =
        &meter->routes[route < meter->n_routes ? route : meter->n_routes];
    uint64_t within = 0;
    for (size_t i = 0; i < HTTP_CLASSES; i++) {
        out->n_answers[i] = meter_get(&row->n_answers[i]);
    }
    for (size_t i = 0; i < HTTP_LATENCIES; i++) {
        within += meter_get(&row->n_within[i]);
        out->n_within[i] = within;
    }
    uint64_t n = meter_get(&row->n_timed);
    out->n_timed = n > within ? n : within; /* never below its own parts */
    out->sum_ns = meter_get(&row->sum_ns);
}
