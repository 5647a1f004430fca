/* Shared libraries that are found at run time. */
#ifndef LIBRARY_H
#define LIBRARY_H

#include <stddef.h>

#include <deft/status.h>

/* A function and where a table of pointers keeps it. */
struct library_symbol {
    const char *name;
    size_t offset;
};

struct library {
    void *handle; /* never closed: libraries of this kind do not come back from it */
    char path[256];
};

/* The first of `names` (NULL-terminated) that this process has loaded already, else the first that
 * loads. `variable` in the environment, when it is set, names the only one instead. Fails with
 * DEFT_UNSUPPORTED and the loader's words for the last name; `what` begins the sentence. */
DEFT_NODISCARD enum deft_status library_open(const char *what, const char *variable,
                                             const char *const *names, struct library *out,
                                             struct deft_error *error);
/* Fills `table` with the addresses of all `n` symbols; DEFT_UNSUPPORTED names the one that is not
 * there. */
DEFT_NODISCARD enum deft_status library_bind(const struct library *library,
                                             const struct library_symbol *symbols, size_t n,
                                             void *table, struct deft_error *error);

#endif
