#include "seeds.h"

#include <stdio.h>
#include <stdlib.h>

#define SEEDS_PATH_BYTES 4096

void seeds_write(const char *folder, const char *name, const void *bytes, size_t n_bytes) {
    char path[SEEDS_PATH_BYTES];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "wb") : NULL;
    if (file == NULL) {
        (void)fprintf(stderr, "%s/%s cannot be created\n", folder, name);
        exit(1);
    }
    size_t n_written = fwrite(bytes, 1, n_bytes, file);
    if (fclose(file) != 0 || n_written != n_bytes) {
        (void)fprintf(stderr, "%s cannot be written\n", path);
        exit(1);
    }
}
