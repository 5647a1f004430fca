#include "daemon_ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

void daemon_ranks_init(struct daemon_ranks *ranks, const struct daemon_options *options,
                       const char *agent, const struct log *log, struct daemon_uplink *uplink) {
    *ranks =
        (struct daemon_ranks){.options = options, .agent = agent, .log = log, .uplink = uplink};
}

void daemon_ranks_done(struct daemon_ranks *ranks) {
    for (size_t i = 0; i < ranks->n_ranks; i++) {
        daemon_rank_free(ranks->ranks[i]);
    }
    daemon_batch_done(&ranks->batch);
    daemon_incarnation_unref(ranks->inc);
    free(ranks->plan);
    *ranks = (struct daemon_ranks){0};
}

void daemon_ranks_accept(struct daemon_ranks *ranks, int listen_fd) {
    for (;;) {
        int fd = -1;
        struct deft_error error;
        enum deft_status status = ipc_accept(listen_fd, &fd, &error);
        if (status == DEFT_TIMEOUT) {
            return;
        }
        if (status != DEFT_OK) {
            log_line(ranks->log, LOG_LEVEL_WARNING, "a connection is refused: %s", error.text);
            if (status != DEFT_INVALID) {
                return; /* out of descriptors, say; poll will tell again */
            }
            continue;
        }
        struct daemon_rank *rank = ranks->n_ranks < DAEMON_RANKS_MAX ? daemon_rank_new(fd) : NULL;
        if (rank == NULL) {
            log_line(ranks->log, LOG_LEVEL_WARNING,
                     "a connection is refused: %zu ranks are connected, at most %u are served",
                     ranks->n_ranks, DAEMON_RANKS_MAX);
            (void)close(fd);
            continue;
        }
        ranks->ranks[ranks->n_ranks++] = rank;
    }
}

size_t daemon_ranks_poll(const struct daemon_ranks *ranks, struct pollfd *fds) {
    for (size_t i = 0; i < ranks->n_ranks; i++) {
        int wants_write = daemon_rank_wants_write(ranks->ranks[i]);
        fds[i] = (struct pollfd){.fd = ranks->ranks[i]->fd,
                                 .events = (short)(POLLIN | (wants_write ? POLLOUT : 0))};
    }
    return ranks->n_ranks;
}

/* The connected rank of this number; NULL: none. */
static const struct daemon_rank *daemon_ranks_twin(const struct daemon_ranks *ranks,
                                                   const struct daemon_rank *rank) {
    for (size_t i = 0; i < ranks->n_ranks; i++) {
        if (ranks->ranks[i]->phase == DAEMON_RANK_READY &&
            ranks->ranks[i]->hello.rank == rank->hello.rank) {
            return ranks->ranks[i];
        }
    }
    return NULL;
}

static int daemon_ranks_any_ready(const struct daemon_ranks *ranks) {
    for (size_t i = 0; i < ranks->n_ranks; i++) {
        if (ranks->ranks[i]->phase == DAEMON_RANK_READY) {
            return 1;
        }
    }
    return 0;
}

/* A new start of the job may follow the old one once its ranks have gone. */
static enum deft_status daemon_ranks_enter(struct daemon_ranks *ranks, struct daemon_rank *rank,
                                           struct deft_error *error) {
    const struct daemon_rank *twin = daemon_ranks_twin(ranks, rank);
    if (ranks->inc != NULL) {
        enum deft_status status = daemon_incarnation_suits(ranks->inc, &rank->hello, error);
        if (status == DEFT_OK && twin != NULL) {
            return deft_fail(error, DEFT_STATE, 0,
                             "rank %d (pid %d) is connected already, and pid %d says it is rank %d",
                             twin->hello.rank, twin->hello.pid, rank->hello.pid, rank->hello.rank);
        }
        if (status == DEFT_OK) {
            return daemon_incarnation_join(ranks->inc, &rank->hello, error);
        }
        if (daemon_ranks_any_ready(ranks)) {
            return status;
        }
    }
    struct daemon_incarnation *inc = NULL;
    enum deft_status status = daemon_incarnation_new(ranks->options, ranks->agent, &rank->hello,
                                                     rank->tensors, rank->links, &inc, error);
    if (status != DEFT_OK) {
        return status;
    }
    daemon_ranks_flush(ranks, 1);
    daemon_incarnation_unref(ranks->inc);
    ranks->inc = inc;
    free(ranks->plan);
    ranks->plan = NULL;
    ranks->plan_seq = 0;
    return DEFT_OK;
}

static void daemon_ranks_offer_plan(struct daemon_ranks *ranks, struct daemon_rank *rank) {
    /* One plan at a time: the newest follows once the rank has read the one before. */
    if (ranks->plan == NULL || rank->plan_seq >= ranks->plan_seq || daemon_rank_wants_write(rank)) {
        return;
    }
    if (daemon_rank_queue(rank, IPC_PLAN, ranks->plan, ranks->plan_bytes) == DEFT_OK) {
        rank->plan_seq = ranks->plan_seq; /* leaves with the next poll */
    }
}

