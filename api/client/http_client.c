#include "client/http_client.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/http_client_impl.h"
#include "client/http_token.h"
#include "gzip/gzip.h"

#define HTTP_CLIENT_MAX_URL_BYTES 4096u
/* Loopback or a data centre: a host that does not answer in this time is away. */
#define HTTP_CLIENT_CONNECT_TIMEOUT_MS 5000L

static enum deft_status http_client_check_url(const struct curl_late *curl, const char *base_url,
                                              struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    char *scheme = NULL;
    CURLU *url = curl->url();
    if (url == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a URL");
    }
    if (strlen(base_url) > HTTP_CLIENT_MAX_URL_BYTES ||
        curl->url_set(url, CURLUPART_URL, base_url, 0) != CURLUE_OK ||
        curl->url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
        (strcmp(scheme, "http") != 0 && strcmp(scheme, "https") != 0)) {
        status = deft_fail(error, DEFT_INVALID, 0,
                           "the controller's URL is '%.200s', expected http://HOST:PORT", base_url);
    }
    curl->free(scheme);
    curl->url_cleanup(url);
    return status;
}

/* 0: memory is short. */
static int http_client_copy(const char *from, const char **to) {
    *to = from != NULL ? strdup(from) : NULL;
    return from == NULL || *to != NULL;
}

static enum deft_status http_client_take(struct http_client *client,
                                         const struct http_client_options *options,
                                         struct deft_error *error) {
    struct http_client_options *own = &client->options;
    client->base_url = strdup(options->base_url);
    if (client->base_url == NULL || !http_client_copy(options->token, &own->token) ||
        !http_client_copy(options->token_file, &own->token_file) ||
        !http_client_copy(options->ca_file, &own->ca_file) ||
        !http_client_copy(options->cert_file, &own->cert_file) ||
        !http_client_copy(options->key_file, &own->key_file) ||
        !http_client_copy(options->proxy, &own->proxy)) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for an HTTP client");
    }
    if (own->token != NULL && !http_token_is_one(own->token)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "the token is not one: printable characters without blanks were expected");
    }
    size_t length = strlen(client->base_url);
    while (length > 0 && client->base_url[length - 1] == '/') {
        client->base_url[--length] = '\0';
    }
    return DEFT_OK;
}

enum deft_status http_client_open(const struct http_client_options *options,
                                  struct http_client **out, struct deft_error *error) {
    struct http_client *client = calloc(1, sizeof(*client));
    if (client == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for an HTTP client");
    }
    enum deft_status status = curl_late_open(&client->curl, error);
    if (status == DEFT_OK) {
        status = http_client_check_url(&client->curl, options->base_url, error);
    }
    if (status == DEFT_OK) {
        status = http_client_take(client, options, error);
    }
    if (status == DEFT_OK) {
        client->easy = client->curl.easy_init();
        client->multi = client->curl.multi_init();
        if (client->easy == NULL || client->multi == NULL) {
            status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for an HTTP client");
        }
    }
    if (status != DEFT_OK) {
        http_client_close(client);
        return status;
    }
    *out = client;
    return DEFT_OK;
}

static void http_client_free(const char *text) {
    free((void *)(uintptr_t)text);
}

void http_client_close(struct http_client *client) {
    if (client == NULL) {
        return;
    }
    if (client->curl.library != NULL) {
        client->curl.easy_cleanup(client->easy);
        (void)client->curl.multi_cleanup(client->multi);
    }
    curl_late_close(&client->curl);
    http_client_free(client->options.token);
    http_client_free(client->options.token_file);
    http_client_free(client->options.ca_file);
    http_client_free(client->options.cert_file);
    http_client_free(client->options.key_file);
    http_client_free(client->options.proxy);
    free(client->base_url);
    free(client);
}

void http_client_stop_flag(struct http_client *client, const volatile int *stop) {
    client->stop = stop;
}

void http_reply_done(struct http_reply *reply) {
    if (reply != NULL) {
        free(reply->body);
        *reply = (struct http_reply){0};
    }
}

enum deft_status http_client_header(struct http_client *client, const char *line,
                                    struct curl_slist **headers, struct deft_error *error) {
    struct curl_slist *longer = client->curl.slist_append(*headers, line);
    if (longer == NULL) {
        client->curl.slist_free_all(*headers);
        *headers = NULL;
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a request");
    }
    *headers = longer;
    return DEFT_OK;
}

static enum deft_status http_client_show_token(struct http_client *client,
                                               struct curl_slist **headers,
                                               struct deft_error *error) {
    char from_file[HTTP_TOKEN_BYTES];
    char line[HTTP_TOKEN_BYTES + sizeof("Authorization: Bearer ")];
    const char *token = client->options.token;
    if (client->options.token_file != NULL) {
        enum deft_status status = http_token_read(client->options.token_file, from_file, error);
        if (status != DEFT_OK) {
            return status;
        }
        token = from_file;
    }
    if (token == NULL) {
        return DEFT_OK;
    }
    (void)snprintf(line, sizeof(line), "Authorization: Bearer %s", token);
    return http_client_header(client, line, headers, error);
}

