/* What clients that err, dawdle or mean harm get from the HTTP server, over real sockets. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "http/http_gzip.h"
#include "http/http_server.h"
#include "talk.h"
#include "testing.h"

#define MAX_BODY_BYTES 100000u

struct fixture {
    struct http_server *server;
    uint16_t port;
    struct http_server_options options;
};

static void handle_echo(struct http_request *request, void *context) {
    size_t n_bytes = 0;
    const char *body = http_request_body(request, &n_bytes);
    (void)context;
    http_respond(request, 200, "text/plain", body, n_bytes);
}

static void handle_name(struct http_request *request, void *context) {
    const char *name = http_request_param(request, "name");
    (void)context;
    http_respond(request, 200, "text/plain", name, strlen(name));
}

/* 20,000 bytes that gzip well. */
static void handle_long(struct http_request *request, void *context) {
    char text[20000];
    (void)context;
    memset(text, 'a', sizeof(text));
    http_respond_tagged(request, "text/plain", text, sizeof(text));
}

static void handle_stream(struct http_request *request, void *context) {
    struct http_stream *stream = http_respond_stream(request);
    (void)context;
    assert_non_null(stream);
    (void)!http_stream_send(stream, NULL, NULL, "hello");
    http_stream_release(stream);
}

static int refuse_marked(struct http_request *request, const struct http_route *route,
                         void *context) {
    (void)route;
    (void)context;
    if (http_request_header(request, "X-Refuse") != NULL) {
        http_respond_problem(request, 401, "no_token", NULL, "no");
        return 0;
    }
    return 1;
}

static const struct http_route routes[] = {
    {"POST", "/echo", handle_echo, 0},
    {"GET", "/names/{name}", handle_name, 0},
    {"GET", "/long", handle_long, 0},
    {"GET", "/stream", handle_stream, 0},
};

static void prepare(struct fixture *f) {
    static const char *const hosts[] = {"controller.example"};
    *f = (struct fixture){.options = {.listen_host = "127.0.0.1",
                                      .n_threads = 2,
                                      .max_connections = 64,
                                      .max_body_bytes = MAX_BODY_BYTES,
                                      .literal_hosts_only = 1,
                                      .hosts = hosts,
                                      .n_hosts = 1,
                                      .routes = routes,
                                      .n_routes = sizeof(routes) / sizeof(routes[0]),
                                      .authorize = refuse_marked}};
}

static void launch(struct fixture *f) {
    struct deft_error error = {0};
    if (http_server_start(&f->options, &f->server, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    f->port = http_server_port(f->server);
}

static void start(struct fixture *f) {
    prepare(f);
    launch(f);
}

static void stop(struct fixture *f) {
    http_server_stop(f->server);
}

/* The answer to `text`, which must be a problem of this status and code. */
static void expect_problem(struct fixture *f, const char *text, int status, const char *code) {
    struct talk_reply reply;
    char member[64];
    talk_raw(f->port, text, strlen(text), &reply);
    (void)snprintf(member, sizeof(member), "\"code\":\"%s\"", code);
    if (reply.status != status || strstr(reply.body, member) == NULL) {
        fail_msg("%.200s gave %d, expected %d %s: %s%s", text, reply.status, status, code,
                 reply.head != NULL ? reply.head : "", reply.body != NULL ? reply.body : "");
    }
    assert_non_null(strstr(reply.head, "application/problem+json\r\n"));
    assert_non_null(strstr(reply.head, "nosniff\r\n"));
    assert_non_null(strstr(reply.head, "default-src 'none'"));
    talk_reply_done(&reply);
}

static void expect_echo(struct fixture *f, const char *text, const char *body) {
    struct talk_reply reply;
    talk_raw(f->port, text, strlen(text), &reply);
    if (reply.status != 200 || strcmp(reply.body, body) != 0) {
        fail_msg("%.200s gave %d: %s", text, reply.status, reply.body != NULL ? reply.body : "");
    }
    talk_reply_done(&reply);
}

#define HOST "Host: localhost\r\n"

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
    struct fixture f;
    struct http_stats stats;
    (void)unused;
    start(&f);
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        expect_problem(&f, wrong[i].text, wrong[i].status, wrong[i].code);
    }
    http_server_stats(f.server, &stats);
    assert_true(stats.n_malformed >= 8);
    stop(&f);
}

