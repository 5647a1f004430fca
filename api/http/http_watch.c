#include "http_watch.h"

#include <string.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/thread.h"

/* Deadlines are looked at this often within one patience. */
#define WATCH_LOOKS 8

/* Nothing is left to be read, and nothing will come. */
static int watch_has_gone(const struct http_conn *conn) {
    char byte;
    return conn->step == HTTP_STEP_READ && recv(conn->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

/* With the lock held. */
static void watch_look(struct http_watch *watch, int64_t now_ns) {
    for (struct http_conn *conn = watch->first; conn != NULL; conn = conn->next) {
        if (conn->step == HTTP_STEP_OURS) {
            continue;
        }
        int is_late = now_ns > conn->deadline_ns;
        if (is_late || watch_has_gone(conn)) {
            conn->step = HTTP_STEP_OURS; /* no more of it */
            watch->n_too_slow += (uint64_t)is_late;
            (void)shutdown(conn->fd, SHUT_RDWR);
        }
    }
}

static void *watch_run(void *context) {
    struct http_watch *watch = context;
    (void)pthread_mutex_lock(&watch->lock);
    while (!watch->stopping) {
        int64_t until_ns = clock_monotonic_ns() + watch->patience_ns / WATCH_LOOKS;
        (void)thread_condition_wait(&watch->wake, &watch->lock, until_ns);
        watch_look(watch, clock_monotonic_ns());
    }
    (void)pthread_mutex_unlock(&watch->lock);
    return NULL;
}

enum deft_status http_watch_start(struct http_watch *watch, int64_t patience_ns,
                                  struct deft_error *error) {
    *watch = (struct http_watch){.patience_ns = patience_ns};
    (void)pthread_mutex_init(&watch->lock, NULL);
    (void)thread_condition_init(&watch->wake);
    int code = thread_start(&watch->thread, watch_run, watch);
    if (code != 0) {
        (void)pthread_cond_destroy(&watch->wake);
        (void)pthread_mutex_destroy(&watch->lock);
        return deft_fail(error, DEFT_IO, code, "connections cannot be watched: %s",
                         strerrordesc_np(code));
    }
    watch->has_thread = 1;
    return DEFT_OK;
}

void http_watch_stop(struct http_watch *watch) {
    if (watch->has_thread) {
        (void)pthread_mutex_lock(&watch->lock);
        watch->stopping = 1;
        (void)pthread_cond_signal(&watch->wake);
        (void)pthread_mutex_unlock(&watch->lock);
        (void)pthread_join(watch->thread, NULL);
        (void)pthread_cond_destroy(&watch->wake);
        (void)pthread_mutex_destroy(&watch->lock);
        watch->has_thread = 0;
    }
}

void http_watch_add(struct http_watch *watch, struct http_conn *conn) {
    (void)pthread_mutex_lock(&watch->lock);
    conn->step = HTTP_STEP_READ;
    conn->deadline_ns = clock_monotonic_ns() + watch->patience_ns;
    conn->previous = NULL;
    conn->next = watch->first;
    if (conn->next != NULL) {
        conn->next->previous = conn;
    }
    watch->first = conn;
    (void)pthread_mutex_unlock(&watch->lock);
}

void http_watch_remove(struct http_watch *watch, struct http_conn *conn) {
    (void)pthread_mutex_lock(&watch->lock);
    if (conn->previous != NULL) {
        conn->previous->next = conn->next;
    } else {
        watch->first = conn->next;
    }
    if (conn->next != NULL) {
        conn->next->previous = conn->previous;
    }
    (void)pthread_mutex_unlock(&watch->lock);
}

void http_watch_expect(struct http_watch *watch, struct http_conn *conn, enum http_step step,
                       int64_t extra_ns) {
    (void)pthread_mutex_lock(&watch->lock);
    conn->step = step;
    conn->deadline_ns = clock_monotonic_ns() + watch->patience_ns + extra_ns;
    (void)pthread_mutex_unlock(&watch->lock);
}

uint64_t http_watch_too_slow(struct http_watch *watch) {
    (void)pthread_mutex_lock(&watch->lock);
    uint64_t n = watch->n_too_slow;
    (void)pthread_mutex_unlock(&watch->lock);
    return n;
}
