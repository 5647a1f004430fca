#include "wire_common.h"

#include <string.h>

/* One report may carry a minute of eight ranks at 100 iterations/s, and back-fill more. */
#define REPORT_MAX_ROWS      131072
#define REPORT_MAX_READINESS 64
#define REPORT_MAX_EVENTS    4096

static const char *const event_names[] = {"switched", "refused", "finished", "failed",
                                          "dropped",  "fused",   NULL};

#define R struct wire_iteration
static const struct wire_field iteration_fields[] = {
    WIRE_ROW_UINT(R, rank, "rank", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, iteration, "iteration", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, plan_seq, "plan_seq", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, forward_ns, "forward_ns", 1, 0, DSCHED_MAX_TIME_NS),
    WIRE_ROW_INT(R, backward_ns, "backward_ns", 1, 0, DSCHED_MAX_TIME_NS),
    WIRE_ROW_INT(R, exposed_ns, "exposed_ns", 1, 0, DSCHED_MAX_TIME_NS),
    WIRE_ROW_INT(R, optimizer_ns, "optimizer_ns", 1, 0, DSCHED_MAX_TIME_NS),
    WIRE_ROW_INT(R, runtime_ns, "runtime_ns", 1, 0, DSCHED_MAX_TIME_NS),
    WIRE_ROW_INT(R, step_ns, "step_ns", 1, 0, DSCHED_MAX_TIME_NS),
    WIRE_ROW_UINT(R, bytes, "bytes", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_REAL(R, loss, "loss"),
    WIRE_ROW_REAL(R, grad_sq_local, "grad_sq_local"),
    WIRE_ROW_REAL(R, grad_sq_mean, "grad_sq_mean"),
    WIRE_ROW_UINT(R, updates, "updates", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, skipped, "skipped", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, merge, "merge", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, flags, "flags", 0, 0, UINT32_MAX),
    WIRE_ROW_REAL(R, change_sq_local, "change_sq_local"),
    WIRE_ROW_REAL(R, learning_rate, "learning_rate"),
};
#undef R
static const struct wire_shape iteration_shape =
    WIRE_SHAPE(struct wire_iteration, iteration_fields, WIRE_TUPLE);

#define R struct wire_op_summary
static const struct wire_field op_fields[] = {
    WIRE_ROW_UINT(R, rank, "rank", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, link, "link", 1, 0, DSCHED_MAX_LINKS - 1),
    WIRE_ROW_UINT(R, bytes, "bytes", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, count, "count", 1, 0, UINT32_MAX),
    WIRE_ROW_INT(R, min_ns, "min_ns", 1, 0, DSCHED_MAX_TIME_NS),
    WIRE_ROW_INT(R, median_ns, "median_ns", 1, 0, DSCHED_MAX_TIME_NS),
    WIRE_ROW_INT(R, max_ns, "max_ns", 1, 0, DSCHED_MAX_TIME_NS),
};
#undef R
static const struct wire_shape op_shape = WIRE_SHAPE(struct wire_op_summary, op_fields, WIRE_TUPLE);

static const struct wire_field offset_fields[] = {
    {.kind = WIRE_INT, .size = sizeof(int64_t), .max = DSCHED_MAX_TIME_NS},
};
static const struct wire_shape offset_shape = WIRE_SHAPE(int64_t, offset_fields, WIRE_BARE);

static const struct wire_field readiness_fields[] = {
    WIRE_ROW_UINT(struct wire_readiness, rank, "rank", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(struct wire_readiness, iteration, "iteration", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_ARRAY(struct wire_readiness, offsets_ns, n_offsets, "offsets_ns", 1,
                   DSCHED_MAX_TENSORS, &offset_shape),
};
static const struct wire_shape readiness_shape =
    WIRE_SHAPE(struct wire_readiness, readiness_fields, WIRE_KEYED);

static const struct wire_field event_fields[] = {
    WIRE_ROW_UINT(struct wire_event, rank, "rank", 1, 0, UINT32_MAX),
    WIRE_ROW_TEXT(struct wire_event, kind, "kind", 1),
    WIRE_ROW_UINT(struct wire_event, plan_seq, "plan_seq", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(struct wire_event, iteration, "iteration", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(struct wire_event, count, "count", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_TEXT(struct wire_event, text, "text", 0),
};
static const struct wire_shape event_shape =
    WIRE_SHAPE(struct wire_event, event_fields, WIRE_KEYED);

#define R struct wire_report
static const struct wire_field report_fields[] = {
    WIRE_ROW_TEXT(R, agent, "agent", 1),
    WIRE_ROW_UINT(R, seq, "seq", 1, 1, WIRE_MAX_INTEGER),
    WIRE_ROW_ARRAY(R, iterations, n_iterations, "iterations", 0, REPORT_MAX_ROWS, &iteration_shape),
    WIRE_ROW_ARRAY(R, ops, n_ops, "ops", 0, REPORT_MAX_ROWS, &op_shape),
    WIRE_ROW_ARRAY(R, readiness, n_readiness, "readiness", 0, REPORT_MAX_READINESS,
                   &readiness_shape),
    WIRE_ROW_ARRAY(R, events, n_events, "events", 0, REPORT_MAX_EVENTS, &event_shape),
};
#undef R
static const struct wire_shape report_shape =
    WIRE_SHAPE(struct wire_report, report_fields, WIRE_KEYED);

struct committed_message {
    uint64_t seq;
};
static const struct wire_field committed_fields[] = {
    WIRE_ROW_UINT(struct committed_message, seq, "committed", 1, 0, WIRE_MAX_INTEGER),
};
static const struct wire_shape committed_shape =
    WIRE_SHAPE(struct committed_message, committed_fields, WIRE_KEYED);

void wire_report_done(struct wire_report *report) {
    wire_shape_done(&report_shape, report);
}

enum deft_status wire_report_encode(const struct wire_report *in, char **out,
                                    struct deft_error *error) {
    return wire_shape_encode(&report_shape, "the report", in, out, error);
}

static enum deft_status report_check(const struct wire_report *in, struct deft_error *error) {
    if (in->agent[0] == '\0') {
        return deft_fail(error, DEFT_INVALID, 0, "agent: the text is empty");
    }
    for (uint32_t i = 0; i < in->n_events; i++) {
        if (!wire_is_one_of(in->events[i].kind, event_names)) {
            return deft_fail(error, DEFT_INVALID, 0, "events[%u].kind: '%s' is not a known value",
                             i, in->events[i].kind);
        }
    }
    return DEFT_OK;
}

enum deft_status wire_report_decode(const char *text, size_t n_bytes, struct wire_report *out,
                                    struct deft_error *error) {
    struct wire_report decoded = {0};
    enum deft_status status =
        wire_shape_decode(&report_shape, "the report", text, n_bytes, &decoded, error);
    if (status != DEFT_OK) {
        return status;
    }
    status = report_check(&decoded, error);
    if (status != DEFT_OK) {
        wire_report_done(&decoded);
        return status;
    }
    *out = decoded;
    return DEFT_OK;
}

enum deft_status wire_committed_encode(uint64_t seq, char **out, struct deft_error *error) {
    const struct committed_message message = {.seq = seq};
    return wire_shape_encode(&committed_shape, "the answer to a report", &message, out, error);
}

enum deft_status wire_committed_decode(const char *text, size_t n_bytes, uint64_t *out_seq,
                                       struct deft_error *error) {
    struct committed_message message = {0};
    enum deft_status status = wire_shape_decode(&committed_shape, "the answer to a report", text,
                                                n_bytes, &message, error);
    if (status == DEFT_OK) {
        *out_seq = message.seq;
    }
    return status;
}
