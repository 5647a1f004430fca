#include "run_spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static int run_spawn_place(int fd, int target) {
    if (fd < 0) {
        return 0;
    }
    if (fd == target) {
        return fcntl(fd, F_SETFD, 0);
    }
    return dup2(fd, target) < 0 ? -1 : 0;
}

/* In the child: only async-signal-safe calls until exec. */
static void run_spawn_reset_signals(void) {
    sigset_t none;
    for (int number = 1; number < NSIG; number++) {
        (void)signal(number, SIG_DFL);
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

static _Noreturn void run_spawn_child(const struct run_spawn *spawn, pid_t parent, int report_fd) {
    /* exec does not write to its arguments, but its prototype is older than const. */
    char *const *argv = NULL;
    memcpy(&argv, &spawn->argv, sizeof(argv));
    run_spawn_reset_signals();
    int code = spawn->session ? (setsid() < 0 ? -1 : 0) : setpgid(0, 0);
    if (code == 0 && spawn->death_signal != 0) {
        code = prctl(PR_SET_PDEATHSIG, spawn->death_signal);
        if (getppid() != parent) {
            _exit(1); /* it died before the wish was known */
        }
    }
    if (code == 0 && spawn->guard != NULL) {
        run_guard_watch(spawn->guard, getpid());
    }
    int null_fd = code == 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    if (null_fd >= 0 && run_spawn_place(null_fd, STDIN_FILENO) == 0 &&
        run_spawn_place(spawn->stdout_fd, STDOUT_FILENO) == 0 &&
        run_spawn_place(spawn->stderr_fd, STDERR_FILENO) == 0 &&
        run_spawn_place(spawn->pass_fd, RUN_SPAWN_PASSED_FD) == 0) {
        (void)execvpe(argv[0], argv, spawn->environment != NULL ? spawn->environment : environ);
    }
    code = errno;
    ssize_t n = write(report_fd, &code, sizeof(code));
    (void)n;
    _exit(127);
}

/* Above the descriptors that the child rearranges. */
static int run_spawn_report_pipe(int fds[2]) {
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return -1;
    }
    int moved = fcntl(fds[1], F_DUPFD_CLOEXEC, RUN_SPAWN_PASSED_FD + 1);
    if (moved < 0) {
        (void)close(fds[0]);
        (void)close(fds[1]);
        return -1;
    }
    (void)close(fds[1]);
    fds[1] = moved;
    return 0;
}

enum deft_status run_spawn(const struct run_spawn *spawn, pid_t *out_pid,
                           struct deft_error *error) {
    int report[2];
    int code = 0;
    if (run_spawn_report_pipe(report) != 0) {
        return deft_fail(error, DEFT_IO, errno, "'%.100s' cannot be started: %s", spawn->argv[0],
                         strerror(errno));
    }
    pid_t parent = getpid();
    pid_t pid = fork();
    if (pid == 0) {
        run_spawn_child(spawn, parent, report[1]);
    }
    int fork_code = errno;
    (void)close(report[1]);
    /* Ends with exec, which closes the pipe, or with the reason why there was none. */
    ssize_t n;
    do {
        n = pid > 0 ? read(report[0], &code, sizeof(code)) : 0;
    } while (n < 0 && errno == EINTR);
    (void)close(report[0]);
    if (pid < 0) {
        return deft_fail(error, DEFT_IO, fork_code, "'%.100s' cannot be started: %s",
                         spawn->argv[0], strerror(fork_code));
    }
    if (n == (ssize_t)sizeof(code)) {
        (void)waitpid(pid, NULL, 0);
        if (spawn->guard != NULL) {
            run_guard_release(spawn->guard, pid);
        }
        return deft_fail(error, code == ENOENT ? DEFT_NOT_FOUND : DEFT_IO, code,
                         "'%.100s' cannot be run: %s", spawn->argv[0], strerror(code));
    }
    *out_pid = pid;
    return DEFT_OK;
}