static void ten_thousand_headers_are_too_many(void **unused) {
    enum { N_LINES = 10000, LINE_BYTES = 16, LONG_BYTES = 100000 };
    static const char head[] = "GET /long HTTP/1.1\r\n";
    struct fixture f;
    char *text = malloc(sizeof(head) + (size_t)N_LINES * LINE_BYTES + 3);
    (void)unused;
    assert_non_null(text);
    start(&f);
    memcpy(text, head, sizeof(head));
    size_t n = sizeof(head) - 1;
    for (int i = 0; i < N_LINES; i++) {
        (void)snprintf(text + n, LINE_BYTES + 1, "X-%05d: %05d\r\n", i, i);
        n += LINE_BYTES;
    }
    memcpy(text + n, "\r\n", 3);
    expect_problem(&f, text, 431, "head_too_large");
    memset(text, 'a', LONG_BYTES);
    text[LONG_BYTES] = '\0';
    memcpy(text, "GET /", 5);
    expect_problem(&f, text, 414, "target_too_long");
    memcpy(text, "GET / HTTP/1.1\r\nX: ", 19);
    expect_problem(&f, text, 431, "head_too_large");
    free(text);
    stop(&f);
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
    struct fixture f;
    (void)unused;
    start(&f);
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
    stop(&f);
}

static void lengths_that_lie_harm_nobody_else(void **unused) {
    struct fixture f;
    struct talk_reply reply;
    (void)unused;
    start(&f);
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
    expect_echo(&f, "POST /echo HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nok", "ok");
    stop(&f);
}

static void bodies_come_in_chunks_of_any_size(void **unused) {
    struct fixture f;
    (void)unused;
    start(&f);
    expect_echo(&f,
                "POST /echo HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
                "1\r\na\r\n2;name=value\r\nbc\r\n00003\r\ndef\r\n0\r\nX-Trailer: 1\r\n\r\n",
                "abcdef");
    expect_problem(&f,
                   "POST /echo HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
                   400, "malformed");
    stop(&f);
}

static void requests_in_a_row_are_answered_in_order(void **unused) {
    enum { N = 50 };
    struct fixture f;
    char text[N * 128] = "";
    size_t n = 0;
    (void)unused;
    start(&f);
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
        char wanted[8];
        (void)snprintf(wanted, sizeof(wanted), "n%02d", i);
        free(talk_read_up_to(fd, wanted));
    }
    (void)close(fd);
    stop(&f);
}

static void old_clients_are_served(void **unused) {
    struct fixture f;
    struct talk_reply reply;
    (void)unused;
    start(&f);
    expect_echo(&f, "GET /names/old HTTP/1.0\r\n\r\n", "old");
    expect_echo(&f, "POST /echo HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi", "hi");
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
    stop(&f);
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
    struct fixture f;
    (void)unused;
    start(&f);
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
    stop(&f);
}

/* --- paths, targets, hosts -----------------------------------------------------------------------
 */

