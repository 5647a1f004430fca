#include "wire_common.h"

#include <string.h>

const char *const wire_rule_names[] = {"exact", "delayed", "lookahead", "averaged", NULL};
const char *const wire_dtype_names[] = {"f32", "f64", "f16", "bf16", NULL};

static const struct wire_field sample_fields[] = {
    WIRE_ROW_UINT(struct dsched_sample, bytes, "bytes", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(struct dsched_sample, ns, "ns", 1, 0, DSCHED_MAX_TIME_NS),
};
const struct wire_shape wire_sample_shape =
    WIRE_SHAPE(struct dsched_sample, sample_fields, WIRE_TUPLE);

int wire_is_one_of(const char *text, const char *const *names) {
    for (size_t i = 0; names[i] != NULL; i++) {
        if (strcmp(text, names[i]) == 0) {
            return 1;
        }
    }
    return 0;
}

enum deft_status wire_from_dsched(enum dsched_status status, const struct dsched_error *from,
                                  struct deft_error *error) {
    switch (status) {
    case DSCHED_OK:
        return DEFT_OK;
    case DSCHED_NO_MEMORY:
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a plan or profile");
    case DSCHED_LIMIT:
        return deft_fail(error, DEFT_LIMIT, 0, "%s", from->text);
    default:
        return deft_fail(error, DEFT_INVALID, 0, "%s", from->text);
    }
}
