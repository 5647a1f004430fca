#include "run_ranks.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli.h"
#include "run_spawn.h"

static enum deft_status run_ranks_pipes(struct run_ranks *ranks, struct run_rank *rank,
                                        uint32_t number, int out_child_fds[2],
                                        struct deft_error *error) {
    for (int i = 0; i < 2; i++) {
        int fds[2];
        if (pipe2(fds, O_CLOEXEC) != 0) {
            return deft_fail(error, DEFT_IO, errno, "no pipe for the output of rank %u: %s", number,
                             strerror(errno));
        }
        (void)fcntl(fds[0], F_SETFL, O_NONBLOCK);
        rank->fds[i] = fds[0];
        out_child_fds[i] = fds[1];
        rank->streams[i].output = &ranks->outputs[i];
        rank->streams[i].rank = number;
    }
    return DEFT_OK;
}

static enum deft_status run_ranks_start_one(struct run_ranks *ranks,
                                            const struct run_environment *environment,
                                            uint32_t number, struct deft_error *error) {
    struct run_rank *rank = &ranks->ranks[number];
    const struct run_options *options = environment->options;
    int child_fds[2] = {-1, -1};
    char **entries = NULL;
    enum deft_status status = run_environment_make(environment, number, &entries, error);
    if (status == DEFT_OK && options->n_ranks > 1 && !options->no_prefix) {
        status = run_ranks_pipes(ranks, rank, number, child_fds, error);
    }
    if (status == DEFT_OK) {
        const struct run_spawn spawn = {.argv = options->command,
                                        .environment = entries,
                                        .stdout_fd = child_fds[0],
                                        .stderr_fd = child_fds[1],
                                        .pass_fd = -1,
                                        .death_signal = SIGKILL,
                                        .guard = ranks->guard};
        status = run_spawn(&spawn, &rank->pid, error);
    }
    if (status == DEFT_OK) {
        rank->running = 1;
        ranks->n_running++;
    }
    for (int i = 0; i < 2; i++) {
        if (child_fds[i] >= 0) {
            (void)close(child_fds[i]);
        }
    }
    run_environment_free(entries);
    return status;
}

enum deft_status run_ranks_start(struct run_ranks *ranks, const struct run_environment *environment,
                                 struct run_guard *guard, struct deft_error *error) {
    uint32_t n = environment->options->n_ranks;
    *ranks = (struct run_ranks){.guard = guard};
    run_output_init(&ranks->outputs[0], STDOUT_FILENO, &ranks->bar_shown);
    run_output_init(&ranks->outputs[1], STDERR_FILENO, &ranks->bar_shown);
    ranks->ranks = calloc(n, sizeof(*ranks->ranks));
    if (ranks->ranks == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for %u ranks", n);
    }
    ranks->n_ranks = n;
    for (uint32_t i = 0; i < n; i++) {
        ranks->ranks[i].fds[0] = -1;
        ranks->ranks[i].fds[1] = -1;
    }
    for (uint32_t i = 0; i < n; i++) {
        enum deft_status status = run_ranks_start_one(ranks, environment, i, error);
        if (status != DEFT_OK) {
            run_ranks_stop(ranks, 0);
            return status;
        }
    }
    return DEFT_OK;
}

size_t run_ranks_poll(const struct run_ranks *ranks, struct pollfd *fds) {
    size_t n = 0;
    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        for (int j = 0; j < 2; j++) {
            if (ranks->ranks[i].fds[j] >= 0) {
                fds[n++] = (struct pollfd){.fd = ranks->ranks[i].fds[j], .events = POLLIN};
            }
        }
    }
    return n;
}

static void run_ranks_close(struct run_rank *rank, int i) {
    if (rank->fds[i] >= 0) {
        run_output_end(&rank->streams[i]);
        (void)close(rank->fds[i]);
        rank->fds[i] = -1;
    }
}

