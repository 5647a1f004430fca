#include "base/streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum deft_status streams_flush(struct deft_error *error) {
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout)) {
        return DEFT_OK;
    }
    int reason = errno;
    __fpurge(stdout); /* or the end of the process would try, and tell, again */
    clearerr(stdout);
    return deft_fail(error, DEFT_IO, reason, "standard output cannot be written%s%s",
                     reason != 0 ? ": " : "", reason != 0 ? strerror(reason) : "");
}

static void streams_end(int exit_status, void *program) {
    struct deft_error error;
    if (streams_flush(&error) != DEFT_OK) {
        (void)fprintf(stderr, "%s: %s\n", (const char *)program, error.text);
        if (exit_status == 0) {
            _exit(1);
        }
    }
}

void streams_begin(const char *program) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0) {
            /* The lowest free number, which is this one. Input that can only be written, outputs
             * that can only be read. */
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
    (void)on_exit(streams_end, (void *)(uintptr_t)program);
}
