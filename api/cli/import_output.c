#include "import_output.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum deft_status import_output_failed(const char *path, int code, struct deft_error *error) {
    return deft_fail(error, DEFT_IO, code, "'%.250s' cannot be written: %s", path, strerror(code));
}

/* Closes the file too. 0, or the error's number. */
static int import_output_fill(FILE *file, const char *text) {
    int code = 0;
    int failed = fputs(text, file) == EOF || fputc('\n', file) == EOF || fflush(file) != 0;
    /* Devices and pipes cannot be synchronised, and need not be. */
    if (failed || (fsync(fileno(file)) != 0 && errno != EINVAL && errno != EROFS)) {
        code = errno;
    }
    if (fclose(file) != 0 && code == 0) {
        code = errno;
    }
    return code;
}

static enum deft_status import_output_in_place(const char *path, const char *text,
                                               struct deft_error *error) {
    FILE *file = fopen(path, "we");
    int code = file == NULL ? errno : import_output_fill(file, text);
    return code == 0 ? DEFT_OK : import_output_failed(path, code, error);
}

static enum deft_status import_output_replace(const char *path, const char *text,
                                              struct deft_error *error) {
    char temporary[PATH_MAX];
    int n = snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof(temporary)) {
        return import_output_failed(path, ENAMETOOLONG, error);
    }
    FILE *file = fopen(temporary, "wxe");
    if (file == NULL) {
        return import_output_failed(path, errno, error);
    }
    int code = import_output_fill(file, text);
    if (code == 0 && rename(temporary, path) != 0) {
        code = errno;
    }
    if (code != 0) {
        (void)unlink(temporary);
        return import_output_failed(path, code, error);
    }
    return DEFT_OK;
}

enum deft_status import_output_write(const char *path, const char *text, struct deft_error *error) {
    struct stat stat_of;
    sigset_t ending;
    sigset_t before;
    if (strcmp(path, "-") == 0) {
        (void)printf("%s\n", text); /* the end of the program tells whether it arrived */
        return DEFT_OK;
    }
    if (stat(path, &stat_of) == 0 && !S_ISREG(stat_of.st_mode)) {
        return import_output_in_place(path, text, error);
    }
    (void)sigemptyset(&ending);
    (void)sigaddset(&ending, SIGINT);
    (void)sigaddset(&ending, SIGTERM);
    (void)sigaddset(&ending, SIGHUP);
    (void)pthread_sigmask(SIG_BLOCK, &ending, &before);
    enum deft_status status = import_output_replace(path, text, error);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return status;
}
