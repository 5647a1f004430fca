#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"

#define LOG_FIRST_WAIT_NS INT64_C(1000000000)
#define LOG_WAIT_NS       INT64_C(10000000000)

enum deft_status log_open(struct log *log, const char *program, const char *path,
                          enum log_level least, struct deft_error *error) {
    int fd = STDERR_FILENO;
    if (path != NULL && strcmp(path, "-") != 0) {
        fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, S_IRUSR | S_IWUSR);
        if (fd < 0) {
            return deft_fail(error, DEFT_IO, errno, "the log file '%.200s' cannot be opened: %s",
                             path, strerror(errno));
        }
    }
    *log = (struct log){.fd = fd, .program = program, .least = least};
    return DEFT_OK;
}

void log_close(struct log *log) {
    if (log != NULL && log->fd > STDERR_FILENO) {
        (void)close(log->fd);
        log->fd = -1;
    }
}

void log_set_least(struct log *log, enum log_level least) {
    __atomic_store_n(&log->least, least, __ATOMIC_RELAXED);
}

static const char *log_level_name(enum log_level level) {
    static const char *const names[] = {"debug", "info", "warning", "error"};
    return names[level];
}

static void log_write(const struct log *log, enum log_level level, const char *format,
                      va_list arguments) DEFT_PRINTF(3, 0);
static void log_write(const struct log *log, enum log_level level, const char *format,
                      va_list arguments) {
    char line[LOG_LINE_BYTES];
    struct timespec now;
    struct tm parts;
    if (log->fd < 0 || level < __atomic_load_n(&log->least, __ATOMIC_RELAXED)) {
        return;
    }
    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)gmtime_r(&now.tv_sec, &parts);
    size_t n = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &parts);
    n += (size_t)snprintf(line + n, sizeof(line) - n, ".%03ldZ %s %s: ", now.tv_nsec / 1000000,
                          log->program, log_level_name(level));
    int length = vsnprintf(line + n, sizeof(line) - n, format, arguments);
    if (length > 0) {
        n = (size_t)length < sizeof(line) - n ? n + (size_t)length : sizeof(line) - 1;
    }
    for (size_t i = 0; i < n; i++) {
        if ((unsigned char)line[i] < 0x20 || line[i] == 0x7f) {
            line[i] = '?';
        }
    }
    line[n] = '\n';
    /* A log that cannot be written must not disturb what is logged. */
    ssize_t written = write(log->fd, line, n + 1);
    (void)written;
}

void log_line(const struct log *log, enum log_level level, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    log_write(log, level, format, arguments);
    va_end(arguments);
}

void log_wait_for(struct log_wait *wait, const struct log *log, int64_t now_ns, const char *format,
                  ...) {
    if (wait->since_ns == 0) {
        wait->since_ns = now_ns;
    }
    if (now_ns - wait->since_ns < LOG_FIRST_WAIT_NS ||
        (wait->logged_ns != 0 && now_ns - wait->logged_ns < LOG_WAIT_NS)) {
        return;
    }
    wait->logged_ns = now_ns;
    char what[LOG_LINE_BYTES / 2];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof(what), format, arguments);
    va_end(arguments);
    log_line(log, LOG_LEVEL_WARNING, "waiting for %.1f s for %s",
             (double)(now_ns - wait->since_ns) / 1e9, what);
}

void log_wait_over(struct log_wait *wait, const struct log *log, int64_t now_ns, const char *what) {
    if (wait->logged_ns != 0) {
        log_line(log, LOG_LEVEL_INFO, "%s is there after %.1f s", what,
                 (double)(now_ns - wait->since_ns) / 1e9);
    }
    *wait = (struct log_wait){0};
}