/* Names must fit certificates: peer and host are verified as libcurl does without being told. */
static CURLcode http_client_set_trust(struct http_client *client) {
    const struct http_client_options *options = &client->options;
    CURL *easy = client->easy;
    CURLcode code =
        client->curl.easy_setopt(easy, CURLOPT_PROXY, options->proxy != NULL ? options->proxy : "");
    if (code == CURLE_OK) {
        code = client->curl.easy_setopt(easy, CURLOPT_NOPROXY, options->proxy != NULL ? "" : "*");
    }
    if (code == CURLE_OK && strncmp(client->base_url, "https:", 6) == 0) {
        code = client->curl.easy_setopt(easy, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
        /* Only to tell when it ends: not every library can, and none needs to. */
        (void)client->curl.easy_setopt(easy, CURLOPT_CERTINFO, 1L);
        if (code == CURLE_OK && options->ca_file != NULL) {
            code = client->curl.easy_setopt(easy, CURLOPT_CAINFO, options->ca_file);
        }
        if (code == CURLE_OK && options->cert_file != NULL) {
            code = client->curl.easy_setopt(easy, CURLOPT_SSLCERT, options->cert_file);
        }
        if (code == CURLE_OK && options->key_file != NULL) {
            code = client->curl.easy_setopt(easy, CURLOPT_SSLKEY, options->key_file);
        }
    }
    return code;
}

enum deft_status http_client_prepare(struct http_client *client, const char *path,
                                     struct curl_slist **headers, struct deft_error *error) {
    CURL *easy = client->easy;
    size_t n_base = strlen(client->base_url);
    size_t n_path = strlen(path);
    if (n_base + n_path > HTTP_CLIENT_MAX_URL_BYTES) {
        return deft_fail(error, DEFT_LIMIT, 0, "a URL would have %zu bytes, at most %u are allowed",
                         n_base + n_path, HTTP_CLIENT_MAX_URL_BYTES);
    }
    enum deft_status status = http_client_show_token(client, headers, error);
    if (status != DEFT_OK) {
        return status;
    }
    char url[HTTP_CLIENT_MAX_URL_BYTES + 1];
    memcpy(url, client->base_url, n_base);
    memcpy(url + n_base, path, n_path + 1);
    client->curl.easy_reset(easy);
    client->curl_text[0] = '\0';
    if (client->curl.easy_setopt(easy, CURLOPT_URL, url) != CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_HTTPHEADER, *headers) != CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_ERRORBUFFER, client->curl_text) != CURLE_OK ||
        http_client_set_trust(client) != CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_FOLLOWLOCATION, 0L) != CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_NOSIGNAL, 1L) != CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_USERAGENT, "deft/" DEFT_VERSION_TEXT) != CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1) !=
            CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, HTTP_CLIENT_CONNECT_TIMEOUT_MS) !=
            CURLE_OK) {
        return deft_fail(error, DEFT_UNSUPPORTED, 0, "libcurl %s lacks an option that is needed",
                         client->curl.version());
    }
    return DEFT_OK;
}

enum deft_status http_client_perform(struct http_client *client, http_client_tick_fn tick,
                                     void *context, CURLcode *out_code, struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    CURLMcode multi_code = client->curl.multi_add_handle(client->multi, client->easy);
    int running = 1;
    while (multi_code == CURLM_OK && status == DEFT_OK && running > 0) {
        multi_code = client->curl.multi_perform(client->multi, &running);
        if (multi_code == CURLM_OK && running > 0) {
            status = tick(context, error);
        }
        if (multi_code == CURLM_OK && status == DEFT_OK && running > 0) {
            multi_code = client->curl.multi_poll(client->multi, NULL, 0, HTTP_CLIENT_TICK_MS, NULL);
        }
    }
    int left;
    const CURLMsg *message = client->curl.multi_info_read(client->multi, &left);
    if (status == DEFT_OK && message != NULL && message->msg == CURLMSG_DONE) {
        *out_code = message->data.result;
    } else if (status == DEFT_OK) {
        status = deft_fail(error, DEFT_IO, (int32_t)multi_code, "an HTTP transfer failed: %s",
                           client->curl.multi_strerror(multi_code));
    }
    (void)client->curl.multi_remove_handle(client->multi, client->easy);
    return status;
}

