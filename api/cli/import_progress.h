/* How far a long read is, on standard error. */
#ifndef IMPORT_PROGRESS_H
#define IMPORT_PROGRESS_H

#include <stdint.h>

struct import_progress {
    const char *label; /* of what is read */
    int is_shown;
    int64_t shown_ns; /* when the line was last written; 0: never */
};

/* A kineto_progress_fn; `context` is a struct import_progress. Writes the line a few times a
 * second. */
void import_progress_show(void *context, uint64_t done_bytes, uint64_t total_bytes);
/* Clears the line, if there is one. */
void import_progress_end(struct import_progress *progress);

#endif
