#include "controller_peer.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "http/http_server.h"
#include "testing.h"
#include "wire/wire.h"

#define PEER_MAX_STREAMS 16u
#define PEER_MAX_EVENTS  256u
#define PEER_MAX_STARTS  8u

struct controller_peer {
    struct http_server *server;
    pthread_mutex_t lock;
    struct http_stream *streams[PEER_MAX_STREAMS];
    size_t n_streams;
    char *plan; /* data of the newest plan event */
    uint64_t plan_seq;
    unsigned lose_every;
    int is_other;
    unsigned n_reports;
    int forgotten;
    unsigned n_registrations;
    unsigned n_local_ranks;
    /* Per start of the job, as a controller counts. */
    char keys[PEER_MAX_STARTS][WIRE_ID_BYTES];
    uint64_t committed_seq[PEER_MAX_STARTS];
    unsigned n_gaps;
    unsigned n_repeats;
    int64_t refused_ns; /* when a report was last answered with 503; 0: the last one was not */
    int64_t least_pause_ns;
    uint64_t n_ops;
    int ops_sound;
    uint8_t counts[CONTROLLER_PEER_MAX_RANKS][CONTROLLER_PEER_MAX_ITERATIONS];
    unsigned n_iterations[CONTROLLER_PEER_MAX_RANKS];
    struct {
        char kind[16];
        uint64_t plan_seq;
    } events[PEER_MAX_EVENTS];
    size_t n_events;
};

static void peer_answer(struct http_request *request, char *json) {
    http_respond(request, 200, "application/json", json, strlen(json));
    free(json);
}

static unsigned peer_start_of(struct controller_peer *peer, const char *key) {
    unsigned i = 0;
    while (i < PEER_MAX_STARTS && peer->keys[i][0] != '\0' && strcmp(peer->keys[i], key) != 0) {
        i++;
    }
    assert_true(i < PEER_MAX_STARTS);
    (void)snprintf(peer->keys[i], sizeof(peer->keys[i]), "%s", key);
    return i;
}

static void peer_register(struct http_request *request, void *context) {
    struct controller_peer *peer = context;
    struct wire_registration registration = {0};
    struct wire_registered answer = {.mode = "auto"};
    size_t n_bytes;
    char *json = NULL;
    struct deft_error error = {0};
    const char *body = http_request_body(request, &n_bytes);
    if (wire_registration_decode(body, n_bytes, &registration, &error) != DEFT_OK) {
        http_respond_problem(request, 400, "invalid", "body", "%s", error.text);
        return;
    }
    (void)snprintf(answer.job, sizeof(answer.job), "%s", http_request_param(request, "job"));
    (void)pthread_mutex_lock(&peer->lock);
    peer->n_registrations++;
    peer->n_local_ranks = registration.n_local_ranks;
    peer->forgotten = 0;
    int is_other = peer->is_other;
    unsigned start = peer_start_of(peer, registration.key);
    (void)snprintf(answer.incarnation, sizeof(answer.incarnation), "i%u", start + 1);
    answer.committed_seq = peer->committed_seq[start];
    (void)pthread_mutex_unlock(&peer->lock);
    wire_registration_done(&registration);
    if (is_other) {
        http_respond(request, 200, "text/html", "<p>Sign in", 10);
        return;
    }
    assert_int_equal(wire_registered_encode(&answer, &json, NULL), DEFT_OK);
    peer_answer(request, json);
}

static void peer_commit(struct controller_peer *peer, uint64_t *committed_seq,
                        const struct wire_report *report) {
    if (report->seq <= *committed_seq) {
        peer->n_repeats++;
        return;
    }
    peer->n_gaps += report->seq != *committed_seq + 1;
    *committed_seq = report->seq;
    for (uint32_t i = 0; i < report->n_iterations; i++) {
        const struct wire_iteration *iteration = &report->iterations[i];
        if (iteration->rank < CONTROLLER_PEER_MAX_RANKS &&
            iteration->iteration < CONTROLLER_PEER_MAX_ITERATIONS) {
            peer->counts[iteration->rank][iteration->iteration]++;
            peer->n_iterations[iteration->rank]++;
        }
    }
    for (uint32_t i = 0; i < report->n_ops; i++) {
        const struct wire_op_summary *op = &report->ops[i];
        peer->n_ops += op->count;
        peer->ops_sound &= op->min_ns <= op->median_ns && op->median_ns <= op->max_ns;
    }
    for (uint32_t i = 0; i < report->n_events && peer->n_events < PEER_MAX_EVENTS; i++) {
        (void)snprintf(peer->events[peer->n_events].kind, sizeof(peer->events[0].kind), "%s",
                       report->events[i].kind);
        peer->events[peer->n_events++].plan_seq = report->events[i].plan_seq;
    }
}

