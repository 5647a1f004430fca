#include "client/client_options.h"

#include <stddef.h>
#include <stdlib.h>

enum client_key { KEY_TOKEN_FILE = 0x400, KEY_CA_FILE, KEY_CLIENT_CERT, KEY_CLIENT_KEY, KEY_PROXY };

/* Told by --help of deft and among the settings of the agent. */
#define CLIENT_TOKEN_FILE "Show the token in FILE"
#define CLIENT_CA_FILE    "Believe the authorities in FILE"
#define CLIENT_CERT       "Show this certificate (PEM)"
#define CLIENT_KEY        "Its key (PEM)"
#define CLIENT_PROXY      "Go through a proxy; variables that name one are ignored"
#define CLIENT_NO_TOKEN   "DEFT_TOKEN, DEFT_TOKEN_FILE"
#define CLIENT_NO_CA      "DEFT_CA_FILE, the system's"

static const struct argp_option client_table[] = {
    {"token-file", KEY_TOKEN_FILE, "FILE", 0, CLIENT_TOKEN_FILE " (" CLIENT_NO_TOKEN ")", 1},
    {"ca-file", KEY_CA_FILE, "FILE", 0, CLIENT_CA_FILE " (" CLIENT_NO_CA ")", 1},
    {"client-cert", KEY_CLIENT_CERT, "FILE", 0, CLIENT_CERT, 1},
    {"client-key", KEY_CLIENT_KEY, "FILE", 0, CLIENT_KEY, 1},
    {"proxy", KEY_PROXY, "URL", 0, CLIENT_PROXY, 1},
    {0}};

const struct setting client_options_rows[] = {
    {.name = "token-file",
     .argument = "FILE",
     .doc = CLIENT_TOKEN_FILE,
     .otherwise = CLIENT_NO_TOKEN,
     .take = settings_take_text,
     .offset = offsetof(struct client_options, token_file)},
    {.name = "ca-file",
     .argument = "FILE",
     .doc = CLIENT_CA_FILE,
     .otherwise = CLIENT_NO_CA,
     .take = settings_take_text,
     .offset = offsetof(struct client_options, ca_file)},
    {.name = "client-cert",
     .argument = "FILE",
     .doc = CLIENT_CERT,
     .take = settings_take_text,
     .offset = offsetof(struct client_options, cert_file)},
    {.name = "client-key",
     .argument = "FILE",
     .doc = CLIENT_KEY,
     .take = settings_take_text,
     .offset = offsetof(struct client_options, key_file)},
    {.name = "proxy", /* its URL may hold a password */
     .argument = "URL",
     .doc = CLIENT_PROXY,
     .flags = SETTING_SECRET,
     .take = settings_take_text,
     .offset = offsetof(struct client_options, proxy)},
    {.name = NULL},
};

enum deft_status client_options_check(const struct client_options *options,
                                      struct deft_error *error) {
    if ((options->cert_file == NULL) != (options->key_file == NULL)) {
        return deft_fail(error, DEFT_INVALID, 0, "--client-cert and --client-key belong together");
    }
    return DEFT_OK;
}

static error_t client_parse(int key, char *argument, struct argp_state *state) {
    struct client_options *options = state->input;
    struct deft_error error = {0};
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
        if (client_options_check(options, &error) != DEFT_OK) {
            argp_error(state, "%s", error.text);
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
