/* Threads of a library inside somebody else's process. */
#ifndef THREAD_H
#define THREAD_H

#include <pthread.h>
#include <signal.h>

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

#endif
