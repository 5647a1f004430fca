/* The HTTP server over real sockets: what a client may do, and what a server must not. */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/http_server.h"
#include "talk.h"
#include "testing.h"

#define MAX_BODY_BYTES 100000u

struct fixture {
    struct http_server *server;
    uint16_t port;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct http_stream *stream;    /* the newest; handed over by the handler */
    struct http_request *deferred; /* waits for an answer */
    int ending;
};

static void handle_echo(struct http_request *request, void *context) {
    size_t n_bytes = 0;
    const char *body = http_request_body(request, &n_bytes);
    (void)context;
    http_respond(request, 200, "text/plain", body, n_bytes);
}

static void handle_query(struct http_request *request, void *context) {
    const char *a = http_request_query(request, "a");
    const char *name = http_request_param(request, "name");
    char text[256];
    (void)context;
    assert_null(http_request_param(request, "nothing"));
    int n = snprintf(text, sizeof(text), "%s|%s|%s", name, a != NULL ? a : "(none)",
                     http_request_header(request, "X-Test") != NULL ? "header" : "");
    http_respond(request, 200, "text/plain", text, (size_t)n);
}

static void handle_busy(struct http_request *request, void *context) {
    (void)context;
    http_respond_problem(request, 503, "busy", NULL, "come again in %d s", 1);
}

static void handle_stream(struct http_request *request, void *context) {
    struct fixture *fixture = context;
    struct http_stream *stream = http_respond_stream(request);
    assert_non_null(stream);
    (void)pthread_mutex_lock(&fixture->lock);
    fixture->stream = stream;
    (void)pthread_cond_signal(&fixture->changed);
    (void)pthread_mutex_unlock(&fixture->lock);
}

static void handle_later(struct http_request *request, void *context) {
    struct fixture *fixture = context;
    http_request_defer(request);
    (void)pthread_mutex_lock(&fixture->lock);
    fixture->deferred = request;
    (void)pthread_cond_signal(&fixture->changed);
    (void)pthread_mutex_unlock(&fixture->lock);
}

static const struct http_route routes[] = {
    {"POST", "/echo", handle_echo, 0},  {"GET", "/things/{name}", handle_query, 0},
    {"GET", "/busy", handle_busy, 0},   {"GET", "/stream", handle_stream, 0},
    {"GET", "/later", handle_later, 0},
};

