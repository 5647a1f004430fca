/* The gradient space: all elements as one flat vector, output side first, and where each tensor and
 * element lies in a flat buffer. */
#ifndef GRADSPACE_H
#define GRADSPACE_H

#include <stddef.h>
#include <stdint.h>

#include <deft/deft.h>
#include <dsched/profile.h>

#include "link/device.h"

struct gradspace_tensor {
    char name[DSCHED_NAME_BYTES];
    uint64_t elements;
    enum dsched_dtype dtype;
    uint8_t *parameters; /* the caller's; NULL when not registered */
    uint64_t begin;      /* first element in the gradient space */
    size_t offset_bytes; /* first byte in a flat buffer */
};

struct gradspace {
    struct device *device; /* where parameters, gradients and flat buffers are; set by the owner */
    uint32_t n_tensors;
    uint32_t capacity;
    struct gradspace_tensor *tensors; /* forward order, index = tensor id */
    uint64_t *elements;               /* [n_tensors], for dsched_table */
    uint8_t *dtypes;
    uint64_t n_elements;
    size_t n_bytes; /* of a flat buffer */
};

/* Zero-initialised is empty; gradspace_done takes that too. */
DEFT_NODISCARD enum deft_status gradspace_add(struct gradspace *space,
                                              const struct deft_tensor *tensor, uint32_t *out_id,
                                              struct deft_error *error);
/* Lays the tensors out in reverse order; nothing may be added afterwards. Flat buffers keep
 * elements of one dtype adjacent and start a new dtype at a multiple of GRADSPACE_ALIGN_BYTES. */
DEFT_NODISCARD enum deft_status gradspace_seal(struct gradspace *space, struct deft_error *error);
void gradspace_done(struct gradspace *space);

#define GRADSPACE_ALIGN_BYTES 64u

struct dsched_table gradspace_table(const struct gradspace *space);
/* 1 when every tensor has registered parameters of f32 or f64: lookahead and averaged can run. */
int gradspace_has_parameters(const struct gradspace *space);

#endif
