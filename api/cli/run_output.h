/* Lines of the ranks on our own standard output and error, whole and named: "[3] text".
 *
 * A carriage return starts the line anew, as on a terminal: of a progress bar only the last state
 * before a line feed is kept, except that rank 0's bar is shown live when we write to a terminal.
 */
#ifndef RUN_OUTPUT_H
#define RUN_OUTPUT_H

#include <stddef.h>
#include <stdint.h>

/* Longer lines are handed on in pieces. */
#define RUN_OUTPUT_LINE_BYTES 8192u

/* Where lines go. One per descriptor of ours. */
struct run_output {
    int fd;
    int is_terminal;
    int *bar_shown; /* the cursor is behind a rank's bar; both outputs may be one terminal */
    int failure;    /* errno of the write that failed; 0: none. What comes later is dropped */
};

/* One stream of one rank. Zero-initialised but for `rank` and `output`. */
struct run_stream {
    struct run_output *output;
    uint32_t rank;
    int after_cr;
    size_t n_line;
    char line[RUN_OUTPUT_LINE_BYTES];
};

void run_output_init(struct run_output *output, int fd, int *bar_shown);
void run_output_feed(struct run_stream *stream, const char *bytes, size_t n_bytes);
/* Hands on a last line without its line feed. */
void run_output_end(struct run_stream *stream);
/* Leaves a bar behind, so that our own lines start on a fresh line. */
void run_output_settle(struct run_output *output);

#endif