static enum deft_status daemon_ranks_on_ready(void *context, struct daemon_rank *rank,
                                              struct deft_error *error) {
    struct daemon_ranks *ranks = context;
    const struct daemon_incarnation *before = ranks->inc;
    enum deft_status status = daemon_ranks_enter(ranks, rank, error);
    if (status == DEFT_OK) {
        status = daemon_uplink_announce(ranks->uplink, ranks->inc, error);
    }
    if (status == DEFT_OK && ranks->inc != before) {
        daemon_events_restart(ranks->events);
    }
    if (status == DEFT_OK) {
        ranks->n_ready_ever++;
        daemon_batch_alive(&ranks->batch, clock_monotonic_ns());
        log_line(ranks->log, LOG_LEVEL_INFO,
                 "rank %d of %d (pid %d) is ready: %u tensors, %u links", rank->hello.rank,
                 rank->hello.n_ranks, rank->hello.pid, rank->hello.n_tensors, rank->hello.n_links);
        daemon_ranks_offer_plan(ranks, rank);
    }
    return status;
}

static void daemon_ranks_on_event(struct daemon_ranks *ranks, struct daemon_rank *rank,
                                  const struct ipc_event *event) {
    static const struct {
        const char *what;
        enum log_level level;
    } kinds[] = {
        [IPC_EVENT_SWITCHED] = {"runs plan", LOG_LEVEL_INFO},
        [IPC_EVENT_REFUSED] = {"refused plan", LOG_LEVEL_WARNING},
        [IPC_EVENT_FINISHED] = {"has finished", LOG_LEVEL_INFO},
        [IPC_EVENT_FAILED] = {"has failed", LOG_LEVEL_WARNING},
        [IPC_EVENT_DROPPED] = {"dropped", LOG_LEVEL_INFO},
        [IPC_EVENT_FUSED] = {"has left plan", LOG_LEVEL_WARNING},
    };
    if (event->kind == IPC_EVENT_FINISHED || event->kind == IPC_EVENT_FAILED) {
        rank->finished = 1;
    }
    log_line(ranks->log, kinds[event->kind].level,
             "rank %d %s: plan %" PRIu64 ", iteration %" PRIu64 ", count %" PRIu64 "%s%.200s",
             rank->hello.rank, kinds[event->kind].what, event->plan_seq, event->iteration,
             event->count, event->text[0] != '\0' ? ": " : "", event->text);
    if (rank->phase == DAEMON_RANK_READY) {
        daemon_batch_event(&ranks->batch, (uint32_t)rank->hello.rank, event, clock_monotonic_ns());
    }
}

static void daemon_ranks_on_record(void *context, struct daemon_rank *rank, uint16_t type,
                                   const void *payload, size_t n_bytes) {
    struct daemon_ranks *ranks = context;
    struct daemon_batch *batch = &ranks->batch;
    uint32_t number = (uint32_t)rank->hello.rank;
    int64_t now_ns = clock_monotonic_ns();
    const struct ipc_readiness *readiness = payload;
    switch (type) {
    case IPC_ITERATIONS:
        daemon_batch_iterations(batch, number, payload, n_bytes / sizeof(struct ipc_iteration),
                                now_ns);
        break;
    case IPC_OPS:
        daemon_batch_ops(batch, number, payload, n_bytes / sizeof(struct ipc_op), now_ns);
        break;
    case IPC_READINESS:
        daemon_batch_readiness(batch, number, readiness, (const int64_t *)(readiness + 1), now_ns);
        break;
    case IPC_EVENT:
        daemon_ranks_on_event(ranks, rank, payload);
        break;
    default:
        break;
    }
    if (daemon_batch_deadline_ns(batch) == 0) {
        daemon_ranks_flush(ranks, 1);
    }
}

static void daemon_ranks_lose(struct daemon_ranks *ranks, size_t i, enum deft_status status,
                              const struct deft_error *error) {
    struct daemon_rank *rank = ranks->ranks[i];
    if (status != DEFT_CLOSED) {
        log_line(ranks->log, LOG_LEVEL_WARNING, "a rank's connection is closed: %s", error->text);
    }
    if (rank->phase == DAEMON_RANK_READY && !rank->finished) {
        struct ipc_event event = {.kind = IPC_EVENT_FAILED};
        (void)snprintf(event.text, sizeof(event.text),
                       "rank %d (pid %d) left its agent without a goodbye", rank->hello.rank,
                       rank->hello.pid);
        daemon_ranks_on_event(ranks, rank, &event);
    }
    daemon_rank_free(rank);
    ranks->ranks[i] = ranks->ranks[--ranks->n_ranks];
}

