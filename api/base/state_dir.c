#include "base/state_dir.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum deft_status state_dir_print(char *out, size_t capacity_bytes, const char *first,
                                        const char *second, struct deft_error *error) {
    if (strlen(first) + strlen(second) + 2 > capacity_bytes) {
        return deft_fail(error, DEFT_LIMIT, 0, "the path '%.100s/%.100s' has more than %zu bytes",
                         first, second, capacity_bytes - 1);
    }
    (void)snprintf(out, capacity_bytes, "%s/%s", first, second);
    return DEFT_OK;
}

enum deft_status state_dir_default(char *out, size_t capacity_bytes, struct deft_error *error) {
    const char *base = getenv("XDG_STATE_HOME");
    /* The XDG specification has relative paths ignored. */
    if (base != NULL && base[0] == '/') {
        return state_dir_print(out, capacity_bytes, base, "deft", error);
    }
    base = getenv("HOME");
    if (base != NULL && base[0] == '/') {
        return state_dir_print(out, capacity_bytes, base, ".local/state/deft", error);
    }
    struct passwd entry;
    struct passwd *found = NULL;
    char text[4096];
    if (getpwuid_r(geteuid(), &entry, text, sizeof(text), &found) == 0 && found != NULL) {
        return state_dir_print(out, capacity_bytes, found->pw_dir, ".local/state/deft", error);
    }
    return deft_fail(
        error, DEFT_NOT_FOUND, 0,
        "the user has no home directory; set XDG_STATE_HOME or name a state directory");
}

enum deft_status state_dir_make(const char *path, struct deft_error *error) {
    char part[PATH_MAX];
    size_t length = strlen(path);
    if (length == 0 || length >= sizeof(part)) {
        return deft_fail(error, DEFT_LIMIT, 0, "a directory's path has %zu bytes, expected 1 to %d",
                         length, PATH_MAX - 1);
    }
    memcpy(part, path, length + 1);
    for (size_t i = 1; i <= length; i++) {
        if (part[i] != '/' && part[i] != '\0') {
            continue;
        }
        part[i] = '\0';
        if (mkdir(part, i == length ? S_IRWXU : S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH) !=
                0 &&
            errno != EEXIST) {
            return deft_fail(error, DEFT_IO, errno, "the directory '%.200s' cannot be made: %s",
                             part, strerror(errno));
        }
        if (i < length) {
            part[i] = '/';
        }
    }
    struct stat info;
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return deft_fail(error, DEFT_IO, ENOTDIR, "'%.200s' is not a directory", path);
    }
    return DEFT_OK;
}

enum deft_status state_dir_join(const char *dir, const char *name, char *out, size_t capacity_bytes,
                                struct deft_error *error) {
    return state_dir_print(out, capacity_bytes, dir, name, error);
}
