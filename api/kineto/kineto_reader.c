#include "kineto_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <yajl/yajl_parse.h>

#include "kineto_event.h"
#include "kineto_number.h"
#include "kineto_select.h"

/* Time stamps are microseconds with up to three decimals. */
#define KINETO_READER_NS_SCALE 3

enum kineto_reader_key {
    KEY_NONE,
    KEY_EVENTS,
    KEY_DISTRIBUTED,
    KEY_RANK,
    KEY_WORLD,
    KEY_NAME,
    KEY_CATEGORY,
    KEY_PHASE,
    KEY_BEGIN,
    KEY_DURATION,
    KEY_THREAD,
    KEY_ARGUMENTS,
    KEY_CORRELATION,
    KEY_COLLECTIVE,
    KEY_ELEMENTS,
    KEY_DTYPE,
    KEY_GROUP,
    KEY_GROUP_SIZE,
    KEY_SHAPES,
    KEY_TYPES,
};

struct kineto_reader_word {
    const char *text;
    enum kineto_reader_key key;
};

static const struct kineto_reader_word kineto_reader_top[] = {
    {"traceEvents", KEY_EVENTS}, {"distributedInfo", KEY_DISTRIBUTED}, {NULL, KEY_NONE}};
static const struct kineto_reader_word kineto_reader_distributed[] = {
    {"rank", KEY_RANK}, {"world_size", KEY_WORLD}, {NULL, KEY_NONE}};
static const struct kineto_reader_word kineto_reader_event[] = {
    {"name", KEY_NAME},    {"cat", KEY_CATEGORY}, {"ph", KEY_PHASE},       {"ts", KEY_BEGIN},
    {"dur", KEY_DURATION}, {"tid", KEY_THREAD},   {"args", KEY_ARGUMENTS}, {NULL, KEY_NONE}};
static const struct kineto_reader_word kineto_reader_arguments[] = {
    {"correlation", KEY_CORRELATION},
    {"Collective name", KEY_COLLECTIVE},
    {"In msg nelems", KEY_ELEMENTS},
    {"dtype", KEY_DTYPE},
    {"Process Group Name", KEY_GROUP},
    {"Group size", KEY_GROUP_SIZE},
    {"Input Dims", KEY_SHAPES},
    {"Input type", KEY_TYPES},
    {NULL, KEY_NONE}};

/* Depth 0 is outside of everything; the containers of depth d are counted from 1. */
struct kineto_reader {
    yajl_handle parser;
    struct kineto_trace *trace;
    uint64_t n_bytes;
    uint64_t n_tokens;
    uint64_t quiet_bytes; /* since the last token */
    uint32_t depth;
    uint32_t events_depth;      /* depth of the array of events; 0: outside */
    enum kineto_reader_key top; /* key at depth 1 */
    enum kineto_reader_key key; /* innermost one that is of interest */
    int in_event;
    int in_arguments;
    int found_events;
    int has_product;
    uint64_t product; /* of the dimensions of one tensor */
    struct kineto_event event;
    enum deft_status status; /* why parsing was given up */
    struct deft_error error;
};

static int kineto_reader_refuse(struct kineto_reader *reader, enum deft_status status,
                                const char *sentence) {
    reader->status =
        deft_fail(&reader->error, status, 0, "'%s': %s", reader->trace->path, sentence);
    return 0;
}

