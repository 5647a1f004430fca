/* The gradient space: all elements as one flat vector, output side first, and where each tensor and
 * element lies in a flat buffer. */
#ifndef SPACE_H
#define SPACE_H

#include <stddef.h>
#include <stdint.h>

#include <deft/deft.h>
#include <dsched/profile.h>

struct space_tensor {
    char name[DSCHED_NAME_BYTES];
    uint64_t elements;
    enum dsched_dtype dtype;
    uint8_t *parameters; /* the caller's; NULL when not registered */
    uint64_t begin;      /* first element in the gradient space */
    size_t offset_bytes; /* first byte in a flat buffer */
};

struct space {
    uint32_t n_tensors;
    uint32_t capacity;
    struct space_tensor *tensors; /* forward order, index = tensor id */
    uint64_t *elements;           /* [n_tensors], for dsched_table */
    uint8_t *dtypes;
    uint64_t n_elements;
    size_t n_bytes; /* of a flat buffer */
};

/* Zero-initialised is empty; space_done takes that too. */
DEFT_NODISCARD enum deft_status space_add(struct space *space, const struct deft_tensor *tensor,
                                          uint32_t *out_id, struct deft_error *error);
/* Lays the tensors out in reverse order; nothing may be added afterwards. Flat buffers keep
 * elements of one dtype adjacent and start a new dtype at a multiple of SPACE_ALIGN_BYTES. */
DEFT_NODISCARD enum deft_status space_seal(struct space *space, struct deft_error *error);
void space_done(struct space *space);

#define SPACE_ALIGN_BYTES 64u

struct dsched_table space_table(const struct space *space);
/* 1 when every tensor has registered parameters of f32 or f64: lookahead and averaged can run. */
int space_has_parameters(const struct space *space);

#endif
