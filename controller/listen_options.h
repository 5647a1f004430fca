/* Where the controller listens, and what it does to those who come: settings, checks, the server.
 */
#ifndef LISTEN_OPTIONS_H
#define LISTEN_OPTIONS_H

#include <stdint.h>

#include <deft/status.h>

#include "base/settings.h"
#include "http/http_server.h"
#include "http/http_tls.h"

#define LISTEN_MAX_HOSTS  8u
#define LISTEN_HOST_BYTES 256u /* more than the longest name of DNS */

/* `names` points into `name_bytes`: not to be copied. */
struct listen_options {
    const char *host; /* address */
    uint16_t port;
    const char *names[LISTEN_MAX_HOSTS]; /* answered to in Host besides addresses and localhost */
    char name_bytes[LISTEN_MAX_HOSTS][LISTEN_HOST_BYTES];
    size_t n_names;
    const char *cert_file;
    const char *key_file;
    const char *client_ca_file;
    int has_rate;
    uint32_t max_rate; /* requests a second of one client; 0: no limit */
    uint32_t max_per_client;
    uint32_t metrics_jobs;
};
/* What holds for settings without a value. */
void listen_options_defaults(struct listen_options *options);

/* Of a struct listen_options. */
extern const struct setting listen_options_rows[];

/* 1 when only this machine can reach the address. */
int listen_is_private(const struct listen_options *options);
/* What the settings alone show to be wrong. */
DEFT_NODISCARD enum deft_status listen_check(const struct listen_options *options,
                                             struct deft_error *error);
/* `*out` stays NULL where no certificate was given. */
DEFT_NODISCARD enum deft_status listen_open_tls(const struct listen_options *options,
                                                struct http_tls **out, struct deft_error *error);
/* Requests a second that one client may send; 0: no limit. */
uint32_t listen_rate(const struct listen_options *options);
/* The part of the server's options that follows from these. */
void listen_fill(const struct listen_options *options, struct http_tls *tls,
                 struct http_server_options *out);

#endif
