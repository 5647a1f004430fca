/* TLS: what the server refuses to start with, what clients believe, and certificates that change
 * while connections stand. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "certificates.h"
#include "client/http_client.h"
#include "http/http_server.h"
#include "http/http_tls.h"
#include "talk.h"
#include "testing.h"

#define HOUR_S 3600

struct fixture {
    char dir[64];
    char ca_file[96];
    char crt_file[96];
    char key_file[96];
    char other_file[96]; /* further ones, by the case */
    char other_key_file[96];
    struct certificate ca;
    struct certificate own;
    struct http_tls *tls;
    struct http_server *server;
    char url[64];
};

static void handle_open(struct http_request *request, void *context) {
    (void)context;
    http_respond(request, 200, "text/plain", "open", 4);
}

static void handle_known(struct http_request *request, void *context) {
    (void)context;
    if (http_request_has_certificate(request)) {
        http_respond(request, 200, "text/plain", "known", 5);
    } else {
        http_respond_problem(request, 403, "client_certificate", NULL, "none that is good");
    }
}

static const struct http_route routes[] = {{"GET", "/open", handle_open, 0},
                                           {"GET", "/known", handle_known, 0},
                                           {"POST", "/open", handle_open, 0}};

static void path_in(const struct fixture *f, const char *name, char out[96]) {
    (void)snprintf(out, 96, "%.60s/%.30s", f->dir, name);
}

static void make_own(struct fixture *f, const char *address, int begin_s, int end_s) {
    const struct certificate_wish wish = {
        .issuer = &f->ca, .name = "server", .address = address, .begin_s = begin_s, .end_s = end_s};
    certificate_make(&wish, &f->own);
    certificate_write(&f->own, f->crt_file, f->key_file);
}

