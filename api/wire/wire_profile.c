#include "wire_common.h"

#include <stdlib.h>
#include <string.h>

static const struct wire_field tensor_fields[] = {
    WIRE_ROW_TEXT(struct dsched_tensor, name, "name", 1),
    WIRE_ROW_UINT(struct dsched_tensor, elements, "elements", 1, 0, DSCHED_MAX_ELEMENTS),
    WIRE_ROW_NAME(struct dsched_tensor, dtype, "dtype", 0, wire_dtype_names),
    WIRE_ROW_INT(struct dsched_tensor, forward_ns, "forward_ns", 0, 0, DSCHED_MAX_TIME_NS),
    WIRE_ROW_INT(struct dsched_tensor, backward_ns, "backward_ns", 0, 0, DSCHED_MAX_TIME_NS),
};
static const struct wire_shape tensor_shape =
    WIRE_SHAPE(struct dsched_tensor, tensor_fields, WIRE_KEYED);

static const struct wire_field link_fields[] = {
    WIRE_ROW_TEXT(struct dsched_link, name, "name", 1),
    WIRE_ROW_INT(struct dsched_link, alpha_ns, "alpha_ns", 0, 0, DSCHED_MAX_TIME_NS),
    WIRE_ROW_INT(struct dsched_link, bytes_per_s, "bytes_per_s", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_RATIO(struct dsched_link, contention_ppm, "contention", 1000000, 1000000),
    WIRE_ROW_ARRAY(struct dsched_link, samples, n_samples, "samples", 0, DSCHED_MAX_LINK_SAMPLES,
                   &wire_sample_shape),
};
static const struct wire_shape link_shape = WIRE_SHAPE(struct dsched_link, link_fields, WIRE_KEYED);

static const struct wire_field job_fields[] = {
    WIRE_ROW_TEXT(struct wire_profile_message, profile.name, "name", 0),
    {.key = "world_size",
     .kind = WIRE_UINT,
     WIRE_MEMBER(struct wire_profile_message, profile.world_size),
     .min = 1,
     .max = UINT32_MAX,
     .initial = 1},
};
static const struct wire_shape job_shape =
    WIRE_SHAPE(struct wire_profile_message, job_fields, WIRE_KEYED);

static const struct wire_field compute_fields[] = {
    WIRE_ROW_INT(struct wire_profile_message, profile.forward_ns, "forward_ns", 1, 0,
                 DSCHED_MAX_TIME_NS),
    WIRE_ROW_INT(struct wire_profile_message, profile.backward_ns, "backward_ns", 1, 0,
                 DSCHED_MAX_TIME_NS),
    WIRE_ROW_INT(struct wire_profile_message, profile.optimizer_ns, "optimizer_ns", 0, 0,
                 DSCHED_MAX_TIME_NS),
};
static const struct wire_shape compute_shape =
    WIRE_SHAPE(struct wire_profile_message, compute_fields, WIRE_KEYED);

static const struct wire_field profile_fields[] = {
    WIRE_ROW_TEXT(struct wire_profile_message, schema, "schema", 1),
    WIRE_ROW_GROUP("job", 0, &job_shape),
    WIRE_ROW_GROUP("compute", 1, &compute_shape),
    WIRE_ROW_ARRAY(struct wire_profile_message, profile.links, profile.n_links, "links", 1,
                   DSCHED_MAX_LINKS, &link_shape),
    WIRE_ROW_ARRAY(struct wire_profile_message, profile.tensors, profile.n_tensors, "tensors", 1,
                   DSCHED_MAX_TENSORS, &tensor_shape),
};
const struct wire_shape wire_profile_shape =
    WIRE_SHAPE(struct wire_profile_message, profile_fields, WIRE_KEYED);

enum deft_status wire_profile_check(const struct wire_profile_message *message,
                                    struct deft_error *error) {
    struct dsched_error why = {0};
    if (strcmp(message->schema, WIRE_PROFILE_SCHEMA) != 0) {
        return deft_fail(error, DEFT_INVALID, 0, "schema: '%s' was expected, not '%s'",
                         WIRE_PROFILE_SCHEMA, message->schema);
    }
    return wire_from_dsched(dsched_profile_check(&message->profile, &why), &why, error);
}

enum deft_status wire_profile_decode(const char *text, size_t n_bytes, struct dsched_profile *out,
                                     struct deft_error *error) {
    struct wire_profile_message message = {0};
    enum deft_status status =
        wire_shape_decode(&wire_profile_shape, "the profile", text, n_bytes, &message, error);
    if (status != DEFT_OK) {
        return status;
    }
    status = wire_profile_check(&message, error);
    if (status != DEFT_OK) {
        wire_shape_done(&wire_profile_shape, &message);
        return status;
    }
    *out = message.profile;
    return DEFT_OK;
}

enum deft_status wire_profile_encode(const struct dsched_profile *profile, char **out,
                                     struct deft_error *error) {
    const struct wire_profile_message message = {.schema = WIRE_PROFILE_SCHEMA,
                                                 .profile = *profile};
    return wire_shape_encode(&wire_profile_shape, "the profile", &message, out, error);
}
