/* The admission webhook at work: a server of its own beside that of the API, since its callers are
 * others, with other certificates, and a flood here must not keep reports out. */
#ifndef WEBHOOK_H
#define WEBHOOK_H

#include <deft/status.h>

#include "access.h"
#include "base/log.h"
#include "store/store.h"
#include "webhook_options.h"

struct webhook;

struct webhook_parts {
    const struct webhook_options *options; /* with a certificate */
    const char *host;                      /* where the options name none */
    struct store *store;
    struct access *access;
    struct log *log;
};

/* Everything in `parts` outlives the webhook. Fails as http_tls_open and http_server_start do, and
 * with DEFT_INVALID for files whose text is unfit. */
DEFT_NODISCARD enum deft_status webhook_start(const struct webhook_parts *parts,
                                              struct webhook **out, struct deft_error *error);
/* Reads the certificate again; on failure the old one stays in use. */
DEFT_NODISCARD enum deft_status webhook_reload(struct webhook *webhook, struct deft_error *error);
/* Takes NULL. */
void webhook_stop(struct webhook *webhook);

#endif