static void prepare(struct fixture *f) {
    const struct certificate_wish wish = {
        .name = "authority", .begin_s = -48 * HOUR_S, .end_s = 24 * HOUR_S};
    memset(f, 0, sizeof(*f));
    (void)snprintf(f->dir, sizeof(f->dir), "/tmp/deft-secure-test-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    path_in(f, "ca.pem", f->ca_file);
    path_in(f, "crt.pem", f->crt_file);
    path_in(f, "key.pem", f->key_file);
    path_in(f, "other.pem", f->other_file);
    path_in(f, "other-key.pem", f->other_key_file);
    certificate_make(&wish, &f->ca);
    certificate_write(&f->ca, f->ca_file, NULL);
    make_own(f, "127.0.0.1", -HOUR_S, HOUR_S);
}

static enum deft_status open_tls(struct fixture *f, const char *client_ca,
                                 struct deft_error *error) {
    const struct http_tls_options files = {
        .cert_file = f->crt_file, .key_file = f->key_file, .client_ca_file = client_ca};
    return http_tls_open(&files, &f->tls, error);
}

static void launch(struct fixture *f, const char *client_ca) {
    struct deft_error error = {0};
    struct http_server_options options = {.listen_host = "127.0.0.1",
                                          .n_threads = 2,
                                          .max_connections = 32,
                                          .max_body_bytes = 1u << 20,
                                          .patience_ms = 5000,
                                          .routes = routes,
                                          .n_routes = sizeof(routes) / sizeof(routes[0])};
    if (open_tls(f, client_ca, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    options.tls = f->tls;
    if (http_server_start(&options, &f->server, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    (void)snprintf(f->url, sizeof(f->url), "https://127.0.0.1:%u", http_server_port(f->server));
}

static void clean(struct fixture *f) {
    http_server_stop(f->server);
    http_tls_close(f->tls);
    certificate_done(&f->own);
    certificate_done(&f->ca);
    (void)unlink(f->ca_file);
    (void)unlink(f->crt_file);
    (void)unlink(f->key_file);
    (void)unlink(f->other_file);
    (void)unlink(f->other_key_file);
    assert_int_equal(rmdir(f->dir), 0);
}

/* The status of one GET by a client with these files; 0 with the sentence when none came. */
static int ask(const struct http_client_options *options, const char *path,
               struct deft_error *error) {
    struct http_client *client = NULL;
    struct http_reply reply = {0};
    assert_int_equal(http_client_open(options, &client, NULL), DEFT_OK);
    enum deft_status status = http_client_request(client, "GET", path, NULL, 20000, &reply, error);
    int code = status == DEFT_OK ? reply.status : 0;
    http_reply_done(&reply);
    http_client_close(client);
    return code;
}

/* --- what it refuses to start with ---------------------------------------------------------------
 */

static void refuses(struct fixture *f, const char *says) {
    struct deft_error error = {0};
    assert_int_not_equal(open_tls(f, NULL, &error), DEFT_OK);
    assert_null(f->tls);
    if (strstr(error.text, says) == NULL) {
        fail_msg("'%s' does not say '%s'", error.text, says);
    }
}

static void unfit_files_are_refused(void **unused) {
    struct fixture f;
    struct certificate stranger;
    const struct certificate_wish wish = {.name = "stranger", .end_s = HOUR_S};
    (void)unused;
    prepare(&f);
    certificate_make(&wish, &stranger);
    certificate_write(&stranger, NULL, f.key_file);
    refuses(&f, "does not belong to the certificate");
    certificate_write(&f.own, NULL, f.key_file);
    for (unsigned mode = 0604; mode <= 0606; mode += 2) { /* readable, and writable as well */
        assert_int_equal(chmod(f.key_file, mode), 0);
        refuses(&f, "by every user");
    }
    assert_int_equal(chmod(f.key_file, 0640), 0); /* a group is somebody's choice */
    assert_int_equal(open_tls(&f, NULL, NULL), DEFT_OK);
    http_tls_close(f.tls);
    f.tls = NULL;
    assert_int_equal(truncate(f.key_file, 40), 0);
    refuses(&f, "is not an unencrypted private key");
    assert_int_equal(unlink(f.key_file), 0);
    refuses(&f, "cannot be read");
    assert_int_equal(truncate(f.crt_file, 0), 0);
    refuses(&f, "is not a chain");
    assert_int_equal(unlink(f.crt_file), 0);
    refuses(&f, "cannot be read");
    certificate_done(&stranger);
    clean(&f);
}

static void certificates_out_of_their_time_are_refused(void **unused) {
    struct fixture f;
    (void)unused;
    prepare(&f);
    certificate_done(&f.own);
    make_own(&f, "127.0.0.1", -2 * HOUR_S, -HOUR_S);
    refuses(&f, "has expired on ");
    certificate_done(&f.own);
    make_own(&f, "127.0.0.1", HOUR_S, 2 * HOUR_S);
    refuses(&f, "is not valid before ");
    clean(&f);
}

static void authorities_that_are_none_are_refused(void **unused) {
    struct fixture f;
    struct deft_error error = {0};
    (void)unused;
    prepare(&f);
    assert_int_equal(open_tls(&f, f.key_file, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "no certificate of an authority"));
    assert_int_equal(open_tls(&f, f.other_file, &error), DEFT_IO);
    clean(&f);
}

/* --- what clients believe ------------------------------------------------------------------------
 */

static void clients_believe_the_right_server_only(void **unused) {
    struct fixture f;
    struct deft_error error = {0};
    struct certificate stranger;
    const struct certificate_wish wish = {.name = "stranger", .end_s = HOUR_S};
    (void)unused;
    prepare(&f);
    launch(&f, NULL);
    struct http_client_options options = {.base_url = f.url, .ca_file = f.ca_file};
    assert_int_equal(ask(&options, "/open", &error), 200);
    options.ca_file = NULL; /* the system does not know it */
    assert_int_equal(ask(&options, "/open", &error), 0);
    assert_int_equal(error.status, DEFT_IO);
    certificate_make(&wish, &stranger);
    certificate_write(&stranger, f.other_file, NULL);
    options.ca_file = f.other_file;
    assert_int_equal(ask(&options, "/open", &error), 0);
    char other_name[64];
    (void)snprintf(other_name, sizeof(other_name), "https://localhost:%u",
                   http_server_port(f.server));
    options = (struct http_client_options){.base_url = other_name, .ca_file = f.ca_file};
    assert_int_equal(ask(&options, "/open", &error), 0);
    certificate_done(&stranger);
    clean(&f);
}

static void plain_and_old_clients_get_nothing(void **unused) {
    static const char *const versions[] = {"NORMAL:-VERS-ALL:+VERS-TLS1.1:%COMPAT",
                                           "NORMAL:-VERS-ALL:+VERS-TLS1.2",
                                           "NORMAL:-VERS-ALL:+VERS-TLS1.3"};
    struct fixture f;
    struct talk_reply reply;
    static const char plain[] = "GET /open HTTP/1.1\r\nHost: localhost\r\n\r\n";
    (void)unused;
    prepare(&f);
    launch(&f, NULL);
    uint16_t port = http_server_port(f.server);
    talk_raw(port, plain, sizeof(plain) - 1, &reply);
    assert_int_equal(reply.status, 0);
    talk_reply_done(&reply);
    for (size_t i = 0; i < sizeof(versions) / sizeof(versions[0]); i++) {
        gnutls_session_t session;
        gnutls_certificate_credentials_t nothing;
        assert_int_equal(gnutls_init(&session, GNUTLS_CLIENT), 0);
        assert_int_equal(gnutls_certificate_allocate_credentials(&nothing), 0);
        assert_int_equal(gnutls_credentials_set(session, GNUTLS_CRD_CERTIFICATE, nothing), 0);
        assert_int_equal(gnutls_priority_set_direct(session, versions[i], NULL), 0);
        int fd = talk_connect(port);
        gnutls_transport_set_int(session, fd);
        gnutls_handshake_set_timeout(session, 30000);
        int code = gnutls_handshake(session);
        assert_int_equal(code == 0, i > 0);
        gnutls_deinit(session);
        gnutls_certificate_free_credentials(nothing);
        (void)close(fd);
    }
    clean(&f);
}

/* --- client certificates -------------------------------------------------------------------------
 */

static void clients_show_certificates_of_the_right_authority(void **unused) {
    struct fixture f;
    struct deft_error error = {0};
    struct certificate client;
    struct certificate rogue_ca;
    const struct certificate_wish rogue_wish = {.name = "authority", .end_s = HOUR_S};
    (void)unused;
    prepare(&f);
    launch(&f, f.ca_file);
    struct http_client_options options = {.base_url = f.url, .ca_file = f.ca_file};
    assert_int_equal(ask(&options, "/open", &error), 200); /* a probe has none */
    assert_int_equal(ask(&options, "/known", &error), 403);
    options.cert_file = f.other_file;
    options.key_file = f.other_key_file;
    certificate_make(&rogue_wish, &rogue_ca);
    const struct certificate_wish wishes[] = {
        {.issuer = &f.ca, .name = "client", .begin_s = -60, .end_s = HOUR_S},
        {.issuer = &f.ca, .name = "late", .begin_s = -2 * HOUR_S, .end_s = -HOUR_S},
        {.issuer = &f.ca, .name = "a server", .address = "x", .begin_s = -60, .end_s = HOUR_S},
        {.issuer = &rogue_ca, .name = "client", .begin_s = -60, .end_s = HOUR_S}};
    for (size_t i = 0; i < sizeof(wishes) / sizeof(wishes[0]); i++) {
        certificate_make(&wishes[i], &client);
        certificate_write(&client, f.other_file, f.other_key_file);
        assert_int_equal(ask(&options, "/known", &error), i == 0 ? 200 : 403);
        certificate_done(&client);
    }
    certificate_done(&rogue_ca);
    clean(&f);
}

/* --- a certificate that changes ------------------------------------------------------------------
 */

static void certificates_change_without_dropping_anybody(void **unused) {
    struct fixture f;
    struct deft_error error = {0};
    struct http_client *client = NULL;
    struct http_reply reply = {0};
    struct certificate fresh_ca;
    const struct certificate_wish wish = {.name = "fresh", .end_s = 24 * HOUR_S};
    (void)unused;
    prepare(&f);
    launch(&f, NULL);
    struct http_client_options old = {.base_url = f.url, .ca_file = f.ca_file};
    struct http_client_options new = {.base_url = f.url, .ca_file = f.other_file};
    assert_int_equal(http_client_open(&old, &client, NULL), DEFT_OK);
    assert_int_equal(http_client_request(client, "GET", "/open", NULL, 20000, &reply, &error),
                     DEFT_OK);
    http_reply_done(&reply);
    int64_t first_s = http_tls_expires_s(f.tls);

    struct certificate old_ca = f.ca;
    struct certificate old_own = f.own;
    certificate_make(&wish, &fresh_ca);
    certificate_write(&fresh_ca, f.other_file, NULL);
    f.ca = fresh_ca;
    make_own(&f, "127.0.0.1", -60, 2 * HOUR_S);
    assert_int_equal(http_tls_reload(f.tls, &error), DEFT_OK);
    assert_true(http_tls_expires_s(f.tls) > first_s);

    struct http_stats stats;
    http_server_stats(f.server, &stats);
    uint64_t n_accepted = stats.n_accepted;
    /* The connection from before goes on; a new one meets the new certificate. */
    assert_int_equal(http_client_request(client, "GET", "/open", NULL, 20000, &reply, &error),
                     DEFT_OK);
    http_reply_done(&reply);
    http_server_stats(f.server, &stats);
    assert_int_equal(stats.n_accepted, n_accepted);
    assert_int_equal(ask(&old, "/open", &error), 0);
    assert_int_equal(ask(&new, "/open", &error), 200);

    /* A bad one changes nothing. */
    assert_int_equal(truncate(f.crt_file, 100), 0);
    assert_int_equal(http_tls_reload(f.tls, &error), DEFT_INVALID);
    assert_int_equal(ask(&new, "/open", &error), 200);
    http_client_close(client);
    certificate_done(&old_own);
    certificate_done(&old_ca);
    clean(&f);
}

static int note(void *context, const char *event, const char *id, const char *data) {
    (void)event;
    (void)id;
    *(int *)context += strcmp(data, "over TLS") == 0;
    return 1; /* enough */
}

static void streams_and_large_bodies_pass(void **unused) {
    struct fixture f;
    struct deft_error error = {0};
    struct http_client *client = NULL;
    struct http_reply reply = {0};
    (void)unused;
    prepare(&f);
    launch(&f, NULL);
    const struct http_client_options options = {.base_url = f.url, .ca_file = f.ca_file};
    assert_int_equal(http_client_open(&options, &client, NULL), DEFT_OK);
    char *body = malloc(500001);
    uint64_t seed = testing_seed();
    assert_non_null(body);
    for (int i = 0; i < 500000; i++) { /* what does not pack */
        body[i] = (char)('a' + testing_random_below(&seed, 26));
    }
    body[500000] = '\0';
    for (int i = 0; i < 3; i++) {
        assert_int_equal(http_client_request(client, "POST", "/open", body, 30000, &reply, &error),
                         DEFT_OK);
        assert_int_equal(reply.status, 200);
        http_reply_done(&reply);
    }
    free(body);
    http_client_close(client);
    clean(&f);
}

static void handle_greeting(struct http_request *request, void *context) {
    struct http_stream *stream = http_respond_stream(request);
    (void)context;
    assert_non_null(stream);
    assert_int_equal(http_stream_send(stream, NULL, NULL, "over TLS"), DEFT_OK);
    http_stream_release(stream);
}

static void events_come_over_tls(void **unused) {
    static const struct http_route greeting[] = {{"GET", "/stream", handle_greeting, 0}};
    struct fixture f;
    struct deft_error error = {0};
    struct http_client *client = NULL;
    int n_seen = 0;
    (void)unused;
    prepare(&f);
    assert_int_equal(open_tls(&f, NULL, &error), DEFT_OK);
    const struct http_server_options options = {.listen_host = "127.0.0.1",
                                                .n_threads = 1,
                                                .max_connections = 8,
                                                .max_body_bytes = 1024,
                                                .tls = f.tls,
                                                .routes = greeting,
                                                .n_routes = 1};
    assert_int_equal(http_server_start(&options, &f.server, &error), DEFT_OK);
    (void)snprintf(f.url, sizeof(f.url), "https://127.0.0.1:%u", http_server_port(f.server));
    const struct http_client_options asks = {.base_url = f.url, .ca_file = f.ca_file};
    assert_int_equal(http_client_open(&asks, &client, NULL), DEFT_OK);
    assert_int_equal(
        http_client_events(client, "/stream", NULL, 30000, NULL, note, &n_seen, &error),
        DEFT_CLOSED);
    assert_int_equal(n_seen, 1);
    http_client_close(client);
    clean(&f);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(unfit_files_are_refused),
    cmocka_unit_test(certificates_out_of_their_time_are_refused),
    cmocka_unit_test(authorities_that_are_none_are_refused),
    cmocka_unit_test(clients_believe_the_right_server_only),
    cmocka_unit_test(plain_and_old_clients_get_nothing),
    cmocka_unit_test(clients_show_certificates_of_the_right_authority),
    cmocka_unit_test(certificates_change_without_dropping_anybody),
    cmocka_unit_test(streams_and_large_bodies_pass),
    cmocka_unit_test(events_come_over_tls),
};
TESTING_MAIN(cases)
