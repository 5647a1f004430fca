#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

#define CHILD_MAX_OUTPUT_BYTES (4u << 20)

static _Noreturn void child_exec(const char *const *argv, const char *const *environment,
                                 int pass_fd, int output_fd) {
    char *const *arguments;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    memcpy(&arguments, &argv, sizeof(arguments));
    for (size_t i = 0; environment != NULL && environment[i] != NULL; i++) {
        char *entry = strdup(environment[i]);
        if (entry == NULL || putenv(entry) != 0) {
            _exit(99);
        }
    }
    if (output_fd >= 0) {
        (void)dup2(output_fd, STDOUT_FILENO);
        (void)dup2(output_fd, STDERR_FILENO);
    }
    if (pass_fd == 3) {
        (void)fcntl(3, F_SETFD, 0);
    } else if (pass_fd >= 0) {
        (void)dup2(pass_fd, 3);
    }
    (void)execvp(arguments[0], arguments);
    _exit(98);
}

void child_start(struct child *child, const char *const *argv, const char *const *environment,
                 int pass_fd, int capture) {
    int fds[2] = {-1, -1};
    if (capture) {
        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    }
    *child = (struct child){.output_fd = fds[0]};
    child->output = calloc(1, CHILD_MAX_OUTPUT_BYTES);
    assert_non_null(child->output);
    child->pid = fork();
    assert_true(child->pid >= 0);
    if (child->pid == 0) {
        child_exec(argv, environment, pass_fd, fds[1]);
    }
    if (fds[1] >= 0) {
        (void)close(fds[1]);
    }
}

/* 0 at the end of the output. */
static int child_read(struct child *child, int timeout_ms) {
    struct pollfd poll_fd = {.fd = child->output_fd, .events = POLLIN};
    if (child->output_fd < 0 || child->n_output + 1 >= CHILD_MAX_OUTPUT_BYTES) {
        return 0;
    }
    if (poll(&poll_fd, 1, timeout_ms) <= 0) {
        return 1;
    }
    ssize_t n = read(child->output_fd, child->output + child->n_output,
                     CHILD_MAX_OUTPUT_BYTES - 1 - child->n_output);
    if (n > 0) {
        child->n_output += (size_t)n;
    }
    return n > 0 || (n < 0 && errno == EINTR);
}

void child_await_output(struct child *child, const char *text) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(20);
    while (strstr(child->output, text) == NULL) {
        if (clock_monotonic_ns() > until_ns || !child_read(child, 100)) {
            fail_msg("'%s' is not in the output:\n%s", text, child->output);
        }
    }
}

int child_wait(struct child *child) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(40);
    int status = 0;
    int has_output = child->output_fd >= 0;
    pid_t ended = 0;
    while (ended == 0 || has_output) {
        if (has_output) {
            has_output = child_read(child, 20);
        } else {
            struct timespec tick = {.tv_nsec = 5000000};
            (void)nanosleep(&tick, NULL);
        }
        ended = ended == 0 ? waitpid(child->pid, &status, WNOHANG) : ended;
        if (clock_monotonic_ns() > until_ns) {
            (void)kill(child->pid, SIGKILL);
            fail_msg("the program did not end; its output:\n%s", child->output);
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void child_free(struct child *child) {
    if (child->output_fd >= 0) {
        (void)close(child->output_fd);
    }
    free(child->output);
    *child = (struct child){.output_fd = -1};
}