static void run_ranks_read(struct run_rank *rank, int i) {
    char bytes[16384];
    ssize_t n = read(rank->fds[i], bytes, sizeof(bytes));
    if (n > 0) {
        run_output_feed(&rank->streams[i], bytes, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        run_ranks_close(rank, i);
    }
}

/* As soon as it happens: the ranks may go on for days. */
static void run_ranks_tell_lost(struct run_ranks *ranks) {
    static const char *const names[] = {"standard output", "standard error"};
    for (int i = 0; i < 2; i++) {
        if (ranks->outputs[i].failure != 0 && (ranks->output_lost & (1 << i)) == 0) {
            ranks->output_lost |= 1 << i;
            cli_error("%s cannot be written: %s; what the ranks print there is lost from here on",
                      names[i], strerror(ranks->outputs[i].failure));
        }
    }
}

void run_ranks_serve(struct run_ranks *ranks, const struct pollfd *fds, size_t n_fds) {
    size_t at = 0;
    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        for (int j = 0; j < 2 && at < n_fds; j++) {
            if (ranks->ranks[i].fds[j] == fds[at].fd) {
                if (fds[at].revents != 0) {
                    run_ranks_read(&ranks->ranks[i], j);
                }
                at++;
            }
        }
    }
    run_ranks_tell_lost(ranks);
}

int run_ranks_ended(struct run_ranks *ranks, pid_t pid, int exit_code) {
    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        struct run_rank *rank = &ranks->ranks[i];
        if (!rank->running || rank->pid != pid) {
            continue;
        }
        (void)kill(-pid, SIGKILL);
        run_guard_release(ranks->guard, pid);
        (void)waitpid(pid, NULL, 0);
        rank->running = 0;
        ranks->n_running--;
        if (exit_code == 0) {
            return 1;
        }
        if (!ranks->stopping) {
            run_output_settle(&ranks->outputs[1]);
            if (exit_code > 128) {
                cli_error("rank %u was ended by signal %d (%s)", i, exit_code - 128,
                          strsignal(exit_code - 128));
            } else {
                cli_error("rank %u has failed with exit status %d", i, exit_code);
            }
        }
        if (ranks->exit_code == 0) {
            ranks->exit_code = exit_code;
        }
        run_ranks_stop(ranks, RUN_RANKS_FAILURE_GRACE_NS);
        return 1;
    }
    return 0;
}

static void run_ranks_signal(const struct run_ranks *ranks, int number) {
    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        if (ranks->ranks[i].running) {
            (void)kill(-ranks->ranks[i].pid, number);
        }
    }
}

void run_ranks_stop(struct run_ranks *ranks, int64_t grace_ns) {
    if (grace_ns == 0) {
        ranks->stopping = 1;
        run_ranks_signal(ranks, SIGKILL);
        return;
    }
    if (!ranks->stopping) {
        ranks->stopping = 1;
        ranks->kill_ns = clock_monotonic_ns() + grace_ns;
        run_ranks_signal(ranks, SIGTERM);
    }
}

void run_ranks_tick(struct run_ranks *ranks, int64_t now_ns) {
    if (ranks->kill_ns != 0 && now_ns >= ranks->kill_ns && ranks->n_running > 0) {
        cli_warn("%u ranks did not end when asked to and are killed", ranks->n_running);
        ranks->kill_ns = 0;
        run_ranks_signal(ranks, SIGKILL);
    }
}

void run_ranks_drain(struct run_ranks *ranks) {
    int64_t until_ns = clock_monotonic_ns() + RUN_RANKS_DRAIN_NS;
    struct pollfd *fds = calloc(2 * (size_t)ranks->n_ranks + 1, sizeof(*fds));
    while (fds != NULL) {
        size_t n = run_ranks_poll(ranks, fds);
        int64_t left_ns = until_ns - clock_monotonic_ns();
        if (n == 0 || left_ns <= 0) {
            break;
        }
        if (poll(fds, n, (int)(left_ns / 1000000) + 1) > 0) {
            run_ranks_serve(ranks, fds, n);
        }
    }
    free(fds);
    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        run_ranks_close(&ranks->ranks[i], 0);
        run_ranks_close(&ranks->ranks[i], 1);
    }
    run_ranks_tell_lost(ranks);
    run_output_settle(&ranks->outputs[0]);
    run_output_settle(&ranks->outputs[1]);
}

void run_ranks_done(struct run_ranks *ranks) {
    for (uint32_t i = 0; i < ranks->n_ranks; i++) {
        if (ranks->ranks[i].running) {
            (void)kill(-ranks->ranks[i].pid, SIGKILL);
            run_guard_release(ranks->guard, ranks->ranks[i].pid);
            (void)waitpid(ranks->ranks[i].pid, NULL, 0);
        }
        for (int j = 0; j < 2; j++) {
            if (ranks->ranks[i].fds[j] >= 0) {
                (void)close(ranks->ranks[i].fds[j]);
            }
        }
    }
    free(ranks->ranks);
    *ranks = (struct run_ranks){0};
}
