#include "hostile_server.h"

#include <stdio.h>
#include <string.h>

#include "talk.h"
#include "testing.h"

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

void hostile_server_prepare(struct hostile_server *f) {
    static const char *const hosts[] = {"controller.example"};
    *f = (struct hostile_server){.options = {.listen_host = "127.0.0.1",
                                             .n_threads = 2,
                                             .max_connections = 64,
                                             .max_body_bytes = HOSTILE_MAX_BODY_BYTES,
                                             .literal_hosts_only = 1,
                                             .hosts = hosts,
                                             .n_hosts = 1,
                                             .routes = routes,
                                             .n_routes = sizeof(routes) / sizeof(routes[0]),
                                             .authorize = refuse_marked}};
}

void hostile_server_launch(struct hostile_server *f) {
    struct deft_error error = {0};
    if (http_server_start(&f->options, &f->server, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    f->port = http_server_port(f->server);
}

void hostile_server_start(struct hostile_server *f) {
    hostile_server_prepare(f);
    hostile_server_launch(f);
}

void hostile_server_stop(struct hostile_server *f) {
    http_server_stop(f->server);
}

void hostile_server_problem(struct hostile_server *f, const char *text, int status,
                            const char *code) {
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

void hostile_server_echo(struct hostile_server *f, const char *text, const char *body) {
    struct talk_reply reply;
    talk_raw(f->port, text, strlen(text), &reply);
    if (reply.status != 200 || strcmp(reply.body, body) != 0) {
        fail_msg("%.200s gave %d: %s", text, reply.status, reply.body != NULL ? reply.body : "");
    }
    talk_reply_done(&reply);
}
