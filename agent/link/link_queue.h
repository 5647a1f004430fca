/* Op queue and worker thread for backends whose all-reduce is one blocking call. */
#ifndef LINK_QUEUE_H
#define LINK_QUEUE_H

#include <pthread.h>

#include "link/link.h"

/* Reduces one op across the ranks, blocking. Runs on the queue's thread, one op at a time. */
typedef enum deft_status (*link_queue_run_fn)(void *backend, struct link_op *op,
                                              struct deft_error *error);

struct link_queue {
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t done;
    pthread_t thread;
    struct link_op *head;
    struct link_op *tail;
    link_queue_run_fn run;
    void *backend;
    struct deft_error failure; /* status DEFT_OK: none */
    int stopping;
    int exited;
    int started;
};

/* Zero-initialise before. On failure nothing is left to clean up. */
DEFT_NODISCARD enum deft_status link_queue_start(struct link_queue *queue, link_queue_run_fn run,
                                                 void *backend, struct deft_error *error);
DEFT_NODISCARD enum deft_status link_queue_post(struct link_queue *queue, struct link_op *op);
DEFT_NODISCARD enum deft_status link_queue_wait(struct link_queue *queue, struct link_op *op,
                                                int64_t deadline_ns);
void link_queue_abort(struct link_queue *queue, const struct deft_error *reason);
void link_queue_failure(struct link_queue *queue, struct deft_error *out_error);
/* Runs what is queued, then ends the thread. When the queue has failed, waits at most `patience_ns`
 * for the running op. Returns 1 when the thread is stuck and was left behind, else 0. */
int link_queue_stop(struct link_queue *queue, int64_t patience_ns);

#endif