static void start(struct fixture *fixture, uint32_t n_threads) {
    struct deft_error error = {0};
    const struct http_server_options options = {.listen_host = "127.0.0.1",
                                                .n_threads = n_threads,
                                                .max_connections = 64,
                                                .max_body_bytes = MAX_BODY_BYTES,
                                                .heartbeat_ms = 20,
                                                .literal_hosts_only = 1,
                                                .routes = routes,
                                                .n_routes = sizeof(routes) / sizeof(routes[0]),
                                                .context = fixture};
    memset(fixture, 0, sizeof(*fixture));
    (void)pthread_mutex_init(&fixture->lock, NULL);
    (void)pthread_cond_init(&fixture->changed, NULL);
    if (http_server_start(&options, &fixture->server, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    fixture->port = http_server_port(fixture->server);
    assert_int_not_equal(fixture->port, 0);
}

static void stop(struct fixture *fixture) {
    http_server_stop(fixture->server);
    (void)pthread_cond_destroy(&fixture->changed);
    (void)pthread_mutex_destroy(&fixture->lock);
}

static struct http_stream *wait_stream(struct fixture *fixture) {
    (void)pthread_mutex_lock(&fixture->lock);
    while (fixture->stream == NULL) {
        (void)pthread_cond_wait(&fixture->changed, &fixture->lock);
    }
    struct http_stream *stream = fixture->stream;
    fixture->stream = NULL;
    (void)pthread_mutex_unlock(&fixture->lock);
    return stream;
}

static void requests_are_answered(void **unused) {
    struct fixture f;
    struct talk_reply reply;
    (void)unused;
    start(&f, 2);
    char *text = talk_expect(f.port, "POST", "/echo", "{\"a\":1}", 200);
    assert_string_equal(text, "{\"a\":1}");
    free(text);
    text = talk_expect(f.port, "GET", "/things/a%2Fb?a=1+2%2B%C3%A4", NULL, 200);
    assert_string_equal(text, "a/b|1 2+\xC3\xA4|");
    free(text);
    talk_request(f.port, "HEAD", "/things/x", NULL, &reply);
    assert_int_equal(reply.status, 200);
    assert_non_null(strstr(reply.head, "Content-Length: 9\r\n"));
    talk_reply_done(&reply);
    talk_request(f.port, "GET", "/busy", NULL, &reply);
    assert_int_equal(reply.status, 503);
    assert_non_null(strstr(reply.head, "Retry-After: 1\r\n"));
    assert_non_null(strstr(reply.head, "application/problem+json\r\n"));
    assert_non_null(strstr(reply.head, "X-Content-Type-Options: nosniff\r\n"));
    assert_non_null(strstr(reply.body, "come again in 1 s"));
    talk_reply_done(&reply);
    stop(&f);
}

static void wrong_requests_are_refused(void **unused) {
    static const struct {
        const char *text;
        int status;
        const char *says;
    } wrong[] = {
        {"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "not_found"},
        {"DELETE /echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method_not_allowed"},
        {"BREW /echo HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "method_not_allowed"},
        {"GET /things/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_path"},
        {"GET /things/%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_path"},
        {"GET /things/x?a=%q HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_query"},
        {"GET /things/x?a=1&a=2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "bad_query"},
        {"GET /things/x HTTP/1.1\r\nHost: rebound.example\r\n\r\n", 421, "host"},
        {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100001\r\n\r\n", 413,
         "too_large"},
        {"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999\r\n\r\n", 413,
         "too_large"},
    };
    struct fixture f;
    struct talk_reply reply;
    (void)unused;
    start(&f, 2);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        talk_raw(f.port, wrong[i].text, strlen(wrong[i].text), &reply);
        if (reply.status != wrong[i].status || strstr(reply.body, wrong[i].says) == NULL) {
            fail_msg("%s gave %d: %s", wrong[i].text, reply.status, reply.body);
        }
        talk_reply_done(&reply);
    }
    talk_request(f.port, "PUT", "/echo", "{}", &reply);
    assert_int_equal(reply.status, 405);
    assert_non_null(strstr(reply.head, "Allow: POST\r\n"));
    talk_reply_done(&reply);
    free(talk_expect(f.port, "POST", "/echo", "still here", 200));
    stop(&f);
}

/* A chunked body has no announced size: it is cut off, answered, and the connection lives. */
static void long_bodies_are_cut_off(void **unused) {
    struct fixture f;
    struct talk_reply reply;
    char chunk[10000 + 16];
    (void)unused;
    start(&f, 2);
    int fd = talk_connect(f.port);
    static const char head[] =
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    talk_send(fd, head, sizeof(head) - 1);
    int n = snprintf(chunk, sizeof(chunk), "2710\r\n%010000d\r\n", 7);
    for (int i = 0; i < 11; i++) {
        talk_send(fd, chunk, (size_t)n);
    }
    talk_send(fd, "0\r\n\r\n", 5);
    talk_receive(fd, 0, &reply);
    assert_int_equal(reply.status, 413);
    talk_reply_done(&reply);
    static const char small[] =
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\nok";
    talk_send(fd, small, sizeof(small) - 1);
    talk_receive(fd, 0, &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply.body, "ok");
    talk_reply_done(&reply);
    (void)close(fd);
    stop(&f);
}

static void answers_may_come_later(void **unused) {
    struct fixture f;
    struct talk_reply reply;
    static const char request[] = "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n";
    (void)unused;
    start(&f, 1); /* a single thread: a waiting request must not hold it */
    int fd = talk_connect(f.port);
    talk_send(fd, request, sizeof(request) - 1);
    (void)pthread_mutex_lock(&f.lock);
    while (f.deferred == NULL) {
        (void)pthread_cond_wait(&f.changed, &f.lock);
    }
    struct http_request *deferred = f.deferred;
    (void)pthread_mutex_unlock(&f.lock);
    free(talk_expect(f.port, "POST", "/echo", "meanwhile", 200));
    http_respond(deferred, 200, "text/plain", "late", 4);
    talk_receive(fd, 0, &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply.body, "late");
    talk_reply_done(&reply);
    (void)close(fd);
    stop(&f);
}

static void events_arrive_in_order(void **unused) {
    struct fixture f;
    (void)unused;
    start(&f, 2);
    int fd = talk_stream(f.port, "/stream", NULL);
    struct http_stream *stream = wait_stream(&f);
    assert_int_equal(http_stream_send(stream, "7", "plan", "{\"a\":1}\n{\"b\":2}"), DEFT_OK);
    char *text = talk_read_until(fd, "event: plan");
    free(text);
    for (int i = 0; i < 150;
         i++) { /* no more than one chunk holds: they are looked for as they come */
        char data[32];
        (void)snprintf(data, sizeof(data), "number %d", i);
        assert_int_equal(http_stream_send(stream, NULL, NULL, data), DEFT_OK);
    }
    text = talk_read_until(fd, "data: number 149\n\n");
    const char *at = text;
    for (int i = 0; i < 150; i++) {
        char line[32];
        (void)snprintf(line, sizeof(line), "data: number %d\n", i);
        at = strstr(at, line);
        if (at == NULL) {
            fail_msg("event %d is missing or out of order", i);
            break;
        }
    }
    free(text);
    /* Silence is filled with comments. */
    free(talk_read_until(fd, "\n:\n"));
    http_stream_release(stream);
    free(talk_read_until(fd, "0\r\n\r\n")); /* the last chunk */
    (void)close(fd);
    stop(&f);
}

static void lost_peers_are_noticed(void **unused) {
    struct fixture f;
    int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(30);
    (void)unused;
    start(&f, 2);
    int fd = talk_stream(f.port, "/stream", NULL);
    struct http_stream *stream = wait_stream(&f);
    (void)close(fd);
    while (!http_stream_closed(stream) && clock_monotonic_ns() < deadline_ns) {
        (void)sched_yield();
    }
    assert_true(http_stream_closed(stream));
    assert_int_equal(http_stream_send(stream, NULL, NULL, "x"), DEFT_CLOSED);
    http_stream_release(stream);
    stop(&f);
}

static void slow_peers_are_given_up(void **unused) {
    struct fixture f;
    enum deft_status status = DEFT_OK;
    (void)unused;
    start(&f, 2);
    char *data = malloc((1u << 20) + 1);
    assert_non_null(data);
    memset(data, 'x', 1u << 20);
    data[1u << 20] = '\0';
    int fd = talk_stream(f.port, "/stream", NULL); /* and never reads */
    struct http_stream *stream = wait_stream(&f);
    int n = 0;
    while (status == DEFT_OK && n < 200) {
        status = http_stream_send(stream, NULL, NULL, data);
        n++;
    }
    assert_int_equal(status, DEFT_LIMIT);
    assert_int_equal(http_stream_send(stream, NULL, NULL, data), DEFT_CLOSED);
    http_stream_release(stream);
    (void)close(fd);
    free(data);
    stop(&f);
}

/* Streams open, a request unfinished, a connection idle: the server still stops. */
static void stopping_ends_everything(void **unused) {
    struct fixture f;
    int fds[12];
    struct http_stream *streams[10];
    (void)unused;
    start(&f, 3);
    for (int i = 0; i < 10; i++) {
        fds[i] = talk_stream(f.port, "/stream", NULL);
        streams[i] = wait_stream(&f);
    }
    fds[10] = talk_connect(f.port);
    fds[11] = talk_connect(f.port);
    talk_send(fds[11], "POST /echo HTTP/1.1\r\nContent-Length: 50\r\n\r\nhalf", 46);
    stop(&f);
    for (int i = 0; i < 10; i++) {
        assert_true(http_stream_closed(streams[i]));
        http_stream_release(streams[i]);
    }
    for (int i = 0; i < 12; i++) {
        free(talk_read_to_end(fds[i]));
        (void)close(fds[i]);
    }
}

static void *stop_beside(void *context) {
    struct fixture *fixture = context;
    http_server_stop(fixture->server);
    return NULL;
}

/* The end waits for the answer that is due; who comes meanwhile is told to come later, and does not
 * make the end wait longer. */
static void who_comes_at_the_end_is_sent_away(void **unused) {
    struct fixture f;
    struct talk_reply reply;
    pthread_t thread;
    int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(30);
    static const char request[] = "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n";
    (void)unused;
    start(&f, 2);
    int fd = talk_connect(f.port);
    talk_send(fd, request, sizeof(request) - 1);
    (void)pthread_mutex_lock(&f.lock);
    while (f.deferred == NULL) {
        (void)pthread_cond_wait(&f.changed, &f.lock);
    }
    struct http_request *deferred = f.deferred;
    (void)pthread_mutex_unlock(&f.lock);
    assert_int_equal(pthread_create(&thread, NULL, stop_beside, &f), 0);
    do { /* until the end has begun */
        talk_request(f.port, "POST", "/echo", "{}", &reply);
        assert_true(reply.status == 200 || reply.status == 503);
        assert_true(reply.status == 200 || strstr(reply.head, "Retry-After: 1\r\n") != NULL);
        assert_true(reply.status == 200 || strstr(reply.body, "\"stopping\"") != NULL);
        int is_over = reply.status == 503;
        talk_reply_done(&reply);
        if (is_over) {
            break;
        }
    } while (clock_monotonic_ns() < deadline_ns);
    assert_true(clock_monotonic_ns() < deadline_ns);
    http_respond(deferred, 200, "text/plain", "late", 4);
    talk_receive(fd, 0, &reply);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply.body, "late");
    talk_reply_done(&reply);
    (void)close(fd);
    assert_int_equal(pthread_join(thread, NULL), 0);
    (void)pthread_cond_destroy(&f.changed);
    (void)pthread_mutex_destroy(&f.lock);
}

struct storm {
    uint16_t port;
    uint64_t seed;
};

static void *storm_client(void *context) {
    struct storm *storm = context;
    for (int i = 0; i < 60; i++) {
        struct talk_reply reply;
        switch (testing_random_below(&storm->seed, 3)) {
        case 0:
            talk_request(storm->port, "POST", "/echo", "storm", &reply);
            assert_int_equal(reply.status, 200);
            talk_reply_done(&reply);
            break;
        case 1: { /* gone before the answer */
            int fd = talk_connect(storm->port);
            talk_send(fd, "GET /things/x HTTP/1.1\r\n\r\n", 26);
            (void)close(fd);
            break;
        }
        default: { /* gone in the middle of a stream */
            int fd = talk_stream(storm->port, "/stream", NULL);
            (void)close(fd);
            break;
        }
        }
    }
    return NULL;
}

static void *storm_release(void *context) {
    struct fixture *f = context;
    (void)pthread_mutex_lock(&f->lock);
    while (!f->ending) {
        if (f->stream == NULL) {
            (void)pthread_cond_wait(&f->changed, &f->lock);
        }
        struct http_stream *stream = f->stream;
        f->stream = NULL;
        (void)pthread_mutex_unlock(&f->lock);
        if (stream != NULL) {
            enum deft_status status = http_stream_send(stream, NULL, NULL, "hello");
            assert_true(status == DEFT_OK || status == DEFT_CLOSED);
            http_stream_release(stream);
        }
        (void)pthread_mutex_lock(&f->lock);
    }
    (void)pthread_mutex_unlock(&f->lock);
    return NULL;
}

static void handle_storm_stream(struct http_request *request, void *context) {
    struct fixture *fixture = context;
    struct http_stream *stream = http_respond_stream(request);
    (void)pthread_mutex_lock(&fixture->lock);
    struct http_stream *old = fixture->stream;
    fixture->stream = stream;
    (void)pthread_cond_signal(&fixture->changed);
    (void)pthread_mutex_unlock(&fixture->lock);
    http_stream_release(old);
}

/* Clients that come and go at every moment, from several threads. */
static void storms_are_survived(void **unused) {
    static const struct http_route storm_routes[] = {{"POST", "/echo", handle_echo, 0},
                                                     {"GET", "/things/{name}", handle_query, 0},
                                                     {"GET", "/stream", handle_storm_stream, 0}};
    struct fixture f = {0};
    struct storm storms[4];
    pthread_t threads[4];
    pthread_t releaser;
    const struct http_server_options options = {.listen_host = "localhost",
                                                .n_threads = 2,
                                                .max_connections = 64,
                                                .max_body_bytes = MAX_BODY_BYTES,
                                                .heartbeat_ms = 1,
                                                .routes = storm_routes,
                                                .n_routes = 3,
                                                .context = &f};
    (void)unused;
    (void)pthread_mutex_init(&f.lock, NULL);
    (void)pthread_cond_init(&f.changed, NULL);
    assert_int_equal(http_server_start(&options, &f.server, NULL), DEFT_OK);
    assert_int_equal(pthread_create(&releaser, NULL, storm_release, &f), 0);
    for (int i = 0; i < 4; i++) {
        storms[i] = (struct storm){http_server_port(f.server), testing_seed() + (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, storm_client, &storms[i]), 0);
    }
    for (int i = 0; i < 4; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    free(talk_expect(http_server_port(f.server), "POST", "/echo", "alive", 200));
    http_server_stop(f.server);
    (void)pthread_mutex_lock(&f.lock);
    f.ending = 1;
    (void)pthread_cond_broadcast(&f.changed);
    (void)pthread_mutex_unlock(&f.lock);
    (void)pthread_join(releaser, NULL);
    http_stream_release(f.stream);
}

static void ports_in_use_are_told(void **unused) {
    struct fixture f;
    struct deft_error error = {0};
    struct http_server *second = NULL;
    (void)unused;
    start(&f, 1);
    struct http_server_options options = {.listen_host = "127.0.0.1",
                                          .port = f.port,
                                          .max_connections = 4,
                                          .routes = routes,
                                          .n_routes = 1};
    assert_int_equal(http_server_start(&options, &second, &error), DEFT_IO);
    assert_non_null(strstr(error.text, "Address already in use"));
    options.listen_host = "somewhere";
    assert_int_equal(http_server_start(&options, &second, &error), DEFT_INVALID);
    assert_null(second);
    stop(&f);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(requests_are_answered),
    cmocka_unit_test(wrong_requests_are_refused),
    cmocka_unit_test(long_bodies_are_cut_off),
    cmocka_unit_test(answers_may_come_later),
    cmocka_unit_test(events_arrive_in_order),
    cmocka_unit_test(lost_peers_are_noticed),
    cmocka_unit_test(slow_peers_are_given_up),
    cmocka_unit_test(stopping_ends_everything),
    cmocka_unit_test(who_comes_at_the_end_is_sent_away),
    cmocka_unit_test(storms_are_survived),
    cmocka_unit_test(ports_in_use_are_told),
};
TESTING_MAIN(cases)
