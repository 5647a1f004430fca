/* A small process that outlives `deft run` by a moment when that is killed.
 *
 * The kernel ends our direct children then, but not what they have started (a wrapper script's
 * program, data loaders). The guard holds the end of a pipe, knows the process groups and the
 * agent's socket, and kills and removes them when the pipe ends without a word. */
#ifndef RUN_GUARD_H
#define RUN_GUARD_H

#include <sys/types.h>

#include <deft/status.h>

/* Of a path, its end included. */
#define RUN_GUARD_PATH_BYTES 108u

struct run_guard {
    int fd; /* -1: none */
    pid_t pid;
};

/* Before any other descriptor or child is made. */
DEFT_NODISCARD enum deft_status run_guard_start(struct run_guard *guard, struct deft_error *error);
void run_guard_watch(struct run_guard *guard, pid_t group);
void run_guard_release(struct run_guard *guard, pid_t group);
/* A socket, shorter than RUN_GUARD_PATH_BYTES, which is alone in its folder; both go. */
void run_guard_watch_socket(struct run_guard *guard, const char *path);
/* Ends the guard, which leaves everything alone. */
void run_guard_stop(struct run_guard *guard);

#endif
