#include "listen_options.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

/* Each agent holds two: one for reports, one for its event stream. */
#define LISTEN_MAX_CONNECTIONS 32768u
#define LISTEN_PER_CLIENT      4096u
/* A node's agents report about once a second each; behind one address there may be a rack. */
#define LISTEN_RATE     1000u
#define LISTEN_MOST     1000000u /* beyond, a limit is none */
#define LISTEN_MAX_JOBS 100000u

static enum deft_status listen_take_names(const struct setting *row, const char *name,
                                          const char *text, void *target,
                                          struct deft_error *error) {
    struct listen_options *options = target;
    (void)row;
    options->n_names = 0;
    for (const char *at = text;; at++) {
        size_t n_bytes = strcspn(at, ",");
        if (n_bytes == 0 || n_bytes >= LISTEN_HOST_BYTES || options->n_names == LISTEN_MAX_HOSTS) {
            return deft_fail(error, DEFT_INVALID, 0,
                             "%s is '%.64s', expected up to %u names of at most %u bytes, with "
                             "commas between",
                             name, text, LISTEN_MAX_HOSTS, LISTEN_HOST_BYTES - 1);
        }
        char *copy = options->name_bytes[options->n_names];
        memcpy(copy, at, n_bytes);
        copy[n_bytes] = '\0';
        options->names[options->n_names++] = copy;
        at += n_bytes;
        if (*at == '\0') {
            return DEFT_OK;
        }
    }
}

static enum deft_status listen_take_rate(const struct setting *row, const char *name,
                                         const char *text, void *target, struct deft_error *error) {
    struct listen_options *options = target;
    enum deft_status status = settings_take_u32(row, name, text, target, error);
    options->has_rate |= status == DEFT_OK;
    return status;
}

const struct setting listen_options_rows[] = {
    {.name = "listen",
     .letter = 'l',
     .argument = "HOST",
     .doc = "Address to listen on; one that other hosts can reach needs an access token",
     .value = "127.0.0.1",
     .take = settings_take_text,
     .offset = offsetof(struct listen_options, host)},
    {.name = "port",
     .letter = 'p',
     .argument = "N",
     .doc = "Port; 0: the system chooses",
     .value = "7600",
     .take = settings_take_u16,
     .offset = offsetof(struct listen_options, port),
     .most = UINT16_MAX},
    {.name = "host",
     .argument = "NAME",
     .doc = "Answer to this name in Host, and to no others but addresses and localhost; up to 8",
     .flags = SETTING_LIST,
     .take = listen_take_names},
    {.name = "tls-cert",
     .argument = "FILE",
     .doc = "Serve TLS with this certificate and its chain (PEM)",
     .take = settings_take_text,
     .offset = offsetof(struct listen_options, cert_file)},
    {.name = "tls-key",
     .argument = "FILE",
     .doc = "The certificate's key (PEM), not readable for others",
     .take = settings_take_text,
     .offset = offsetof(struct listen_options, key_file)},
    {.name = "tls-client-ca",
     .argument = "FILE",
     .doc = "Take only clients with a certificate of these authorities (PEM)",
     .take = settings_take_text,
     .offset = offsetof(struct listen_options, client_ca_file)},
    {.name = "max-rate",
     .argument = "N",
     .doc = "Requests a second from one address; 0: no limit",
     .otherwise = "1000; on a loopback address 0",
     .flags = SETTING_RELOADS,
     .take = listen_take_rate,
     .offset = offsetof(struct listen_options, max_rate),
     .most = LISTEN_MOST},
    {.name = "max-connections-per-client",
     .argument = "N",
     .doc = "Connections from one address; 0: no limit",
     .otherwise = "4096; on a loopback address 0",
     .take = settings_take_u32,
     .offset = offsetof(struct listen_options, max_per_client),
     .most = LISTEN_MOST},
    {.name = "metrics-jobs",
     .argument = "N",
     .doc = "Running jobs with metrics of their own, at most",
     .value = "200",
     .take = settings_take_u32,
     .offset = offsetof(struct listen_options, metrics_jobs),
     .most = LISTEN_MAX_JOBS},
    {.name = NULL},
};

void listen_options_defaults(struct listen_options *options) {
    memset(options, 0, sizeof(*options));
    options->max_per_client = UINT32_MAX;
}

int listen_is_private(const struct listen_options *options) {
    struct in_addr v4;
    struct in6_addr v6;
    if (strcmp(options->host, "localhost") == 0) {
        return 1;
    }
    if (inet_pton(AF_INET, options->host, &v4) == 1) {
        return ntohl(v4.s_addr) >> 24 == 127;
    }
    return inet_pton(AF_INET6, options->host, &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

enum deft_status listen_check(const struct listen_options *options, struct deft_error *error) {
    if ((options->cert_file == NULL) != (options->key_file == NULL)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "--tls-cert and --tls-key belong together, but only %s was given",
                         options->cert_file != NULL ? "--tls-cert" : "--tls-key");
    }
    if (options->client_ca_file != NULL && options->cert_file == NULL) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "--tls-client-ca needs --tls-cert and --tls-key: without TLS no client "
                         "shows a certificate");
    }
    return DEFT_OK;
}

enum deft_status listen_open_tls(const struct listen_options *options, struct http_tls **out,
                                 struct deft_error *error) {
    const struct http_tls_options files = {.cert_file = options->cert_file,
                                           .key_file = options->key_file,
                                           .client_ca_file = options->client_ca_file};
    return options->cert_file != NULL ? http_tls_open(&files, out, error) : DEFT_OK;
}

uint32_t listen_rate(const struct listen_options *options) {
    return options->has_rate ? options->max_rate : listen_is_private(options) ? 0 : LISTEN_RATE;
}

void listen_fill(const struct listen_options *options, struct http_tls *tls,
                 struct http_server_options *out) {
    int is_private = listen_is_private(options);
    out->listen_host = options->host;
    out->port = options->port;
    out->tls = tls;
    out->max_connections = LISTEN_MAX_CONNECTIONS;
    out->max_requests_per_s = listen_rate(options);
    out->max_connections_per_client = options->max_per_client != UINT32_MAX
                                          ? options->max_per_client
                                      : is_private ? 0
                                                   : LISTEN_PER_CLIENT;
    /* Whoever has tokens is not fooled by names: a page that leads a browser here has none. */
    out->literal_hosts_only = is_private || options->n_names > 0;
    out->hosts = options->names;
    out->n_hosts = options->n_names;
}
