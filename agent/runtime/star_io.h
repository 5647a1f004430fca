/* Framed messages of the star, with deadlines. Sockets are non-blocking. */
#ifndef STAR_IO_H
#define STAR_IO_H

#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#define STAR_IO_MAGIC 0x52415453u /* "STAR" */

enum star_io_type {
    STAR_IO_HELLO = 1,  /* struct star_io_hello, rank -> 0 */
    STAR_IO_GATHER = 2, /* one rank's bytes, then everybody's */
    STAR_IO_BYE = 3,    /* leaves in order */
    STAR_IO_FAIL = 4,   /* leaves after an error: text */
    STAR_IO_LOST = 5,   /* rank 0 to all: who has gone: text */
    STAR_IO_REFUSE = 6, /* rank 0 to a newcomer: text */
};

struct star_io_header {
    uint32_t magic;
    uint32_t type;
    uint64_t n_bytes;
};

struct star_io_hello {
    int32_t rank;
    int32_t n_ranks;
    char host[64];
};

/* Texts in FAIL, LOST and REFUSE messages, cut to this. */
#define STAR_IO_TEXT_BYTES 320u

/* Takes -1. */
void star_io_close(int fd);

/* `backend_code` of the error is the errno; DEFT_CLOSED when the peer has closed, DEFT_TIMEOUT when
 * `deadline_ns` (monotonic) has passed. Texts are short: callers say who and where. */
DEFT_NODISCARD enum deft_status star_io_send(int fd, uint32_t type, const void *bytes,
                                             size_t n_bytes, int64_t deadline_ns,
                                             struct deft_error *error);
DEFT_NODISCARD enum deft_status star_io_header(int fd, struct star_io_header *out,
                                               int64_t deadline_ns, struct deft_error *error);
DEFT_NODISCARD enum deft_status star_io_body(int fd, void *out, size_t n_bytes, int64_t deadline_ns,
                                             struct deft_error *error);

/* No delay, keep-alive that notices a silent host within STAR_SILENCE_S, non-blocking,
 * close-on-exec. */
void star_io_tune(int fd);
/* 1 when `fd` has `events` or an error before the deadline. */
int star_io_poll(int fd, short events, int64_t deadline_ns);

#endif
