/* Programs that a test starts, and never leaves behind. */
#ifndef CHILD_H
#define CHILD_H

#include <stddef.h>
#include <sys/types.h>

struct child {
    pid_t pid;
    int output_fd; /* its standard output and error, if captured; else -1 */
    char *output;  /* all of it, once child_wait has returned */
    size_t n_output;
};

/* `argv` is NULL-terminated; `environment` adds "NAME=value" entries, NULL-terminated or NULL.
 * `pass_fd` (-1: none) becomes descriptor 3. The child dies with the test. */
void child_start(struct child *child, const char *const *argv, const char *const *environment,
                 int pass_fd, int capture);
/* Reads the output until `text` is in it, within a deadline. */
void child_await_output(struct child *child, const char *text);
/* Exit status within a deadline (128 + signal); fails the test otherwise. */
int child_wait(struct child *child);
void child_free(struct child *child);

#endif
