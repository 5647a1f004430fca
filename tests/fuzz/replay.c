/* Runs a fuzz target over files that are already there: `program FOLDER...`.
 *
 * Every file is also run cut short at each power of two, since truncation is the most common way
 * in which real input goes wrong. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzzing.h"

/* Seeds are small by agreement; more is a mistake in the corpus. */
#define REPLAY_MAX_BYTES  (1u << 20)
#define REPLAY_PATH_BYTES 4096

static int replay_file(const char *path) {
    int result = -1;
    uint8_t *bytes = NULL;
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        (void)fprintf(stderr, "%s: cannot be opened\n", path);
        goto done;
    }
    bytes = malloc(REPLAY_MAX_BYTES + 1);
    if (bytes == NULL) {
        (void)fprintf(stderr, "%s: no memory for %u bytes\n", path, REPLAY_MAX_BYTES);
        goto done;
    }
    size_t n_bytes = fread(bytes, 1, REPLAY_MAX_BYTES + 1, file);
    if (ferror(file) || n_bytes > REPLAY_MAX_BYTES) {
        (void)fprintf(stderr, "%s: unreadable or above %u bytes\n", path, REPLAY_MAX_BYTES);
        goto done;
    }
    (void)printf("%s\n", path);
    (void)fflush(stdout);
    for (size_t cut = 0; cut < n_bytes; cut = cut == 0 ? 1 : cut * 2) {
        /* Its own block, so that a sanitizer sees a read behind the cut. */
        uint8_t *shorter = malloc(cut + (cut == 0));
        if (shorter == NULL) {
            goto done;
        }
        memcpy(shorter, bytes, cut);
        (void)LLVMFuzzerTestOneInput(shorter, cut);
        free(shorter);
    }
    (void)LLVMFuzzerTestOneInput(bytes, n_bytes);
    result = 0;
done:
    free(bytes);
    if (file != NULL) {
        (void)fclose(file);
    }
    return result;
}

/* Returns how many files were run, or -1. */
static int replay_folder(const char *folder) {
    int n_files = -1;
    DIR *stream = opendir(folder);
    if (stream == NULL) {
        (void)fprintf(stderr, "%s: is no readable folder\n", folder);
        return -1;
    }
    n_files = 0;
    for (struct dirent *entry = readdir(stream); entry != NULL; entry = readdir(stream)) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        char path[REPLAY_PATH_BYTES];
        int length = snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (length < 0 || (size_t)length >= sizeof path || replay_file(path) != 0) {
            n_files = -1;
            break;
        }
        n_files++;
    }
    (void)closedir(stream);
    return n_files;
}

int main(int argc, char **argv) {
    int n_files = 0;
    for (int i = 1; i < argc; i++) {
        int n = replay_folder(argv[i]);
        if (n < 0) {
            return 1;
        }
        n_files += n;
    }
    if (n_files == 0) {
        (void)fprintf(stderr, "usage: %s FOLDER..., and the folders must hold files\n", argv[0]);
        return 1;
    }
    (void)printf("%d files replayed\n", n_files);
    return 0;
}
