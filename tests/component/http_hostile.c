/* What clients that err or mean harm get from the HTTP server, over real sockets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "hostile_server.h"
#include "talk.h"
#include "testing.h"

/* --- form --------------------------------------------------------------------------------------
 */

/* What libmicrohttpd refuses by itself is a problem like any other. */
static void malformed_requests_get_problems(void **unused) {
    static const struct {
        const char *text;
        int status;
        const char *code;
    } wrong[] = {
        {"GET /long\r\n\r\n", 400, "malformed"},
        {"GET /long HTTP/9.1\r\n" HOST "\r\n", 505, "version"},
        {"GET /long HTTP/0.9\r\n" HOST "\r\n", 505, "version"},
        {"GET /long HTTX/1.1\r\n" HOST "\r\n", 400, "malformed"},
        {"GET /long HTTP/1.1\r\nno colon here\r\n\r\n", 400, "malformed"},
        {"GET /long HTTP/1.1\r\n" HOST "bad name: x\r\n\r\n", 400, "malformed"},
        {"GET /long HTTP/1.1\r\n" HOST "Content-Length : 3\r\n\r\n", 400, "malformed"},
        {"GET /long HTTP/1.1\r\n\r\n", 400, "malformed"}, /* no Host */
        {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: x\r\n\r\n", 400, "malformed"},
        {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: -1\r\n\r\n", 400, "malformed"},
        {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 1e3\r\n\r\n", 400, "malformed"},
        {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 99999999999999999999999\r\n\r\n", 413,
         "too_large"},
        {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400,
         "malformed"},
        {"POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
         413, "too_large"},
    };
    struct hostile_server f;
    struct http_stats stats;
    (void)unused;
    hostile_server_start(&f);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        hostile_server_problem(&f, wrong[i].text, wrong[i].status, wrong[i].code);
    }
    http_server_stats(f.server, &stats);
    assert_true(stats.n_malformed >= 8);
    hostile_server_stop(&f);
}

static void ten_thousand_headers_are_too_many(void **unused) {
    enum { N_LINES = 10000, LINE_BYTES = 16, LONG_BYTES = 100000 };
    static const char head[] = "GET /long HTTP/1.1\r\n";
    struct hostile_server f;
    char *text = malloc(sizeof(head) + (size_t)N_LINES * LINE_BYTES + 3);
    (void)unused;
    assert_non_null(text);
    hostile_server_start(&f);
    memcpy(text, head, sizeof(head));
    size_t n = sizeof(head) - 1;
    for (int i = 0; i < N_LINES; i++) {
        (void)snprintf(text + n, LINE_BYTES + 1, "X-%05u: %05u\r\n", (unsigned)i % 100000,
                       (unsigned)i % 100000);
        n += LINE_BYTES;
    }
    memcpy(text + n, "\r\n", 3);
    hostile_server_problem(&f, text, 431, "head_too_large");
    memset(text, 'a', LONG_BYTES);
    text[LONG_BYTES] = '\0';
    memcpy(text, "GET /", 5);
    hostile_server_problem(&f, text, 414, "target_too_long");
    memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
    hostile_server_problem(&f, text, 431, "head_too_large");
    free(text);
    hostile_server_stop(&f);
}

/* --- framing -----------------------------------------------------------------------------------
 */

/* Two readers of one connection must never disagree about where a request ends: what is doubtful
 * is refused, and nothing behind it is read as a request. */
static void doubtful_framing_ends_the_connection(void **unused) {
    static const char *const doubtful[] = {
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity\r\n",
        "Content-Length : 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 5, 5\r\n",
        "Content-Length: 0x5\r\n",
        "Host: other\r\n",
    };
    struct hostile_server f;
    (void)unused;
    hostile_server_start(&f);
    for (size_t i = 0; i < sizeof(doubtful) / sizeof(doubtful[0]); i++) {
        char text[400];
        (void)snprintf(text, sizeof(text),
                       "POST /echo HTTP/1.1\r\n" HOST "%s\r\n"
                       "GET /names/smuggled HTTP/1.1\r\n" HOST "\r\n",
                       doubtful[i]);
        int fd = talk_connect(f.port);
        talk_send(fd, text, strlen(text));
        char *all = talk_read_to_end(fd);
        if (strncmp(all, "HTTP/1.1 400", 12) != 0 && strncmp(all, "HTTP/1.1 501", 12) != 0) {
            fail_msg("%s gave %.300s", doubtful[i], all);
        }
        assert_non_null(strstr(all, "application/problem+json"));
        if (strstr(all, "smuggled") != NULL || strstr(all + 1, "HTTP/1.1 ") != NULL) {
            fail_msg("%s gave more than one answer: %s", doubtful[i], all);
        }
        free(all);
        (void)close(fd);
    }
    hostile_server_stop(&f);
}

static void lengths_that_lie_harm_nobody_else(void **unused) {
    struct hostile_server f;
    struct talk_reply reply;
    (void)unused;
    hostile_server_start(&f);
    /* More is announced than comes: the client goes, and gets nothing. */
    static const char cut_short[] = "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 50\r\n\r\nhalf";
    talk_raw(f.port, cut_short, sizeof(cut_short) - 1, &reply);
    assert_int_equal(reply.status, 0);
    talk_reply_done(&reply);
    /* More comes than was announced: the rest is the next request, and that is none. */
    int fd = talk_connect(f.port);
    static const char too_much[] =
        "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nabcdef gh\r\n\r\n";
    talk_send(fd, too_much, sizeof(too_much) - 1);
    char *all = talk_read_to_end(fd);
    assert_int_equal(strncmp(all, "HTTP/1.1 200", 12), 0);
    assert_non_null(strstr(all, "\r\n\r\nabHTTP/1.1 400"));
    free(all);
    (void)close(fd);
    hostile_server_echo(&f, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nok", "ok");
    hostile_server_stop(&f);
}

static void bodies_come_in_chunks_of_any_size(void **unused) {
    struct hostile_server f;
    (void)unused;
    hostile_server_start(&f);
    hostile_server_echo(&f,
                        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
                        "1\r\na\r\n2;name=value\r\nbc\r\n00003\r\ndef\r\n0\r\nX-Trailer: 1\r\n\r\n",
                        "abcdef");
    hostile_server_problem(
        &f, "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 400,
        "malformed");
    hostile_server_stop(&f);
}

static void requests_in_a_row_are_answered_in_order(void **unused) {
    enum { N = 50 };
    struct hostile_server f;
    char text[N * 128] = "";
    size_t n = 0;
    (void)unused;
    hostile_server_start(&f);
    for (int i = 0; i < N; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n,
                              i % 2 == 0 ? "GET /names/n%02d HTTP/1.1\r\n" HOST "%s\r\n"
                                         : "POST /echo HTTP/1.1\r\n" HOST
                                           "Content-Length: 3\r\n\r\nn%02d%s",
                              i, i == N - 2 ? "X: last\r\n" : "");
    }
    int fd = talk_connect(f.port);
    talk_send(fd, text, n);
    for (int i = 0; i < N; i++) {
        char wanted[16];
        (void)snprintf(wanted, sizeof(wanted), "n%02d", i);
        free(talk_read_up_to(fd, wanted));
    }
    (void)close(fd);
    hostile_server_stop(&f);
}

static void old_clients_are_served(void **unused) {
    struct hostile_server f;
    struct talk_reply reply;
    (void)unused;
    hostile_server_start(&f);
    hostile_server_echo(&f, "GET /names/old HTTP/1.0\r\n\r\n", "old");
    hostile_server_echo(&f, "POST /echo HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi", "hi");
    /* Without chunks a stream ends with the connection. */
    static const char stream[] = "GET /stream HTTP/1.0\r\n\r\n";
    int fd = talk_connect(f.port);
    talk_send(fd, stream, sizeof(stream) - 1);
    char *all = talk_read_to_end(fd);
    assert_non_null(strstr(all, "data: hello\n\n"));
    assert_null(strcasestr(all, "chunked"));
    free(all);
    (void)close(fd);
    talk_request(f.port, "HEAD", "/stream", NULL, &reply);
    assert_int_equal(reply.status, 200);
    talk_reply_done(&reply);
    talk_request(f.port, "HEAD", "/nowhere", NULL, &reply);
    assert_int_equal(reply.status, 404);
    talk_reply_done(&reply);
    hostile_server_stop(&f);
}

/* --- Expect ------------------------------------------------------------------------------------
 */

static void expectations_are_met_or_refused_before_the_body(void **unused) {
    static const struct {
        const char *head;
        const char *begins;
    } asked[] = {
        {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n",
         "HTTP/1.1 100 Continue\r\n"},
        {"POST /echo HTTP/1.1\r\n" HOST
         "Content-Length: 2\r\nExpect: 100-continue\r\nX-Refuse: 1\r\n\r\n",
         "HTTP/1.1 401 "},
        {"POST /nowhere HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: 100-continue\r\n\r\n",
         "HTTP/1.1 404 "},
        {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 999999\r\nExpect: 100-continue\r\n\r\n",
         "HTTP/1.1 413 "},
        {"POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\nExpect: a-miracle\r\n\r\n",
         "HTTP/1.1 417 "},
    };
    struct hostile_server f;
    (void)unused;
    hostile_server_start(&f);
    for (size_t i = 0; i < sizeof(asked) / sizeof(asked[0]); i++) {
        int fd = talk_connect(f.port);
        talk_send(fd, asked[i].head, strlen(asked[i].head)); /* and no body yet */
        char *text = talk_read_up_to(fd, "\r\n");
        if (strncmp(text, asked[i].begins, strlen(asked[i].begins)) != 0) {
            fail_msg("%s gave %s", asked[i].head, text);
        }
        free(text);
        if (i == 0) {
            talk_send(fd, "ok", 2);
            free(talk_read_until(fd, "\r\n\r\nok"));
        }
        (void)close(fd);
    }
    hostile_server_stop(&f);
}

/* --- paths, targets, hosts -----------------------------------------------------------------------
 */

static void paths_are_what_they_say(void **unused) {
    struct hostile_server f;
    (void)unused;
    hostile_server_start(&f);
    hostile_server_problem(&f, "GET //long HTTP/1.1\r\n" HOST "\r\n", 404, "not_found");
    hostile_server_problem(&f, "GET /names/../long HTTP/1.1\r\n" HOST "\r\n", 404, "not_found");
    hostile_server_problem(&f, "GET /names/%2e%2e/long HTTP/1.1\r\n" HOST "\r\n", 404, "not_found");
    hostile_server_problem(&f, "GET /lon%67/ HTTP/1.1\r\n" HOST "\r\n", 404, "not_found");
    hostile_server_problem(&f, "GET /names/%00 HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    hostile_server_problem(&f, "GET /names/%ff HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    hostile_server_problem(&f, "GET names/x HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    hostile_server_problem(&f, "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    hostile_server_problem(&f, "CONNECT localhost:1 HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    hostile_server_problem(&f, "TRACE /long HTTP/1.1\r\n" HOST "\r\n", 405, "method_not_allowed");
    hostile_server_problem(&f, "get /long HTTP/1.1\r\n" HOST "\r\n", 405, "method_not_allowed");
    /* Dots and slashes in a name are a name. */
    hostile_server_echo(&f, "GET /names/%2e%2e HTTP/1.1\r\n" HOST "\r\n", "..");
    hostile_server_echo(&f, "GET /names/a%2F..%2Fb HTTP/1.1\r\n" HOST "\r\n", "a/../b");
    hostile_server_echo(&f, "GET /%6eames/x HTTP/1.1\r\n" HOST "\r\n", "x");
    hostile_server_stop(&f);
}

static void targets_may_be_absolute_and_then_name_the_host(void **unused) {
    struct hostile_server f;
    (void)unused;
    hostile_server_start(&f);
    hostile_server_echo(&f, "GET http://localhost:1/names/x HTTP/1.1\r\n" HOST "\r\n", "x");
    hostile_server_echo(&f, "GET HTTP://127.0.0.1/names/x HTTP/1.1\r\nHost: evil.example\r\n\r\n",
                        "x");
    hostile_server_problem(&f, "GET http://evil.example/names/x HTTP/1.1\r\n" HOST "\r\n", 421,
                           "host");
    hostile_server_problem(&f, "GET http:///names/x HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    hostile_server_problem(&f, "GET ftp://localhost/names/x HTTP/1.1\r\n" HOST "\r\n", 400,
                           "bad_path");
    hostile_server_problem(&f, "GET http://localhost HTTP/1.1\r\n" HOST "\r\n", 404, "not_found");
    hostile_server_stop(&f);
}

static void hosts_that_are_names_are_not_answered(void **unused) {
    static const char *const ours[] = {"127.0.0.1",          "localhost:80",
                                       "LOCALHOST",          "[::1]:7600",
                                       "controller.example", "Controller.Example:7600"};
    static const char *const others[] = {"evil.example",
                                         "localhost.evil.example",
                                         "127.0.0.1.example",
                                         "127.0.0.1:80:80",
                                         "[::1].example",
                                         "localhost:port",
                                         "",
                                         "a controller.example",
                                         "localhost@evil",
                                         "127.0.0.1/evil"};
    struct hostile_server f;
    char text[160];
    (void)unused;
    hostile_server_start(&f);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        (void)snprintf(text, sizeof(text), "GET /names/x HTTP/1.1\r\nHost: %s\r\n\r\n", ours[i]);
        hostile_server_echo(&f, text, "x");
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        (void)snprintf(text, sizeof(text), "GET /names/x HTTP/1.1\r\nHost: %s\r\n\r\n", others[i]);
        hostile_server_problem(&f, text, 421, "host");
    }
    hostile_server_stop(&f);
}

/* --- whatever else
 * --------------------------------------------------------------------------------
 */

/* Bytes that nobody would write, made from requests that somebody would. */
static void torn_and_twisted_requests_are_survived(void **unused) {
    static const char *const sane[] = {
        "GET /names/x?a=1 HTTP/1.1\r\n" HOST
        "Accept-Encoding: gzip\r\nIf-None-Match: \"x\"\r\n\r\n",
        "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 5\r\nContent-Encoding: gzip\r\n\r\nhello",
        "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
        "GET http://localhost/long HTTP/1.0\r\nAuthorization: Bearer abc\r\n\r\n"};
    struct hostile_server f;
    uint64_t seed = testing_seed();
    (void)unused;
    hostile_server_prepare(&f);
    f.options.patience_ms = 400; /* ends of clients are looked for eight times as often */
    hostile_server_launch(&f);
    for (int round = 0; round < 400; round++) {
        char text[256];
        const char *from = sane[testing_random_below(&seed, 4)];
        size_t n = strlen(from);
        memcpy(text, from, n);
        for (uint64_t k = testing_random_below(&seed, 4) + 1; k > 0; k--) {
            size_t at = testing_random_below(&seed, n);
            if (testing_random_below(&seed, 3) == 0) {
                n = at + 1; /* cut */
            } else {
                text[at] = (char)testing_random_below(&seed, 256);
            }
        }
        int fd = talk_connect(f.port);
        talk_send(fd, text, n);
        (void)shutdown(fd, SHUT_WR);
        char *all = talk_read_to_end(fd);
        if (all != NULL && all[0] != '\0' && strncmp(all, "HTTP/1.", 7) != 0) {
            fail_msg("%.*s gave %.200s", (int)n, text, all);
        }
        free(all);
        (void)close(fd);
    }
    hostile_server_echo(&f, "GET /names/alive HTTP/1.1\r\n" HOST "\r\n", "alive");
    hostile_server_stop(&f);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(malformed_requests_get_problems),
    cmocka_unit_test(ten_thousand_headers_are_too_many),
    cmocka_unit_test(doubtful_framing_ends_the_connection),
    cmocka_unit_test(lengths_that_lie_harm_nobody_else),
    cmocka_unit_test(bodies_come_in_chunks_of_any_size),
    cmocka_unit_test(requests_in_a_row_are_answered_in_order),
    cmocka_unit_test(old_clients_are_served),
    cmocka_unit_test(expectations_are_met_or_refused_before_the_body),
    cmocka_unit_test(paths_are_what_they_say),
    cmocka_unit_test(targets_may_be_absolute_and_then_name_the_host),
    cmocka_unit_test(hosts_that_are_names_are_not_answered),
    cmocka_unit_test(torn_and_twisted_requests_are_survived),
};
TESTING_MAIN(cases)