/* Reads and writes where poll said so, of ranks that are ready or of the others. */
static void daemon_ranks_serve_some(struct daemon_ranks *ranks, int are_ready) {
    const struct daemon_rank_sink sink = {
        .context = ranks, .ready = daemon_ranks_on_ready, .record = daemon_ranks_on_record};
    /* Backwards, because losing a rank moves the last one into its place. */
    for (size_t i = ranks->n_ranks; i-- > 0;) {
        struct daemon_rank *rank = ranks->ranks[i];
        struct deft_error error = {0};
        enum deft_status status = DEFT_OK;
        if ((rank->phase == DAEMON_RANK_READY) != are_ready) {
            continue;
        }
        if ((rank->revents & POLLOUT) != 0) {
            status = daemon_rank_write(rank);
        }
        if (status == DEFT_OK && (rank->revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
            status = daemon_rank_read(rank, &sink, &error);
        }
        if (status != DEFT_OK) {
            daemon_ranks_lose(ranks, i, status, &error);
        } else if (rank->phase == DAEMON_RANK_READY) {
            daemon_ranks_offer_plan(ranks, rank);
        }
    }
}

void daemon_ranks_serve(struct daemon_ranks *ranks, const struct pollfd *fds, size_t n_fds) {
    int are_leaving = 0;
    for (size_t i = 0; i < n_fds; i++) {
        ranks->ranks[i]->revents = fds[i].revents;
    }
    daemon_ranks_serve_some(ranks, 1);
    for (size_t i = 0; i < ranks->n_ranks; i++) {
        const struct daemon_rank *rank = ranks->ranks[i];
        are_leaving |= rank->phase == DAEMON_RANK_READY && (rank->revents & POLLHUP) != 0;
    }
    /* What a start that is over has left in its sockets belongs to it: those of the next one, whose
     * ranks come as soon as the old ones have died, wait until it is read. */
    if (!are_leaving) {
        daemon_ranks_serve_some(ranks, 0);
    }
}

static void daemon_ranks_command(struct daemon_ranks *ranks, uint32_t kind) {
    struct ipc_command command = {.kind = kind};
    log_line(ranks->log, LOG_LEVEL_INFO, "the controller wishes all ranks to %s",
             kind == IPC_COMMAND_STOP ? "stop" : "drain");
    for (size_t i = 0; i < ranks->n_ranks; i++) {
        struct daemon_rank *rank = ranks->ranks[i];
        if (rank->phase != DAEMON_RANK_READY) {
            continue;
        }
        if (daemon_rank_queue(rank, IPC_COMMAND, &command, sizeof(command)) != DEFT_OK) {
            log_line(ranks->log, LOG_LEVEL_WARNING, "rank %d does not read what it is sent",
                     rank->hello.rank);
        }
    }
}

void daemon_ranks_news(struct daemon_ranks *ranks, struct daemon_news *news) {
    if (ranks->inc == NULL || strcmp(news->key, ranks->inc->key) != 0) {
        free(news->plan);
        return;
    }
    if (news->plan_seq > ranks->plan_seq) {
        free(ranks->plan);
        ranks->plan = news->plan;
        ranks->plan_bytes = news->plan_bytes;
        ranks->plan_seq = news->plan_seq;
        for (size_t i = 0; i < ranks->n_ranks; i++) {
            if (ranks->ranks[i]->phase == DAEMON_RANK_READY) {
                daemon_ranks_offer_plan(ranks, ranks->ranks[i]);
            }
        }
    } else {
        free(news->plan);
    }
    if (news->refused_seq != 0) {
        struct ipc_event event = {.kind = IPC_EVENT_REFUSED, .plan_seq = news->refused_seq};
        (void)snprintf(event.text, sizeof(event.text), "%.*s", (int)sizeof(event.text) - 1,
                       news->refusal);
        daemon_batch_event(&ranks->batch, ranks->inc->registration.local_ranks[0], &event,
                           clock_monotonic_ns());
    }
    if (news->command != 0) {
        daemon_ranks_command(ranks, news->command);
    }
}

static void daemon_ranks_note_dropped(struct daemon_ranks *ranks) {
    uint64_t n_dropped = daemon_uplink_take_dropped(ranks->uplink) + ranks->batch.n_lost;
    ranks->batch.n_lost = 0;
    if (n_dropped > 0 && ranks->inc != NULL) {
        struct ipc_event event = {.kind = IPC_EVENT_DROPPED,
                                  .count = n_dropped,
                                  .text = "the agent could not keep these records"};
        daemon_batch_event(&ranks->batch, ranks->inc->registration.local_ranks[0], &event,
                           clock_monotonic_ns());
    }
}

void daemon_ranks_flush(struct daemon_ranks *ranks, int in_any_case) {
    struct daemon_batch *batch = &ranks->batch;
    int64_t now_ns = clock_monotonic_ns();
    if (in_any_case ? batch->first_ns == 0 : now_ns < daemon_batch_deadline_ns(batch)) {
        return;
    }
    int is_alive = daemon_ranks_any_ready(ranks);
    if (batch->first_ns != 0 || is_alive) {
        struct wire_report report;
        daemon_ranks_note_dropped(ranks);
        daemon_batch_cut(batch, &report);
        daemon_uplink_push(ranks->uplink, &report);
    }
    daemon_batch_alive(batch, is_alive ? now_ns : 0);
}

int daemon_ranks_all_gone(const struct daemon_ranks *ranks) {
    return ranks->n_ready_ever > 0 && ranks->n_ranks == 0;
}
