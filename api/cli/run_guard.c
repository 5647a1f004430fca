#include "run_guard.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "run_options.h"

/* Smaller than PIPE_BUF, so it is written whole. */
struct run_guard_message {
    pid_t group; /* to watch; its negative: to forget. 0: a socket, or without one the end */
    char socket[RUN_GUARD_PATH_BYTES];
};

static void run_guard_note(pid_t *groups, size_t *n_groups, pid_t group) {
    if (group > 0 && *n_groups < RUN_MAX_RANKS) {
        groups[(*n_groups)++] = group;
        return;
    }
    for (size_t i = 0; i < *n_groups; i++) {
        if (groups[i] == -group) {
            groups[i] = groups[--*n_groups];
            return;
        }
    }
}

static void run_guard_clean(char *socket) {
    char *slash = strrchr(socket, '/');
    if (slash != NULL) {
        (void)unlink(socket);
        *slash = '\0';
        (void)rmdir(socket);
    }
}

static _Noreturn void run_guard_child(int fd) {
    pid_t groups[RUN_MAX_RANKS];
    char socket[RUN_GUARD_PATH_BYTES] = "";
    size_t n_groups = 0;
    struct run_guard_message message;
    sigset_t all;
    ssize_t n;
    /* A signal for the terminal's group or for all of the user's must not end the last resort. */
    (void)setsid();
    (void)sigfillset(&all);
    (void)sigprocmask(SIG_SETMASK, &all, NULL);
    /* Else whoever waits for the end of our output would wait for the guard too. */
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int target = STDIN_FILENO; null_fd >= 0 && target <= STDERR_FILENO; target++) {
        (void)dup2(null_fd, target);
    }
    for (;;) {
        n = read(fd, &message, sizeof(message));
        if (n == (ssize_t)sizeof(message) && message.group != 0) {
            run_guard_note(groups, &n_groups, message.group);
        } else if (n == (ssize_t)sizeof(message) && message.socket[0] != '\0') {
            memcpy(socket, message.socket, sizeof(socket));
        } else if (n >= 0 || errno != EINTR) {
            break;
        }
    }
    if (n == 0) {
        for (size_t i = 0; i < n_groups; i++) {
            (void)kill(-groups[i], SIGKILL);
        }
        run_guard_clean(socket);
    }
    _exit(0);
}

enum deft_status run_guard_start(struct run_guard *guard, struct deft_error *error) {
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return deft_fail(error, DEFT_IO, errno, "a pipe cannot be made: %s", strerror(errno));
    }
    pid_t pid = fork();
    if (pid == 0) {
        (void)close(fds[1]);
        run_guard_child(fds[0]);
    }
    int code = errno;
    (void)close(fds[0]);
    if (pid < 0) {
        (void)close(fds[1]);
        return deft_fail(error, DEFT_IO, code, "a process cannot be made: %s", strerror(code));
    }
    *guard = (struct run_guard){.fd = fds[1], .pid = pid};
    return DEFT_OK;
}

static void run_guard_tell(const struct run_guard *guard, pid_t group, const char *socket) {
    if (guard->fd >= 0) {
        struct run_guard_message message = {.group = group};
        (void)snprintf(message.socket, sizeof(message.socket), "%s", socket);
        ssize_t n = write(guard->fd, &message, sizeof(message));
        (void)n; /* a guard that was killed cannot help, the job goes on */
    }
}

void run_guard_watch(struct run_guard *guard, pid_t group) {
    run_guard_tell(guard, group, "");
}

void run_guard_release(struct run_guard *guard, pid_t group) {
    run_guard_tell(guard, -group, "");
}

void run_guard_watch_socket(struct run_guard *guard, const char *path) {
    run_guard_tell(guard, 0, path);
}

void run_guard_stop(struct run_guard *guard) {
    if (guard->fd >= 0) {
        run_guard_tell(guard, 0, "");
        (void)close(guard->fd);
        (void)waitpid(guard->pid, NULL, 0);
        guard->fd = -1;
    }
}
