#include "listen_options.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

#include "base/parse.h"

#define LISTEN_PORT            7600
#define LISTEN_MAX_CONNECTIONS 16384u
#define LISTEN_PER_CLIENT      4096u
/* A node's agents report about once a second each; behind one address there may be a rack. */
#define LISTEN_RATE         1000u
#define LISTEN_METRICS_JOBS 200u

enum listen_key {
    KEY_HOST = 0x300,
    KEY_TLS_CERT,
    KEY_TLS_KEY,
    KEY_TLS_CLIENT_CA,
    KEY_MAX_RATE,
    KEY_MAX_PER_CLIENT,
    KEY_METRICS_JOBS,
};

static const struct argp_option listen_table[] = {
    {"listen", 'l', "HOST", 0,
     "Address to listen on (127.0.0.1); one that other hosts can reach needs an access token", 0},
    {"port", 'p', "N", 0, "Port; 0: the system chooses (7600)", 0},
    {"host", KEY_HOST, "NAME", 0,
     "Answer to this name in Host, and to no others but addresses and localhost", 0},
    {"tls-cert", KEY_TLS_CERT, "FILE", 0, "Serve TLS with this certificate and its chain (PEM)", 0},
    {"tls-key", KEY_TLS_KEY, "FILE", 0, "The certificate's key (PEM), not readable for others", 0},
    {"tls-client-ca", KEY_TLS_CLIENT_CA, "FILE", 0,
     "Take only clients with a certificate of these authorities (PEM)", 0},
    {"max-rate", KEY_MAX_RATE, "N", 0,
     "Requests a second from one address; 0: no limit (1000; on a loopback address 0)", 0},
    {"max-connections-per-client", KEY_MAX_PER_CLIENT, "N", 0,
     "Connections from one address; 0: no limit (4096; on a loopback address 0)", 0},
    {"metrics-jobs", KEY_METRICS_JOBS, "N", 0,
     "Running jobs with metrics of their own, at most (200)", 0},
    {0}};

void listen_options_defaults(struct listen_options *options) {
    *options = (struct listen_options){.host = "127.0.0.1",
                                       .port = LISTEN_PORT,
                                       .max_per_client = UINT32_MAX,
                                       .metrics_jobs = LISTEN_METRICS_JOBS};
}

static uint32_t listen_number(struct argp_state *state, const char *name, const char *text,
                              uint64_t most) {
    struct deft_error error = {0};
    uint64_t number = 0;
    if (parse_u64(name, text, 0, most, &number, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
    return (uint32_t)number;
}

static error_t listen_parse(int key, char *argument, struct argp_state *state) {
    struct listen_options *options = state->input;
    switch (key) {
    case 'l':
        options->host = argument;
        return 0;
    case 'p':
        options->port = (uint16_t)listen_number(state, "--port", argument, UINT16_MAX);
        return 0;
    case KEY_HOST:
        if (options->n_names == LISTEN_MAX_HOSTS) {
            argp_error(state, "--host may be given %u times", LISTEN_MAX_HOSTS);
        }
        options->names[options->n_names++] = argument;
        return 0;
    case KEY_TLS_CERT:
        options->cert_file = argument;
        return 0;
    case KEY_TLS_KEY:
        options->key_file = argument;
        return 0;
    case KEY_TLS_CLIENT_CA:
        options->client_ca_file = argument;
        return 0;
    case KEY_MAX_RATE:
        options->has_rate = 1;
        options->max_rate = listen_number(state, "--max-rate", argument, 1000000);
        return 0;
    case KEY_MAX_PER_CLIENT:
        options->max_per_client =
            listen_number(state, "--max-connections-per-client", argument, 1000000);
        return 0;
    case KEY_METRICS_JOBS:
        options->metrics_jobs = listen_number(state, "--metrics-jobs", argument, 100000);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp listen_options_argp = {.options = listen_table, .parser = listen_parse};

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

void listen_fill(const struct listen_options *options, struct http_tls *tls,
                 struct http_server_options *out) {
    int is_private = listen_is_private(options);
    out->listen_host = options->host;
    out->port = options->port;
    out->tls = tls;
    out->max_connections = LISTEN_MAX_CONNECTIONS;
    out->max_requests_per_s = options->has_rate ? options->max_rate : is_private ? 0 : LISTEN_RATE;
    out->max_connections_per_client = options->max_per_client != UINT32_MAX
                                          ? options->max_per_client
                                      : is_private ? 0
                                                   : LISTEN_PER_CLIENT;
    /* Whoever has tokens is not fooled by names: a page that leads a browser here has none. */
    out->literal_hosts_only = is_private || options->n_names > 0;
    out->hosts = options->names;
    out->n_hosts = options->n_names;
}
