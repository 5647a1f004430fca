/* One event of a trace as it stands in the file, before anybody asked what it means. */
#ifndef KINETO_EVENT_H
#define KINETO_EVENT_H

#include <stdint.h>

#define KINETO_EVENT_NAME_BYTES 192u /* kernels tell operation and dtype in the first 100 */
#define KINETO_EVENT_WORD_BYTES 48u

/* Texts are cut to their buffers; "" and 0 stand for what the event does not tell. */
struct kineto_event {
    char name[KINETO_EVENT_NAME_BYTES];
    char category[KINETO_EVENT_WORD_BYTES];
    char phase[4];
    int64_t begin_ns;
    int64_t duration_ns;
    uint32_t thread;
    int has_correlation;
    uint64_t correlation;
    uint64_t elements;       /* "In msg nelems" */
    uint64_t shape_elements; /* of all tensors in "Input Dims"; UINT64_MAX: too many */
    uint32_t group_size;
    char collective[KINETO_EVENT_WORD_BYTES]; /* "Collective name" */
    char dtype[KINETO_EVENT_WORD_BYTES];      /* "dtype" */
    char type[KINETO_EVENT_WORD_BYTES];       /* first of "Input type" */
    char group[KINETO_EVENT_WORD_BYTES];      /* "Process Group Name" */
    const char *broken; /* what has no value that it may have, or NULL; static text */
};

#endif
