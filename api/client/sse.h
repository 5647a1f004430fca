/* The text/event-stream format (WHATWG HTML, "Server-sent events"), bytes in, events out. */
#ifndef SSE_H
#define SSE_H

#include <stddef.h>

#include <deft/status.h>

#include "client/http_client.h"

/* Names of events and their ids are short words of ours; longer ones are cut. */
#define SSE_WORD_BYTES 64u

/* Zero-initialised is valid. */
struct sse_parser {
    char *line;
    size_t n_line;
    size_t line_capacity;
    char *data;
    size_t n_data;
    size_t data_capacity;
    int has_data;
    int after_cr; /* a line feed that follows belongs to the same line end */
    char event[SSE_WORD_BYTES];
    char id[SSE_WORD_BYTES]; /* stays from event to event, as the format says */
};

/* Hands every event that `bytes` completes to `on_event`; comments and unknown fields are skipped.
 * `event` is "message" when the stream names none, `id` "" before the first. DEFT_CLOSED as soon as
 * on_event returns non-zero, DEFT_LIMIT when an event exceeds HTTP_CLIENT_MAX_EVENT_BYTES. */
DEFT_NODISCARD enum deft_status sse_feed(struct sse_parser *parser, const char *bytes,
                                         size_t n_bytes, http_event_fn on_event, void *context,
                                         struct deft_error *error);
void sse_done(struct sse_parser *parser);

#endif
