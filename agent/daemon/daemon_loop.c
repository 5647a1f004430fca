#include "daemon_loop.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/clock.h"

enum {
    DAEMON_LOOP_LISTEN,
    DAEMON_LOOP_NEWS,
    DAEMON_LOOP_SIGNAL,
    DAEMON_LOOP_OWNER,
    DAEMON_LOOP_N_FIXED,
};

static int daemon_loop_timeout_ms(const struct daemon_loop *loop) {
    int64_t deadline_ns = daemon_batch_deadline_ns(&loop->ranks->batch);
    if (deadline_ns == INT64_MAX) {
        return -1;
    }
    int64_t left_ns = deadline_ns - clock_monotonic_ns();
    return left_ns <= 0 ? 0 : (int)((left_ns + 999999) / 1000000);
}

/* 1 when the owner has closed its end, or shut it down for writing. */
static int daemon_loop_owner_gone(const struct daemon_loop *loop, short revents) {
    char byte;
    if ((revents & POLLIN) == 0) {
        return (revents & (POLLHUP | POLLERR | POLLNVAL)) != 0;
    }
    ssize_t n = read(loop->options->owner_fd, &byte, 1);
    return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

static int daemon_loop_signalled(const struct daemon_loop *loop) {
    struct signalfd_siginfo info;
    if (read(loop->signal_fd, &info, sizeof(info)) != (ssize_t)sizeof(info)) {
        return 0;
    }
    int waits = loop->options->after_ranks && loop->ranks->n_ranks > 0;
    log_line(loop->log, LOG_LEVEL_INFO, "signal %" PRIu32 " of pid %" PRIu32 ": ending%s",
             info.ssi_signo, info.ssi_pid, waits ? " once the ranks have gone" : "");
    return 1;
}

static void daemon_loop_news(struct daemon_loop *loop) {
    struct daemon_news news;
    daemon_events_take(loop->events, &news);
    daemon_ranks_news(loop->ranks, &news);
}

/* What is already in the sockets at the end still counts. */
static void daemon_loop_last_look(struct daemon_loop *loop, struct pollfd *fds) {
    daemon_ranks_accept(loop->ranks, loop->listen_fd);
    for (int i = 0; i < 16; i++) {
        size_t n = daemon_ranks_poll(loop->ranks, fds);
        if (poll(fds, n, 0) <= 0) {
            break;
        }
        daemon_ranks_serve(loop->ranks, fds, n);
    }
    daemon_ranks_flush(loop->ranks, 1);
}

enum deft_status daemon_loop_run(struct daemon_loop *loop, struct deft_error *error) {
    struct pollfd fds[DAEMON_LOOP_N_FIXED + DAEMON_RANKS_MAX];
    int ending = 0;
    int signalled = 0;
    while (!ending) {
        fds[DAEMON_LOOP_LISTEN] = (struct pollfd){.fd = loop->listen_fd, .events = POLLIN};
        fds[DAEMON_LOOP_NEWS] =
            (struct pollfd){.fd = daemon_events_fd(loop->events), .events = POLLIN};
        fds[DAEMON_LOOP_SIGNAL] = (struct pollfd){.fd = loop->signal_fd, .events = POLLIN};
        fds[DAEMON_LOOP_OWNER] = (struct pollfd){.fd = loop->options->owner_fd, .events = POLLIN};
        size_t n_ranks = daemon_ranks_poll(loop->ranks, fds + DAEMON_LOOP_N_FIXED);
        int n = poll(fds, DAEMON_LOOP_N_FIXED + n_ranks, daemon_loop_timeout_ms(loop));
        if (n < 0 && errno != EINTR) {
            return deft_fail(error, DEFT_IO, errno, "waiting for ranks failed: %s",
                             strerror(errno));
        }
        if (n > 0) {
            daemon_ranks_serve(loop->ranks, fds + DAEMON_LOOP_N_FIXED, n_ranks);
            if (fds[DAEMON_LOOP_LISTEN].revents != 0) {
                daemon_ranks_accept(loop->ranks, loop->listen_fd);
            }
            if (fds[DAEMON_LOOP_NEWS].revents != 0) {
                daemon_loop_news(loop);
            }
            signalled |= fds[DAEMON_LOOP_SIGNAL].revents != 0 && daemon_loop_signalled(loop);
            /* Ranks that the same signal has reached still have something to say. */
            ending = signalled && !(loop->options->after_ranks && loop->ranks->n_ranks > 0);
            if (fds[DAEMON_LOOP_OWNER].revents != 0 &&
                daemon_loop_owner_gone(loop, fds[DAEMON_LOOP_OWNER].revents)) {
                log_line(loop->log, LOG_LEVEL_INFO, "the owner has gone: ending");
                ending = 1;
            }
        }
        daemon_ranks_flush(loop->ranks, 0);
        if (loop->options->exit_when_done && daemon_ranks_all_gone(loop->ranks)) {
            log_line(loop->log, LOG_LEVEL_INFO, "all ranks have gone: ending");
            ending = 1;
        }
    }
    daemon_loop_last_look(loop, fds);
    return DEFT_OK;
}
