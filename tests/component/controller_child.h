/* deft-controller as a process of its own, with a database in a folder of its own. Compiled with
 * DEFT_CONTROLLER, the program's path. */
#ifndef CONTROLLER_CHILD_H
#define CONTROLLER_CHILD_H

#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

struct controller {
    const char *const *options; /* behind --port 0 --db FILE --mode auto; NULL-terminated or NULL */
    char dir[64];
    char db[96];
    pid_t pid;
    int log_fd; /* its standard error */
    uint16_t port;
    rlim_t file_bytes; /* 0: no limit on the size of its files */
};

/* Makes the folder, without starting anything. */
void controller_child_prepare(struct controller *c, const char *const *options);
/* Starts it and waits until it listens. */
void controller_child_launch(struct controller *c);
/* Starts it without waiting for anything. */
void controller_child_spawn(struct controller *c);
/* Sends the signal and waits for the end; the status of waitpid. */
int controller_child_halt(struct controller *c, int signal_number);
/* Ends it in order, and removes the folder. */
void controller_child_stop(struct controller *c);
/* The same for one that has ended already. */
void controller_child_clean(struct controller *c);

/* Reads its log up to the line with `needle`; returns what was read, malloc'ed. */
char *controller_child_await_log(const struct controller *c, const char *needle);

#endif
