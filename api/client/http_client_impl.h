/* What requests and event streams of one client share; nobody else includes it. */
#ifndef HTTP_CLIENT_IMPL_H
#define HTTP_CLIENT_IMPL_H

#include "client/curl_late.h"
#include "client/http_client.h"

struct http_client {
    struct curl_late curl;
    CURL *easy;
    CURLM *multi;
    struct http_client_options options; /* its texts are ours */
    char *base_url;                     /* without a slash at its end */
    int is_plain;                       /* the server does not take gzip */
    const volatile int *stop;
    char curl_text[CURL_ERROR_SIZE];
};

/* Sets what every transfer has in common: URL, limits, proxy, certificates, no redirects. The token
 * joins the headers. */
DEFT_NODISCARD enum deft_status http_client_prepare(struct http_client *client, const char *path,
                                                    struct curl_slist **headers,
                                                    struct deft_error *error);
/* Adds a line, or frees the list and leaves NULL. */
DEFT_NODISCARD enum deft_status http_client_header(struct http_client *client, const char *line,
                                                   struct curl_slist **headers,
                                                   struct deft_error *error);

/* Called between socket events, at least every HTTP_CLIENT_TICK_MS; DEFT_OK goes on. */
#define HTTP_CLIENT_TICK_MS 250
typedef enum deft_status (*http_client_tick_fn)(void *context, struct deft_error *error);

/* Runs the prepared transfer to its end. DEFT_OK: curl finished it with `*out_code`; otherwise what
 * `tick` returned. */
DEFT_NODISCARD enum deft_status http_client_perform(struct http_client *client,
                                                    http_client_tick_fn tick, void *context,
                                                    CURLcode *out_code, struct deft_error *error);

/* The sentence for a transfer that curl gave up. */
enum deft_status http_client_failure(struct http_client *client, CURLcode code,
                                     struct deft_error *error);

#endif
