/* A server-sent event stream that is read until somebody ends it. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "client/http_client_impl.h"
#include "client/sse.h"

struct http_events {
    struct http_client *client;
    struct sse_parser parser;
    http_event_fn on_event;
    void *context;
    const volatile int *stop;
    int64_t idle_ns;
    int64_t last_ns;
    enum deft_status status; /* why the writer refused to go on */
    struct deft_error error;
};

static size_t http_events_write(char *bytes, size_t size, size_t n, void *context) {
    struct http_events *events = context;
    long http_status = 0;
    events->last_ns = clock_monotonic_ns();
    (void)events->client->curl.easy_getinfo(events->client->easy, CURLINFO_RESPONSE_CODE,
                                            &http_status);
    if (http_status == 200) {
        events->status = sse_feed(&events->parser, bytes, size * n, events->on_event,
                                  events->context, &events->error);
    }
    return events->status == DEFT_OK ? size * n : 0;
}

static enum deft_status http_events_tick(void *context, struct deft_error *error) {
    const struct http_events *events = context;
    if (events->stop != NULL && __atomic_load_n(events->stop, __ATOMIC_RELAXED) != 0) {
        return deft_fail(error, DEFT_CANCELLED, 0, "the event stream was stopped");
    }
    if (clock_monotonic_ns() - events->last_ns > events->idle_ns) {
        return deft_fail(error, DEFT_IO, 0, "the event stream of %.100s was silent for %lld ms",
                         events->client->base_url, (long long)(events->idle_ns / 1000000));
    }
    return DEFT_OK;
}

static enum deft_status http_events_result(struct http_events *events, CURLcode code,
                                           struct deft_error *error) {
    long http_status = 0;
    if (events->status != DEFT_OK) {
        return deft_fail(error, events->status, events->error.backend_code, "%s",
                         events->error.text);
    }
    (void)events->client->curl.easy_getinfo(events->client->easy, CURLINFO_RESPONSE_CODE,
                                            &http_status);
    /* A server that dies in the middle of a stream has ended it too. */
    if (http_status == 200 && (code == CURLE_OK || code == CURLE_PARTIAL_FILE ||
                               code == CURLE_RECV_ERROR || code == CURLE_GOT_NOTHING)) {
        return deft_fail(error, DEFT_CLOSED, 0, "%.100s ended the event stream",
                         events->client->base_url);
    }
    if (code != CURLE_OK) {
        return http_client_failure(events->client, code, error);
    }
    return deft_fail(error, http_status == 404 ? DEFT_NOT_FOUND : DEFT_IO, (int32_t)http_status,
                     "%.100s answered the wish for an event stream with HTTP %ld",
                     events->client->base_url, http_status);
}

static enum deft_status http_events_headers(struct http_client *client, const char *last_id,
                                            struct curl_slist **headers, struct deft_error *error) {
    char line[SSE_WORD_BYTES + sizeof("Last-Event-ID: ")];
    enum deft_status status =
        http_client_header(client, "Accept: text/event-stream", headers, error);
    if (status == DEFT_OK && last_id != NULL && last_id[0] != '\0') {
        (void)snprintf(line, sizeof(line), "Last-Event-ID: %s", last_id);
        status = http_client_header(client, line, headers, error);
    }
    return status;
}

enum deft_status http_client_events(struct http_client *client, const char *path,
                                    const char *last_id, int idle_ms, const volatile int *stop,
                                    http_event_fn on_event, void *context,
                                    struct deft_error *error) {
    struct http_events events = {.client = client,
                                 .on_event = on_event,
                                 .context = context,
                                 .stop = stop,
                                 .idle_ns = (int64_t)idle_ms * 1000000,
                                 .last_ns = clock_monotonic_ns()};
    CURLcode code = CURLE_OK;
    struct curl_slist *headers = NULL;
    enum deft_status status = http_events_headers(client, last_id, &headers, error);
    if (status == DEFT_OK) {
        status = http_client_prepare(client, path, &headers, error);
    }
    if (status == DEFT_OK &&
        (client->curl.easy_setopt(client->easy, CURLOPT_WRITEFUNCTION, http_events_write) !=
             CURLE_OK ||
         client->curl.easy_setopt(client->easy, CURLOPT_WRITEDATA, &events) != CURLE_OK)) {
        status = deft_fail(error, DEFT_UNSUPPORTED, 0, "an event stream cannot be asked for");
    }
    if (status == DEFT_OK) {
        status = http_client_perform(client, http_events_tick, &events, &code, error);
    }
    if (status == DEFT_OK) {
        status = http_events_result(&events, code, error);
    }
    sse_done(&events.parser);
    client->curl.slist_free_all(headers);
    return status;
}
