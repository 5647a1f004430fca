#include "space.h"

#include "refuse.h"

#include <stdlib.h>
#include <string.h>

static void fill(struct space *space, const struct dsched_profile *profile) {
    int64_t ready_ns = 0;
    for (uint32_t i = 0; i < profile->n_tensors; i++) {
        space->elements[i] = profile->tensors[i].elements;
        space->dtypes[i] = (uint8_t)profile->tensors[i].dtype;
    }
    for (uint32_t i = profile->n_tensors; i-- > 0;) {
        const struct dsched_tensor *tensor = &profile->tensors[i];
        uint32_t element_bytes = dsched_dtype_bytes(tensor->dtype);
        ready_ns += tensor->backward_ns;
        if (tensor->elements == 0) {
            continue;
        }
        space->pieces[space->n_pieces++] =
            (struct space_piece){.begin = space->n_elements,
                                 .end = space->n_elements + tensor->elements,
                                 .ready_ns = ready_ns,
                                 .element_bytes = element_bytes,
                                 .dtype = (uint8_t)tensor->dtype};
        space->n_elements += tensor->elements;
        space->n_bytes += tensor->elements * element_bytes;
    }
}

enum dsched_status space_init(struct space *space, const struct dsched_profile *profile,
                              struct dsched_error *error) {
    struct space made = {0};
    made.elements = calloc(profile->n_tensors, sizeof(*made.elements));
    made.dtypes = calloc(profile->n_tensors, sizeof(*made.dtypes));
    made.pieces = calloc(profile->n_tensors, sizeof(*made.pieces));
    if (made.elements == NULL || made.dtypes == NULL || made.pieces == NULL) {
        space_done(&made);
        return refuse_memory(error, "the gradient space");
    }
    fill(&made, profile);
    made.table = (struct dsched_table){
        .n_tensors = profile->n_tensors, .elements = made.elements, .dtypes = made.dtypes};
    *space = made;
    return DSCHED_OK;
}

void space_done(struct space *space) {
    if (space == NULL) {
        return;
    }
    free(space->elements);
    free(space->dtypes);
    free(space->pieces);
    memset(space, 0, sizeof(*space));
}

void space_measure(const struct space *space, const struct dsched_bucket *buckets,
                   uint32_t n_buckets, int64_t *out_ready_ns, uint64_t *out_bytes) {
    uint32_t p = 0;
    for (uint32_t b = 0; b < n_buckets; b++) {
        while (p + 1 < space->n_pieces && space->pieces[p].end < buckets[b].end) {
            p++;
        }
        if (out_ready_ns != NULL) {
            out_ready_ns[b] = space->pieces[p].ready_ns;
        }
        if (out_bytes != NULL) {
            out_bytes[b] = (buckets[b].end - buckets[b].begin) * space->pieces[p].element_bytes;
        }
    }
}
