#include "link/link_queue.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"

static void queue_finish(struct link_op *op, enum deft_status status) {
    op->status = status;
    __atomic_store_n(&op->state, LINK_OP_DONE, __ATOMIC_RELEASE);
}

/* Called with the lock held. The op that runs now, if any, is not in the list: its thread ends it.
 */
static void queue_fail(struct link_queue *queue, const struct deft_error *reason) {
    if (queue->failure.status == DEFT_OK) {
        queue->failure = *reason;
    }
    while (queue->head != NULL) {
        struct link_op *op = queue->head;
        queue->head = op->next;
        queue_finish(op, queue->failure.status);
    }
    queue->tail = NULL;
    (void)pthread_cond_broadcast(&queue->work);
    (void)pthread_cond_broadcast(&queue->done);
}

static void queue_run_one(struct link_queue *queue, struct link_op *op) {
    struct deft_error error = {.status = DEFT_OK};
    op->start_ns = clock_monotonic_ns();
    enum deft_status status = queue->run(queue->backend, op, &error);
    op->end_ns = clock_monotonic_ns();
    if (status == DEFT_OK && op->landed != NULL) {
        op->landed(op);
    }
    (void)pthread_mutex_lock(&queue->lock);
    queue_finish(op, status);
    if (status != DEFT_OK) {
        queue_fail(queue, &error);
    }
    (void)pthread_cond_broadcast(&queue->done);
    (void)pthread_mutex_unlock(&queue->lock);
}

static void *queue_main(void *argument) {
    struct link_queue *queue = argument;
    (void)pthread_mutex_lock(&queue->lock);
    for (;;) {
        while (queue->head == NULL && !queue->stopping && queue->failure.status == DEFT_OK) {
            (void)pthread_cond_wait(&queue->work, &queue->lock);
        }
        struct link_op *op = queue->head;
        if (op == NULL) {
            break;
        }
        queue->head = op->next;
        if (queue->head == NULL) {
            queue->tail = NULL;
        }
        (void)pthread_mutex_unlock(&queue->lock);
        queue_run_one(queue, op);
        (void)pthread_mutex_lock(&queue->lock);
    }
    queue->exited = 1;
    (void)pthread_cond_broadcast(&queue->done);
    (void)pthread_mutex_unlock(&queue->lock);
    return NULL;
}

static void queue_init_condition(pthread_cond_t *condition) {
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(condition, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

enum deft_status link_queue_start(struct link_queue *queue, link_queue_run_fn run, void *backend,
                                  struct deft_error *error) {
    queue->run = run;
    queue->backend = backend;
    (void)pthread_mutex_init(&queue->lock, NULL);
    queue_init_condition(&queue->work);
    queue_init_condition(&queue->done);
    int code = thread_start(&queue->thread, queue_main, queue);
    if (code != 0) {
        (void)pthread_cond_destroy(&queue->done);
        (void)pthread_cond_destroy(&queue->work);
        (void)pthread_mutex_destroy(&queue->lock);
        return deft_fail(error, DEFT_NO_MEMORY, code,
                         "the thread of a link could not be started: %s", strerror(code));
    }
    queue->started = 1;
    return DEFT_OK;
}

enum deft_status link_queue_post(struct link_queue *queue, struct link_op *op) {
    op->next = NULL;
    op->status = DEFT_OK;
    op->posted_ns = clock_monotonic_ns();
    op->start_ns = op->end_ns = op->posted_ns;
    (void)pthread_mutex_lock(&queue->lock);
    enum deft_status status = queue->failure.status;
    if (status == DEFT_OK && queue->stopping) {
        status = DEFT_STATE;
    }
    if (status == DEFT_OK) {
        __atomic_store_n(&op->state, LINK_OP_QUEUED, __ATOMIC_RELAXED);
        if (queue->tail != NULL) {
            queue->tail->next = op;
        } else {
            queue->head = op;
        }
        queue->tail = op;
        (void)pthread_cond_signal(&queue->work);
    } else {
        queue_finish(op, status);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return status;
}

static int queue_wait_until(pthread_cond_t *condition, pthread_mutex_t *lock, int64_t deadline_ns) {
    if (deadline_ns == INT64_MAX) {
        return pthread_cond_wait(condition, lock);
    }
    struct timespec until = {.tv_sec = deadline_ns / INT64_C(1000000000),
                             .tv_nsec = deadline_ns % INT64_C(1000000000)};
    return pthread_cond_timedwait(condition, lock, &until);
}

enum deft_status link_queue_wait(struct link_queue *queue, struct link_op *op,
                                 int64_t deadline_ns) {
    if (link_test(op)) {
        return op->status;
    }
    enum deft_status status = DEFT_OK;
    (void)pthread_mutex_lock(&queue->lock);
    while (!link_test(op) && queue->failure.status == DEFT_OK && status == DEFT_OK) {
        if (queue_wait_until(&queue->done, &queue->lock, deadline_ns) == ETIMEDOUT) {
            status = DEFT_TIMEOUT;
        }
    }
    if (link_test(op)) {
        status = op->status;
    } else if (queue->failure.status != DEFT_OK) {
        status = queue->failure.status;
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return status;
}

void link_queue_abort(struct link_queue *queue, const struct deft_error *reason) {
    (void)pthread_mutex_lock(&queue->lock);
    queue_fail(queue, reason);
    (void)pthread_mutex_unlock(&queue->lock);
}

void link_queue_failure(struct link_queue *queue, struct deft_error *out_error) {
    (void)pthread_mutex_lock(&queue->lock);
    *out_error = queue->failure;
    (void)pthread_mutex_unlock(&queue->lock);
}

int link_queue_stop(struct link_queue *queue, int64_t patience_ns) {
    if (!queue->started) {
        return 0;
    }
    (void)pthread_mutex_lock(&queue->lock);
    queue->stopping = 1;
    (void)pthread_cond_broadcast(&queue->work);
    int64_t deadline_ns = INT64_MAX;
    while (!queue->exited) {
        if (queue->failure.status != DEFT_OK && deadline_ns == INT64_MAX) {
            deadline_ns = clock_monotonic_ns() + patience_ns;
        }
        if (queue_wait_until(&queue->done, &queue->lock, deadline_ns) == ETIMEDOUT) {
            break;
        }
    }
    int stuck = !queue->exited;
    (void)pthread_mutex_unlock(&queue->lock);
    if (stuck) {
        (void)pthread_detach(queue->thread);
        return 1; /* the thread still uses the lock and conditions: they stay */
    }
    (void)pthread_join(queue->thread, NULL);
    (void)pthread_cond_destroy(&queue->done);
    (void)pthread_cond_destroy(&queue->work);
    (void)pthread_mutex_destroy(&queue->lock);
    queue->started = 0;
    return 0;
}
