/* What a frame must look like before anybody believes it. */
#include "ipc/ipc.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static const struct {
    uint16_t type;
    const char *name;
    size_t record_bytes;
} ipc_check_types[] = {
    {IPC_HELLO, "hello", sizeof(struct ipc_hello)},
    {IPC_TENSORS, "tensors", sizeof(struct ipc_tensor)},
    {IPC_LINK, "link", sizeof(struct ipc_link)},
    {IPC_READY, "ready", 0},
    {IPC_ITERATIONS, "iterations", sizeof(struct ipc_iteration)},
    {IPC_OPS, "ops", sizeof(struct ipc_op)},
    {IPC_READINESS, "readiness", sizeof(struct ipc_readiness)},
    {IPC_EVENT, "event", sizeof(struct ipc_event)},
    {IPC_PLAN, "plan", sizeof(struct ipc_plan)},
    {IPC_COMMAND, "command", sizeof(struct ipc_command)},
};
#define IPC_CHECK_N_TYPES (sizeof(ipc_check_types) / sizeof(ipc_check_types[0]))

static size_t ipc_check_find(uint16_t type) {
    size_t i = 0;
    while (i < IPC_CHECK_N_TYPES && ipc_check_types[i].type != type) {
        i++;
    }
    return i;
}

enum deft_status ipc_check_header(const struct ipc_header *header, struct deft_error *error) {
    if (header->magic != IPC_MAGIC) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "the frame begins with 0x%08" PRIx32 ", expected 0x%08x", header->magic,
                         IPC_MAGIC);
    }
    if (header->version != IPC_VERSION) {
        return deft_fail(error, DEFT_MISMATCH, 0,
                         "the peer speaks version %u of the rank protocol, this side version %u",
                         header->version, IPC_VERSION);
    }
    if (ipc_check_find(header->type) == IPC_CHECK_N_TYPES) {
        return deft_fail(error, DEFT_INVALID, 0, "frame type %u is unknown", header->type);
    }
    if (header->payload_bytes > IPC_MAX_PAYLOAD_BYTES) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "a frame announces %" PRIu32 " payload bytes, at most %u are allowed",
                         header->payload_bytes, IPC_MAX_PAYLOAD_BYTES);
    }
    if (header->reserved != 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "the reserved field of a frame is %" PRIu32 ", expected 0",
                         header->reserved);
    }
    return DEFT_OK;
}

static int ipc_check_terminated(const char *text, size_t capacity_bytes) {
    return memchr(text, '\0', capacity_bytes) != NULL;
}

static int ipc_check_time(int64_t ns) {
    return ns >= 0 && ns <= IPC_MAX_TIME_NS;
}

static const char *ipc_check_hello(const void *record) {
    const struct ipc_hello *hello = record;
    if (!ipc_check_terminated(hello->job_id, sizeof(hello->job_id)) ||
        !ipc_check_terminated(hello->job_name, sizeof(hello->job_name)) ||
        !ipc_check_terminated(hello->incarnation_key, sizeof(hello->incarnation_key)) ||
        !ipc_check_terminated(hello->version, sizeof(hello->version))) {
        return "a text is not terminated";
    }
    if (hello->job_id[0] == '\0' || hello->incarnation_key[0] == '\0') {
        return "job id and incarnation key must not be empty";
    }
    if (hello->n_ranks < 1 || hello->n_ranks > IPC_MAX_RANKS || hello->rank < 0 ||
        hello->rank >= hello->n_ranks) {
        return "the rank is not within the world";
    }
    if (hello->n_tensors < 1 || hello->n_tensors > IPC_MAX_TENSORS) {
        return "the number of tensors is out of range";
    }
    if (hello->n_links > IPC_MAX_LINKS) {
        return "the number of links is out of range";
    }
    if (hello->batch_per_rank > IPC_MAX_COUNT || hello->max_pending_bytes > IPC_MAX_COUNT) {
        return "the batch or the memory bound is out of range";
    }
    if (hello->optimizer > 3u || !isfinite(hello->momentum) || !isfinite(hello->learning_rate)) {
        return "the optimizer's description is out of range";
    }
    return NULL;
}

