#include "spank_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* What the child says instead of the agent's readiness, with errno behind. */
#define SPANK_AGENT_READY      '1'
#define SPANK_AGENT_NO_USER    'U'
#define SPANK_AGENT_NO_FILES   'F'
#define SPANK_AGENT_NO_PROGRAM 'X'
/* What a short-lived process that started the agent leaves in the socket for slurmstepd. */
#define SPANK_AGENT_WORD 'R'
/* A process has at most so many descriptors where close_range is missing. */
#define SPANK_AGENT_MOST_FDS 65536
/* Dying closes the socket a moment before the exit status is there. */
#define SPANK_AGENT_STATUS_MS 200

/* As in the kernel; libraries older than it lack them. */
#define SPANK_AGENT_P_PIDFD ((idtype_t)3)

static int64_t spank_agent_now_ns(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

static void spank_agent_close(int *fd) {
    if (*fd >= 0) {
        (void)close(*fd);
        *fd = -1;
    }
}

int spank_agent_open(struct spank_agent *agent, char why[SPANK_AGENT_WHY_BYTES]) {
    int fds[2];
    *agent = (struct spank_agent){.fd = -1, .agent_fd = -1, .pidfd = -1, .maker = getpid()};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
        (void)snprintf(why, SPANK_AGENT_WHY_BYTES, "a socket cannot be made: %s", strerror(errno));
        return -1;
    }
    agent->fd = fds[0];
    agent->agent_fd = fds[1];
    return 0;
}

/* --- in the child: only async-signal-safe calls ------------------------------------------------*/

static _Noreturn void spank_agent_give_up(int fd, char what) {
    char message[1 + sizeof(int)];
    int code = errno;
    message[0] = what;
    memcpy(message + 1, &code, sizeof(code));
    ssize_t n = send(fd, message, sizeof(message), MSG_NOSIGNAL);
    (void)n;
    _exit(127);
}

/* slurmstepd blocks and catches signals, which a program inherits in part. */
static void spank_agent_reset_signals(void) {
    sigset_t none;
    for (int number = 1; number < NSIG; number++) {
        (void)signal(number, SIG_DFL);
    }
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL);
}

/* slurmstepd is spared by the out-of-memory killer; the agent must not be. Best effort. */
static void spank_agent_be_ordinary(void) {
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        ssize_t n = write(fd, "0", 1);
        (void)n;
        (void)close(fd);
    }
}

/* For good: the real and saved user of slurmstepd are root. By system call, since the library's
 * functions take locks that another thread may have held at the fork. */
static int spank_agent_become(uid_t user, gid_t group) {
    uid_t real;
    uid_t effective;
    uid_t saved;
    int was_root = syscall(SYS_setresuid, -1, 0, -1) == 0;
    if (was_root) {
        spank_agent_be_ordinary();
    }
    if (syscall(SYS_setresgid, group, group, group) != 0 ||
        syscall(SYS_setresuid, user, user, user) != 0) {
        return -1;
    }
    if (getresuid(&real, &effective, &saved) != 0 || real != user || effective != user ||
        saved != user || user == 0 || syscall(SYS_setuid, 0) == 0) {
        errno = EPERM;
        return -1;
    }
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
}

static void spank_agent_close_from(unsigned first) {
    struct rlimit limit;
    if (syscall(SYS_close_range, first, ~0U, 0) == 0) {
        return;
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur > SPANK_AGENT_MOST_FDS) {
        limit.rlim_cur = SPANK_AGENT_MOST_FDS;
    }
    for (unsigned fd = first; fd < limit.rlim_cur; fd++) {
        (void)close((int)fd);
    }
}

/* /dev/null on 0 to 2: whoever waits for the end of the step's output must not wait for the agent.
 * Returns the descriptor of `fd` from now on. */
static int spank_agent_arrange(int fd) {
    int high = fcntl(fd, F_DUPFD_CLOEXEC, SPANK_AGENT_FD + 1);
    int null_fd = high >= 0 ? open("/dev/null", O_RDWR | O_CLOEXEC) : -1;
    if (null_fd < 0) {
        return -1;
    }
    for (int target = STDIN_FILENO; target <= STDERR_FILENO; target++) {
        if (null_fd == target ? fcntl(null_fd, F_SETFD, 0) != 0 : dup2(null_fd, target) < 0) {
            return -1;
        }
    }
    if (dup2(high, SPANK_AGENT_FD) < 0) {
        return -1;
    }
    spank_agent_close_from(SPANK_AGENT_FD + 1);
    return SPANK_AGENT_FD;
}

