/* Limits of the HTTP server, and what spares it work, over real sockets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "gzip/gzip.h"
#include "hostile_server.h"
#include "talk.h"
#include "testing.h"

/* --- gzip ----------------------------------------------------------------------------------------
 */

/* Sends a body that is said to be gzip. */
static void send_packed(struct hostile_server *f, const char *bytes, size_t n_bytes,
                        const char *coding, struct talk_reply *out) {
    char head[200];
    int fd = talk_connect(f->port);
    int n = snprintf(head, sizeof(head),
                     "POST /echo HTTP/1.1\r\n" HOST
                     "Content-Encoding: %s\r\nContent-Length: %zu\r\n\r\n",
                     coding, n_bytes);
    talk_send(fd, head, (size_t)n);
    talk_send(fd, bytes, n_bytes);
    talk_receive(fd, 0, out);
    (void)close(fd);
}

static void packed_bodies_are_unpacked_within_the_limit(void **unused) {
    struct hostile_server f;
    struct talk_reply reply;
    char *plain = calloc(1, 20u << 20);
    char *packed = NULL;
    size_t n = 0;
    (void)unused;
    assert_non_null(plain);
    hostile_server_start(&f);
    memset(plain, 'x', HOSTILE_MAX_BODY_BYTES);
    assert_int_equal(gzip_pack(plain, HOSTILE_MAX_BODY_BYTES, &packed, &n), DEFT_OK);
    assert_true(n < 1000);
    send_packed(&f, packed, n, "gzip", &reply);
    assert_int_equal(reply.status, 200);
    assert_int_equal(strlen(reply.body), HOSTILE_MAX_BODY_BYTES);
    talk_reply_done(&reply);
    send_packed(&f, packed, n, "br", &reply);
    assert_int_equal(reply.status, 415);
    talk_reply_done(&reply);
    for (size_t cut = 0; cut < n; cut += 7) { /* every part of it is none */
        send_packed(&f, packed, cut, "gzip", &reply);
        assert_int_equal(reply.status, 400);
        assert_non_null(strstr(reply.body, "bad_coding"));
        talk_reply_done(&reply);
    }
    char *longer = malloc(n + 4);
    assert_non_null(longer);
    memcpy(longer, packed, n);
    memset(longer + n, 'm', 4);
    send_packed(&f, longer, n + 4, "gzip", &reply);
    assert_int_equal(reply.status, 400);
    talk_reply_done(&reply);
    free(longer);
    free(packed);
    /* A bomb, 20 MiB in 90 kB, and one byte too many. */
    assert_int_equal(gzip_pack(plain, 20u << 20, &packed, &n), DEFT_OK);
    assert_true(n <= HOSTILE_MAX_BODY_BYTES);
    send_packed(&f, packed, n, "gzip", &reply);
    assert_int_equal(reply.status, 413);
    talk_reply_done(&reply);
    free(packed);
    assert_int_equal(gzip_pack(plain, HOSTILE_MAX_BODY_BYTES + 1, &packed, &n), DEFT_OK);
    send_packed(&f, packed, n, "GZIP", &reply);
    assert_int_equal(reply.status, 413);
    talk_reply_done(&reply);
    free(packed);
    free(plain);
    hostile_server_stop(&f);
}

static void answers_are_packed_for_those_who_take_it(void **unused) {
    static const struct {
        const char *accept;
        int packed;
    } asked[] = {{"gzip", 1},
                 {"br;q=1.0, gzip;q=0.5", 1},
                 {"*", 1},
                 {"gzip;q=0", 0},
                 {"gzip;q=0.000, *", 0},
                 {"identity", 0},
                 {"gzipped", 0},
                 {"*;q=0", 0},
                 {"", 0},
                 {"deflate, gzip ", 1}};
    struct hostile_server f;
    (void)unused;
    hostile_server_start(&f);
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        char text[200];
        struct talk_reply reply;
        (void)snprintf(text, sizeof(text),
                       "GET /long HTTP/1.1\r\n" HOST "Accept-Encoding: %s\r\n\r\n",
                       asked[i].accept);
        talk_raw(f.port, text, strlen(text), &reply);
        assert_int_equal(reply.status, 200);
        int packed = strstr(reply.head, "Content-Encoding: gzip\r\n") != NULL;
        if (packed != asked[i].packed) {
            fail_msg("Accept-Encoding: %s gave %s", asked[i].accept, reply.head);
        }
        assert_non_null(strstr(reply.head, "ETag: W/\""));
        assert_non_null(strstr(reply.head, "Vary: Accept-Encoding\r\n"));
        talk_reply_done(&reply);
    }
    hostile_server_stop(&f);
}