static const char *ipc_check_tensor(const void *record) {
    const struct ipc_tensor *tensor = record;
    if (!ipc_check_terminated(tensor->name, sizeof(tensor->name))) {
        return "a tensor's name is not terminated";
    }
    if (tensor->elements < 1 || tensor->elements > IPC_MAX_ELEMENTS) {
        return "a tensor's size is out of range";
    }
    return tensor->dtype > 3u ? "a tensor's type is unknown" : NULL;
}

static const char *ipc_check_link(const void *record) {
    const struct ipc_link *link = record;
    uint64_t previous_bytes = 0;
    if (!ipc_check_terminated(link->name, sizeof(link->name))) {
        return "the link's name is not terminated";
    }
    if (link->index >= IPC_MAX_LINKS || link->n_probes > IPC_MAX_PROBES) {
        return "the link's index or number of probes is out of range";
    }
    for (uint32_t i = 0; i < link->n_probes; i++) {
        if (link->probes[i].bytes <= previous_bytes || link->probes[i].bytes > IPC_MAX_COUNT ||
            !ipc_check_time(link->probes[i].ns)) {
            return "the link's probes are not sorted by size or out of range";
        }
        previous_bytes = link->probes[i].bytes;
    }
    return NULL;
}

/* NaN stands for "unknown" or "none". */
static int ipc_check_figure(double value) {
    return isnan(value) || (isfinite(value) && value >= 0);
}

static const char *ipc_check_iteration(const void *record) {
    const struct ipc_iteration *iteration = record;
    if (!ipc_check_time(iteration->forward_ns) || !ipc_check_time(iteration->backward_ns) ||
        !ipc_check_time(iteration->exposed_ns) || !ipc_check_time(iteration->optimizer_ns) ||
        !ipc_check_time(iteration->runtime_ns) || !ipc_check_time(iteration->step_ns)) {
        return "a duration of an iteration is out of range";
    }
    if (iteration->iteration > IPC_MAX_COUNT || iteration->plan_seq > IPC_MAX_COUNT ||
        iteration->bytes > IPC_MAX_COUNT) {
        return "a number of an iteration is out of range";
    }
    if (!ipc_check_figure(iteration->change_sq_local) ||
        !ipc_check_figure(iteration->learning_rate)) {
        return "a figure of an iteration is out of range";
    }
    return NULL;
}

static const char *ipc_check_op(const void *record) {
    const struct ipc_op *op = record;
    if (op->link >= IPC_MAX_LINKS || op->bytes == 0 || op->bytes > IPC_MAX_COUNT) {
        return "an op's link or size is out of range";
    }
    if (!ipc_check_time(op->posted_ns) || !ipc_check_time(op->start_ns) ||
        !ipc_check_time(op->end_ns) || op->posted_ns > op->start_ns || op->start_ns > op->end_ns) {
        return "an op's times are out of range or out of order";
    }
    return NULL;
}

static const char *ipc_check_readiness(const void *payload, size_t n_bytes) {
    const struct ipc_readiness *readiness = payload;
    if (readiness->n_tensors > IPC_MAX_TENSORS || readiness->iteration > IPC_MAX_COUNT ||
        n_bytes != sizeof(*readiness) + readiness->n_tensors * sizeof(int64_t)) {
        return "the size does not suit the number of tensors";
    }
    for (uint32_t i = 0; i < readiness->n_tensors; i++) {
        int64_t offset_ns;
        memcpy(&offset_ns, (const uint8_t *)payload + sizeof(*readiness) + i * sizeof(offset_ns),
               sizeof(offset_ns));
        if (!ipc_check_time(offset_ns)) {
            return "an offset is out of range";
        }
    }
    return NULL;
}

