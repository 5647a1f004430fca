#include "client/http_client.h"

#include <stdlib.h>
#include <string.h>

#include "client/http_client_impl.h"

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

enum deft_status http_client_open(const char *base_url, struct http_client **out,
                                  struct deft_error *error) {
    struct http_client *client = calloc(1, sizeof(*client));
    enum deft_status status;
    size_t length;
    if (client == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for an HTTP client");
    }
    status = curl_late_open(&client->curl, error);
    if (status == DEFT_OK) {
        status = http_client_check_url(&client->curl, base_url, error);
    }
    if (status != DEFT_OK) {
        goto failed;
    }
    client->easy = client->curl.easy_init();
    client->multi = client->curl.multi_init();
    client->base_url = strdup(base_url);
    if (client->easy == NULL || client->multi == NULL || client->base_url == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for an HTTP client");
        goto failed;
    }
    length = strlen(client->base_url);
    while (length > 0 && client->base_url[length - 1] == '/') {
        client->base_url[--length] = '\0';
    }
    *out = client;
    return DEFT_OK;
failed:
    http_client_close(client);
    return status;
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

enum deft_status http_client_prepare(struct http_client *client, const char *path,
                                     struct curl_slist *headers, struct deft_error *error) {
    CURL *easy = client->easy;
    size_t n_base = strlen(client->base_url);
    size_t n_path = strlen(path);
    if (n_base + n_path > HTTP_CLIENT_MAX_URL_BYTES) {
        return deft_fail(error, DEFT_LIMIT, 0, "a URL would have %zu bytes, at most %u are allowed",
                         n_base + n_path, HTTP_CLIENT_MAX_URL_BYTES);
    }
    char url[HTTP_CLIENT_MAX_URL_BYTES + 1];
    memcpy(url, client->base_url, n_base);
    memcpy(url + n_base, path, n_path + 1);
    client->curl.easy_reset(easy);
    client->curl_text[0] = '\0';
    if (client->curl.easy_setopt(easy, CURLOPT_URL, url) != CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_HTTPHEADER, headers) != CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_ERRORBUFFER, client->curl_text) != CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_PROXY, "") != CURLE_OK ||
        client->curl.easy_setopt(easy, CURLOPT_NOPROXY, "*") != CURLE_OK ||
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
    return deft_fail(error, code == CURLE_OPERATION_TIMEDOUT ? DEFT_TIMEOUT : DEFT_IO,
                     (int32_t)code, "the controller at %.100s does not answer: %s",
                     client->base_url, reason);
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

static enum deft_status http_client_set_request(struct http_client *client, const char *method,
                                                const char *body, int timeout_ms,
                                                struct http_client_body *sink,
                                                struct deft_error *error) {
    CURL *easy = client->easy;
    CURLcode code = client->curl.easy_setopt(easy, CURLOPT_CUSTOMREQUEST, method);
    if (code == CURLE_OK && body != NULL) {
        code = client->curl.easy_setopt(easy, CURLOPT_POSTFIELDS, body);
        if (code == CURLE_OK) {
            code = client->curl.easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE,
                                            (curl_off_t)strlen(body));
        }
    } else if (code == CURLE_OK && strcmp(method, "HEAD") == 0) {
        code = client->curl.easy_setopt(easy, CURLOPT_NOBODY, 1L);
    }
    if (code == CURLE_OK) {
        code = client->curl.easy_setopt(easy, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
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
                               .retry_after_s = retry_after_s};
    sink->bytes = NULL;
    return DEFT_OK;
}

enum deft_status http_client_request(struct http_client *client, const char *method,
                                     const char *path, const char *body, int timeout_ms,
                                     struct http_reply *out, struct deft_error *error) {
    struct http_client_body sink = {.status = DEFT_OK};
    CURLcode code = CURLE_OK;
    /* "Expect: 100-continue" would cost a second against servers that do not answer it. */
    struct curl_slist *headers = client->curl.slist_append(NULL, "Expect:");
    if (headers != NULL && body != NULL) {
        struct curl_slist *longer =
            client->curl.slist_append(headers, "Content-Type: application/json");
        if (longer == NULL) {
            client->curl.slist_free_all(headers);
        }
        headers = longer;
    }
    enum deft_status status = DEFT_OK;
    if (headers == NULL) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a request");
        goto done;
    }
    status = http_client_prepare(client, path, headers, error);
    if (status == DEFT_OK) {
        status = http_client_set_request(client, method, body, timeout_ms, &sink, error);
    }
    if (status == DEFT_OK) {
        status = http_client_perform(client, http_client_tick, client, &code, error);
    }
    if (status == DEFT_OK) {
        status = http_client_result(client, code, &sink, out, error);
    }
done:
    free(sink.bytes);
    client->curl.slist_free_all(headers);
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
