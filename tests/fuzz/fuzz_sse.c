/* Event streams from any server. The first byte says how the stream is cut into chunks, and whether
 * the reader ends it.
 *
 * The events are those that a second reader finds, which has the whole stream at once and goes
 * through it line by line. */
#include <string.h>

#include "client/sse.h"
#include "fuzzing.h"

#define FUZZ_ALL UINT32_MAX

/* What a reader was told, one event behind the other, each word with its zero. */
struct fuzz_told {
    char *text;
    size_t n_bytes;
    size_t capacity_bytes;
    uint32_t n_events;
    uint32_t n_wanted; /* the reader ends the stream with this one */
};

static void fuzz_tell(struct fuzz_told *told, const char *word) {
    size_t n_bytes = strlen(word) + 1;
    if (told->n_bytes + n_bytes > told->capacity_bytes) {
        told->capacity_bytes = 2 * (told->n_bytes + n_bytes);
        told->text = realloc(told->text, told->capacity_bytes);
        fuzzing_require(told->text != NULL, "there is memory");
    }
    memcpy(told->text + told->n_bytes, word, n_bytes);
    told->n_bytes += n_bytes;
}

static int fuzz_on_event(void *context, const char *event, const char *id, const char *data) {
    struct fuzz_told *told = context;
    fuzzing_require(event[0] != '\0' && strlen(event) < SSE_WORD_BYTES, "an event has a name");
    fuzzing_require(strlen(id) < SSE_WORD_BYTES, "an id fits");
    fuzzing_require(told->n_events < told->n_wanted, "nothing comes after the end");
    fuzz_tell(told, event);
    fuzz_tell(told, id);
    fuzz_tell(told, data);
    told->n_events++;
    return told->n_events == told->n_wanted;
}

/* --- the second reader ------------------------------------------------------------------------ */

struct fuzz_event {
    char event[SSE_WORD_BYTES];
    char id[SSE_WORD_BYTES];
    char *data;    /* as long as the whole stream, at least */
    size_t n_data; /* 0: no line of data yet; each has a line feed of its own */
};

static void fuzz_word(char *out, const char *value, size_t n_bytes) {
    memset(out, 0, SSE_WORD_BYTES);
    memcpy(out, value, n_bytes < SSE_WORD_BYTES ? n_bytes : SSE_WORD_BYTES - 1);
}

static int fuzz_names(const char *line, size_t n_line, const char *name, const char **value) {
    size_t n_name = strlen(name);
    if (n_line < n_name || memcmp(line, name, n_name) != 0 ||
        (n_line > n_name && line[n_name] != ':')) {
        return 0;
    }
    *value = line + n_name + (n_line > n_name);
    *value += *value < line + n_line && **value == ' ';
    return 1;
}

/* Non-zero: the reader has ended the stream. */
static int fuzz_line(struct fuzz_event *own, const char *line, size_t n_line,
                     struct fuzz_told *told) {
    const char *value = NULL;
    int is_last = 0;
    if (n_line == 0 && own->n_data > 0) {
        own->data[own->n_data - 1] = '\0';
        is_last =
            fuzz_on_event(told, own->event[0] != '\0' ? own->event : "message", own->id, own->data);
    }
    if (n_line == 0) {
        own->n_data = 0;
        own->event[0] = '\0';
    } else if (fuzz_names(line, n_line, "data", &value)) {
        size_t n_value = (size_t)(line + n_line - value);
        memcpy(own->data + own->n_data, value, n_value);
        own->n_data += n_value;
        own->data[own->n_data++] = '\n';
    } else if (fuzz_names(line, n_line, "event", &value)) {
        fuzz_word(own->event, value, (size_t)(line + n_line - value));
    } else if (fuzz_names(line, n_line, "id", &value) &&
               memchr(value, '\0', (size_t)(line + n_line - value)) == NULL) {
        fuzz_word(own->id, value, (size_t)(line + n_line - value));
    }
    return is_last;
}

static int fuzz_read(const char *bytes, size_t size, struct fuzz_told *told) {
    struct fuzz_event own = {.data = malloc(size + 1)};
    int is_ended = 0;
    fuzzing_require(own.data != NULL, "there is memory");
    for (size_t at = 0; at < size && !is_ended;) {
        size_t n_line = 0;
        while (at + n_line < size && bytes[at + n_line] != '\n' && bytes[at + n_line] != '\r') {
            n_line++;
        }
        if (at + n_line == size) {
            break; /* a line that has not ended says nothing */
        }
        is_ended = fuzz_line(&own, bytes + at, n_line, told);
        at += n_line + 1;
        at += at < size && bytes[at - 1] == '\r' && bytes[at] == '\n';
    }
    free(own.data);
    return is_ended;
}

/* --- the client ------------------------------------------------------------------------------- */

/* Chunks of 1 to 16 bytes, or all at once, each a block of its own. */
static enum deft_status fuzz_feed(const char *bytes, size_t size, uint8_t cut,
                                  struct fuzz_told *told, struct deft_error *error) {
    struct sse_parser parser = {0};
    enum deft_status status = DEFT_OK;
    uint32_t state = cut;
    for (size_t at = 0; at < size && status == DEFT_OK;) {
        state = state * 1664525u + 1013904223u;
        size_t n = cut % 8 == 0 ? size : 1 + ((state >> 24) % (cut % 16 + 1));
        n = n < size - at ? n : size - at;
        fuzzing_require(n > 0, "a chunk has bytes");
        char *chunk = malloc(n);
        fuzzing_require(chunk != NULL, "there is memory");
        memcpy(chunk, bytes + at, n);
        status = sse_feed(&parser, chunk, n, fuzz_on_event, told, error);
        free(chunk);
        at += n;
    }
    sse_done(&parser);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct deft_error error = {.status = DEFT_OK};
    if (size == 0) {
        return 0;
    }
    uint32_t n_wanted = (data[0] & 0x80) != 0 ? 1u + (data[0] >> 4) % 4u : FUZZ_ALL;
    struct fuzz_told wanted = {.n_wanted = n_wanted};
    struct fuzz_told told = {.n_wanted = n_wanted};
    int is_ended = fuzz_read((const char *)data + 1, size - 1, &wanted);
    enum deft_status status = fuzz_feed((const char *)data + 1, size - 1, data[0], &told, &error);
    fuzzing_require(status == (is_ended ? DEFT_CLOSED : DEFT_OK),
                    "a stream this short ends when its reader ends it, and only then");
    fuzzing_require(status == DEFT_OK || error.text[0] != '\0', "an end has a sentence");
    fuzzing_require(told.n_events == wanted.n_events && told.n_bytes == wanted.n_bytes &&
                        (told.n_bytes == 0 || memcmp(told.text, wanted.text, told.n_bytes) == 0),
                    "both readers were told the same");
    free(wanted.text);
    free(told.text);
    return 0;
}
