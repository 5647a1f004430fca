/* Starting a child so that nothing of it can outlive us. */
#ifndef RUN_SPAWN_H
#define RUN_SPAWN_H

#include <sys/types.h>

#include <deft/status.h>

#include "run_guard.h"

/* The descriptor that `pass_fd` becomes in the child. */
#define RUN_SPAWN_PASSED_FD 3

struct run_spawn {
    const char *const *argv;  /* NULL-terminated; argv[0] is looked up in PATH */
    char *const *environment; /* NULL: ours */
    int stdout_fd;            /* -1: ours */
    int stderr_fd;            /* -1: ours */
    int pass_fd;              /* -1: none */
    int death_signal;         /* what the child gets when we die; 0: nothing */
    int session;              /* 1: a session of its own; 0: a process group of its own */
    struct run_guard *guard; /* told of the child before it runs, so that no moment is left in which
                                our death would orphan what it starts; NULL: none */
};

/* The child leads its process group, reads from /dev/null and has default signal handling. Fails
 * with DEFT_NOT_FOUND when there is no such program, DEFT_IO otherwise, naming the reason. */
DEFT_NODISCARD enum deft_status run_spawn(const struct run_spawn *spawn, pid_t *out_pid,
                                          struct deft_error *error);

#endif