static void peer_report(struct http_request *request, void *context) {
    struct controller_peer *peer = context;
    struct wire_report report = {0};
    struct deft_error error = {0};
    size_t n_bytes;
    char *json = NULL;
    const char *body = http_request_body(request, &n_bytes);
    if (wire_report_decode(body, n_bytes, &report, &error) != DEFT_OK) {
        http_respond_problem(request, 400, "invalid", "body", "%s", error.text);
        return;
    }
    const char *id = http_request_param(request, "id"); /* "i1" */
    unsigned long number = strtoul(id + 1, NULL, 10);
    assert_true(number >= 1 && number <= PEER_MAX_STARTS);
    uint64_t *committed = &peer->committed_seq[number - 1];
    (void)pthread_mutex_lock(&peer->lock);
    int64_t now_ns = clock_monotonic_ns();
    if (peer->refused_ns != 0 && now_ns - peer->refused_ns < peer->least_pause_ns) {
        peer->least_pause_ns = now_ns - peer->refused_ns;
    }
    int is_forgotten = peer->forgotten;
    if (!is_forgotten) {
        peer_commit(peer, committed, &report);
    }
    peer->n_reports++;
    int is_lost = peer->lose_every != 0 && peer->n_reports % peer->lose_every == 0;
    peer->refused_ns = is_lost && !is_forgotten ? clock_monotonic_ns() : 0;
    uint64_t committed_seq = *committed;
    (void)pthread_mutex_unlock(&peer->lock);
    wire_report_done(&report);
    if (is_forgotten) {
        http_respond_problem(request, 404, "not_found", "id", "there is no such incarnation");
    } else if (is_lost) {
        http_respond_problem(request, 503, "busy", "", "the answer is lost");
    } else {
        assert_int_equal(wire_committed_encode(committed_seq, &json, NULL), DEFT_OK);
        peer_answer(request, json);
    }
}

static void peer_events(struct http_request *request, void *context) {
    struct controller_peer *peer = context;
    char id[24];
    struct http_stream *stream = http_respond_stream(request);
    (void)pthread_mutex_lock(&peer->lock);
    if (stream != NULL && peer->plan != NULL) {
        (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)peer->plan_seq);
        assert_int_equal(http_stream_send(stream, id, "plan", peer->plan), DEFT_OK);
    }
    if (peer->n_streams < PEER_MAX_STREAMS) {
        peer->streams[peer->n_streams++] = stream;
    }
    (void)pthread_mutex_unlock(&peer->lock);
}

struct controller_peer *controller_peer_start(uint16_t port) {
    return controller_peer_start_at("127.0.0.1", port);
}

struct controller_peer *controller_peer_start_at(const char *host, uint16_t port) {
    static const struct http_route routes[] = {
        {"POST", "/api/v1/jobs/{job}/incarnations", peer_register, 0},
        {"POST", "/api/v1/incarnations/{id}/reports", peer_report, 0},
        {"GET", "/api/v1/incarnations/{id}/events", peer_events, 0},
    };
    struct controller_peer *peer = calloc(1, sizeof(*peer));
    assert_non_null(peer);
    peer->ops_sound = 1;
    peer->least_pause_ns = INT64_MAX;
    assert_int_equal(pthread_mutex_init(&peer->lock, NULL), 0);
    const struct http_server_options options = {.listen_host = host,
                                                .port = port,
                                                .n_threads = 2,
                                                .max_connections = 32,
                                                .max_body_bytes = WIRE_MAX_BODY_BYTES,
                                                .routes = routes,
                                                .n_routes = sizeof(routes) / sizeof(routes[0]),
                                                .context = peer};
    struct deft_error error = {0};
    enum deft_status status = http_server_start(&options, &peer->server, &error);
    if (status != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    return peer;
}

uint16_t controller_peer_port(const struct controller_peer *peer) {
    return http_server_port(peer->server);
}

void controller_peer_stop(struct controller_peer *peer) {
    for (size_t i = 0; i < peer->n_streams; i++) {
        http_stream_release(peer->streams[i]);
    }
    http_server_stop(peer->server);
    (void)pthread_mutex_destroy(&peer->lock);
    free(peer->plan);
    free(peer);
}

void controller_peer_lose_answers(struct controller_peer *peer, unsigned every) {
    (void)pthread_mutex_lock(&peer->lock);
    peer->lose_every = every;
    (void)pthread_mutex_unlock(&peer->lock);
}

void controller_peer_be_other(struct controller_peer *peer, int is_other) {
    (void)pthread_mutex_lock(&peer->lock);
    peer->is_other = is_other;
    (void)pthread_mutex_unlock(&peer->lock);
}

void controller_peer_forget(struct controller_peer *peer) {
    (void)pthread_mutex_lock(&peer->lock);
    peer->forgotten = 1;
    (void)pthread_mutex_unlock(&peer->lock);
}

void controller_peer_push(struct controller_peer *peer, uint64_t seq,
                          const struct dsched_plan *plan, double max_loss) {
    struct wire_plan_event event = {
        .seq = seq, .plan = *plan, .max_loss = max_loss, .max_grad_sq = (double)NAN};
    char id[24];
    char *json = NULL;
    assert_int_equal(wire_plan_event_encode(&event, &json, NULL), DEFT_OK);
    (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)seq);
    (void)pthread_mutex_lock(&peer->lock);
    free(peer->plan);
    peer->plan = json;
    peer->plan_seq = seq;
    for (size_t i = 0; i < peer->n_streams; i++) {
        /* A stream whose reader has gone is not an error here. */
        enum deft_status status = http_stream_send(peer->streams[i], id, "plan", json);
        assert_true(status == DEFT_OK || status == DEFT_CLOSED);
    }
    (void)pthread_mutex_unlock(&peer->lock);
}

