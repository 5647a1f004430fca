#include "run_output.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char run_output_erase[] = "\r\033[K";

void run_output_init(struct run_output *output, int fd, int *bar_shown) {
    *output = (struct run_output){.fd = fd, .is_terminal = isatty(fd), .bar_shown = bar_shown};
}

static void run_output_write(struct run_output *output, const char *bytes, size_t n_bytes) {
    while (n_bytes > 0 && output->failure == 0) {
        ssize_t n = write(output->fd, bytes, n_bytes);
        if (n >= 0) {
            bytes += n;
            n_bytes -= (size_t)n;
        } else if (errno == EAGAIN) {
            struct pollfd poll_fd = {.fd = output->fd, .events = POLLOUT};
            (void)poll(&poll_fd, 1, -1);
        } else if (errno != EINTR) {
            output->failure = errno;
        }
    }
}

/* One write for prefix, text and end, so that other writers to the same file cannot cut in. */
static void run_output_emit(struct run_stream *stream, char end) {
    char text[RUN_OUTPUT_LINE_BYTES + 64];
    struct run_output *output = stream->output;
    size_t n = 0;
    if (*output->bar_shown && output->is_terminal) {
        n = sizeof(run_output_erase) - 1;
        memcpy(text, run_output_erase, n);
    }
    n += (size_t)snprintf(text + n, 32, "[%u] ", stream->rank);
    memcpy(text + n, stream->line, stream->n_line);
    n += stream->n_line;
    /* A bar stays on the screen; its carriage return comes with the next output. */
    if (output->is_terminal) {
        *output->bar_shown = end == '\r';
    }
    if (end == '\n') {
        text[n++] = end;
    }
    run_output_write(output, text, n);
    stream->n_line = 0;
}

static void run_output_byte(struct run_stream *stream, char byte) {
    if (byte == '\n') {
        stream->after_cr = 0;
        run_output_emit(stream, '\n');
        return;
    }
    if (stream->after_cr) {
        /* The line is written over: what it said is gone, or was a live bar. */
        stream->after_cr = 0;
        if (stream->rank == 0 && stream->output->is_terminal && stream->n_line > 0) {
            run_output_emit(stream, '\r');
        }
        stream->n_line = 0;
    }
    if (byte == '\r') {
        stream->after_cr = 1;
        return;
    }
    if (stream->n_line == sizeof(stream->line)) {
        run_output_emit(stream, '\n');
    }
    stream->line[stream->n_line++] = byte;
}

void run_output_feed(struct run_stream *stream, const char *bytes, size_t n_bytes) {
    for (size_t i = 0; i < n_bytes; i++) {
        run_output_byte(stream, bytes[i]);
    }
}

void run_output_end(struct run_stream *stream) {
    if (stream->n_line > 0) {
        run_output_emit(stream, '\n');
    }
    stream->after_cr = 0;
}

void run_output_settle(struct run_output *output) {
    if (*output->bar_shown && output->is_terminal) {
        run_output_write(output, "\n", 1);
        *output->bar_shown = 0;
    }
}