static void tags_spare_the_body(void **unused) {
    struct hostile_server f;
    struct talk_reply reply;
    char text[300];
    char tag[64];
    (void)unused;
    hostile_server_start(&f);
    talk_request(f.port, "GET", "/long", NULL, &reply);
    const char *at = strstr(reply.head, "ETag: W/");
    assert_non_null(at);
    (void)snprintf(tag, sizeof(tag), "%.*s", (int)strcspn(at + 8, "\r"), at + 8);
    assert_non_null(strstr(reply.head, "Cache-Control: private, no-cache\r\n"));
    talk_reply_done(&reply);
    static const char *const known[] = {"%s", "W/%s", "\"other\", %s", "*", "\"a\",W/\"b\" , W/%s"};
    static const char *const unknown[] = {"\"other\"", "W/\"x\"", "nonsense", "\"", ""};
    for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
        char value[100];
        const char *hole = strstr(known[i], "%s");
        int n = hole != NULL ? (int)(hole - known[i]) : (int)strlen(known[i]);
        (void)snprintf(value, sizeof(value), "%.*s%s", n, known[i], hole != NULL ? tag : "");
        (void)snprintf(text, sizeof(text),
                       "GET /long HTTP/1.1\r\n" HOST "If-None-Match: %s\r\n\r\n", value);
        talk_raw(f.port, text, strlen(text), &reply);
        assert_int_equal(reply.status, 304);
        assert_string_equal(reply.body, "");
        assert_non_null(strstr(reply.head, tag));
        talk_reply_done(&reply);
    }
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        (void)snprintf(text, sizeof(text),
                       "GET /long HTTP/1.1\r\n" HOST "If-None-Match: %s\r\n\r\n", unknown[i]);
        talk_raw(f.port, text, strlen(text), &reply);
        assert_int_equal(reply.status, 200);
        talk_reply_done(&reply);
    }
    hostile_server_stop(&f);
}

/* --- who dawdles, who asks too often
 * --------------------------------------------------------------
 */

/* One byte now and then keeps any idle timer happy; the head still has to end. */
static void slow_heads_and_bodies_are_cut_off(void **unused) {
    static const char *const begins[] = {"", "GET /long HTTP/1.1\r\nX-Slow: ",
                                         "POST /echo HTTP/1.1\r\n" HOST
                                         "Content-Length: 1000\r\n\r\n"};
    struct hostile_server f;
    struct http_stats stats;
    (void)unused;
    hostile_server_prepare(&f);
    f.options.patience_ms = 400;
    hostile_server_launch(&f);
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(60);
        int fd = talk_connect(f.port);
        talk_send(fd, begins[i], strlen(begins[i]));
        int ended = 0;
        while (!ended && clock_monotonic_ns() < deadline_ns) {
            talk_send(fd, i > 0 ? "a" : "", i > 0);
            ended = talk_has_ended(fd, 20);
        }
        assert_true(ended);
        (void)close(fd);
    }
    http_server_stats(f.server, &stats);
    assert_int_equal(stats.n_too_slow, 3);
    /* Whoever keeps on asking is not slow. */
    int fd = talk_connect(f.port);
    for (int64_t until_ns = clock_monotonic_ns() + INT64_C(1000000000);
         clock_monotonic_ns() < until_ns;) {
        static const char ask[] = "GET /names/quick HTTP/1.1\r\n" HOST "\r\n";
        talk_send(fd, ask, sizeof(ask) - 1);
        free(talk_read_up_to(fd, "quick"));
    }
    (void)close(fd);
    hostile_server_stop(&f);
}

