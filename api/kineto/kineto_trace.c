#include "kineto_trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KINETO_TRACE_FIRST_CAPACITY 256u

enum deft_status kineto_trace_create(const char *path, uint32_t max_records,
                                     struct kineto_trace **out, struct deft_error *error) {
    struct kineto_trace *trace = calloc(1, sizeof(*trace));
    if (trace == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a trace");
    }
    (void)snprintf(trace->path, sizeof(trace->path), "%s", path);
    trace->rank = -1;
    trace->max_records = max_records;
    (void)kineto_names_index(&trace->names, "other");
    (void)kineto_names_index(&trace->groups, "unknown");
    *out = trace;
    return DEFT_OK;
}

void kineto_trace_empty(struct kineto_trace *trace) {
    struct kineto_array *arrays[] = {
        &trace->launches,  &trace->kernels,    &trace->collectives,
        &trace->steps,     &trace->optimizers, &trace->forwards,
        &trace->backwards, &trace->gradients,  &trace->operators,
    };
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        free(arrays[i]->items);
        *arrays[i] = (struct kineto_array){0};
    }
}

void kineto_trace_destroy(struct kineto_trace *trace) {
    if (trace == NULL) {
        return;
    }
    kineto_trace_empty(trace);
    free(trace);
}

uint64_t kineto_trace_events(const struct kineto_trace *trace) {
    return trace->n_events;
}

uint32_t kineto_trace_records(const struct kineto_trace *trace) {
    return trace->n_records;
}

enum deft_status kineto_trace_keep(struct kineto_trace *trace, struct kineto_array *array,
                                   const void *item, size_t item_bytes, struct deft_error *error) {
    if (trace->n_records >= trace->max_records) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "'%s' has more than %u events of interest; record fewer steps "
                         "(torch.profiler.schedule with a smaller 'active')",
                         trace->path, trace->max_records);
    }
    if (array->n == array->capacity) {
        uint32_t capacity =
            array->capacity == 0 ? KINETO_TRACE_FIRST_CAPACITY : array->capacity * 2;
        void *grown = reallocarray(array->items, capacity, item_bytes);
        if (grown == NULL) {
            return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for %u events of '%s'", capacity,
                             trace->path);
        }
        array->items = grown;
        array->capacity = capacity;
    }
    memcpy((char *)array->items + (size_t)array->n * item_bytes, item, item_bytes);
    array->n++;
    trace->n_records++;
    return DEFT_OK;
}

void kineto_trace_drop_operators(struct kineto_trace *trace) {
    trace->n_records -= trace->operators.n;
    free(trace->operators.items);
    trace->operators = (struct kineto_array){0};
}

uint8_t kineto_names_index(struct kineto_names *names, const char *text) {
    char clean[KINETO_NAME_BYTES];
    size_t n = 0;
    for (; text[n] != '\0' && n + 1 < sizeof(clean); n++) {
        clean[n] = text[n];
        if (clean[n] < ' ' || clean[n] > '~') {
            clean[n] = '?';
        }
    }
    clean[n] = '\0';
    for (uint32_t i = 0; i < names->n; i++) {
        if (strcmp(names->text[i], clean) == 0) {
            return (uint8_t)i;
        }
    }
    if (names->n == KINETO_MAX_NAMES) {
        return 0;
    }
    memcpy(names->text[names->n], clean, n + 1);
    return (uint8_t)names->n++;
}
