/* The HTTP client against real sockets: what arrives, and what every kind of failure is called. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/http_client.h"
#include "http/http_server.h"
#include "testing.h"

static enum deft_status open_client(const char *url, struct http_client **out,
                                    struct deft_error *error) {
    const struct http_client_options options = {.base_url = url};
    return http_client_open(&options, out, error);
}

static void answer_echo(struct http_request *request, void *context) {
    (void)context;
    size_t n_bytes;
    const char *body = http_request_body(request, &n_bytes);
    char text[256];
    int n = snprintf(text, sizeof(text), "%s:%.*s", http_request_param(request, "name"),
                     (int)n_bytes, body);
    http_respond(request, 200, "text/plain", text, (size_t)n);
}

static void answer_large(struct http_request *request, void *context) {
    (void)context;
    size_t n_bytes = (size_t)HTTP_CLIENT_MAX_REPLY_BYTES + 1;
    char *body = calloc(1, n_bytes);
    assert_non_null(body);
    http_respond(request, 200, "application/octet-stream", body, n_bytes);
    free(body);
}

static void answer_busy(struct http_request *request, void *context) {
    (void)context;
    http_respond_problem(request, 503, "busy", "", "come again");
}

static void answer_events(struct http_request *request, void *context) {
    (void)context;
    const char *last_id = http_request_header(request, "Last-Event-ID");
    char data[64];
    (void)snprintf(data, sizeof(data), "after %s", last_id != NULL ? last_id : "nothing");
    struct http_stream *stream = http_respond_stream(request);
    assert_non_null(stream);
    assert_int_equal(http_stream_send(stream, "7", "plan", data), DEFT_OK);
    assert_int_equal(http_stream_send(stream, "8", NULL, "two\nlines"), DEFT_OK);
    http_stream_release(stream);
}

static struct http_server *start_server(struct http_client **out_client) {
    static const struct http_route routes[] = {
        {"POST", "/echo/{name}", answer_echo, 0},
        {"GET", "/large", answer_large, 0},
        {"GET", "/busy", answer_busy, 0},
        {"GET", "/events", answer_events, 0},
    };
    const struct http_server_options options = {.listen_host = "127.0.0.1",
                                                .n_threads = 1,
                                                .max_connections = 8,
                                                .max_body_bytes = 1024,
                                                .routes = routes,
                                                .n_routes = 4};
    struct http_server *server = NULL;
    char url[64];
    assert_int_equal(http_server_start(&options, &server, NULL), DEFT_OK);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/", http_server_port(server));
    assert_int_equal(open_client(url, out_client, NULL), DEFT_OK);
    return server;
}

static void stop_server(struct http_server *server, struct http_client *client) {
    http_client_close(client);
    http_server_stop(server);
}

/* A listener that takes connections and never says a word. */
static int start_silent(uint16_t *out_port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t n_bytes = sizeof(address);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&address, n_bytes), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &n_bytes), 0);
    *out_port = ntohs(address.sin_port);
    return fd;
}

static void replies_come_back_whole(void **unused) {
    (void)unused;
    struct http_client *client = NULL;
    struct http_server *server = start_server(&client);
    struct http_reply reply = {0};
    struct deft_error error = {0};
    char path[64] = "/echo/";
    assert_int_equal(http_client_escape("a b/ü?", path + 6, sizeof(path) - 6), DEFT_OK);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(
            http_client_request(client, "POST", path, "{\"x\":1}", 10000, &reply, &error), DEFT_OK);
        assert_int_equal(reply.status, 200);
        assert_string_equal(reply.body, "a b/ü?:{\"x\":1}");
        assert_int_equal(reply.n_bytes, strlen(reply.body));
        http_reply_done(&reply);
    }
    assert_int_equal(http_client_request(client, "GET", "/none", NULL, 10000, &reply, &error),
                     DEFT_OK);
    assert_int_equal(reply.status, 404);
    http_reply_done(&reply);
    assert_int_equal(http_client_request(client, "GET", "/busy", NULL, 10000, &reply, &error),
                     DEFT_OK);
    assert_int_equal(reply.status, 503);
    assert_non_null(strstr(reply.body, "come again"));
    http_reply_done(&reply);
    assert_int_equal(http_client_request(client, "GET", "/large", NULL, 30000, &reply, &error),
                     DEFT_LIMIT);
    assert_null(reply.body);
    stop_server(server, client);
}

static void nobody_there_is_an_io_error_with_the_address(void **unused) {
    (void)unused;
    struct http_client *client = NULL;
    struct http_reply reply = {0};
    struct deft_error error = {0};
    uint16_t port;
    char url[64];
    int fd = start_silent(&port);
    (void)close(fd);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
    /* A proxy variable must not make a difference. */
    assert_int_equal(setenv("http_proxy", "http://127.0.0.1:9", 1), 0);
    assert_int_equal(open_client(url, &client, &error), DEFT_OK);
    assert_int_equal(http_client_request(client, "GET", "/", NULL, 5000, &reply, &error), DEFT_IO);
    assert_non_null(strstr(error.text, url));
    http_client_close(client);
    assert_int_equal(open_client("ftp://host", &client, &error), DEFT_INVALID);
    assert_int_equal(open_client("127.0.0.1:80", &client, &error), DEFT_INVALID);
    assert_int_equal(open_client("", &client, &error), DEFT_INVALID);
}

