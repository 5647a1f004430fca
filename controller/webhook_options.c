#include "webhook_options.h"

#include <stddef.h>

#include "base/parse.h"
#include "wire/wire_access.h"

static enum deft_status webhook_take_time(const struct setting *row, const char *name,
                                          const char *text, void *target,
                                          struct deft_error *error) {
    struct webhook_options *options = target;
    (void)row;
    return parse_seconds(name, text, WIRE_MAX_EXPIRES_IN_S, &options->expires_s, error);
}

const struct setting webhook_options_rows[] = {
    {.name = "webhook-listen",
     .argument = "HOST",
     .doc = "Address of the admission webhook",
     .otherwise = "that of --listen",
     .take = settings_take_text,
     .offset = offsetof(struct webhook_options, host)},
    {.name = "webhook-port",
     .argument = "N",
     .doc = "Its port; 0: the system chooses",
     .value = "7601",
     .take = settings_take_u16,
     .offset = offsetof(struct webhook_options, port),
     .most = UINT16_MAX},
    {.name = "webhook-cert",
     .argument = "FILE",
     .doc = "Serve the admission webhook of Kubernetes, with this certificate and its chain (PEM)",
     .take = settings_take_text,
     .offset = offsetof(struct webhook_options, cert_file)},
    {.name = "webhook-key",
     .argument = "FILE",
     .doc = "The webhook certificate's key (PEM), not readable for others",
     .take = settings_take_text,
     .offset = offsetof(struct webhook_options, key_file)},
    {.name = "webhook-client-ca",
     .argument = "FILE",
     .doc = "Let only clients with a certificate of these authorities (PEM) call the webhook",
     .take = settings_take_text,
     .offset = offsetof(struct webhook_options, client_ca_file)},
    {.name = "webhook-path-file",
     .argument = "FILE",
     .doc = "Let only those call the webhook who know its path, /admission/ and the text in FILE",
     .take = settings_take_text,
     .offset = offsetof(struct webhook_options, path_file)},
    {.name = "webhook-image",
     .argument = "IMAGE",
     .doc = "Image of the agent that pods get",
     .take = settings_take_text,
     .offset = offsetof(struct webhook_options, image)},
    {.name = "webhook-controller",
     .argument = "URL",
     .doc = "This controller as pods see it",
     .take = settings_take_text,
     .offset = offsetof(struct webhook_options, controller)},
    {.name = "webhook-controller-ca",
     .argument = "FILE",
     .doc = "Authorities of its certificate (PEM), which pods are told",
     .otherwise = "those of the image",
     .take = settings_take_text,
     .offset = offsetof(struct webhook_options, controller_ca_file)},
    {.name = "webhook-expires",
     .argument = "TIME",
     .doc = "How long the token of a job holds",
     .value = "30d",
     .take = webhook_take_time},
    {.name = NULL},
};

enum deft_status webhook_options_check(const struct webhook_options *options,
                                       struct deft_error *error) {
    if ((options->cert_file == NULL) != (options->key_file == NULL)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "--webhook-cert and --webhook-key belong together, but only %s was given",
                         options->cert_file != NULL ? "--webhook-cert" : "--webhook-key");
    }
    if (options->cert_file == NULL) {
        return DEFT_OK;
    }
    if (options->image == NULL || options->controller == NULL) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "--webhook-cert needs --webhook-image and --webhook-controller: what pods "
                         "get");
    }
    if (options->client_ca_file == NULL && options->path_file == NULL) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "--webhook-cert needs --webhook-path-file or --webhook-client-ca: the "
                         "webhook gives tokens, and must know the API server");
    }
    return DEFT_OK;
}
