/* All local ranks: who is connected, which start of the job they belong to, what they get to
 * know. Main thread. */
#ifndef DAEMON_RANKS_H
#define DAEMON_RANKS_H

#include <poll.h>
#include <stddef.h>
#include <stdint.h>

#include <deft/status.h>

#include "base/log.h"
#include "daemon_batch.h"
#include "daemon_events.h"
#include "daemon_options.h"
#include "daemon_rank.h"
#include "daemon_uplink.h"

/* No host has that many accelerators or cores; more connections are refused. */
#define DAEMON_RANKS_MAX 1024u

struct daemon_ranks {
    const struct daemon_options *options;
    const char *agent;
    const struct log *log;
    struct daemon_uplink *uplink;
    struct daemon_events *events; /* set before the first rank is accepted */
    struct daemon_batch batch;
    struct daemon_incarnation *inc; /* of the ready ranks; NULL before the first */
    struct daemon_rank *ranks[DAEMON_RANKS_MAX];
    size_t n_ranks;
    size_t n_ready_ever;
    /* The newest plan of `inc`, for ranks that come (back) later. */
    uint8_t *plan;
    size_t plan_bytes;
    uint64_t plan_seq;
};

/* The pointers outlive the object. */
void daemon_ranks_init(struct daemon_ranks *ranks, const struct daemon_options *options,
                       const char *agent, const struct log *log, struct daemon_uplink *uplink);
void daemon_ranks_done(struct daemon_ranks *ranks);

/* Takes every rank that waits to connect. */
void daemon_ranks_accept(struct daemon_ranks *ranks, int listen_fd);
/* Fills one entry per rank; `fds` holds DAEMON_RANKS_MAX. */
size_t daemon_ranks_poll(const struct daemon_ranks *ranks, struct pollfd *fds);
/* Reads and writes where poll said so; `fds` are those of daemon_ranks_poll. */
void daemon_ranks_serve(struct daemon_ranks *ranks, const struct pollfd *fds, size_t n_fds);
/* Takes over what the controller sent. */
void daemon_ranks_news(struct daemon_ranks *ranks, struct daemon_news *news);
/* Hands the batch to the uplink when it is due, or in any case. */
void daemon_ranks_flush(struct daemon_ranks *ranks, int in_any_case);
/* 1 once there were ranks and all of them have gone. */
int daemon_ranks_all_gone(const struct daemon_ranks *ranks);

#endif
