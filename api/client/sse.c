#include "client/sse.h"

#include <stdlib.h>
#include <string.h>

/* Keeps room for a terminating zero. */
static enum deft_status sse_append(char **text, size_t *n_text, size_t *capacity_bytes,
                                   const char *bytes, size_t n_bytes, struct deft_error *error) {
    if (n_bytes > HTTP_CLIENT_MAX_EVENT_BYTES - *n_text) {
        return deft_fail(error, DEFT_LIMIT, 0, "an event has more than %u bytes",
                         HTTP_CLIENT_MAX_EVENT_BYTES);
    }
    size_t wanted_bytes = *n_text + n_bytes + 1;
    if (wanted_bytes > *capacity_bytes) {
        size_t grown_bytes = *capacity_bytes < 1024 ? 1024 : *capacity_bytes * 2;
        if (grown_bytes < wanted_bytes) {
            grown_bytes = wanted_bytes;
        }
        char *grown = realloc(*text, grown_bytes);
        if (grown == NULL) {
            return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for an event of %zu bytes",
                             wanted_bytes);
        }
        *text = grown;
        *capacity_bytes = grown_bytes;
    }
    memcpy(*text + *n_text, bytes, n_bytes);
    *n_text += n_bytes;
    (*text)[*n_text] = '\0';
    return DEFT_OK;
}

static void sse_word(char *out, const char *value, size_t n_bytes) {
    if (n_bytes >= SSE_WORD_BYTES) {
        n_bytes = SSE_WORD_BYTES - 1;
    }
    memcpy(out, value, n_bytes);
    out[n_bytes] = '\0';
}

static enum deft_status sse_dispatch(struct sse_parser *parser, http_event_fn on_event,
                                     void *context, struct deft_error *error) {
    int wants_end = 0;
    if (parser->has_data) {
        parser->data[parser->n_data - 1] = '\0'; /* the line feed after the last data line */
        wants_end = on_event(context, parser->event[0] != '\0' ? parser->event : "message",
                             parser->id, parser->data);
    }
    parser->n_data = 0;
    parser->has_data = 0;
    parser->event[0] = '\0';
    if (wants_end) {
        return deft_fail(error, DEFT_CLOSED, 0, "the reader of the event stream ended it");
    }
    return DEFT_OK;
}

static int sse_is(const char *name, size_t n_name, const char *wanted) {
    return n_name == strlen(wanted) && memcmp(name, wanted, n_name) == 0;
}

static enum deft_status sse_line(struct sse_parser *parser, http_event_fn on_event, void *context,
                                 struct deft_error *error) {
    const char *line = parser->n_line > 0 ? parser->line : "";
    size_t n_line = parser->n_line;
    parser->n_line = 0;
    if (n_line == 0) {
        return sse_dispatch(parser, on_event, context, error);
    }
    const char *colon = memchr(line, ':', n_line);
    size_t n_name = colon != NULL ? (size_t)(colon - line) : n_line;
    const char *value = colon != NULL ? colon + 1 : line + n_line;
    size_t n_value = (size_t)(line + n_line - value);
    if (n_value > 0 && value[0] == ' ') {
        value++;
        n_value--;
    }
    if (sse_is(line, n_name, "data")) {
        enum deft_status status = sse_append(&parser->data, &parser->n_data, &parser->data_capacity,
                                             value, n_value, error);
        if (status == DEFT_OK) {
            status =
                sse_append(&parser->data, &parser->n_data, &parser->data_capacity, "\n", 1, error);
        }
        parser->has_data = status == DEFT_OK;
        return status;
    }
    if (sse_is(line, n_name, "event")) {
        sse_word(parser->event, value, n_value);
    } else if (sse_is(line, n_name, "id") && memchr(value, '\0', n_value) == NULL) {
        sse_word(parser->id, value, n_value);
    }
    return DEFT_OK;
}

enum deft_status sse_feed(struct sse_parser *parser, const char *bytes, size_t n_bytes,
                          http_event_fn on_event, void *context, struct deft_error *error) {
    const char *end = bytes + n_bytes;
    while (bytes < end) {
        if (parser->after_cr && *bytes == '\n') {
            bytes++;
            parser->after_cr = 0;
            continue;
        }
        parser->after_cr = 0;
        const char *stop = bytes;
        while (stop < end && *stop != '\n' && *stop != '\r') {
            stop++;
        }
        enum deft_status status = sse_append(&parser->line, &parser->n_line, &parser->line_capacity,
                                             bytes, (size_t)(stop - bytes), error);
        if (status == DEFT_OK && stop < end) {
            parser->after_cr = *stop == '\r';
            stop++;
            status = sse_line(parser, on_event, context, error);
        }
        if (status != DEFT_OK) {
            return status;
        }
        bytes = stop;
    }
    return DEFT_OK;
}

void sse_done(struct sse_parser *parser) {
    if (parser != NULL) {
        free(parser->line);
        free(parser->data);
        *parser = (struct sse_parser){0};
    }
}
