/* Programs that write the committed seeds: `program FOLDER`. Seeds made by our own encoders stay
 * valid when a format changes; the test seeds.NAME fails until they were written anew. */
#ifndef SEEDS_H
#define SEEDS_H

#include <stddef.h>

/* Writes `n_bytes` to FOLDER/name, or ends the program with a sentence. */
void seeds_write(const char *folder, const char *name, const void *bytes, size_t n_bytes);

#endif
