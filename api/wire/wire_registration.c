#include "wire_common.h"

#include <stdlib.h>

/* DEFT_MAX_RANKS of the runtime's header, which this room does not see. */
#define REGISTRATION_MAX_RANKS 65536

static const char *const capability_names[32] = {
    [0] = "preview",
    [1] = "skip",
    [16] = "average",
};
static const char *const mode_names[] = {"", "off", "observe", "auto", NULL};
static const char *const optimizer_names[] = {"unknown", "sgd", "adam", "adamw", NULL};

static const struct wire_field rank_fields[] = {
    {.kind = WIRE_UINT, .size = sizeof(uint32_t), .max = REGISTRATION_MAX_RANKS - 1},
};
static const struct wire_shape rank_shape = WIRE_SHAPE(uint32_t, rank_fields, WIRE_BARE);

static const struct wire_field tensor_fields[] = {
    WIRE_ROW_TEXT(struct dsched_tensor, name, "name", 1),
    WIRE_ROW_UINT(struct dsched_tensor, elements, "elements", 1, 1, DSCHED_MAX_ELEMENTS),
    WIRE_ROW_NAME(struct dsched_tensor, dtype, "dtype", 1, wire_dtype_names),
};
static const struct wire_shape tensor_shape =
    WIRE_SHAPE(struct dsched_tensor, tensor_fields, WIRE_KEYED);

static const struct wire_field link_fields[] = {
    WIRE_ROW_TEXT(struct wire_link, name, "name", 1),
    WIRE_ROW_ARRAY(struct wire_link, probes, n_probes, "probes", 0, DSCHED_MAX_LINK_SAMPLES,
                   &wire_sample_shape),
};
static const struct wire_shape link_shape = WIRE_SHAPE(struct wire_link, link_fields, WIRE_KEYED);

#define R struct wire_registration
static const struct wire_field registration_fields[] = {
    WIRE_ROW_TEXT(R, key, "key", 1),
    WIRE_ROW_TEXT(R, name, "name", 0),
    WIRE_ROW_TEXT(R, user, "user", 0),
    WIRE_ROW_TEXT(R, agent, "agent", 1),
    WIRE_ROW_TEXT(R, version, "version", 0),
    WIRE_ROW_TEXT(R, mode, "mode", 0),
    WIRE_ROW_DIGITS(R, started_ns, "started_ns", 0),
    WIRE_ROW_UINT(R, n_ranks, "n_ranks", 1, 1, REGISTRATION_MAX_RANKS),
    WIRE_ROW_UINT(R, restart_count, "restart_count", 0, 0, UINT32_MAX),
    WIRE_ROW_HEX(R, table_hash, "table_hash", 1),
    WIRE_ROW_BITS(R, capabilities, "capabilities", capability_names),
    WIRE_ROW_UINT(R, max_pending_bytes, "max_pending_bytes", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_TEXT(R, optimizer, "optimizer", 0),
    WIRE_ROW_REAL(R, momentum, "momentum"),
    WIRE_ROW_REAL(R, learning_rate, "learning_rate"),
    WIRE_ROW_UINT(R, batch_per_rank, "batch_per_rank", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, max_merge, "max_merge", 0, 0, DSCHED_MAX_MERGE),
    WIRE_ROW_UINT(R, max_delay, "max_delay", 0, 0, DSCHED_MAX_DELAY),
    WIRE_ROW_REAL(R, epsilon, "epsilon"),
    WIRE_ROW_ARRAY(R, local_ranks, n_local_ranks, "local_ranks", 1, REGISTRATION_MAX_RANKS,
                   &rank_shape),
    WIRE_ROW_ARRAY(R, tensors, n_tensors, "tensors", 1, DSCHED_MAX_TENSORS, &tensor_shape),
    WIRE_ROW_ARRAY(R, links, n_links, "links", 1, DSCHED_MAX_LINKS, &link_shape),
};
static const struct wire_shape registration_shape = WIRE_SHAPE(R, registration_fields, WIRE_KEYED);
#undef R

static const struct wire_field registered_fields[] = {
    WIRE_ROW_TEXT(struct wire_registered, incarnation, "incarnation", 1),
    WIRE_ROW_TEXT(struct wire_registered, job, "job", 1),
    WIRE_ROW_TEXT(struct wire_registered, mode, "mode", 1),
    WIRE_ROW_UINT(struct wire_registered, committed_seq, "committed_seq", 1, 0, WIRE_MAX_INTEGER),
};
static const struct wire_shape registered_shape =
    WIRE_SHAPE(struct wire_registered, registered_fields, WIRE_KEYED);

static enum deft_status registration_check(const struct wire_registration *in,
                                           struct deft_error *error) {
    if (in->key[0] == '\0' || in->agent[0] == '\0') {
        return deft_fail(error, DEFT_INVALID, 0, "%s: the text is empty",
                         in->key[0] == '\0' ? "key" : "agent");
    }
    if (!wire_is_one_of(in->mode, mode_names)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "mode: 'off', 'observe' or 'auto' was expected, not '%s'", in->mode);
    }
    if (in->optimizer[0] != '\0' && !wire_is_one_of(in->optimizer, optimizer_names)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "optimizer: 'unknown', 'sgd', 'adam' or 'adamw' was expected, not '%s'",
                         in->optimizer);
    }
    if (in->epsilon < 0.0 || in->epsilon > 1.0) {
        return deft_fail(error, DEFT_INVALID, 0, "epsilon: 0..1 was expected");
    }
    for (uint32_t i = 0; i < in->n_local_ranks; i++) {
        if (in->local_ranks[i] >= in->n_ranks) {
            return deft_fail(error, DEFT_INVALID, 0, "local_ranks[%u]: %u is outside 0..%u", i,
                             in->local_ranks[i], in->n_ranks - 1);
        }
    }
    return DEFT_OK;
}

void wire_registration_done(struct wire_registration *registration) {
    wire_shape_done(&registration_shape, registration);
}

enum deft_status wire_registration_encode(const struct wire_registration *in, char **out,
                                          struct deft_error *error) {
    return wire_shape_encode(&registration_shape, "the registration", in, out, error);
}

enum deft_status wire_registration_decode(const char *text, size_t n_bytes,
                                          struct wire_registration *out, struct deft_error *error) {
    struct wire_registration decoded = {0};
    enum deft_status status =
        wire_shape_decode(&registration_shape, "the registration", text, n_bytes, &decoded, error);
    if (status != DEFT_OK) {
        return status;
    }
    status = registration_check(&decoded, error);
    if (status != DEFT_OK) {
        wire_registration_done(&decoded);
        return status;
    }
    *out = decoded;
    return DEFT_OK;
}

enum deft_status wire_registered_encode(const struct wire_registered *in, char **out,
                                        struct deft_error *error) {
    return wire_shape_encode(&registered_shape, "the answer to a registration", in, out, error);
}

enum deft_status wire_registered_decode(const char *text, size_t n_bytes,
                                        struct wire_registered *out, struct deft_error *error) {
    return wire_shape_decode(&registered_shape, "the answer to a registration", text, n_bytes, out,
                             error);
}