static _Noreturn void spank_agent_child(int fd, const struct spank_agent_start *start) {
    spank_agent_reset_signals();
    /* Called as root, the groups are still root's; slurmstepd has set the user's otherwise. */
    if (geteuid() == 0 && syscall(SYS_setgroups, 0, NULL) != 0) {
        spank_agent_give_up(fd, SPANK_AGENT_NO_USER);
    }
    if (spank_agent_become(start->user, start->group) != 0) {
        spank_agent_give_up(fd, SPANK_AGENT_NO_USER);
    }
    int kept = spank_agent_arrange(fd);
    if (kept < 0) {
        spank_agent_give_up(fd, SPANK_AGENT_NO_FILES);
    }
    /* A file system must not be kept busy by whoever stands in one of its folders. */
    if (chdir("/") == 0) {
        (void)execve(start->argv[0], start->argv, start->environment);
    }
    spank_agent_give_up(kept, SPANK_AGENT_NO_PROGRAM);
}

/* --- in slurmstepd -----------------------------------------------------------------------------*/

static int spank_agent_kill(const struct spank_agent *agent) {
    return agent->pidfd >= 0 && syscall(SYS_pidfd_send_signal, agent->pidfd, SIGKILL, NULL, 0) == 0
               ? 0
               : -1;
}

/* Milliseconds until `deadline_ns`, rounded up; 0 once it has passed. */
static int spank_agent_left_ms(int64_t deadline_ns) {
    int64_t left_ns = deadline_ns - spank_agent_now_ns();
    return left_ns <= 0 ? 0 : (int)((left_ns + 999999) / 1000000);
}

/* The exit status through the pidfd, left for slurmstepd to reap; -1 where it is not to be had. */
static void spank_agent_say_end(const struct spank_agent *agent, const char *program, char *why) {
    siginfo_t info = {0};
    struct pollfd poll_fd = {.fd = agent->pidfd, .events = POLLIN};
    if (agent->pidfd >= 0 && poll(&poll_fd, 1, SPANK_AGENT_STATUS_MS) > 0 &&
        waitid(SPANK_AGENT_P_PIDFD, (id_t)agent->pidfd, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
        info.si_pid != 0) {
        (void)snprintf(why, SPANK_AGENT_WHY_BYTES,
                       "%.200s has ended with %s %d before it was ready", program,
                       info.si_code == CLD_EXITED ? "exit status" : "signal", info.si_status);
        return;
    }
    (void)snprintf(why, SPANK_AGENT_WHY_BYTES, "%.200s has ended before it was ready", program);
}

static void spank_agent_say_failure(const struct spank_agent *agent, char what,
                                    const struct spank_agent_start *start, char *why) {
    int code = 0;
    if (recv(agent->fd, &code, sizeof(code), MSG_DONTWAIT) != (ssize_t)sizeof(code)) {
        code = EPROTO;
    }
    switch (what) {
    case SPANK_AGENT_NO_PROGRAM:
        (void)snprintf(why, SPANK_AGENT_WHY_BYTES, "%.200s cannot be run: %s", start->argv[0],
                       strerror(code));
        break;
    case SPANK_AGENT_NO_USER:
        (void)snprintf(why, SPANK_AGENT_WHY_BYTES, "%.200s cannot become user %lu for good: %s",
                       start->argv[0], (unsigned long)start->user, strerror(code));
        break;
    default:
        (void)snprintf(why, SPANK_AGENT_WHY_BYTES, "%.200s cannot be started: %s", start->argv[0],
                       strerror(code));
        break;
    }
}

static int spank_agent_await(struct spank_agent *agent, const struct spank_agent_start *start,
                             int64_t patience_ns, char *why) {
    int64_t deadline_ns = spank_agent_now_ns() + patience_ns;
    struct pollfd fds[2] = {{.fd = agent->fd, .events = POLLIN},
                            {.fd = agent->pidfd, .events = POLLIN}};
    for (;;) {
        char byte = 0;
        int n = poll(fds, 2, spank_agent_left_ms(deadline_ns));
        if (n == 0) {
            (void)snprintf(why, SPANK_AGENT_WHY_BYTES, "%.200s was not ready within %lld s",
                           start->argv[0], (long long)(patience_ns / INT64_C(1000000000)));
            return -1;
        }
        if (n < 0) {
            if (errno == EINTR) {
                continue;
            }
            (void)snprintf(why, SPANK_AGENT_WHY_BYTES, "waiting for the agent failed: %s",
                           strerror(errno));
            return -1;
        }
        ssize_t got = recv(agent->fd, &byte, 1, MSG_DONTWAIT);
        if (got == 1 && byte == SPANK_AGENT_READY) {
            agent->is_ready = 1;
            return 0;
        }
        if (got == 1) {
            spank_agent_say_failure(agent, byte, start, why);
            return -1;
        }
        if (got == 0 || fds[1].revents != 0) {
            spank_agent_say_end(agent, start->argv[0], why);
            return -1;
        }
    }
}

/* For slurmstepd, when we are a process that ends before the step does. */
static void spank_agent_leave_word(const struct spank_agent *agent) {
    char byte = SPANK_AGENT_WORD;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (agent->pidfd >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof(control.bytes);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(rights), &agent->pidfd, sizeof(int));
    }
    ssize_t n = sendmsg(agent->agent_fd, &message, MSG_NOSIGNAL);
    (void)n; /* then the agent is served less well: its ranks do not hear of it */
}