typedef int (*peer_condition)(const struct controller_peer *peer, const char *kind, uint64_t a,
                              uint64_t b);

static void peer_await(struct controller_peer *peer, peer_condition condition, const char *kind,
                       uint64_t a, uint64_t b) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(20);
    int is_so = 0;
    while (!is_so && clock_monotonic_ns() < until_ns) {
        struct timespec tick = {.tv_nsec = 5000000};
        (void)pthread_mutex_lock(&peer->lock);
        is_so = condition(peer, kind, a, b);
        (void)pthread_mutex_unlock(&peer->lock);
        (void)nanosleep(&tick, NULL);
    }
    assert_true(is_so);
}

static int peer_has_registrations(const struct controller_peer *peer, const char *kind, uint64_t n,
                                  uint64_t unused) {
    (void)kind;
    (void)unused;
    return peer->n_registrations >= n;
}
static int peer_has_local_ranks(const struct controller_peer *peer, const char *kind, uint64_t n,
                                uint64_t unused) {
    (void)kind;
    (void)unused;
    return peer->n_local_ranks == n;
}
static int peer_has_iterations(const struct controller_peer *peer, const char *kind, uint64_t rank,
                               uint64_t n) {
    (void)kind;
    return peer->n_iterations[rank] >= n;
}
static int peer_has_event(const struct controller_peer *peer, const char *kind, uint64_t plan_seq,
                          uint64_t unused) {
    (void)unused;
    for (size_t i = 0; i < peer->n_events; i++) {
        if (strcmp(peer->events[i].kind, kind) == 0 && peer->events[i].plan_seq == plan_seq) {
            return 1;
        }
    }
    return 0;
}

void controller_peer_await_registrations(struct controller_peer *peer, unsigned n) {
    peer_await(peer, peer_has_registrations, "", n, 0);
}
void controller_peer_await_local_ranks(struct controller_peer *peer, unsigned n) {
    peer_await(peer, peer_has_local_ranks, "", n, 0);
}
void controller_peer_await_iterations(struct controller_peer *peer, unsigned rank, unsigned n) {
    peer_await(peer, peer_has_iterations, "", rank, n);
}
void controller_peer_await_event(struct controller_peer *peer, const char *kind,
                                 uint64_t plan_seq) {
    peer_await(peer, peer_has_event, kind, plan_seq, 0);
}

unsigned controller_peer_most_counted(struct controller_peer *peer) {
    unsigned most = 0;
    (void)pthread_mutex_lock(&peer->lock);
    for (size_t rank = 0; rank < CONTROLLER_PEER_MAX_RANKS; rank++) {
        for (size_t i = 0; i < CONTROLLER_PEER_MAX_ITERATIONS; i++) {
            most = peer->counts[rank][i] > most ? peer->counts[rank][i] : most;
        }
    }
    (void)pthread_mutex_unlock(&peer->lock);
    return most;
}

unsigned controller_peer_iterations(struct controller_peer *peer, unsigned rank) {
    (void)pthread_mutex_lock(&peer->lock);
    unsigned n = peer->n_iterations[rank];
    (void)pthread_mutex_unlock(&peer->lock);
    return n;
}

unsigned controller_peer_gaps(struct controller_peer *peer) {
    (void)pthread_mutex_lock(&peer->lock);
    unsigned n = peer->n_gaps;
    (void)pthread_mutex_unlock(&peer->lock);
    return n;
}

int64_t controller_peer_least_pause_ns(struct controller_peer *peer) {
    (void)pthread_mutex_lock(&peer->lock);
    int64_t ns = peer->least_pause_ns;
    (void)pthread_mutex_unlock(&peer->lock);
    return ns;
}

unsigned controller_peer_repeats(struct controller_peer *peer) {
    (void)pthread_mutex_lock(&peer->lock);
    unsigned n = peer->n_repeats;
    (void)pthread_mutex_unlock(&peer->lock);
    return n;
}

uint64_t controller_peer_ops(struct controller_peer *peer, int *out_sound) {
    (void)pthread_mutex_lock(&peer->lock);
    uint64_t n = peer->n_ops;
    *out_sound = peer->ops_sound;
    (void)pthread_mutex_unlock(&peer->lock);
    return n;
}
