#include "wire_health.h"

#include "wire_common.h"

#define R struct wire_health
static const struct wire_field health_fields[] = {
    WIRE_ROW_TEXT(R, status, "status", 1),
    WIRE_ROW_TEXT(R, version, "version", 0),
    WIRE_ROW_UINT(R, refused_writes, "refused_writes", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_TEXT(R, database, "database", 1),
    WIRE_ROW_TEXT(R, upkeep, "upkeep", 0),
};
#undef R
static const struct wire_shape health_shape =
    WIRE_SHAPE(struct wire_health, health_fields, WIRE_KEYED);

enum deft_status wire_health_encode(const struct wire_health *in, char **out,
                                    struct deft_error *error) {
    return wire_shape_encode(&health_shape, "the health", in, out, error);
}

enum deft_status wire_health_decode(const char *text, size_t n_bytes, struct wire_health *out,
                                    struct deft_error *error) {
    return wire_shape_decode(&health_shape, "the health", text, n_bytes, out, error);
}
