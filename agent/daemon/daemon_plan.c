#include "daemon_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/plan.h>

#include "ipc/ipc.h"
#include "wire/wire.h"
#include "wire/wire_shape.h"

static enum deft_status daemon_plan_encode(const struct wire_plan_event *event,
                                           uint8_t **out_payload, size_t *out_bytes,
                                           struct deft_error *error) {
    struct ipc_plan head = {.seq = event->seq,
                            .hash = dsched_plan_hash(&event->plan),
                            .max_loss = event->max_loss,
                            .max_grad_sq = event->max_grad_sq};
    size_t plan_bytes = dsched_plan_encode(&event->plan, NULL, 0);
    if (plan_bytes == 0 || plan_bytes > IPC_MAX_PAYLOAD_BYTES - sizeof(head)) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "plan %" PRIu64 " takes %zu bytes, expected at most %zu", event->seq,
                         plan_bytes, IPC_MAX_PAYLOAD_BYTES - sizeof(head));
    }
    uint8_t *payload = malloc(sizeof(head) + plan_bytes);
    if (payload == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for plan %" PRIu64, event->seq);
    }
    memcpy(payload, &head, sizeof(head));
    if (dsched_plan_encode(&event->plan, payload + sizeof(head), plan_bytes) != plan_bytes) {
        free(payload);
        return deft_fail(error, DEFT_INVALID, 0, "plan %" PRIu64 " cannot be encoded", event->seq);
    }
    *out_payload = payload;
    *out_bytes = sizeof(head) + plan_bytes;
    return DEFT_OK;
}

enum deft_status daemon_plan_payload(const char *data, const struct daemon_incarnation *inc,
                                     uint64_t *out_seq, uint8_t **out_payload, size_t *out_bytes,
                                     struct deft_error *error) {
    struct wire_plan_event event = {0};
    struct dsched_error reason = {{0}};
    enum deft_status status = wire_plan_event_decode(data, strlen(data), &event, error);
    if (status != DEFT_OK) {
        return status;
    }
    *out_seq = event.seq;
    if (event.seq == 0 || event.seq > IPC_MAX_COUNT) {
        status = deft_fail(error, DEFT_INVALID, 0, "a plan has the number %" PRIu64, event.seq);
    } else if (dsched_plan_validate(&event.plan, &inc->table, inc->n_links, &reason) != DSCHED_OK) {
        status = deft_fail(error, DEFT_INVALID, 0, "plan %" PRIu64 " does not suit the job: %.300s",
                           event.seq, reason.text);
    } else {
        status = daemon_plan_encode(&event, out_payload, out_bytes, error);
    }
    wire_plan_event_done(&event);
    return status;
}

struct daemon_plan_wish {
    char command[16];
};
static const struct wire_field daemon_plan_wish_fields[] = {
    WIRE_ROW_TEXT(struct daemon_plan_wish, command, "command", 1),
};
static const struct wire_shape daemon_plan_wish_shape =
    WIRE_SHAPE(struct daemon_plan_wish, daemon_plan_wish_fields, WIRE_KEYED);

enum deft_status daemon_plan_command(const char *data, uint32_t *out_command) {
    struct daemon_plan_wish wish;
    enum deft_status status =
        wire_shape_decode(&daemon_plan_wish_shape, "the command", data, strlen(data), &wish, NULL);
    if (status == DEFT_OK && strcmp(wish.command, "drain") == 0) {
        *out_command = IPC_COMMAND_DRAIN;
    } else if (status == DEFT_OK && strcmp(wish.command, "stop") == 0) {
        *out_command = IPC_COMMAND_STOP;
    } else {
        status = DEFT_INVALID;
    }
    return status;
}
