#include "webhook.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "http/http_base64.h"
#include "http/http_secret.h"
#include "http/http_server.h"
#include "http/http_tls.h"
#include "kube/inject.h"
#include "service_answer.h"
#include "webhook_tokens.h"

/* One API server has few connections; several share the load. */
#define WEBHOOK_THREADS     2u
#define WEBHOOK_CONNECTIONS 256u
/* The API server waits 5 s, so nobody needs longer. */
#define WEBHOOK_PATIENCE_MS 10000u
/* An annotation may have 256 KiB together with all others. */
#define WEBHOOK_MAX_CA    65536u
#define WEBHOOK_LEAST_KEY 16u
#define WEBHOOK_MOST_KEY  128u

struct webhook {
    struct webhook_parts parts;
    struct inject_options inject;
    struct webhook_tokens *tokens;
    struct http_tls *tls;
    struct http_server *server;
    char *ca_pem; /* NULL: none */
    char *key;    /* the secret part of the path; NULL: none */
    uint8_t key_hash[HTTP_SECRET_HASH];
};

/* --- who may ---------------------------------------------------------------------------------- */

static int webhook_knows_path(const struct webhook *webhook, struct http_request *request) {
    uint8_t hash[HTTP_SECRET_HASH];
    const char *key = http_request_param(request, "key");
    if (webhook->key == NULL) {
        return key == NULL;
    }
    return key != NULL && http_secret_hash(key, strlen(key), hash, NULL) == DEFT_OK &&
           http_secret_equal(hash, webhook->key_hash);
}

static int webhook_authorize(struct http_request *request, const struct http_route *route,
                             void *context) {
    const struct webhook *webhook = context;
    (void)route;
    if (webhook->parts.options->client_ca_file != NULL && !http_request_has_certificate(request)) {
        http_respond_problem(request, 403, "client_certificate", NULL,
                             "this needs a client certificate of an authority that the webhook was "
                             "started with");
        return 0;
    }
    if (!webhook_knows_path(webhook, request)) {
        http_respond_problem(request, 404, "not_found", NULL, "there is nothing here");
        return 0;
    }
    return 1;
}

/* --- answers ---------------------------------------------------------------------------------- */

static void webhook_respond(struct http_request *request, const struct wire_admission *review,
                            const struct inject_verdict *verdict, const char *patch) {
    struct deft_error error = {0};
    const char *warnings[INJECT_MAX_WARNINGS];
    char *text = NULL;
    for (size_t i = 0; i < verdict->n_warnings; i++) {
        warnings[i] = verdict->warnings[i];
    }
    enum deft_status status = wire_admission_answer(wire_admission_uid(review), patch, warnings,
                                                    verdict->n_warnings, &text, &error);
    service_answer_text(request, status, 200, text, &error);
}

static enum deft_status webhook_token(struct webhook *webhook, struct http_request *request,
                                      const struct wire_admission *review,
                                      const struct inject_verdict *verdict,
                                      char out[WIRE_SECRET_BYTES], struct deft_error *error) {
    const struct access_cause cause = {.who = "(webhook)",
                                       .source = http_request_peer(request),
                                       .reason = "agent of an injected pod"};
    out[0] = '\0';
    /* Nothing may stay behind of a dry run. */
    return wire_admission_is_dry_run(review)
               ? DEFT_OK
               : webhook_tokens_get(webhook->tokens, verdict->job, wire_admission_uid(review),
                                    &cause, out, error);
}

static void webhook_inject(struct webhook *webhook, struct http_request *request,
                           const struct wire_admission *review, struct inject_verdict *verdict) {
    struct deft_error error = {0};
    char token[WIRE_SECRET_BYTES];
    char *patch = NULL;
    char *encoded = NULL;
    enum deft_status status = webhook_token(webhook, request, review, verdict, token, &error);
    if (status == DEFT_OK) {
        status = inject_patch(review, verdict, &webhook->inject, token[0] != '\0' ? token : NULL,
                              &patch, &error);
    }
    if (status == DEFT_OK) {
        status = http_base64(patch, strlen(patch), &encoded, &error);
    }
    if (status != DEFT_OK) { /* the pod trains on without us */
        log_line(webhook->parts.log, LOG_LEVEL_WARNING, "webhook: a pod of %s stays as it is: %s",
                 verdict->job, error.text);
        verdict->n_warnings = 1;
        (void)snprintf(verdict->warnings[0], sizeof(verdict->warnings[0]),
                       "DeFT: the pod stays as it is: %.200s", error.text);
    }
    webhook_respond(request, review, verdict, encoded);
    http_secret_wipe(token, sizeof(token));
    free(encoded);
    free(patch);
}

static void webhook_review(struct http_request *request, void *context) {
    struct webhook *webhook = context;
    struct wire_admission *review = NULL;
    struct inject_verdict verdict;
    struct deft_error error = {0};
    size_t n_bytes = 0;
    if (!service_is_json(request)) {
        return;
    }
    const char *body = http_request_body(request, &n_bytes);
    if (wire_admission_decode(body, n_bytes, &review, &error) != DEFT_OK) {
        service_fail(request, &error);
        return;
    }
    inject_judge(review, &verdict);
    for (size_t i = 0; i < verdict.n_warnings; i++) {
        log_line(webhook->parts.log, LOG_LEVEL_INFO, "webhook: namespace %.63s: %s",
                 wire_admission_namespace(review), verdict.warnings[i]);
    }
    if (verdict.injects) {
        webhook_inject(webhook, request, review, &verdict);
    } else {
        webhook_respond(request, review, &verdict, NULL);
    }
    wire_admission_close(review);
}

static const struct http_route webhook_routes[] = {
    {"POST", "/admission/{key}", webhook_review, 0},
    {"POST", "/admission", webhook_review, 0},
};

