/* Log lines of programs. Libraries never log; they return errors. */
#ifndef LOG_H
#define LOG_H

#include <stdint.h>

#include <deft/status.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARNING, LOG_LEVEL_ERROR };

/* One line per call, written with one write(2), so lines of several threads and processes stay
 * whole: "2026-11-30T03:01:10.123Z deft-agent warning: sentence". Longer lines are cut. */
#define LOG_LINE_BYTES 1024u

struct log {
    int fd;               /* -1: nothing is written */
    const char *program;  /* outlives the log */
    enum log_level least; /* once others use the log: log_set_least */
};

/* `path` NULL or "-": standard error; otherwise appended to, made with mode 0600. */
DEFT_NODISCARD enum deft_status log_open(struct log *log, const char *program, const char *path,
                                         enum log_level least, struct deft_error *error);
void log_close(struct log *log);
/* Any thread, also while others write lines. */
void log_set_least(struct log *log, enum log_level least);

/* Control characters of the text become '?'. Any thread. */
void log_line(const struct log *log, enum log_level level, const char *format, ...)
    DEFT_PRINTF(3, 4);

/* A wait that is named in the log: the first time after a second, then at most every 10 s.
 * Zero-initialised is valid. One thread. */
struct log_wait {
    int64_t since_ns; /* monotonic; 0: nothing is waited for */
    int64_t logged_ns;
};
void log_wait_for(struct log_wait *wait, const struct log *log, int64_t now_ns, const char *format,
                  ...) DEFT_PRINTF(4, 5);
/* What was waited for has come; says so if the wait had been named. */
void log_wait_over(struct log_wait *wait, const struct log *log, int64_t now_ns, const char *what);

#endif
