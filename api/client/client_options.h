/* How programs of ours are told who they are towards a controller, and whom to believe. A token is
 * never an argument: every user of a machine can read those. */
#ifndef CLIENT_OPTIONS_H
#define CLIENT_OPTIONS_H

#include <argp.h>

#include "base/settings.h"
#include "client/http_client.h"

struct client_options {
    const char *token_file;
    const char *ca_file;
    const char *cert_file;
    const char *key_file;
    const char *proxy;
};

/* For argp's children; the input is a struct client_options. */
extern const struct argp client_options_argp;

/* The same as settings; of a struct client_options. */
extern const struct setting client_options_rows[];

DEFT_NODISCARD enum deft_status client_options_check(const struct client_options *options,
                                                     struct deft_error *error);

/* What the command line leaves open comes from the environment: DEFT_TOKEN, else DEFT_TOKEN_FILE,
 * and DEFT_CA_FILE. The texts are those of `options`, `url` and the environment. */
void client_options_fill(const struct client_options *options, const char *url,
                         struct http_client_options *out);

#endif