/* --- start and end ---------------------------------------------------------------------------- */

/* At most `most` bytes of text without a zero; malloc'ed. */
static enum deft_status webhook_read(const char *what, const char *path, size_t most, char **out,
                                     struct deft_error *error) {
    char *text = calloc(1, most + 2);
    if (text == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to read %s", path);
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = 0;
    size_t n_bytes = 0;
    int code = 0;
    while (fd >= 0 && n_bytes <= most && (n = read(fd, text + n_bytes, most + 1 - n_bytes)) > 0) {
        n_bytes += (size_t)n;
    }
    if (fd < 0 || n < 0) {
        code = errno;
    }
    if (fd >= 0) {
        (void)close(fd);
    }
    if (code != 0) {
        free(text);
        return deft_fail(error, DEFT_INVALID, code, "%s '%s' cannot be read: %s", what, path,
                         strerrordesc_np(code));
    }
    if (n_bytes > most || strlen(text) != n_bytes) {
        free(text);
        return deft_fail(error, DEFT_INVALID, 0, "%s '%s' is no text of at most %zu bytes", what,
                         path, most);
    }
    *out = text;
    return DEFT_OK;
}

static enum deft_status webhook_read_key(struct webhook *webhook, struct deft_error *error) {
    static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                  "-_";
    const char *path = webhook->parts.options->path_file;
    enum deft_status status =
        webhook_read("--webhook-path-file", path, WEBHOOK_MOST_KEY + 1, &webhook->key, error);
    if (status != DEFT_OK) {
        return status;
    }
    size_t n = strspn(webhook->key, allowed);
    if (webhook->key[n] == '\n' && webhook->key[n + 1] == '\0') {
        webhook->key[n] = '\0';
    }
    if (webhook->key[n] != '\0' || n < WEBHOOK_LEAST_KEY || n > WEBHOOK_MOST_KEY) {
        return deft_fail(
            error, DEFT_INVALID, 0,
            "--webhook-path-file '%s' is unfit, expected one line of %u to %u letters, "
            "digits, - and _",
            path, WEBHOOK_LEAST_KEY, WEBHOOK_MOST_KEY);
    }
    return http_secret_hash(webhook->key, n, webhook->key_hash, error);
}

static enum deft_status webhook_read_ca(struct webhook *webhook, struct deft_error *error) {
    const char *path = webhook->parts.options->controller_ca_file;
    enum deft_status status =
        webhook_read("--webhook-controller-ca", path, WEBHOOK_MAX_CA, &webhook->ca_pem, error);
    if (status == DEFT_OK && strstr(webhook->ca_pem, "-----BEGIN CERTIFICATE-----") == NULL) {
        status = deft_fail(error, DEFT_INVALID, 0,
                           "--webhook-controller-ca '%s' has no certificate (PEM)", path);
    }
    return status;
}

static enum deft_status webhook_serve(struct webhook *webhook, struct deft_error *error) {
    const struct webhook_options *options = webhook->parts.options;
    const struct http_tls_options files = {.cert_file = options->cert_file,
                                           .key_file = options->key_file,
                                           .client_ca_file = options->client_ca_file};
    struct http_server_options http = {
        .listen_host = options->host != NULL ? options->host : webhook->parts.host,
        .port = options->port,
        .n_threads = WEBHOOK_THREADS,
        .max_connections = WEBHOOK_CONNECTIONS,
        .max_body_bytes = WIRE_ADMISSION_BYTES,
        .patience_ms = WEBHOOK_PATIENCE_MS,
        .routes = webhook_routes,
        .n_routes = sizeof(webhook_routes) / sizeof(webhook_routes[0]),
        .context = webhook,
        .authorize = webhook_authorize};
    enum deft_status status = http_tls_open(&files, &webhook->tls, error);
    if (status == DEFT_OK) {
        http.tls = webhook->tls;
        status = http_server_start(&http, &webhook->server, error);
    }
    if (status == DEFT_OK) {
        log_line(webhook->parts.log, LOG_LEVEL_INFO, "admission webhook on %s port %u",
                 http.listen_host, (unsigned)http_server_port(webhook->server));
    }
    return status;
}

enum deft_status webhook_start(const struct webhook_parts *parts, struct webhook **out,
                               struct deft_error *error) {
    const struct webhook_options *options = parts->options;
    struct webhook *webhook = calloc(1, sizeof(*webhook));
    if (webhook == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the webhook");
    }
    webhook->parts = *parts;
    enum deft_status status =
        options->path_file != NULL ? webhook_read_key(webhook, error) : DEFT_OK;
    if (status == DEFT_OK && options->controller_ca_file != NULL) {
        status = webhook_read_ca(webhook, error);
    }
    webhook->inject = (struct inject_options){
        .image = options->image, .controller = options->controller, .ca_pem = webhook->ca_pem};
    if (status == DEFT_OK) {
        status = webhook_tokens_open(parts->store, parts->access, options->expires_s,
                                     &webhook->tokens, error);
    }
    if (status == DEFT_OK) {
        status = webhook_serve(webhook, error);
    }
    if (status != DEFT_OK) {
        webhook_stop(webhook);
        return status;
    }
    *out = webhook;
    return DEFT_OK;
}

enum deft_status webhook_reload(struct webhook *webhook, struct deft_error *error) {
    return http_tls_reload(webhook->tls, error);
}

void webhook_stop(struct webhook *webhook) {
    if (webhook != NULL) {
        http_server_stop(webhook->server);
        http_tls_close(webhook->tls);
        webhook_tokens_close(webhook->tokens);
        free(webhook->ca_pem);
        free(webhook->key);
        free(webhook);
    }
}
