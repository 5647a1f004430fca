#include "agent_peer.h"

#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "testing.h"

struct connection {
    int fd; /* -1: gone */
    int32_t rank;
    struct ipc_reader reader;
};

struct agent_peer {
    pthread_t thread;
    pthread_mutex_t lock;
    char socket[64];
    int listen_fd;
    uint32_t n_ranks;
    uint32_t n_connections;
    struct connection connections[AGENT_PEER_MAX_RANKS];
    struct agent_peer_rank ranks[AGENT_PEER_MAX_RANKS];
    uint8_t *plan; /* payload of the newest */
    size_t plan_bytes;
};

/* Other threads cannot use assertions. */
static void must(int condition, const char *what) {
    if (!condition) {
        (void)fprintf(stderr, "agent_peer: %s\n", what);
        (void)fflush(NULL);
        _exit(1);
    }
}

static void send_plan(const struct agent_peer *peer, const struct connection *connection) {
    if (connection->fd >= 0 && peer->plan != NULL) {
        /* A rank that is about to leave need not read. */
        deft_ignore(
            ipc_send(connection->fd, IPC_PLAN, peer->plan, peer->plan_bytes, NULL, 0, 10000, NULL));
    }
}

static void take(struct agent_peer *peer, struct connection *connection, uint16_t type,
                 const void *payload, size_t n_bytes) {
    if (type == IPC_HELLO) {
        const struct ipc_hello *hello = payload;
        must(hello->rank >= 0 && (uint32_t)hello->rank < peer->n_ranks, "a stranger says hello");
        connection->rank = hello->rank;
        peer->ranks[hello->rank].hello = *hello;
        return;
    }
    must(connection->rank >= 0, "the first frame is no hello");
    struct agent_peer_rank *rank = &peer->ranks[connection->rank];
    if (type == IPC_READY) {
        send_plan(peer, connection);
    } else if (type == IPC_EVENT) {
        must(rank->n_events < AGENT_PEER_MAX_EVENTS, "too many events");
        memcpy(&rank->events[rank->n_events++], payload, sizeof(struct ipc_event));
    } else if (type == IPC_ITERATIONS) {
        size_t n = n_bytes / sizeof(struct ipc_iteration);
        must(rank->n_iterations + n <= AGENT_PEER_MAX_ITERATIONS, "too many iterations");
        memcpy(&rank->iterations[rank->n_iterations], payload, n_bytes);
        rank->n_iterations += (uint32_t)n;
    }
}

static void serve(struct agent_peer *peer, struct connection *connection) {
    uint16_t type;
    const void *payload;
    size_t n_bytes;
    int next;
    enum deft_status status = ipc_reader_fill(&connection->reader, connection->fd, NULL);
    while ((next = ipc_reader_next(&connection->reader, &type, &payload, &n_bytes, NULL)) == 1) {
        take(peer, connection, type, payload, n_bytes);
    }
    must(next == 0, "a rank sends a malformed frame");
    if (status != DEFT_OK) {
        (void)close(connection->fd);
        connection->fd = -1;
    }
}

static uint32_t collect(const struct agent_peer *peer, struct pollfd *polled) {
    uint32_t n_open = 0;
    polled[0] = (struct pollfd){.fd = peer->listen_fd, .events = POLLIN};
    for (uint32_t i = 0; i < peer->n_connections; i++) {
        polled[i + 1] = (struct pollfd){.fd = peer->connections[i].fd, .events = POLLIN};
        n_open += peer->connections[i].fd >= 0;
    }
    return n_open;
}

static void *agent_main(void *argument) {
    struct agent_peer *peer = argument;
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(60);
    for (;;) {
        struct pollfd polled[AGENT_PEER_MAX_RANKS + 1];
        uint32_t n = peer->n_connections;
        if (collect(peer, polled) == 0 && n == peer->n_ranks) {
            return NULL;
        }
        must(clock_monotonic_ns() < until_ns, "the ranks neither come nor go");
        (void)poll(polled, n + 1, 100);
        (void)pthread_mutex_lock(&peer->lock);
        for (uint32_t i = 0; i < n; i++) {
            if (polled[i + 1].revents != 0) {
                serve(peer, &peer->connections[i]);
            }
        }
        if (polled[0].revents != 0 && n < peer->n_ranks) {
            struct connection *fresh = &peer->connections[n];
            *fresh = (struct connection){.fd = -1, .rank = -1};
            peer->n_connections += ipc_accept(peer->listen_fd, &fresh->fd, NULL) == DEFT_OK;
        }
        (void)pthread_mutex_unlock(&peer->lock);
    }
}

struct agent_peer *agent_peer_start(uint32_t n_ranks) {
    struct agent_peer *peer = calloc(1, sizeof(*peer));
    assert_non_null(peer);
    assert_true(n_ranks <= AGENT_PEER_MAX_RANKS);
    peer->n_ranks = n_ranks;
    (void)snprintf(peer->socket, sizeof(peer->socket), "@agent-peer-%ld-%p", (long)getpid(),
                   (void *)peer);
    assert_int_equal(ipc_listen(peer->socket, &peer->listen_fd, NULL), DEFT_OK);
    assert_int_equal(pthread_mutex_init(&peer->lock, NULL), 0);
    assert_int_equal(pthread_create(&peer->thread, NULL, agent_main, peer), 0);
    return peer;
}

const char *agent_peer_socket(const struct agent_peer *peer) {
    return peer->socket;
}

void agent_peer_push(struct agent_peer *peer, uint64_t seq, const struct dsched_plan *plan,
                     double max_loss, double max_grad_sq) {
    const struct ipc_plan head = {.seq = seq,
                                  .hash = dsched_plan_hash(plan),
                                  .max_loss = max_loss,
                                  .max_grad_sq = max_grad_sq};
    size_t plan_bytes = dsched_plan_encode(plan, NULL, 0);
    uint8_t *payload = malloc(sizeof(head) + plan_bytes);
    must(payload != NULL, "no memory");
    memcpy(payload, &head, sizeof(head));
    (void)dsched_plan_encode(plan, payload + sizeof(head), plan_bytes);
    (void)pthread_mutex_lock(&peer->lock);
    free(peer->plan);
    peer->plan = payload;
    peer->plan_bytes = sizeof(head) + plan_bytes;
    for (uint32_t i = 0; i < peer->n_connections; i++) {
        send_plan(peer, &peer->connections[i]);
    }
    (void)pthread_mutex_unlock(&peer->lock);
}

void agent_peer_join(struct agent_peer *peer) {
    assert_int_equal(pthread_join(peer->thread, NULL), 0);
}

const struct agent_peer_rank *agent_peer_rank(const struct agent_peer *peer, uint32_t rank) {
    return &peer->ranks[rank];
}

void agent_peer_free(struct agent_peer *peer) {
    for (uint32_t i = 0; i < peer->n_connections; i++) {
        ipc_reader_done(&peer->connections[i].reader);
    }
    (void)close(peer->listen_fd);
    (void)pthread_mutex_destroy(&peer->lock);
    free(peer->plan);
    free(peer);
}
