#include "daemon_rank.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct daemon_rank *daemon_rank_new(int fd) {
    struct daemon_rank *rank = calloc(1, sizeof(*rank));
    if (rank != NULL) {
        rank->fd = fd;
    }
    return rank;
}

static void daemon_rank_free_table(struct daemon_rank *rank) {
    free(rank->tensors);
    free(rank->links);
    rank->tensors = NULL;
    rank->links = NULL;
}

void daemon_rank_free(struct daemon_rank *rank) {
    if (rank == NULL) {
        return;
    }
    (void)close(rank->fd);
    ipc_reader_done(&rank->reader);
    daemon_rank_free_table(rank);
    free(rank->out);
    free(rank);
}

static enum deft_status daemon_rank_on_hello(struct daemon_rank *rank, const void *payload,
                                             struct deft_error *error) {
    memcpy(&rank->hello, payload, sizeof(rank->hello));
    rank->tensors = calloc(rank->hello.n_tensors, sizeof(*rank->tensors));
    rank->links = calloc(rank->hello.n_links > 0 ? rank->hello.n_links : 1, sizeof(*rank->links));
    if (rank->tensors == NULL || rank->links == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the table of rank %d",
                         rank->hello.rank);
    }
    rank->phase = DAEMON_RANK_TABLE;
    return DEFT_OK;
}

static enum deft_status daemon_rank_on_tensors(struct daemon_rank *rank, const void *payload,
                                               size_t n_bytes, struct deft_error *error) {
    size_t n = n_bytes / sizeof(*rank->tensors);
    if (n > rank->hello.n_tensors - rank->n_tensors) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "rank %d sends more than the %u tensors it announced", rank->hello.rank,
                         rank->hello.n_tensors);
    }
    memcpy(rank->tensors + rank->n_tensors, payload, n_bytes);
    rank->n_tensors += (uint32_t)n;
    return DEFT_OK;
}

static enum deft_status daemon_rank_on_link(struct daemon_rank *rank, const void *payload,
                                            struct deft_error *error) {
    const struct ipc_link *link = payload;
    if (link->index >= rank->hello.n_links || (rank->links_seen & (1u << link->index)) != 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "rank %d sends link %u twice or beyond the %u it has", rank->hello.rank,
                         link->index, rank->hello.n_links);
    }
    rank->links[link->index] = *link;
    rank->links_seen |= 1u << link->index;
    return DEFT_OK;
}

static enum deft_status daemon_rank_on_ready(struct daemon_rank *rank,
                                             const struct daemon_rank_sink *sink,
                                             struct deft_error *error) {
    if (rank->n_tensors != rank->hello.n_tensors ||
        rank->links_seen != (1u << rank->hello.n_links) - 1) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "rank %d is ready with %u of %u tensors and links 0x%x of %u",
                         rank->hello.rank, rank->n_tensors, rank->hello.n_tensors, rank->links_seen,
                         rank->hello.n_links);
    }
    enum deft_status status = sink->ready(sink->context, rank, error);
    if (status == DEFT_OK) {
        rank->phase = DAEMON_RANK_READY;
        daemon_rank_free_table(rank);
    }
    return status;
}

static enum deft_status daemon_rank_dispatch(struct daemon_rank *rank,
                                             const struct daemon_rank_sink *sink, uint16_t type,
                                             const void *payload, size_t n_bytes,
                                             struct deft_error *error) {
    if ((type == IPC_HELLO) != (rank->phase == DAEMON_RANK_NEW) || type == IPC_PLAN ||
        type == IPC_COMMAND) {
        return deft_fail(error, DEFT_INVALID, 0, "a frame of type %u is not expected %s", type,
                         rank->phase == DAEMON_RANK_NEW ? "before a hello" : "from this rank");
    }
    switch (type) {
    case IPC_HELLO:
        return daemon_rank_on_hello(rank, payload, error);
    case IPC_EVENT:
        sink->record(sink->context, rank, type, payload, n_bytes);
        return DEFT_OK;
    default:
        break;
    }
    if ((type == IPC_TENSORS || type == IPC_LINK || type == IPC_READY) !=
        (rank->phase == DAEMON_RANK_TABLE)) {
        return deft_fail(error, DEFT_INVALID, 0, "rank %d sends a frame of type %u %s it is ready",
                         rank->hello.rank, type,
                         rank->phase == DAEMON_RANK_TABLE ? "before" : "after");
    }
    switch (type) {
    case IPC_TENSORS:
        return daemon_rank_on_tensors(rank, payload, n_bytes, error);
    case IPC_LINK:
        return daemon_rank_on_link(rank, payload, error);
    case IPC_READY:
        return daemon_rank_on_ready(rank, sink, error);
    default:
        sink->record(sink->context, rank, type, payload, n_bytes);
        return DEFT_OK;
    }
}

enum deft_status daemon_rank_read(struct daemon_rank *rank, const struct daemon_rank_sink *sink,
                                  struct deft_error *error) {
    enum deft_status filled = ipc_reader_fill(&rank->reader, rank->fd, error);
    uint16_t type;
    const void *payload;
    size_t n_bytes;
    int found = 0;
    /* What came before the end still counts: the last frame is usually a goodbye. */
    while ((found = ipc_reader_next(&rank->reader, &type, &payload, &n_bytes, error)) == 1) {
        enum deft_status status = daemon_rank_dispatch(rank, sink, type, payload, n_bytes, error);
        if (status != DEFT_OK) {
            return status;
        }
    }
    return found < 0 ? DEFT_INVALID : filled;
}

enum deft_status daemon_rank_queue(struct daemon_rank *rank, uint16_t type, const void *payload,
                                   size_t n_bytes) {
    struct ipc_header header = {.magic = IPC_MAGIC,
                                .version = IPC_VERSION,
                                .type = type,
                                .payload_bytes = (uint32_t)n_bytes};
    if (rank->out_begin > 0) {
        memmove(rank->out, rank->out + rank->out_begin, rank->out_end - rank->out_begin);
        rank->out_end -= rank->out_begin;
        rank->out_begin = 0;
    }
    size_t wanted_bytes = rank->out_end + sizeof(header) + n_bytes;
    if (wanted_bytes > DAEMON_RANK_OUT_BYTES) {
        return DEFT_LIMIT;
    }
    uint8_t *out = realloc(rank->out, wanted_bytes);
    if (out == NULL) {
        return DEFT_NO_MEMORY;
    }
    memcpy(out + rank->out_end, &header, sizeof(header));
    memcpy(out + rank->out_end + sizeof(header), payload, n_bytes);
    rank->out = out;
    rank->out_end = wanted_bytes;
    return DEFT_OK;
}

enum deft_status daemon_rank_write(struct daemon_rank *rank) {
    while (daemon_rank_wants_write(rank)) {
        ssize_t n = send(rank->fd, rank->out + rank->out_begin, rank->out_end - rank->out_begin,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n >= 0) {
            rank->out_begin += (size_t)n;
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            return DEFT_OK;
        } else if (errno != EINTR) {
            return DEFT_CLOSED;
        }
    }
    free(rank->out);
    rank->out = NULL;
    rank->out_begin = 0;
    rank->out_end = 0;
    return DEFT_OK;
}

int daemon_rank_wants_write(const struct daemon_rank *rank) {
    return rank->out_end > rank->out_begin;
}