/* Takes the word of such a process, if there was one. */
static void spank_agent_take_word(struct spank_agent *agent) {
    char byte = 0;
    struct iovec part = {.iov_base = &byte, .iov_len = 1};
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {0};
    struct msghdr message = {.msg_iov = &part,
                             .msg_iovlen = 1,
                             .msg_control = control.bytes,
                             .msg_controllen = sizeof(control.bytes)};
    if (agent->pidfd >= 0 || recvmsg(agent->fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) != 1 ||
        byte != SPANK_AGENT_WORD) {
        return;
    }
    agent->is_ready = 1;
    const struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
    if (rights != NULL && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
        rights->cmsg_len == CMSG_LEN(sizeof(int))) {
        memcpy(&agent->pidfd, CMSG_DATA(rights), sizeof(int));
    }
}

int spank_agent_run(struct spank_agent *agent, const struct spank_agent_start *start,
                    int64_t patience_ns, char why[SPANK_AGENT_WHY_BYTES]) {
    pid_t pid = fork();
    if (pid == 0) {
        spank_agent_child(agent->agent_fd, start);
    }
    if (pid < 0) {
        (void)snprintf(why, SPANK_AGENT_WHY_BYTES, "a process cannot be made: %s", strerror(errno));
        (void)spank_agent_stop(agent, 0);
        return -1;
    }
    /* Nobody can have reaped it: slurmstepd waits for children only after the last task's start. */
    agent->pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    if (agent->maker == getpid()) {
        spank_agent_close(&agent->agent_fd); /* so that its end is seen */
    }
    if (spank_agent_await(agent, start, patience_ns, why) != 0) {
        (void)spank_agent_stop(agent, 0);
        return -1;
    }
    if (agent->agent_fd >= 0) {
        spank_agent_leave_word(agent);
        spank_agent_close(&agent->agent_fd);
    }
    return 0;
}

int spank_agent_is_ready(const struct spank_agent *agent) {
    char byte = 0;
    return agent->fd >= 0 &&
           (agent->is_ready ||
            (recv(agent->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 1 && byte == SPANK_AGENT_WORD));
}

void spank_agent_settle(struct spank_agent *agent) {
    spank_agent_close(&agent->agent_fd);
}

/* 1 once the other end is closed, 0 when `deadline_ns` has passed. */
static int spank_agent_await_end(const struct spank_agent *agent, int64_t deadline_ns) {
    for (;;) {
        char bytes[64];
        ssize_t got = recv(agent->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
            return 1;
        }
        struct pollfd poll_fd = {.fd = agent->fd, .events = POLLIN};
        if (got < 0 && poll(&poll_fd, 1, spank_agent_left_ms(deadline_ns)) == 0) {
            return 0;
        }
    }
}

/* Leaves no zombie where it is our child; where it is not, nothing happens. */
static void spank_agent_reap(const struct spank_agent *agent) {
    siginfo_t info;
    struct pollfd poll_fd = {.fd = agent->pidfd, .events = POLLIN};
    if (agent->pidfd >= 0 && poll(&poll_fd, 1, SPANK_AGENT_STATUS_MS) > 0) {
        (void)waitid(SPANK_AGENT_P_PIDFD, (id_t)agent->pidfd, &info, WEXITED | WNOHANG);
    }
}

enum spank_agent_end spank_agent_stop(struct spank_agent *agent, int64_t grace_ns) {
    enum spank_agent_end end = SPANK_AGENT_ENDED;
    if (agent->fd < 0) {
        return SPANK_AGENT_NONE;
    }
    spank_agent_settle(agent);
    spank_agent_take_word(agent);
    (void)shutdown(agent->fd, SHUT_WR);
    if (!spank_agent_await_end(agent, spank_agent_now_ns() + grace_ns)) {
        end = spank_agent_kill(agent) == 0 ? SPANK_AGENT_KILLED : SPANK_AGENT_STUCK;
    }
    spank_agent_reap(agent);
    spank_agent_close(&agent->fd);
    spank_agent_close(&agent->pidfd);
    return end;
}