static const char *ipc_check_event(const void *record) {
    const struct ipc_event *event = record;
    if (event->kind < IPC_EVENT_SWITCHED || event->kind > IPC_EVENT_FUSED) {
        return "the kind of the event is unknown";
    }
    if (event->plan_seq > IPC_MAX_COUNT || event->iteration > IPC_MAX_COUNT ||
        event->count > IPC_MAX_COUNT) {
        return "a number of the event is out of range";
    }
    return ipc_check_terminated(event->text, sizeof(event->text)) ? NULL
                                                                  : "the text is not terminated";
}

/* Only a limit above 0 can be kept. */
static int ipc_check_limit(double limit) {
    return ipc_check_figure(limit) && !(limit <= 0);
}

static const char *ipc_check_plan(const void *payload, size_t n_bytes) {
    const struct ipc_plan *plan = payload;
    if (n_bytes <= sizeof(*plan)) {
        return "it is too short";
    }
    if (plan->seq > IPC_MAX_COUNT) {
        return "the plan's number is out of range";
    }
    if (!ipc_check_limit(plan->max_loss) || !ipc_check_limit(plan->max_grad_sq)) {
        return "a limit of the fuse is neither positive nor NaN";
    }
    return NULL;
}

static const char *ipc_check_command(const void *record) {
    const struct ipc_command *command = record;
    return command->kind == IPC_COMMAND_DRAIN || command->kind == IPC_COMMAND_STOP
               ? NULL
               : "the kind of the command is unknown";
}

static const char *ipc_check_records(const void *payload, size_t n_bytes, size_t record_bytes,
                                     const char *(*check)(const void *record)) {
    if (n_bytes == 0 || n_bytes % record_bytes != 0) {
        return "the size is not a whole number of records";
    }
    for (size_t at = 0; at < n_bytes; at += record_bytes) {
        const char *reason = check((const uint8_t *)payload + at);
        if (reason != NULL) {
            return reason;
        }
    }
    return NULL;
}

static const char *ipc_check_reason(uint16_t type, const void *payload, size_t n_bytes,
                                    size_t record_bytes) {
    switch (type) {
    case IPC_TENSORS:
        return ipc_check_records(payload, n_bytes, record_bytes, ipc_check_tensor);
    case IPC_ITERATIONS:
        return ipc_check_records(payload, n_bytes, record_bytes, ipc_check_iteration);
    case IPC_OPS:
        return ipc_check_records(payload, n_bytes, record_bytes, ipc_check_op);
    case IPC_READINESS:
        return n_bytes < record_bytes ? "it is too short" : ipc_check_readiness(payload, n_bytes);
    case IPC_PLAN:
        return ipc_check_plan(payload, n_bytes);
    default:
        break;
    }
    if (n_bytes != record_bytes) {
        return "it has the wrong size";
    }
    switch (type) {
    case IPC_HELLO:
        return ipc_check_hello(payload);
    case IPC_LINK:
        return ipc_check_link(payload);
    case IPC_EVENT:
        return ipc_check_event(payload);
    case IPC_COMMAND:
        return ipc_check_command(payload);
    default:
        return NULL;
    }
}

enum deft_status ipc_check_payload(uint16_t type, const void *payload, size_t n_bytes,
                                   struct deft_error *error) {
    size_t i = ipc_check_find(type);
    if (i == IPC_CHECK_N_TYPES) {
        return deft_fail(error, DEFT_INVALID, 0, "frame type %u is unknown", type);
    }
    if (n_bytes > IPC_MAX_PAYLOAD_BYTES) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "a frame of type '%s' has %zu payload bytes, at most %u are allowed",
                         ipc_check_types[i].name, n_bytes, IPC_MAX_PAYLOAD_BYTES);
    }
    const char *reason = ipc_check_reason(type, payload, n_bytes, ipc_check_types[i].record_bytes);
    if (reason != NULL) {
        return deft_fail(error, DEFT_INVALID, 0, "a frame of type '%s' with %zu bytes is bad: %s",
                         ipc_check_types[i].name, n_bytes, reason);
    }
    return DEFT_OK;
}
