#include "runtime/gradspace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static enum deft_status gradspace_grow(struct gradspace *space, struct deft_error *error) {
    uint32_t capacity = space->capacity == 0 ? 64 : space->capacity * 2;
    struct gradspace_tensor *tensors =
        realloc(space->tensors, (size_t)capacity * sizeof(*space->tensors));
    if (tensors == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for %u tensors", capacity);
    }
    space->tensors = tensors;
    space->capacity = capacity;
    return DEFT_OK;
}

static enum deft_status gradspace_check(const struct gradspace *space,
                                        const struct deft_tensor *tensor,
                                        struct deft_error *error) {
    if (tensor->name == NULL || tensor->name[0] == '\0') {
        return deft_fail(error, DEFT_INVALID, 0, "tensor %u has no name", space->n_tensors);
    }
    if (strlen(tensor->name) >= DSCHED_NAME_BYTES) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "the name of tensor %u has %zu bytes, at most %u are allowed",
                         space->n_tensors, strlen(tensor->name), DSCHED_NAME_BYTES - 1);
    }
    if (dsched_dtype_bytes((enum dsched_dtype)tensor->dtype) == 0) {
        return deft_fail(error, DEFT_INVALID, 0, "tensor %s has the unknown type %d", tensor->name,
                         (int)tensor->dtype);
    }
    if (tensor->elements == 0 || tensor->elements > DSCHED_MAX_ELEMENTS - space->n_elements) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "tensor %s has %" PRIu64 " elements; 1..%" PRIu64
                         " in all tensors together are allowed",
                         tensor->name, tensor->elements, (uint64_t)DSCHED_MAX_ELEMENTS);
    }
    if (space->n_tensors == DSCHED_MAX_TENSORS) {
        return deft_fail(error, DEFT_LIMIT, 0, "more than %u tensors were added",
                         DSCHED_MAX_TENSORS);
    }
    return DEFT_OK;
}

enum deft_status gradspace_add(struct gradspace *space, const struct deft_tensor *tensor,
                               uint32_t *out_id, struct deft_error *error) {
    enum deft_status status = gradspace_check(space, tensor, error);
    if (status == DEFT_OK && space->n_tensors == space->capacity) {
        status = gradspace_grow(space, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    struct gradspace_tensor *added = &space->tensors[space->n_tensors];
    memset(added, 0, sizeof(*added));
    memcpy(added->name, tensor->name, strlen(tensor->name) + 1);
    added->elements = tensor->elements;
    added->dtype = (enum dsched_dtype)tensor->dtype;
    added->parameters = tensor->parameters;
    space->n_elements += tensor->elements;
    *out_id = space->n_tensors++;
    return DEFT_OK;
}

static int gradspace_compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum deft_status gradspace_check_unique(const struct gradspace *space,
                                               struct deft_error *error) {
    const char **names = calloc(space->n_tensors, sizeof(char *));
    if (names == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for %u names", space->n_tensors);
    }
    for (uint32_t i = 0; i < space->n_tensors; i++) {
        names[i] = space->tensors[i].name;
    }
    qsort((void *)names, space->n_tensors, sizeof(char *), gradspace_compare_names);
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 1; i < space->n_tensors && status == DEFT_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = deft_fail(error, DEFT_INVALID, 0, "tensor %s was added twice", names[i]);
        }
    }
    free((void *)names);
    return status;
}

enum deft_status gradspace_seal(struct gradspace *space, struct deft_error *error) {
    if (space->n_tensors == 0) {
        return deft_fail(error, DEFT_STATE, 0, "no tensor was added before commit");
    }
    enum deft_status status = gradspace_check_unique(space, error);
    if (status != DEFT_OK) {
        return status;
    }
    uint64_t *elements = calloc(space->n_tensors, sizeof(*elements));
    uint8_t *dtypes = calloc(space->n_tensors, sizeof(*dtypes));
    if (elements == NULL || dtypes == NULL) {
        free(elements);
        free(dtypes);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for %u tensors", space->n_tensors);
    }
    uint64_t begin = 0;
    size_t offset_bytes = 0;
    for (uint32_t i = space->n_tensors; i-- > 0;) {
        struct gradspace_tensor *tensor = &space->tensors[i];
        if (i + 1 < space->n_tensors && tensor->dtype != space->tensors[i + 1].dtype) {
            offset_bytes = (offset_bytes + GRADSPACE_ALIGN_BYTES - 1) / GRADSPACE_ALIGN_BYTES *
                           GRADSPACE_ALIGN_BYTES;
        }
        tensor->begin = begin;
        tensor->offset_bytes = offset_bytes;
        begin += tensor->elements;
        offset_bytes += (size_t)tensor->elements * dsched_dtype_bytes(tensor->dtype);
        elements[i] = tensor->elements;
        dtypes[i] = (uint8_t)tensor->dtype;
    }
    space->elements = elements;
    space->dtypes = dtypes;
    space->n_bytes = offset_bytes;
    return DEFT_OK;
}

void gradspace_done(struct gradspace *space) {
    free(space->tensors);
    free(space->elements);
    free(space->dtypes);
    memset(space, 0, sizeof(*space));
}

struct dsched_table gradspace_table(const struct gradspace *space) {
    return (struct dsched_table){
        .n_tensors = space->n_tensors, .elements = space->elements, .dtypes = space->dtypes};
}

int gradspace_has_parameters(const struct gradspace *space) {
    for (uint32_t i = 0; i < space->n_tensors; i++) {
        const struct gradspace_tensor *tensor = &space->tensors[i];
        if (tensor->parameters == NULL ||
            (tensor->dtype != DSCHED_F32 && tensor->dtype != DSCHED_F64)) {
            return 0;
        }
    }
    return 1;
}