static void paths_are_what_they_say(void **unused) {
    struct fixture f;
    (void)unused;
    start(&f);
    expect_problem(&f, "GET //long HTTP/1.1\r\n" HOST "\r\n", 404, "not_found");
    expect_problem(&f, "GET /names/../long HTTP/1.1\r\n" HOST "\r\n", 404, "not_found");
    expect_problem(&f, "GET /names/%2e%2e/long HTTP/1.1\r\n" HOST "\r\n", 404, "not_found");
    expect_problem(&f, "GET /lon%67/ HTTP/1.1\r\n" HOST "\r\n", 404, "not_found");
    expect_problem(&f, "GET /names/%00 HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    expect_problem(&f, "GET /names/%ff HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    expect_problem(&f, "GET names/x HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    expect_problem(&f, "OPTIONS * HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    expect_problem(&f, "CONNECT localhost:1 HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    expect_problem(&f, "TRACE /long HTTP/1.1\r\n" HOST "\r\n", 405, "method_not_allowed");
    expect_problem(&f, "get /long HTTP/1.1\r\n" HOST "\r\n", 405, "method_not_allowed");
    /* Dots and slashes in a name are a name. */
    expect_echo(&f, "GET /names/%2e%2e HTTP/1.1\r\n" HOST "\r\n", "..");
    expect_echo(&f, "GET /names/a%2F..%2Fb HTTP/1.1\r\n" HOST "\r\n", "a/../b");
    expect_echo(&f, "GET /%6eames/x HTTP/1.1\r\n" HOST "\r\n", "x");
    stop(&f);
}

static void targets_may_be_absolute_and_then_name_the_host(void **unused) {
    struct fixture f;
    (void)unused;
    start(&f);
    expect_echo(&f, "GET http://localhost:1/names/x HTTP/1.1\r\n" HOST "\r\n", "x");
    expect_echo(&f, "GET HTTP://127.0.0.1/names/x HTTP/1.1\r\nHost: evil.example\r\n\r\n", "x");
    expect_problem(&f, "GET http://evil.example/names/x HTTP/1.1\r\n" HOST "\r\n", 421, "host");
    expect_problem(&f, "GET http:///names/x HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    expect_problem(&f, "GET ftp://localhost/names/x HTTP/1.1\r\n" HOST "\r\n", 400, "bad_path");
    expect_problem(&f, "GET http://localhost HTTP/1.1\r\n" HOST "\r\n", 404, "not_found");
    stop(&f);
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
    struct fixture f;
    char text[160];
    (void)unused;
    start(&f);
    for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) {
        (void)snprintf(text, sizeof(text), "GET /names/x HTTP/1.1\r\nHost: %s\r\n\r\n", ours[i]);
        expect_echo(&f, text, "x");
    }
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        (void)snprintf(text, sizeof(text), "GET /names/x HTTP/1.1\r\nHost: %s\r\n\r\n", others[i]);
        expect_problem(&f, text, 421, "host");
    }
    stop(&f);
}

/* --- gzip ----------------------------------------------------------------------------------------
 */

/* Sends a body that is said to be gzip. */
static void send_packed(struct fixture *f, const char *bytes, size_t n_bytes, const char *coding,
                        struct talk_reply *out) {
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
    struct fixture f;
    struct talk_reply reply;
    char *plain = calloc(1, 50u << 20);
    char *packed = NULL;
    size_t n = 0;
    (void)unused;
    assert_non_null(plain);
    start(&f);
    memset(plain, 'x', MAX_BODY_BYTES);
    assert_int_equal(http_gzip_pack(plain, MAX_BODY_BYTES, &packed, &n), DEFT_OK);
    assert_true(n < 1000);
    send_packed(&f, packed, n, "gzip", &reply);
    assert_int_equal(reply.status, 200);
    assert_int_equal(strlen(reply.body), MAX_BODY_BYTES);
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
    memcpy(longer + n, "more", 4);
    send_packed(&f, longer, n + 4, "gzip", &reply);
    assert_int_equal(reply.status, 400);
    talk_reply_done(&reply);
    free(longer);
    free(packed);
    /* A bomb: 50 MiB in 50 kB, and one byte too many. */
    assert_int_equal(http_gzip_pack(plain, 20u << 20, &packed, &n), DEFT_OK);
    assert_true(n <= MAX_BODY_BYTES);
    send_packed(&f, packed, n, "gzip", &reply);
    assert_int_equal(reply.status, 413);
    talk_reply_done(&reply);
    free(packed);
    assert_int_equal(http_gzip_pack(plain, MAX_BODY_BYTES + 1, &packed, &n), DEFT_OK);
    send_packed(&f, packed, n, "GZIP", &reply);
    assert_int_equal(reply.status, 413);
    talk_reply_done(&reply);
    free(packed);
    free(plain);
    stop(&f);
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
    struct fixture f;
    (void)unused;
    start(&f);
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
        talk_reply_done(&reply);
    }
    stop(&f);
}

static void tags_spare_the_body(void **unused) {
    struct fixture f;
    struct talk_reply reply;
    char text[300];
    char tag[64];
    (void)unused;
    start(&f);
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
    stop(&f);
}

/* --- who dawdles, who asks too often
 * --------------------------------------------------------------
 */

/* One byte now and then keeps any idle timer happy; the head still has to end. */
static void slow_heads_and_bodies_are_cut_off(void **unused) {
    static const char *const begins[] = {"", "GET /long HTTP/1.1\r\nX-Slow: ",
                                         "POST /echo HTTP/1.1\r\n" HOST
                                         "Content-Length: 1000\r\n\r\n"};
    struct fixture f;
    struct http_stats stats;
    (void)unused;
    prepare(&f);
    f.options.patience_ms = 400;
    launch(&f);
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
    stop(&f);
}

static void clients_that_ask_too_often_are_told_when_to_come_again(void **unused) {
    struct fixture f;
    struct http_stats stats;
    unsigned n_served = 0;
    unsigned n_limited = 0;
    (void)unused;
    prepare(&f);
    f.options.max_requests_per_s = 10;
    launch(&f);
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
    stop(&f);
}

static void connections_beyond_the_limit_wait_or_end(void **unused) {
    static const char request[] = "GET /names/x HTTP/1.1\r\n" HOST "\r\n";
    struct fixture f;
    int fds[4];
    (void)unused;
    prepare(&f);
    f.options.max_connections_per_client = 3;
    launch(&f);
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
    stop(&f);
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
    struct fixture f;
    uint64_t seed = testing_seed();
    (void)unused;
    prepare(&f);
    f.options.patience_ms = 400; /* ends of clients are looked for eight times as often */
    launch(&f);
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
    expect_echo(&f, "GET /names/alive HTTP/1.1\r\n" HOST "\r\n", "alive");
    stop(&f);
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
    cmocka_unit_test(packed_bodies_are_unpacked_within_the_limit),
    cmocka_unit_test(answers_are_packed_for_those_who_take_it),
    cmocka_unit_test(tags_spare_the_body),
    cmocka_unit_test(slow_heads_and_bodies_are_cut_off),
    cmocka_unit_test(clients_that_ask_too_often_are_told_when_to_come_again),
    cmocka_unit_test(connections_beyond_the_limit_wait_or_end),
    cmocka_unit_test(torn_and_twisted_requests_are_survived),
};
TESTING_MAIN(cases)
