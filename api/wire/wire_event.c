#include "wire_common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct event_message {
    uint64_t seq;
    uint64_t hash;
    struct wire_plan_message plan;
    double max_loss;
    double max_grad_sq;
};
static const struct wire_field event_fields[] = {
    WIRE_ROW_UINT(struct event_message, seq, "seq", 1, 1, WIRE_MAX_INTEGER),
    WIRE_ROW_HEX(struct event_message, hash, "hash", 1),
    WIRE_ROW_OBJECT(struct event_message, plan, "plan", 1, &wire_plan_shape),
    WIRE_ROW_REAL(struct event_message, max_loss, "max_loss"),
    WIRE_ROW_REAL(struct event_message, max_grad_sq, "max_grad_sq"),
};
static const struct wire_shape event_shape =
    WIRE_SHAPE_OF(struct event_message, event_fields, WIRE_KEYED, WIRE_MAX_PLAN_VALUES);

void wire_plan_event_done(struct wire_plan_event *event) {
    if (event != NULL) {
        dsched_plan_done(&event->plan);
        memset(event, 0, sizeof(*event));
    }
}

/* Nothing passes a limit of 0: it would be a plan that is left as soon as it runs. */
static enum deft_status event_check_limit(const char *key, double limit, struct deft_error *error) {
    if (isnan(limit) || (isfinite(limit) && limit > 0)) {
        return DEFT_OK;
    }
    return deft_fail(error, DEFT_INVALID, 0, "%s: a positive number or null was expected", key);
}

static enum deft_status event_check_limits(double max_loss, double max_grad_sq,
                                           struct deft_error *error) {
    enum deft_status status = event_check_limit("max_loss", max_loss, error);
    return status == DEFT_OK ? event_check_limit("max_grad_sq", max_grad_sq, error) : status;
}

enum deft_status wire_plan_event_encode(const struct wire_plan_event *in, char **out,
                                        struct deft_error *error) {
    struct json_out text = {0};
    enum deft_status status = event_check_limits(in->max_loss, in->max_grad_sq, error);
    if (status != DEFT_OK) {
        return status;
    }
    json_out_begin_object(&text, NULL);
    json_out_uint(&text, "seq", in->seq);
    json_out_hex(&text, "hash", dsched_plan_hash(&in->plan));
    status = wire_plan_write(&in->plan, "plan", &text, error);
    if (status != DEFT_OK) {
        json_out_done(&text);
        return status;
    }
    json_out_number(&text, "max_loss", in->max_loss);
    json_out_number(&text, "max_grad_sq", in->max_grad_sq);
    json_out_end_object(&text);
    return json_out_finish(&text, out, error);
}

enum deft_status wire_plan_event_decode(const char *text, size_t n_bytes,
                                        struct wire_plan_event *out, struct deft_error *error) {
    struct event_message message = {0};
    struct dsched_plan plan = {0};
    enum deft_status status =
        wire_shape_decode(&event_shape, "the plan event", text, n_bytes, &message, error);
    if (status != DEFT_OK) {
        return status;
    }
    status = event_check_limits(message.max_loss, message.max_grad_sq, error);
    if (status == DEFT_OK) {
        status = wire_plan_from_message(&message.plan, &plan, error);
    }
    if (status == DEFT_OK && message.hash != dsched_plan_hash(&plan)) {
        dsched_plan_done(&plan);
        status = deft_fail(error, DEFT_INVALID, 0, "hash: the plan has another one");
    }
    if (status == DEFT_OK) {
        out->seq = message.seq;
        out->plan = plan;
        out->max_loss = message.max_loss;
        out->max_grad_sq = message.max_grad_sq;
    }
    wire_shape_done(&event_shape, &message);
    return status;
}
