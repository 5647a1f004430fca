#include "client/client_options.h"

#include <stdlib.h>

enum client_key { KEY_TOKEN_FILE = 0x400, KEY_CA_FILE, KEY_CLIENT_CERT, KEY_CLIENT_KEY, KEY_PROXY };

static const struct argp_option client_table[] = {
    {"token-file", KEY_TOKEN_FILE, "FILE", 0,
     "Show the token in FILE (default: DEFT_TOKEN, DEFT_TOKEN_FILE)", 1},
    {"ca-file", KEY_CA_FILE, "FILE", 0,
     "Believe the authorities in FILE (default: DEFT_CA_FILE, the system's)", 1},
    {"client-cert", KEY_CLIENT_CERT, "FILE", 0, "Show this certificate (PEM)", 1},
    {"client-key", KEY_CLIENT_KEY, "FILE", 0, "Its key (PEM)", 1},
    {"proxy", KEY_PROXY, "URL", 0, "Go through a proxy; variables that name one are ignored", 1},
    {0}};

static error_t client_parse(int key, char *argument, struct argp_state *state) {
    struct client_options *options = state->input;
    switch (key) {
    case KEY_TOKEN_FILE:
        options->token_file = argument;
        return 0;
    case KEY_CA_FILE:
        options->ca_file = argument;
        return 0;
    case KEY_CLIENT_CERT:
        options->cert_file = argument;
        return 0;
    case KEY_CLIENT_KEY:
        options->key_file = argument;
        return 0;
    case KEY_PROXY:
        options->proxy = argument;
        return 0;
    case ARGP_KEY_END:
        if ((options->cert_file == NULL) != (options->key_file == NULL)) {
            argp_error(state, "--client-cert and --client-key belong together");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp client_options_argp = {.options = client_table, .parser = client_parse};

static const char *client_variable(const char *name) {
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

void client_options_fill(const struct client_options *options, const char *url,
                         struct http_client_options *out) {
    *out = (struct http_client_options){.base_url = url,
                                        .token_file = options->token_file,
                                        .ca_file = options->ca_file,
                                        .cert_file = options->cert_file,
                                        .key_file = options->key_file,
                                        .proxy = options->proxy};
    if (out->token_file == NULL) {
        out->token = client_variable("DEFT_TOKEN");
    }
    if (out->token_file == NULL && out->token == NULL) {
        out->token_file = client_variable("DEFT_TOKEN_FILE");
    }
    if (out->ca_file == NULL) {
        out->ca_file = client_variable("DEFT_CA_FILE");
    }
}
