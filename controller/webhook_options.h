/* The admission webhook of Kubernetes: settings, and what they mean together. */
#ifndef WEBHOOK_OPTIONS_H
#define WEBHOOK_OPTIONS_H

#include <stdint.h>

#include <deft/status.h>

#include "base/settings.h"

/* Off without a certificate: the API server speaks TLS only. */
struct webhook_options {
    const char *host;      /* address; NULL: that of the API */
    uint16_t port;         /* 0: the system chooses */
    const char *cert_file; /* NULL: no webhook */
    const char *key_file;
    const char *client_ca_file; /* NULL: clients need no certificate */
    const char *path_file;      /* NULL: the path has no secret part */
    const char *image;          /* of the agent */
    const char *controller;     /* URL as pods see it */
    const char *controller_ca_file;
    uint64_t expires_s; /* how long a job's token holds */
};

/* Of a struct webhook_options. */
extern const struct setting webhook_options_rows[];

/* What the settings alone show to be wrong. */
DEFT_NODISCARD enum deft_status webhook_options_check(const struct webhook_options *options,
                                                      struct deft_error *error);

#endif
