/* The agent's main thread: ranks, news, signals and the owner, until it is time to go. */
#ifndef DAEMON_LOOP_H
#define DAEMON_LOOP_H

#include <deft/status.h>

#include "daemon_events.h"
#include "daemon_ranks.h"

struct daemon_loop {
    const struct daemon_options *options;
    const struct log *log;
    struct daemon_ranks *ranks;
    struct daemon_events *events;
    int listen_fd;
    int signal_fd; /* SIGTERM and SIGINT, blocked in all threads */
};

/* Returns when a signal came, the owner's descriptor ended, or all ranks have gone and the options
 * say so. Everything the ranks had sent by then is with the uplink. */
DEFT_NODISCARD enum deft_status daemon_loop_run(struct daemon_loop *loop, struct deft_error *error);

#endif