enum deft_status http_client_failure(struct http_client *client, CURLcode code,
                                     struct deft_error *error) {
    const char *reason =
        client->curl_text[0] != '\0' ? client->curl_text : client->curl.easy_strerror(code);
    /* What lies in our own files is not the controller's fault. */
    const char *what =
        code == CURLE_SSL_CACERT_BADFILE
            ? "is not believed, since the file of its authorities cannot be used"
        : code == CURLE_SSL_CERTPROBLEM
            ? "is not asked, since the certificate to show, or its key, cannot be used"
            : "does not answer";
    return deft_fail(error, code == CURLE_OPERATION_TIMEDOUT ? DEFT_TIMEOUT : DEFT_IO,
                     (int32_t)code, "the controller at %.100s %s: %s", client->base_url, what,
                     reason);
}

struct http_client_body {
    char *bytes;
    size_t n_bytes;
    size_t capacity_bytes;
    enum deft_status status;
};

static size_t http_client_write(char *bytes, size_t size, size_t n, void *context) {
    struct http_client_body *body = context;
    size_t n_bytes = size * n;
    if (n_bytes > HTTP_CLIENT_MAX_REPLY_BYTES - body->n_bytes) {
        body->status = DEFT_LIMIT;
        return 0;
    }
    size_t wanted_bytes = body->n_bytes + n_bytes + 1;
    if (wanted_bytes > body->capacity_bytes) {
        size_t grown_bytes = wanted_bytes < 2048 ? 4096 : wanted_bytes * 2;
        char *grown = realloc(body->bytes, grown_bytes);
        if (grown == NULL) {
            body->status = DEFT_NO_MEMORY;
            return 0;
        }
        body->bytes = grown;
        body->capacity_bytes = grown_bytes;
    }
    memcpy(body->bytes + body->n_bytes, bytes, n_bytes);
    body->n_bytes += n_bytes;
    body->bytes[body->n_bytes] = '\0';
    return n_bytes;
}

static enum deft_status http_client_tick(void *context, struct deft_error *error) {
    const struct http_client *client = context;
    if (client->stop != NULL && __atomic_load_n(client->stop, __ATOMIC_RELAXED) != 0) {
        return deft_fail(error, DEFT_CANCELLED, 0, "the request was stopped");
    }
    return DEFT_OK;
}

struct http_client_call {
    const char *method;
    const char *body; /* NULL: none */
    size_t n_body_bytes;
    int is_packed;
    int timeout_ms;
};

static enum deft_status http_client_set_request(struct http_client *client,
                                                const struct http_client_call *call,
                                                struct http_client_body *sink,
                                                struct deft_error *error) {
    CURL *easy = client->easy;
    CURLcode code = client->curl.easy_setopt(easy, CURLOPT_CUSTOMREQUEST, call->method);
    if (code == CURLE_OK && call->body != NULL) {
        code = client->curl.easy_setopt(easy, CURLOPT_POSTFIELDS, call->body);
        if (code == CURLE_OK) {
            code = client->curl.easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                                            (curl_off_t)call->n_body_bytes);
        }
    } else if (code == CURLE_OK && strcmp(call->method, "HEAD") == 0) {
        code = client->curl.easy_setopt(easy, CURLOPT_NOBODY, 1L);
    }
    if (code == CURLE_OK) {
        code = client->curl.easy_setopt(easy, CURLOPT_ACCEPT_ENCODING, ""); /* all it knows */
    }
    if (code == CURLE_OK) {
        code = client->curl.easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)call->timeout_ms);
    }
    if (code == CURLE_OK) {
        code = client->curl.easy_setopt(easy, CURLOPT_WRITEFUNCTION, http_client_write);
    }
    if (code == CURLE_OK) {
        code = client->curl.easy_setopt(easy, CURLOPT_WRITEDATA, sink);
    }
    if (code != CURLE_OK) {
        return deft_fail(error, DEFT_NO_MEMORY, (int32_t)code, "a request cannot be made: %s",
                         client->curl.easy_strerror(code));
    }
    return DEFT_OK;
}

static int64_t http_client_time(const struct http_client *client, const char *text) {
    time_t at_s = client->curl.getdate(text, NULL);
    return at_s > 0 ? (int64_t)at_s : 0;
}

static int64_t http_client_date(const struct http_client *client) {
    struct curl_header *date = NULL;
    CURLHcode code = client->curl.easy_header(client->easy, "Date", 0, CURLH_HEADER, -1, &date);
    return code == CURLHE_OK ? http_client_time(client, date->value) : 0;
}

