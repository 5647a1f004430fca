#include "link/link_queue.h"

#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"

static void queue_finish(struct link_op *op, enum deft_status status) {
    op->status = status;
    __atomic_store_n(&op->state, LINK_OP_DONE, __ATOMIC_RELEASE);
}

/* Called with the lock held. Ops that run now are not in the list: their threads end them. */
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

static void queue_run_one(struct link_queue_worker *worker, struct link_op *op) {
    struct link_queue *queue = worker->queue;
    struct deft_error error = {.status = DEFT_OK};
    int64_t begin_ns = clock_monotonic_ns();
    enum deft_status status = queue->run(queue->backend, worker->number, op, &error);
    int64_t end_ns = clock_monotonic_ns();
    op->end_ns = end_ns;
    if (status == DEFT_OK && op->landed != NULL) {
        op->landed(op);
    }
    (void)pthread_mutex_lock(&queue->lock);
    /* Of two ops side by side the later one is charged with what it adds. */
    op->start_ns = begin_ns > queue->busy_until_ns ? begin_ns : queue->busy_until_ns;
    op->start_ns = op->start_ns < end_ns ? op->start_ns : end_ns;
    queue->busy_until_ns = end_ns > queue->busy_until_ns ? end_ns : queue->busy_until_ns;
    queue_finish(op, status);
    if (status != DEFT_OK) {
        queue_fail(queue, &error);
    }
    (void)pthread_cond_broadcast(&queue->done);
    (void)pthread_mutex_unlock(&queue->lock);
}

/* Called with the lock held: the next op, once it is this worker's turn; NULL at the end. */
static struct link_op *queue_take(struct link_queue_worker *worker) {
    struct link_queue *queue = worker->queue;
    struct link_op *op;
    for (;;) {
        int is_turn = queue->n_taken % queue->n_workers == worker->number;
        if (queue->failure.status != DEFT_OK || (queue->stopping && queue->head == NULL)) {
            return NULL;
        }
        if (queue->head != NULL && is_turn) {
            break;
        }
        (void)pthread_cond_wait(&queue->work, &queue->lock);
    }
    op = queue->head;
    queue->head = op->next;
    if (queue->head == NULL) {
        queue->tail = NULL;
    }
    queue->n_taken++;
    (void)pthread_cond_broadcast(&queue->work); /* the turn has gone on */
    return op;
}

static void *queue_main(void *argument) {
    struct link_queue_worker *worker = argument;
    struct link_queue *queue = worker->queue;
    struct link_op *op;
    (void)pthread_mutex_lock(&queue->lock);
    while ((op = queue_take(worker)) != NULL) {
        (void)pthread_mutex_unlock(&queue->lock);
        queue_run_one(worker, op);
        (void)pthread_mutex_lock(&queue->lock);
    }
    queue->n_exited++;
    (void)pthread_cond_broadcast(&queue->done);
    (void)pthread_mutex_unlock(&queue->lock);
    return NULL;
}

static void queue_destroy(struct link_queue *queue) {
    (void)pthread_cond_destroy(&queue->done);
    (void)pthread_cond_destroy(&queue->work);
    (void)pthread_mutex_destroy(&queue->lock);
    queue->n_workers = 0;
}

enum deft_status link_queue_start(struct link_queue *queue, uint32_t n_workers,
                                  link_queue_run_fn run, void *backend, struct deft_error *error) {
    int code = 0;
    uint32_t n_started = 0;
    queue->run = run;
    queue->backend = backend;
    queue->n_workers = n_workers;
    (void)pthread_mutex_init(&queue->lock, NULL);
    (void)thread_condition_init(&queue->work);
    (void)thread_condition_init(&queue->done);
    while (code == 0 && n_started < n_workers) {
        struct link_queue_worker *worker = &queue->workers[n_started];
        worker->queue = queue;
        worker->number = n_started;
        code = thread_start(&worker->thread, queue_main, worker);
        n_started += code == 0;
    }
    if (code == 0) {
        return DEFT_OK;
    }
    (void)pthread_mutex_lock(&queue->lock);
    queue->stopping = 1;
    (void)pthread_cond_broadcast(&queue->work);
    (void)pthread_mutex_unlock(&queue->lock);
    while (n_started > 0) {
        (void)pthread_join(queue->workers[--n_started].thread, NULL);
    }
    queue_destroy(queue);
    return deft_fail(error, DEFT_NO_MEMORY, code, "the threads of a link could not be started: %s",
                     strerror(code));
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
        (void)pthread_cond_broadcast(&queue->work); /* it may be either worker's turn */
    } else {
        queue_finish(op, status);
    }
    (void)pthread_mutex_unlock(&queue->lock);
    return status;
}

enum deft_status link_queue_wait(struct link_queue *queue, struct link_op *op,
                                 int64_t deadline_ns) {
    if (link_test(op)) {
        return op->status;
    }
    enum deft_status status = DEFT_OK;
    (void)pthread_mutex_lock(&queue->lock);
    while (!link_test(op) && queue->failure.status == DEFT_OK && status == DEFT_OK) {
        if (thread_condition_wait(&queue->done, &queue->lock, deadline_ns) == ETIMEDOUT) {
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

int link_queue_settle(struct link_queue *queue, int64_t patience_ns) {
    int64_t deadline_ns = clock_monotonic_ns() + patience_ns;
    int still_runs;
    if (queue->n_workers == 0) {
        return 0;
    }
    (void)pthread_mutex_lock(&queue->lock);
    queue->stopping = 1;
    (void)pthread_cond_broadcast(&queue->work);
    while (queue->n_exited < queue->n_workers &&
           thread_condition_wait(&queue->done, &queue->lock, deadline_ns) != ETIMEDOUT) {
    }
    still_runs = queue->n_exited < queue->n_workers;
    (void)pthread_mutex_unlock(&queue->lock);
    return still_runs;
}

int link_queue_stop(struct link_queue *queue, int64_t patience_ns) {
    int64_t deadline_ns = INT64_MAX;
    int stuck;
    if (queue->n_workers == 0) {
        return 0;
    }
    (void)pthread_mutex_lock(&queue->lock);
    queue->stopping = 1;
    (void)pthread_cond_broadcast(&queue->work);
    while (queue->n_exited < queue->n_workers) {
        if (queue->failure.status != DEFT_OK && deadline_ns == INT64_MAX) {
            deadline_ns = clock_monotonic_ns() + patience_ns;
        }
        if (thread_condition_wait(&queue->done, &queue->lock, deadline_ns) == ETIMEDOUT) {
            break;
        }
    }
    stuck = queue->n_exited < queue->n_workers;
    (void)pthread_mutex_unlock(&queue->lock);
    if (stuck) {
        for (uint32_t i = 0; i < queue->n_workers; i++) {
            (void)pthread_detach(queue->workers[i].thread);
        }
        return 1; /* a thread still uses the lock and conditions: they stay */
    }
    for (uint32_t i = 0; i < queue->n_workers; i++) {
        (void)pthread_join(queue->workers[i].thread, NULL);
    }
    queue_destroy(queue);
    return 0;
}