static uint64_t kineto_reader_multiply(uint64_t a, uint64_t b) {
    uint64_t product = 0;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t kineto_reader_add(uint64_t a, uint64_t b) {
    uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

static int kineto_reader_open(struct kineto_reader *reader, int is_map) {
    reader->n_tokens++;
    if (reader->depth == KINETO_MAX_DEPTH) {
        return kineto_reader_refuse(reader, DEFT_LIMIT,
                                    "nests deeper than the 64 levels that are allowed");
    }
    reader->depth++;
    if (!reader->in_event && reader->events_depth != 0 &&
        reader->depth == reader->events_depth + 1) {
        if (is_map) {
            memset(&reader->event, 0, sizeof(reader->event));
            reader->in_event = 1;
        }
        reader->key = KEY_NONE;
    } else if (reader->in_event && reader->depth == reader->events_depth + 2) {
        reader->in_arguments = is_map && reader->key == KEY_ARGUMENTS;
        reader->key = KEY_NONE;
    } else if (!is_map && reader->events_depth == 0 &&
               (reader->depth == 1 || (reader->depth == 2 && reader->top == KEY_EVENTS))) {
        reader->events_depth = reader->depth;
        reader->found_events = 1;
    }
    reader->has_product = 0;
    return 1;
}

static int kineto_reader_close(struct kineto_reader *reader) {
    reader->n_tokens++;
    if (reader->key == KEY_SHAPES && reader->has_product) {
        reader->event.shape_elements =
            kineto_reader_add(reader->event.shape_elements, reader->product);
        reader->has_product = 0;
    }
    if (reader->in_event && reader->depth == reader->events_depth + 1) {
        reader->in_event = 0;
        reader->trace->n_events++;
        reader->status = kineto_select(reader->trace, &reader->event, &reader->error);
    } else if (reader->in_arguments && reader->depth == reader->events_depth + 2) {
        reader->in_arguments = 0;
        reader->key = KEY_NONE;
    } else if (reader->depth == reader->events_depth) {
        reader->events_depth = 0;
    }
    reader->depth--;
    return reader->status == DEFT_OK;
}

static enum kineto_reader_key kineto_reader_find(const struct kineto_reader_word *words,
                                                 const unsigned char *text, size_t n_bytes) {
    size_t i = 0;
    while (words[i].text != NULL &&
           (strlen(words[i].text) != n_bytes || memcmp(words[i].text, text, n_bytes) != 0)) {
        i++;
    }
    return words[i].key;
}

static int kineto_reader_on_key(void *context, const unsigned char *text, size_t n_bytes) {
    struct kineto_reader *reader = context;
    reader->n_tokens++;
    if (reader->in_arguments) {
        if (reader->depth == reader->events_depth + 2) {
            reader->key = kineto_reader_find(kineto_reader_arguments, text, n_bytes);
        }
    } else if (reader->in_event) {
        if (reader->depth == reader->events_depth + 1) {
            reader->key = kineto_reader_find(kineto_reader_event, text, n_bytes);
        }
    } else if (reader->depth == 1) {
        reader->top = kineto_reader_find(kineto_reader_top, text, n_bytes);
        reader->key = KEY_NONE;
    } else if (reader->depth == 2 && reader->top == KEY_DISTRIBUTED) {
        reader->key = kineto_reader_find(kineto_reader_distributed, text, n_bytes);
    }
    return 1;
}

static void kineto_reader_copy(char *out, size_t capacity, const unsigned char *text,
                               size_t n_bytes) {
    size_t n = n_bytes < capacity ? n_bytes : capacity - 1;
    memcpy(out, text, n);
    out[n] = '\0';
}

/* FNV-1a: threads only have to differ. */
static uint32_t kineto_reader_hash(const unsigned char *text, size_t n_bytes) {
    uint32_t hash = 2166136261u;
    for (size_t i = 0; i < n_bytes; i++) {
        hash = (hash ^ text[i]) * 16777619u;
    }
    return hash;
}

#define KINETO_READER_COPY(member)                                                                 \
    kineto_reader_copy(event->member, sizeof(event->member), text, n_bytes)

static int kineto_reader_on_string(void *context, const unsigned char *text, size_t n_bytes) {
    struct kineto_reader *reader = context;
    struct kineto_event *event = &reader->event;
    reader->n_tokens++;
    if (!reader->in_event) {
        return 1;
    }
    switch (reader->key) {
    case KEY_NAME:
        KINETO_READER_COPY(name);
        break;
    case KEY_CATEGORY:
        KINETO_READER_COPY(category);
        break;
    case KEY_PHASE:
        KINETO_READER_COPY(phase);
        break;
    case KEY_THREAD:
        event->thread = kineto_reader_hash(text, n_bytes);
        break;
    case KEY_COLLECTIVE:
        KINETO_READER_COPY(collective);
        break;
    case KEY_DTYPE:
        KINETO_READER_COPY(dtype);
        break;
    case KEY_GROUP:
        KINETO_READER_COPY(group);
        break;
    case KEY_TYPES:
        if (event->type[0] == '\0') {
            KINETO_READER_COPY(type);
        }
        break;
    case KEY_BEGIN:
        event->broken = "ts";
        break;
    case KEY_DURATION:
        event->broken = "dur";
        break;
    default:
        break;
    }
    return 1;
}

static void kineto_reader_count(struct kineto_event *event, const char *text, size_t n_bytes,
                                const char *name, uint64_t most, uint64_t *out) {
    int64_t value = 0;
    if (!kineto_number(text, n_bytes, 0, &value) || value < 0 || (uint64_t)value > most) {
        event->broken = name;
        return;
    }
    *out = (uint64_t)value;
}

static void kineto_reader_time(struct kineto_event *event, const char *text, size_t n_bytes,
                               const char *name, int64_t *out) {
    int64_t value = 0;
    if (!kineto_number(text, n_bytes, KINETO_READER_NS_SCALE, &value) || value < 0 ||
        value > KINETO_MAX_INSTANT_NS) {
        event->broken = name;
        return;
    }
    *out = value;
}

static void kineto_reader_event_number(struct kineto_reader *reader, const char *text,
                                       size_t n_bytes) {
    struct kineto_event *event = &reader->event;
    uint64_t value = 0;
    switch (reader->key) {
    case KEY_BEGIN:
        kineto_reader_time(event, text, n_bytes, "ts", &event->begin_ns);
        break;
    case KEY_DURATION:
        kineto_reader_time(event, text, n_bytes, "dur", &event->duration_ns);
        break;
    case KEY_THREAD:
        event->thread = kineto_reader_hash((const unsigned char *)text, n_bytes);
        break;
    case KEY_CORRELATION:
        kineto_reader_count(event, text, n_bytes, "correlation", INT64_MAX, &event->correlation);
        event->has_correlation = event->broken == NULL;
        break;
    case KEY_ELEMENTS:
        kineto_reader_count(event, text, n_bytes, "In msg nelems", DSCHED_MAX_ELEMENTS,
                            &event->elements);
        break;
    case KEY_GROUP_SIZE:
        kineto_reader_count(event, text, n_bytes, "Group size", UINT32_MAX, &value);
        event->group_size = (uint32_t)value;
        break;
    case KEY_GROUP:
        kineto_reader_copy(event->group, sizeof(event->group), (const unsigned char *)text,
                           n_bytes);
        break;
    case KEY_SHAPES:
        kineto_reader_count(event, text, n_bytes, "Input Dims", INT64_MAX, &value);
        reader->product =
            reader->has_product ? kineto_reader_multiply(reader->product, value) : value;
        reader->has_product = 1;
        break;
    default:
        break;
    }
}

static int kineto_reader_on_number(void *context, const char *text, size_t n_bytes) {
    struct kineto_reader *reader = context;
    int64_t value = 0;
    reader->n_tokens++;
    if (reader->in_event) {
        kineto_reader_event_number(reader, text, n_bytes);
    } else if (reader->depth == 2 && (reader->key == KEY_RANK || reader->key == KEY_WORLD)) {
        if (!kineto_number(text, n_bytes, 0, &value) || value < 0 || value > UINT32_MAX) {
            return kineto_reader_refuse(reader, DEFT_INVALID,
                                        "distributedInfo has no rank and world size that can be");
        }
        if (reader->key == KEY_RANK) {
            reader->trace->rank = value;
        } else {
            reader->trace->world_size = (uint32_t)value;
        }
    }
    return 1;
}

static int kineto_reader_on_null(void *context) {
    struct kineto_reader *reader = context;
    reader->n_tokens++;
    if (reader->in_event && (reader->key == KEY_BEGIN || reader->key == KEY_DURATION)) {
        reader->event.broken = reader->key == KEY_BEGIN ? "ts" : "dur";
    }
    return 1;
}

static int kineto_reader_on_boolean(void *context, int value) {
    (void)value;
    return kineto_reader_on_null(context);
}

static int kineto_reader_on_start_map(void *context) {
    return kineto_reader_open(context, 1);
}

static int kineto_reader_on_start_array(void *context) {
    return kineto_reader_open(context, 0);
}

static int kineto_reader_on_end(void *context) {
    return kineto_reader_close(context);
}

static const yajl_callbacks kineto_reader_callbacks = {
    .yajl_null = kineto_reader_on_null,
    .yajl_boolean = kineto_reader_on_boolean,
    .yajl_number = kineto_reader_on_number,
    .yajl_string = kineto_reader_on_string,
    .yajl_start_map = kineto_reader_on_start_map,
    .yajl_map_key = kineto_reader_on_key,
    .yajl_end_map = kineto_reader_on_end,
    .yajl_start_array = kineto_reader_on_start_array,
    .yajl_end_array = kineto_reader_on_end,
};

enum deft_status kineto_reader_create(struct kineto_trace *trace, struct kineto_reader **out,
                                      struct deft_error *error) {
    struct kineto_reader *reader = calloc(1, sizeof(*reader));
    if (reader != NULL) {
        reader->trace = trace;
        reader->parser = yajl_alloc(&kineto_reader_callbacks, NULL, reader);
    }
    /* Names of kernels and files come from anywhere; what leaves us is made printable. */
    if (reader == NULL || reader->parser == NULL ||
        !yajl_config(reader->parser, yajl_dont_validate_strings, 1)) {
        kineto_reader_destroy(reader);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a JSON parser");
    }
    *out = reader;
    return DEFT_OK;
}

void kineto_reader_destroy(struct kineto_reader *reader) {
    if (reader != NULL && reader->parser != NULL) {
        yajl_free(reader->parser);
    }
    free(reader);
}

/* The parser's own sentence, or ours if it was we who gave up. */
static enum deft_status kineto_reader_failed(struct kineto_reader *reader, yajl_status status,
                                             struct deft_error *error) {
    if (status == yajl_status_client_canceled && reader->status != DEFT_OK) {
        if (error != NULL) {
            *error = reader->error;
        }
        return reader->status;
    }
    unsigned char *text = yajl_get_error(reader->parser, 0, NULL, 0);
    enum deft_status failed = deft_fail(
        error, DEFT_INVALID, 0, "'%s' is no JSON at byte %llu or in the 64 kB before it: %.*s",
        reader->trace->path, (unsigned long long)reader->n_bytes,
        text == NULL ? 0 : (int)strcspn((const char *)text, "\n"),
        text == NULL ? "" : (const char *)text);
    if (text != NULL) {
        yajl_free_error(reader->parser, text);
    }
    return failed;
}

enum deft_status kineto_reader_feed(struct kineto_reader *reader, const void *bytes, size_t n_bytes,
                                    struct deft_error *error) {
    uint64_t before = reader->n_tokens;
    yajl_status status = yajl_parse(reader->parser, bytes, n_bytes);
    reader->n_bytes += n_bytes;
    if (status != yajl_status_ok) {
        return kineto_reader_failed(reader, status, error);
    }
    reader->quiet_bytes = reader->n_tokens == before ? reader->quiet_bytes + n_bytes : 0;
    if (reader->quiet_bytes > KINETO_MAX_TOKEN_BYTES) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "'%s' has a single value or blank of more than %u bytes at byte %llu",
                         reader->trace->path, KINETO_MAX_TOKEN_BYTES,
                         (unsigned long long)reader->n_bytes);
    }
    return DEFT_OK;
}

enum deft_status kineto_reader_finish(struct kineto_reader *reader, struct deft_error *error) {
    const char *path = reader->trace->path;
    if (reader->n_bytes == 0) {
        return deft_fail(error, DEFT_INVALID, 0, "'%s' is empty, expected a profiler's trace",
                         path);
    }
    yajl_status status = yajl_complete_parse(reader->parser);
    if (reader->depth > 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "'%s' ends in the middle after %llu bytes: it was cut off", path,
                         (unsigned long long)reader->n_bytes);
    }
    if (status != yajl_status_ok) {
        return kineto_reader_failed(reader, status, error);
    }
    if (!reader->found_events) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "'%s' has no traceEvents, so it is no trace of the PyTorch profiler "
                         "(prof.export_chrome_trace)",
                         path);
    }
    return DEFT_OK;
}
