/* Threads that leave signals to the program's own, also inside somebody else's process, and waits
 * that end by clock_monotonic_ns. */
#ifndef THREAD_H
#define THREAD_H

#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <time.h>

/* Blocks all signals but those a fault raises, so that the program's handlers run on the program's
 * own threads and a write to a connection that has gone raises no SIGPIPE. What a thread starts
 * inherits it. */
static inline void thread_block_signals(sigset_t *out_before) {
    sigset_t all;
    (void)sigfillset(&all);
    (void)sigdelset(&all, SIGSEGV);
    (void)sigdelset(&all, SIGBUS);
    (void)sigdelset(&all, SIGFPE);
    (void)sigdelset(&all, SIGILL);
    (void)sigdelset(&all, SIGABRT);
    (void)pthread_sigmask(SIG_SETMASK, &all, out_before);
}

static inline void thread_restore_signals(const sigset_t *before) {
    (void)pthread_sigmask(SIG_SETMASK, before, NULL);
}

/* pthread_create with signals blocked in the new thread. Returns 0 or an errno. */
static inline int thread_start(pthread_t *out_thread, void *(*body)(void *), void *argument) {
    sigset_t before;
    thread_block_signals(&before);
    int code = pthread_create(out_thread, NULL, body, argument);
    thread_restore_signals(&before);
    return code;
}

/* Returns 0 or an errno. */
static inline int thread_condition_init(pthread_cond_t *out_condition) {
    pthread_condattr_t monotonic;
    int code = pthread_condattr_init(&monotonic);
    if (code == 0) {
        (void)pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        code = pthread_cond_init(out_condition, &monotonic);
        (void)pthread_condattr_destroy(&monotonic);
    }
    return code;
}

/* For a condition made above: 0 when it was signalled, perhaps for nothing, or ETIMEDOUT. */
static inline int thread_condition_wait(pthread_cond_t *condition, pthread_mutex_t *lock,
                                        int64_t until_ns) {
    const struct timespec until = {.tv_sec = until_ns / 1000000000,
                                   .tv_nsec = until_ns % 1000000000};
    return pthread_cond_timedwait(condition, lock, &until);
}

#endif
