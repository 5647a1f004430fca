/* What operators ask of one job, beyond mode and limits. */
#include "wire_shape.h"

#include "wire.h"

static const struct wire_field pin_fields[] = {
    WIRE_ROW_TEXT(struct wire_pin, plan, "plan", 1),
};
static const struct wire_shape pin_shape = WIRE_SHAPE(struct wire_pin, pin_fields, WIRE_KEYED);

static const struct wire_field freeze_fields[] = {
    {.key = "frozen", .kind = WIRE_FLAG, .required = 1, WIRE_MEMBER(struct wire_freeze, frozen)},
};
static const struct wire_shape freeze_shape =
    WIRE_SHAPE(struct wire_freeze, freeze_fields, WIRE_KEYED);

static const struct wire_field keep_fields[] = {
    WIRE_ROW_TEXT(struct wire_keep, keep, "keep", 1),
};
static const struct wire_shape keep_shape = WIRE_SHAPE(struct wire_keep, keep_fields, WIRE_KEYED);

enum deft_status wire_pin_encode(const struct wire_pin *in, char **out, struct deft_error *error) {
    return wire_shape_encode(&pin_shape, "the pin", in, out, error);
}

enum deft_status wire_pin_decode(const char *text, size_t n_bytes, struct wire_pin *out,
                                 struct deft_error *error) {
    return wire_shape_decode(&pin_shape, "the pin", text, n_bytes, out, error);
}

enum deft_status wire_freeze_encode(const struct wire_freeze *in, char **out,
                                    struct deft_error *error) {
    return wire_shape_encode(&freeze_shape, "the freeze", in, out, error);
}

enum deft_status wire_freeze_decode(const char *text, size_t n_bytes, struct wire_freeze *out,
                                    struct deft_error *error) {
    return wire_shape_decode(&freeze_shape, "the freeze", text, n_bytes, out, error);
}

enum deft_status wire_keep_encode(const struct wire_keep *in, char **out,
                                  struct deft_error *error) {
    return wire_shape_encode(&keep_shape, "what is kept", in, out, error);
}

enum deft_status wire_keep_decode(const char *text, size_t n_bytes, struct wire_keep *out,
                                  struct deft_error *error) {
    return wire_shape_decode(&keep_shape, "what is kept", text, n_bytes, out, error);
}
