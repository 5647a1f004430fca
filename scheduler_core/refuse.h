/* Failing with a sentence, in one statement. Inside the scheduling library only. */
#ifndef REFUSE_H
#define REFUSE_H

#include <dsched/status.h>

#if defined(__GNUC__)
#define REFUSE_PRINTF __attribute__((format(printf, 3, 4)))
#else
#define REFUSE_PRINTF
#endif

/* Fills `error` (which may be NULL) and returns `status`. Longer texts are cut. */
enum dsched_status refuse(struct dsched_error *error, enum dsched_status status, const char *format,
                          ...) REFUSE_PRINTF;
/* The sentence every failed allocation gives. */
static inline enum dsched_status refuse_memory(struct dsched_error *error, const char *what) {
    (void)refuse(error, DSCHED_NO_MEMORY, "memory for %s could not be allocated", what);
    return DSCHED_NO_MEMORY;
}

#endif