/* The server's own certificate is the first of its chain; each is a list of "name:value". */
static int64_t http_client_expiry(const struct http_client *client) {
    static const char name[] = "Expire date:";
    struct curl_certinfo *chain = NULL;
    if (client->curl.easy_getinfo(client->easy, CURLINFO_CERTINFO, &chain) != CURLE_OK ||
        chain == NULL || chain->num_of_certs < 1) {
        return 0;
    }
    for (const struct curl_slist *line = chain->certinfo[0]; line != NULL; line = line->next) {
        if (strncmp(line->data, name, sizeof(name) - 1) == 0) {
            return http_client_time(client, line->data + sizeof(name) - 1);
        }
    }
    return 0;
}

static enum deft_status http_client_result(struct http_client *client, CURLcode code,
                                           struct http_client_body *sink, struct http_reply *out,
                                           struct deft_error *error) {
    if (sink->status == DEFT_LIMIT) {
        return deft_fail(error, DEFT_LIMIT, 0, "the reply of %.100s has more than %u bytes",
                         client->base_url, HTTP_CLIENT_MAX_REPLY_BYTES);
    }
    if (code != CURLE_OK) {
        return http_client_failure(client, code, error);
    }
    if (sink->bytes == NULL) {
        sink->bytes = calloc(1, 1);
    }
    if (sink->bytes == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a reply");
    }
    long http_status = 0;
    curl_off_t retry_after_s = 0;
    (void)client->curl.easy_getinfo(client->easy, CURLINFO_RESPONSE_CODE, &http_status);
    (void)client->curl.easy_getinfo(client->easy, CURLINFO_RETRY_AFTER, &retry_after_s);
    *out = (struct http_reply){.status = (int)http_status,
                               .body = sink->bytes,
                               .n_bytes = sink->n_bytes,
                               .retry_after_s = retry_after_s,
                               .date_s = http_client_date(client),
                               .expires_s = http_client_expiry(client)};
    sink->bytes = NULL;
    return DEFT_OK;
}

static enum deft_status http_client_call(struct http_client *client,
                                         const struct http_client_call *call, const char *path,
                                         struct http_reply *out, struct deft_error *error) {
    struct http_client_body sink = {.status = DEFT_OK};
    struct curl_slist *headers = NULL;
    CURLcode code = CURLE_OK;
    /* "Expect: 100-continue" would cost a second against servers that do not answer it. */
    enum deft_status status = http_client_header(client, "Expect:", &headers, error);
    if (status == DEFT_OK && call->body != NULL) {
        status = http_client_header(client, "Content-Type: application/json", &headers, error);
    }
    if (status == DEFT_OK && call->is_packed) {
        status = http_client_header(client, "Content-Encoding: gzip", &headers, error);
    }
    if (status == DEFT_OK) {
        status = http_client_prepare(client, path, &headers, error);
    }
    if (status == DEFT_OK) {
        status = http_client_set_request(client, call, &sink, error);
    }
    if (status == DEFT_OK) {
        status = http_client_perform(client, http_client_tick, client, &code, error);
    }
    if (status == DEFT_OK) {
        status = http_client_result(client, code, &sink, out, error);
    }
    free(sink.bytes);
    client->curl.slist_free_all(headers);
    return status;
}

enum deft_status http_client_request(struct http_client *client, const char *method,
                                     const char *path, const char *body, int timeout_ms,
                                     struct http_reply *out, struct deft_error *error) {
    struct http_client_call call = {.method = method, .body = body, .timeout_ms = timeout_ms};
    struct http_client_call packed = call;
    char *bytes = NULL;
    call.n_body_bytes = body != NULL ? strlen(body) : 0;
    if (call.n_body_bytes < HTTP_CLIENT_PACK_BYTES || client->is_plain ||
        gzip_pack(body, call.n_body_bytes, &bytes, &packed.n_body_bytes) != DEFT_OK) {
        return http_client_call(client, &call, path, out, error);
    }
    packed.body = bytes;
    packed.is_packed = 1;
    enum deft_status status = http_client_call(client, &packed, path, out, error);
    free(bytes);
    if (status == DEFT_OK && out->status == 415) { /* a controller from before gzip */
        http_reply_done(out);
        client->is_plain = 1;
        status = http_client_call(client, &call, path, out, error);
    }
    return status;
}

enum deft_status http_client_escape(const char *segment, char *out, size_t capacity_bytes) {
    static const char unreserved[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~";
    static const char digits[] = "0123456789ABCDEF";
    size_t n = 0;
    for (const char *c = segment; *c != '\0'; c++) {
        n += strchr(unreserved, *c) != NULL ? 1 : 3;
    }
    if (n >= capacity_bytes) {
        return DEFT_LIMIT;
    }
    for (const char *c = segment; *c != '\0'; c++) {
        if (strchr(unreserved, *c) != NULL) {
            *out++ = *c;
        } else {
            *out++ = '%';
            *out++ = digits[(unsigned char)*c >> 4];
            *out++ = digits[(unsigned char)*c & 15];
        }
    }
    *out = '\0';
    return DEFT_OK;
}
