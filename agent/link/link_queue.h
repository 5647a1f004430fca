/* Op queue and worker threads for backends whose all-reduce is one blocking call. With several
 * workers, the i-th op posted is run by worker i modulo their number, on all ranks alike: the next
 * all-reduce is under way while one waits for its peers. */
#ifndef LINK_QUEUE_H
#define LINK_QUEUE_H

#include <pthread.h>

#include "link/link.h"

#define LINK_QUEUE_MAX_WORKERS 2u

/* Reduces one op across the ranks, blocking. Runs on the thread of `worker`, one op at a time. */
typedef enum deft_status (*link_queue_run_fn)(void *backend, uint32_t worker, struct link_op *op,
                                              struct deft_error *error);

struct link_queue_worker {
    struct link_queue *queue;
    uint32_t number;
    pthread_t thread;
};

struct link_queue {
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_cond_t done;
    struct link_queue_worker workers[LINK_QUEUE_MAX_WORKERS];
    uint32_t n_workers; /* started */
    uint32_t n_exited;
    uint64_t n_taken; /* ops, which says whose turn it is */
    int64_t busy_until_ns;
    struct link_op *head;
    struct link_op *tail;
    link_queue_run_fn run;
    void *backend;
    struct deft_error failure; /* status DEFT_OK: none */
    int stopping;
};

/* Zero-initialise before. On failure nothing is left to clean up. */
DEFT_NODISCARD enum deft_status link_queue_start(struct link_queue *queue, uint32_t n_workers,
                                                 link_queue_run_fn run, void *backend,
                                                 struct deft_error *error);
DEFT_NODISCARD enum deft_status link_queue_post(struct link_queue *queue, struct link_op *op);
DEFT_NODISCARD enum deft_status link_queue_wait(struct link_queue *queue, struct link_op *op,
                                                int64_t deadline_ns);
void link_queue_abort(struct link_queue *queue, const struct deft_error *reason);
void link_queue_failure(struct link_queue *queue, struct deft_error *out_error);
/* Waits at most `patience_ns` until all that was posted has run; posts fail from now on. Returns 1
 * when something still runs: its peers do not answer, and an abort is due before link_queue_stop.
 */
int link_queue_settle(struct link_queue *queue, int64_t patience_ns);
/* Runs what is queued, then ends the threads. When the queue has failed, waits at most
 * `patience_ns` for the running ops. Returns 1 when a thread is stuck and was left behind, else 0.
 */
int link_queue_stop(struct link_queue *queue, int64_t patience_ns);

#endif