/* Answers that nobody takes do not wait for ever. */
static void answers_that_are_not_read_are_given_up(void **unused) {
    static const char request[] = "GET /long HTTP/1.1\r\n" HOST "\r\n";
    struct hostile_server f;
    struct http_stats stats = {0};
    (void)unused;
    hostile_server_prepare(&f);
    f.options.patience_ms = 400;
    hostile_server_launch(&f);
    int fd = talk_connect(f.port);
    for (int i = 0; i < 700; i++) { /* 14 MB, more than any socket holds */
        talk_send(fd, request, sizeof(request) - 1);
    }
    int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(60);
    while (stats.n_too_slow == 0 && clock_monotonic_ns() < deadline_ns) {
        http_server_stats(f.server, &stats);
    }
    assert_int_equal(stats.n_too_slow, 1);
    (void)close(fd);
    hostile_server_stop(&f);
}

static void clients_that_ask_too_often_are_told_when_to_come_again(void **unused) {
    struct hostile_server f;
    struct http_stats stats;
    unsigned n_served = 0;
    unsigned n_limited = 0;
    (void)unused;
    hostile_server_prepare(&f);
    f.options.max_requests_per_s = 10;
    hostile_server_launch(&f);
    int64_t begin_ns = clock_monotonic_ns();
    for (int i = 0; i < 60; i++) {
        struct talk_reply reply;
        talk_request(f.port, "GET", "/names/x", NULL, &reply);
        n_served += reply.status == 200;
        n_limited += reply.status == 429;
        if (reply.status == 429) {
            assert_non_null(strstr(reply.head, "Retry-After: 1\r\n"));
            assert_non_null(strstr(reply.body, "too_many_requests"));
        }
        talk_reply_done(&reply);
    }
    int64_t took_ns = clock_monotonic_ns() - begin_ns;
    assert_int_equal(n_served + n_limited, 60);
    assert_true(n_served >= 10);
    assert_true(n_served <= 10 + (uint64_t)took_ns / 100000000u + 1);
    http_server_stats(f.server, &stats);
    assert_int_equal(stats.n_limited, n_limited);
    hostile_server_stop(&f);
}

static void connections_beyond_the_limit_wait_or_end(void **unused) {
    static const char request[] = "GET /names/x HTTP/1.1\r\n" HOST "\r\n";
    struct hostile_server f;
    int fds[4];
    (void)unused;
    hostile_server_prepare(&f);
    f.options.max_connections_per_client = 3;
    hostile_server_launch(&f);
    for (int i = 0; i < 3; i++) {
        fds[i] = talk_connect(f.port);
        talk_send(fds[i], request, sizeof(request) - 1);
        free(talk_read_up_to(fds[i], "\r\n\r\nx"));
    }
    fds[3] = talk_connect(f.port);
    char *text = talk_read_to_end(fds[3]); /* closed without a word */
    assert_string_equal(text != NULL ? text : "", "");
    free(text);
    (void)close(fds[3]);
    (void)close(fds[0]);
    int64_t deadline_ns = clock_monotonic_ns() + testing_deadline_ns(60);
    struct talk_reply reply = {0};
    while (reply.status != 200 && clock_monotonic_ns() < deadline_ns) { /* there is room again */
        talk_reply_done(&reply);
        talk_request(f.port, "GET", "/names/x", NULL, &reply);
    }
    assert_int_equal(reply.status, 200);
    talk_reply_done(&reply);
    (void)close(fds[1]);
    (void)close(fds[2]);
    hostile_server_stop(&f);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(packed_bodies_are_unpacked_within_the_limit),
    cmocka_unit_test(answers_are_packed_for_those_who_take_it),
    cmocka_unit_test(tags_spare_the_body),
    cmocka_unit_test(slow_heads_and_bodies_are_cut_off),
    cmocka_unit_test(answers_that_are_not_read_are_given_up),
    cmocka_unit_test(clients_that_ask_too_often_are_told_when_to_come_again),
    cmocka_unit_test(connections_beyond_the_limit_wait_or_end),
};
TESTING_MAIN(cases)
