#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/thread.h"
#include "runtime/star_io.h"
#include "runtime/star_state.h"

/* A goodbye or an alarm is a few hundred bytes into an empty socket buffer. */
#define STAR_WATCH_SEND_NS INT64_C(500000000)

static void star_watch_alarm(struct star *star, int32_t about, const struct deft_error *reason) {
    int64_t deadline_ns = clock_monotonic_ns() + STAR_WATCH_SEND_NS;
    if (star->rank == 0) {
        for (int32_t r = 1; r < star->n_ranks; r++) {
            if (r != about && star->peers[r].fd >= 0) {
                deft_ignore(star_io_send(star->peers[r].fd, STAR_IO_LOST, reason->text,
                                         strlen(reason->text) + 1, deadline_ns, NULL));
            }
        }
    }
    star->on_lost(star->context, reason);
}

/* Reads one message of a peer. Returns 1 when the watch is over: somebody is lost. */
static int star_watch_message(struct star *star, int32_t rank) {
    struct star_peer *peer = &star->peers[rank];
    struct star_io_header header;
    struct deft_error why = {.status = DEFT_OK};
    struct deft_error reason = {.status = DEFT_OK};
    char text[STAR_IO_TEXT_BYTES] = "";
    int64_t deadline_ns = clock_monotonic_ns() + STAR_WATCH_SEND_NS;
    enum deft_status status = star_io_header(peer->fd, &header, deadline_ns, &why);
    if (status == DEFT_OK && header.n_bytes < sizeof(text)) {
        status = star_io_body(peer->fd, text, (size_t)header.n_bytes, deadline_ns, &why);
    }
    text[sizeof(text) - 1] = '\0';
    if (status == DEFT_OK && header.type == STAR_IO_BYE) {
        (void)pthread_mutex_lock(&star->lock);
        peer->departed = 1;
        star->departed = rank;
        (void)pthread_cond_broadcast(&star->changed);
        (void)pthread_mutex_unlock(&star->lock);
        return 0;
    }
    if (status == DEFT_OK && header.type == STAR_IO_LOST) {
        (void)deft_fail(&reason, DEFT_PEER_LOST, 0, "%s", text);
    } else if (status == DEFT_OK && header.type == STAR_IO_FAIL) {
        (void)deft_fail(&reason, DEFT_PEER_LOST, 0, "%s ended: %s", peer->name, text);
    } else if (peer->departed) {
        (void)close(peer->fd);
        peer->fd = -1;
        return 0;
    } else {
        (void)deft_fail(&reason, DEFT_PEER_LOST, why.backend_code, "%s is gone: %s", peer->name,
                        why.text);
    }
    star_watch_alarm(star, rank, &reason);
    return 1;
}

static void *star_watch_main(void *argument) {
    struct star *star = argument;
    struct pollfd *polled = calloc((size_t)star->n_ranks + 1, sizeof(*polled));
    int over = polled == NULL;
    while (!over) {
        for (int32_t r = 0; r < star->n_ranks; r++) {
            polled[r] = (struct pollfd){.fd = star->peers[r].fd, .events = POLLIN};
        }
        polled[star->n_ranks] = (struct pollfd){.fd = star->wake_fd, .events = POLLIN};
        if (poll(polled, (nfds_t)star->n_ranks + 1, -1) < 0 && errno != EINTR) {
            break;
        }
        for (int32_t r = 0; r < star->n_ranks && !over; r++) {
            if (polled[r].revents != 0) {
                over = star_watch_message(star, r);
            }
        }
        over = over || polled[star->n_ranks].revents != 0;
    }
    free(polled);
    (void)pthread_mutex_lock(&star->lock);
    star->over = 1;
    (void)pthread_cond_broadcast(&star->changed);
    (void)pthread_mutex_unlock(&star->lock);
    return NULL;
}

enum deft_status star_watch(struct star *star, star_lost_fn on_lost, void *context,
                            struct deft_error *error) {
    if (star->n_ranks == 1) {
        return DEFT_OK;
    }
    star->on_lost = on_lost;
    star->context = context;
    star->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (star->wake_fd < 0) {
        return deft_fail(error, DEFT_IO, errno, "the watch over the ranks cannot start: %s",
                         strerror(errno));
    }
    int code = thread_start(&star->thread, star_watch_main, star);
    if (code != 0) {
        return deft_fail(error, DEFT_NO_MEMORY, code, "the watch over the ranks cannot start: %s",
                         strerror(code));
    }
    star->watching = 1;
    return DEFT_OK;
}

int32_t star_departed(struct star *star) {
    (void)pthread_mutex_lock(&star->lock);
    int32_t rank = star->departed;
    (void)pthread_mutex_unlock(&star->lock);
    return rank;
}

static void star_tell_all(struct star *star, uint32_t type, const char *text) {
    int64_t deadline_ns = clock_monotonic_ns() + STAR_WATCH_SEND_NS;
    size_t n_bytes = text != NULL ? strnlen(text, STAR_IO_TEXT_BYTES - 2) + 1 : 0;
    for (int32_t r = 0; r < star->n_ranks; r++) {
        if (star->peers[r].fd >= 0) {
            /* A peer that has gone needs no goodbye. */
            deft_ignore(star_io_send(star->peers[r].fd, type, text, n_bytes, deadline_ns, NULL));
        }
    }
}

static int star_all_departed(const struct star *star) {
    if (star->rank != 0) {
        return star->peers[0].departed;
    }
    for (int32_t r = 1; r < star->n_ranks; r++) {
        if (!star->peers[r].departed) {
            return 0;
        }
    }
    return 1;
}

void star_leave(struct star *star, int64_t patience_ns) {
    if (star == NULL || !star->watching) {
        return;
    }
    int64_t until_ns = clock_monotonic_ns() + patience_ns;
    if (star->rank != 0) {
        star_tell_all(star, STAR_IO_BYE, NULL);
    }
    (void)pthread_mutex_lock(&star->lock);
    while (!star->over && !star_all_departed(star) &&
           thread_condition_wait(&star->changed, &star->lock, until_ns) != ETIMEDOUT) {
    }
    (void)pthread_mutex_unlock(&star->lock);
    if (star->rank == 0) {
        star_tell_all(star, STAR_IO_BYE, NULL);
    }
    star->said_goodbye = 1;
}

void star_close(struct star *star, const struct deft_error *failure) {
    if (star == NULL) {
        return;
    }
    if (star->watching) {
        uint64_t one = 1;
        ssize_t n = write(star->wake_fd, &one, sizeof(one));
        (void)n; /* an eventfd takes a one unless it is full, and then it is readable anyway */
        (void)pthread_join(star->thread, NULL);
    }
    if (failure != NULL) {
        star_tell_all(star, STAR_IO_FAIL, failure->text);
    } else if (!star->said_goodbye) {
        star_tell_all(star, STAR_IO_BYE, NULL);
    }
    for (int32_t r = 0; r < star->n_ranks; r++) {
        if (star->peers[r].fd >= 0) {
            (void)shutdown(star->peers[r].fd, SHUT_WR);
            (void)close(star->peers[r].fd);
        }
    }
    if (star->wake_fd >= 0) {
        (void)close(star->wake_fd);
    }
    (void)pthread_cond_destroy(&star->changed);
    (void)pthread_mutex_destroy(&star->lock);
    free(star->peers);
    free(star);
}