static void silence_ends_with_the_timeout_or_the_flag(void **unused) {
    (void)unused;
    struct http_client *client = NULL;
    struct http_reply reply = {0};
    struct deft_error error = {0};
    volatile int stop = 1;
    uint16_t port;
    char url[64];
    int fd = start_silent(&port);
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", port);
    assert_int_equal(open_client(url, &client, &error), DEFT_OK);
    int64_t begin_ns = clock_monotonic_ns();
    assert_int_equal(http_client_request(client, "GET", "/", NULL, 300, &reply, &error),
                     DEFT_TIMEOUT);
    /* curl counts in whole milliseconds */
    assert_true(clock_monotonic_ns() - begin_ns >= INT64_C(299000000));
    http_client_stop_flag(client, &stop);
    assert_int_equal(http_client_request(client, "GET", "/", NULL, 60000, &reply, &error),
                     DEFT_CANCELLED);
    http_client_stop_flag(client, NULL);
    assert_int_equal(http_client_events(client, "/", NULL, 300, NULL, NULL, NULL, &error), DEFT_IO);
    assert_non_null(strstr(error.text, "silent"));
    assert_int_equal(http_client_events(client, "/", NULL, 60000, &stop, NULL, NULL, &error),
                     DEFT_CANCELLED);
    http_client_close(client);
    (void)close(fd);
}

struct seen {
    unsigned n;
    char text[256];
};

static int note(void *context, const char *event, const char *id, const char *data) {
    struct seen *seen = context;
    size_t n = strlen(seen->text);
    (void)snprintf(seen->text + n, sizeof(seen->text) - n, "<%s|%s|%s>", event, id, data);
    seen->n++;
    return 0;
}

static void streams_deliver_events_until_they_end(void **unused) {
    (void)unused;
    struct http_client *client = NULL;
    struct http_server *server = start_server(&client);
    struct deft_error error = {0};
    struct seen seen = {0};
    assert_int_equal(http_client_events(client, "/events", "6", 30000, NULL, note, &seen, &error),
                     DEFT_CLOSED);
    assert_string_equal(seen.text, "<plan|7|after 6><message|8|two\nlines>");
    assert_int_equal(http_client_events(client, "/none", NULL, 30000, NULL, note, &seen, &error),
                     DEFT_NOT_FOUND);
    assert_int_equal(http_client_events(client, "/busy", NULL, 30000, NULL, note, &seen, &error),
                     DEFT_IO);
    assert_int_equal(error.backend_code, 503);
    assert_int_equal(seen.n, 2);
    stop_server(server, client);
}

/* They are opened behind the connection. */
static void files_of_ours_are_not_the_controllers_fault(void **unused) {
    (void)unused;
    uint16_t port;
    int fd = start_silent(&port);
    char url[64];
    (void)snprintf(url, sizeof(url), "https://127.0.0.1:%u", port);
    const struct {
        struct http_client_options options;
        const char *says;
    } cases_of_files[] = {
        {{.base_url = url, .ca_file = "/nowhere"}, "the file of its authorities cannot be used"},
        {{.base_url = url, .cert_file = "/nowhere", .key_file = "/nowhere"},
         "the certificate to show, or its key, cannot be used"},
    };
    for (size_t i = 0; i < 2; i++) {
        struct http_client *client = NULL;
        struct http_reply reply = {0};
        struct deft_error error = {0};
        assert_int_equal(http_client_open(&cases_of_files[i].options, &client, &error), DEFT_OK);
        assert_int_equal(http_client_request(client, "GET", "/", NULL, 20000, &reply, &error),
                         DEFT_IO);
        assert_non_null(strstr(error.text, cases_of_files[i].says));
        assert_non_null(strstr(error.text, "/nowhere"));
        http_client_close(client);
    }
    (void)close(fd);
}

static void segments_are_escaped_or_refused(void **unused) {
    (void)unused;
    char out[8] = "keep";
    assert_int_equal(http_client_escape("1.2_a-~", out, sizeof(out)), DEFT_OK);
    assert_string_equal(out, "1.2_a-~");
    assert_int_equal(http_client_escape("a/b", out, sizeof(out)), DEFT_OK);
    assert_string_equal(out, "a%2Fb");
    assert_int_equal(http_client_escape("///", out, sizeof(out)), DEFT_LIMIT);
    assert_string_equal(out, "a%2Fb");
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(replies_come_back_whole),
    cmocka_unit_test(nobody_there_is_an_io_error_with_the_address),
    cmocka_unit_test(silence_ends_with_the_timeout_or_the_flag),
    cmocka_unit_test(streams_deliver_events_until_they_end),
    cmocka_unit_test(files_of_ours_are_not_the_controllers_fault),
    cmocka_unit_test(segments_are_escaped_or_refused),
};
TESTING_MAIN(cases)
