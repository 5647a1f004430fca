/* The ranks of a job as child processes: started, watched, and ended together. */
#ifndef RUN_RANKS_H
#define RUN_RANKS_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <deft/status.h>

#include "run_environment.h"
#include "run_guard.h"
#include "run_output.h"

/* Time to end in order: a signal lets a rank finish its stage and drain (25 s, as the runtime
 * promises); after a rank has failed, the others cannot finish anything. */
#define RUN_RANKS_SIGNAL_GRACE_NS  INT64_C(25000000000)
#define RUN_RANKS_FAILURE_GRACE_NS INT64_C(10000000000)
/* What a rank left behind may hold its output open; then it is closed all the same. */
#define RUN_RANKS_DRAIN_NS INT64_C(1000000000)

struct run_rank {
    pid_t pid;
    int running;
    struct run_stream streams[2]; /* standard output, standard error */
    int fds[2];                   /* ours of their pipes; -1: inherited or at its end */
};

struct run_ranks {
    struct run_guard *guard;
    struct run_rank *ranks;
    uint32_t n_ranks;
    uint32_t n_running;
    struct run_output outputs[2];
    int bar_shown;
    int output_lost; /* some of what the ranks printed could not be handed on */
    int exit_code;   /* of the first rank that failed; 0: none */
    int stopping;
    int64_t kill_ns; /* monotonic; 0: not yet decided */
};

/* Starts all ranks; when one cannot start, those before it are ended at once. */
DEFT_NODISCARD enum deft_status run_ranks_start(struct run_ranks *ranks,
                                                const struct run_environment *environment,
                                                struct run_guard *guard, struct deft_error *error);
/* The pipes, for poll: `fds` holds 2 * n_ranks; returns how many were filled. */
size_t run_ranks_poll(const struct run_ranks *ranks, struct pollfd *fds);
/* Hands on what is there; `fds` are those of run_ranks_poll. */
void run_ranks_serve(struct run_ranks *ranks, const struct pollfd *fds, size_t n_fds);
/* Children that have ended: 1 if `pid` was a rank. It is still a zombie, so its process group is
 * its own: what it left behind is killed before it is reaped. */
int run_ranks_ended(struct run_ranks *ranks, pid_t pid, int exit_code);
/* Asks all ranks to end, once; they are killed after `grace_ns` (0: at once). */
void run_ranks_stop(struct run_ranks *ranks, int64_t grace_ns);
/* Kills what must be killed now. */
void run_ranks_tick(struct run_ranks *ranks, int64_t now_ns);
/* Reads the rest of the output, at most RUN_RANKS_DRAIN_NS, and closes the pipes. */
void run_ranks_drain(struct run_ranks *ranks);
/* Kills and reaps what still runs. */
void run_ranks_done(struct run_ranks *ranks);

#endif
