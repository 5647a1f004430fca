/* The one function a fuzz target defines, and how it reports that a property is broken. */
#ifndef FUZZING_H
#define FUZZING_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Must accept any bytes. Returns 0. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the process with a core, which is what both the search and the replay count as failure. */
static inline void fuzzing_require(int holds, const char *property) {
    if (!holds) {
        (void)fprintf(stderr, "broken property: %s\n", property);
        abort();
    }
}

#endif
