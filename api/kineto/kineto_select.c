#include "kineto_select.h"

#include <inttypes.h>
#include <string.h>
#include <strings.h>

#include "kineto_dtype.h"
#include "kineto_number.h"

enum kineto_select_kind {
    SELECT_NOTHING,
    SELECT_STEP,
    SELECT_OPTIMIZER,
    SELECT_FORWARD,
    SELECT_BACKWARD,
    SELECT_GRADIENT,
    SELECT_COLLECTIVE,
    SELECT_OPERATOR,
    SELECT_LAUNCH,
    SELECT_KERNEL,
};

static int kineto_select_begins(const char *text, const char *prefix) {
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

static int kineto_select_ends(const char *text, const char *suffix) {
    size_t n_text = strlen(text);
    size_t n_suffix = strlen(suffix);
    return n_text >= n_suffix && strcasecmp(text + n_text - n_suffix, suffix) == 0;
}

/* Profilers before torch 1.12 wrote "Kernel" and "Operator"; comparing is without case. */
static int kineto_select_is(const struct kineto_event *event, const char *category) {
    return strcasecmp(event->category, category) == 0;
}

static int kineto_select_is_copy(const struct kineto_event *event) {
    return kineto_select_is(event, "gpu_memcpy") || kineto_select_is(event, "gpu_memset") ||
           kineto_select_is(event, "memcpy") || kineto_select_is(event, "memset");
}

static int kineto_select_is_title(const char *name) {
    return kineto_select_begins(name, "nccl:") || kineto_select_begins(name, "ucc:");
}

static int kineto_select_is_host(const char *name) {
    return kineto_select_begins(name, "gloo:") || kineto_select_begins(name, "mpi:");
}

static enum kineto_select_kind kineto_select_call(const struct kineto_event *event) {
    static const struct {
        const char *prefix;
        enum kineto_select_kind kind;
    } marks[] = {
        {"ProfilerStep#", SELECT_STEP},
        {"ProfilerStep", SELECT_NOTHING}, /* without number: a summary's */
        {"Optimizer.step#", SELECT_OPTIMIZER},
        {"Optimizer.", SELECT_NOTHING},
        {"DistributedDataParallel.forward", SELECT_FORWARD},
        {"autograd::engine::evaluate_function", SELECT_BACKWARD},
        {"torch::autograd::AccumulateGrad", SELECT_GRADIENT},
        {"record_param_comms", SELECT_COLLECTIVE},
        {"c10d::", SELECT_NOTHING}, /* around the collective itself */
    };
    for (size_t i = 0; i < sizeof(marks) / sizeof(marks[0]); i++) {
        if (kineto_select_begins(event->name, marks[i].prefix)) {
            return marks[i].kind;
        }
    }
    if (kineto_select_is_title(event->name) || kineto_select_is_host(event->name)) {
        return SELECT_COLLECTIVE;
    }
    return kineto_select_is(event, "user_annotation") ? SELECT_NOTHING : SELECT_OPERATOR;
}

static enum kineto_select_kind kineto_select_kind(const struct kineto_event *event) {
    if (event->phase[0] != 'X' || event->phase[1] != '\0') {
        return SELECT_NOTHING;
    }
    if (kineto_select_is(event, "kernel") || kineto_select_is_copy(event)) {
        return SELECT_KERNEL;
    }
    if (kineto_select_ends(event->category, "runtime") ||
        kineto_select_ends(event->category, "driver")) {
        return event->has_correlation ? SELECT_LAUNCH : SELECT_NOTHING;
    }
    if (event->category[0] == '\0' || kineto_select_is(event, "cpu_op") ||
        kineto_select_is(event, "operator") || kineto_select_is(event, "user_annotation")) {
        return kineto_select_call(event);
    }
    return SELECT_NOTHING;
}

/* A name such as "nccl:all_reduce" or "allreduce" as one word of the table. */
static uint8_t kineto_select_name(struct kineto_trace *trace, const struct kineto_event *event) {
    const char *name = event->collective;
    if (name[0] == '\0') {
        const char *colon = strchr(event->name, ':');
        name = colon != NULL ? colon + 1 : "collective";
    }
    if (strcasecmp(name, "allreduce") == 0 || strcasecmp(name, "_all_reduce") == 0) {
        name = "all_reduce";
    }
    return kineto_names_index(&trace->names, name);
}

static struct kineto_collective kineto_select_collective(struct kineto_trace *trace,
                                                         const struct kineto_event *event,
                                                         enum kineto_source source) {
    struct kineto_collective collective = {
        .begin_ns = event->begin_ns,
        .end_ns = event->begin_ns + event->duration_ns,
        .elements = event->elements != 0 ? event->elements : event->shape_elements,
        .thread = event->thread,
        .name = kineto_select_name(trace, event),
        .group = event->group[0] != '\0' ? kineto_names_index(&trace->groups, event->group) : 0,
        .dtype = KINETO_DTYPE_UNKNOWN,
        .source = (uint8_t)source,
    };
    if (event->dtype[0] != '\0') {
        collective.dtype = kineto_dtype_of_type(event->dtype);
    } else if (event->type[0] != '\0' && strcmp(event->type, "TensorList") != 0) {
        collective.dtype = kineto_dtype_of_type(event->type);
    }
    if (event->group_size > trace->world_size) {
        trace->world_size = event->group_size;
    }
    return collective;
}

static enum deft_status kineto_select_keep_collective(struct kineto_trace *trace,
                                                      const struct kineto_event *event,
                                                      struct deft_error *error) {
    enum kineto_source source = KINETO_PARAMS;
    if (strcmp(event->collective, "wait") == 0) {
        return DEFT_OK;
    }
    if (kineto_select_is_host(event->name)) {
        source = KINETO_HOST;
    } else if (kineto_select_is_title(event->name)) {
        source = KINETO_TITLE;
        trace->has_titles = 1;
    }
    struct kineto_collective collective = kineto_select_collective(trace, event, source);
    return kineto_trace_keep(trace, &trace->collectives, &collective, sizeof(collective), error);
}

static enum deft_status kineto_select_keep_kernel(struct kineto_trace *trace,
                                                  const struct kineto_event *event,
                                                  struct deft_error *error) {
    struct kineto_kernel kernel = {
        .begin_ns = event->begin_ns,
        .end_ns = event->begin_ns + event->duration_ns,
        .correlation = event->correlation,
        .launched_ns = KINETO_NO_LAUNCH,
        .collective = KINETO_NO_COLLECTIVE,
        .work = KINETO_COMPUTE,
        .dtype = KINETO_DTYPE_UNKNOWN,
    };
    if (!event->has_correlation) {
        return DEFT_OK; /* of no launch: it can be assigned to nothing */
    }
    kineto_trace_drop_operators(trace);
    if (kineto_select_is_copy(event)) {
        kernel.work = KINETO_COPY;
    } else if (kineto_dtype_is_collective(event->name)) {
        kernel.work = KINETO_REDUCE;
        kernel.dtype = kineto_dtype_of_kernel(event->name);
        if (event->collective[0] != '\0') {
            struct kineto_collective collective =
                kineto_select_collective(trace, event, KINETO_DEVICE);
            kernel.collective = trace->collectives.n;
            enum deft_status status = kineto_trace_keep(trace, &trace->collectives, &collective,
                                                        sizeof(collective), error);
            if (status != DEFT_OK) {
                return status;
            }
        }
    }
    return kineto_trace_keep(trace, &trace->kernels, &kernel, sizeof(kernel), error);
}

static enum deft_status kineto_select_keep_step(struct kineto_trace *trace,
                                                const struct kineto_event *event,
                                                struct kineto_span span, struct deft_error *error) {
    int64_t number = 0;
    const char *digits = strchr(event->name, '#') + 1;
    if (digits[0] < '0' || digits[0] > '9' || !kineto_number(digits, strlen(digits), 0, &number)) {
        return deft_fail(error, DEFT_INVALID, 0, "'%s' has a step '%.40s', expected a number",
                         trace->path, event->name);
    }
    if (trace->steps.n >= KINETO_MAX_STEPS) {
        return deft_fail(error, DEFT_LIMIT, 0, "'%s' has more than %u steps", trace->path,
                         KINETO_MAX_STEPS);
    }
    struct kineto_mark mark = {.number = (uint64_t)number, .span = span};
    return kineto_trace_keep(trace, &trace->steps, &mark, sizeof(mark), error);
}

static enum deft_status kineto_select_keep(struct kineto_trace *trace,
                                           const struct kineto_event *event,
                                           enum kineto_select_kind kind, struct deft_error *error) {
    struct kineto_span span = {event->begin_ns, event->begin_ns + event->duration_ns};
    struct kineto_launch launch = {event->correlation, event->begin_ns, event->thread};
    struct kineto_gradient gradient = {event->shape_elements, span.end_ns};
    switch (kind) {
    case SELECT_STEP:
        return kineto_select_keep_step(trace, event, span, error);
    case SELECT_OPTIMIZER:
        return kineto_trace_keep(trace, &trace->optimizers, &span, sizeof(span), error);
    case SELECT_FORWARD:
        return kineto_trace_keep(trace, &trace->forwards, &span, sizeof(span), error);
    case SELECT_BACKWARD:
        return kineto_trace_keep(trace, &trace->backwards, &span, sizeof(span), error);
    case SELECT_GRADIENT:
        return kineto_trace_keep(trace, &trace->gradients, &gradient, sizeof(gradient), error);
    case SELECT_COLLECTIVE:
        return kineto_select_keep_collective(trace, event, error);
    case SELECT_OPERATOR:
        return trace->kernels.n > 0
                   ? DEFT_OK
                   : kineto_trace_keep(trace, &trace->operators, &span, sizeof(span), error);
    case SELECT_LAUNCH:
        return kineto_trace_keep(trace, &trace->launches, &launch, sizeof(launch), error);
    case SELECT_KERNEL:
        return kineto_select_keep_kernel(trace, event, error);
    default:
        return DEFT_OK;
    }
}

enum deft_status kineto_select(struct kineto_trace *trace, const struct kineto_event *event,
                               struct deft_error *error) {
    enum kineto_select_kind kind = kineto_select_kind(event);
    if (kind == SELECT_NOTHING) {
        return DEFT_OK;
    }
    if (event->broken != NULL) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "event %" PRIu64 " of '%s' ('%.60s'): %s is no number that it can be",
                         trace->n_events, trace->path, event->name, event->broken);
    }
    if (event->shape_elements > DSCHED_MAX_ELEMENTS &&
        (kind == SELECT_GRADIENT || kind == SELECT_COLLECTIVE)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "event %" PRIu64 " of '%s' ('%.60s'): Input Dims are of more than %" PRIu64
                         " elements",
                         trace->n_events, trace->path, event->name, DSCHED_MAX_ELEMENTS);
    }
    trace->n_legacy += event->category[0] == '\0';
    return kineto_select_keep(trace, event, kind, error);
}
