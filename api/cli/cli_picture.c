#include "cli_picture.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "web/lanes/lanes_page.h"

/* '<' would let a name end the element that holds the data; in JSON it stands in strings only. */
static void cli_picture_data(const char *json, FILE *file) {
    size_t n = strcspn(json, "<");
    while (json[n] == '<') {
        (void)fwrite(json, 1, n, file);
        (void)fputs("\\u003c", file);
        json += n + 1;
        n = strcspn(json, "<");
    }
    (void)fputs(json, file);
}

/* Closes the file too. */
static int cli_picture_fill(FILE *file, const char *json) {
    (void)fputs(lanes_page_before, file);
    cli_picture_data(json, file);
    (void)fputs(lanes_page_after, file);
    int failed = fflush(file) != 0 || ferror(file);
    /* A device or pipe cannot be synchronised, and need not be. */
    failed = failed || (fsync(fileno(file)) != 0 && errno != EINVAL && errno != EROFS);
    int reason = errno;
    if (fclose(file) != 0 && !failed) {
        return -1;
    }
    errno = reason;
    return failed ? -1 : 0;
}

static enum deft_status cli_picture_unwritable(const char *path, struct deft_error *error) {
    return deft_fail(error, DEFT_INVALID, errno, "'%.250s' cannot be created: %s", path,
                     strerror(errno));
}

static enum deft_status cli_picture_in_place(const char *path, const char *json,
                                             struct deft_error *error) {
    FILE *file = fopen(path, "we");
    if (file == NULL) {
        return cli_picture_unwritable(path, error);
    }
    if (cli_picture_fill(file, json) != 0) {
        return deft_fail(error, DEFT_IO, errno, "'%.250s' cannot be written: %s", path,
                         strerror(errno));
    }
    return DEFT_OK;
}

static enum deft_status cli_picture_replace(const char *path, const char *json,
                                            struct deft_error *error) {
    char temporary[PATH_MAX];
    int n = snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof(temporary)) {
        errno = ENAMETOOLONG;
        return cli_picture_unwritable(path, error);
    }
    FILE *file = fopen(temporary, "wxe");
    if (file == NULL) {
        return cli_picture_unwritable(path, error);
    }
    if (cli_picture_fill(file, json) != 0 || rename(temporary, path) != 0) {
        int reason = errno;
        (void)unlink(temporary);
        return deft_fail(error, DEFT_IO, reason, "'%.250s' cannot be written: %s", path,
                         strerror(reason));
    }
    return DEFT_OK;
}

enum deft_status cli_picture_write(const char *path, const struct wire_timeline *timeline,
                                   struct deft_error *error) {
    char resolved[PATH_MAX];
    struct stat facts;
    char *json = NULL;
    if (path[0] == '\0') {
        return deft_fail(error, DEFT_INVALID, 0, "'' names no file for a picture");
    }
    enum deft_status status = wire_timeline_encode(timeline, &json, error);
    if (status != DEFT_OK) {
        return status;
    }
    int exists = stat(path, &facts) == 0;
    if (exists && !S_ISREG(facts.st_mode)) {
        status = cli_picture_in_place(path, json, error);
    } else if (exists && realpath(path, resolved) != NULL) {
        status = cli_picture_replace(resolved, json, error);
    } else {
        status = cli_picture_replace(path, json, error);
    }
    free(json);
    return status;
}
