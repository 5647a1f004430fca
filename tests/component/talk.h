/* A plain HTTP client over a socket, for tests that want to see, and to send, every byte. */
#ifndef TALK_H
#define TALK_H

#include <stddef.h>
#include <stdint.h>

struct talk_reply {
    int status; /* 0: the connection ended without an answer */
    char *head; /* status line and headers */
    char *body; /* de-chunked; zero-terminated */
    size_t n_body_bytes;
};
void talk_reply_done(struct talk_reply *reply);

int talk_connect(uint16_t port);
void talk_send(int fd, const void *bytes, size_t n_bytes);
/* Reads one answer; `is_head`: no body follows. */
void talk_receive(int fd, int is_head, struct talk_reply *out);

/* One request on a connection of its own. `body` NULL: none; otherwise JSON. */
void talk_request(uint16_t port, const char *method, const char *path, const char *body,
                  struct talk_reply *out);
/* The same with further header lines, each with its end; NULL: none. */
void talk_request_with(uint16_t port, const char *lines, const char *method, const char *path,
                       const char *body, struct talk_reply *out);
/* As talk_request, asserting the status; returns the body, malloc'ed. */
char *talk_expect(uint16_t port, const char *method, const char *path, const char *body,
                  int status);
/* Sends bytes as they are and reads one answer. */
void talk_raw(uint16_t port, const void *bytes, size_t n_bytes, struct talk_reply *out);

/* An event stream; `last_id` may be NULL. */
int talk_stream(uint16_t port, const char *path, const char *last_id);
/* Reads until `needle` has come, failing at the deadline or the stream's end; returns everything
 * read so far by this call, malloc'ed. */
char *talk_read_until(int fd, const char *needle);
/* The same, byte by byte: what comes behind `needle` is left where it is. */
char *talk_read_up_to(int fd, const char *needle);
/* Waits so long at most for anything to come, and takes it; 1 once the other side has ended. */
int talk_has_ended(int fd, int wait_ms);
/* Reads to the end of the stream; malloc'ed; NULL or "" when nothing came. */
char *talk_read_to_end(int fd);

/* The number behind "key": in flat JSON; fails when it is not there. */
double talk_number(const char *json, const char *key);

#endif
