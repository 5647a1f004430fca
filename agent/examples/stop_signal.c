#include "stop_signal.h"

#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>

/* A signal handler has no argument of ours: these two are the only way into it. */
static _Atomic(struct sync *) stop_target;
static volatile sig_atomic_t stop_received;

static void on_signal(int number) {
    struct sync *sync = atomic_load(&stop_target);
    stop_received = number;
    if (sync != NULL) {
        sync->ops->stop_request(sync);
    }
}

static void set_handler(void (*handler)(int)) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART | SA_RESETHAND};
    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
}

void stop_signal_install(struct sync *sync) {
    stop_received = 0;
    atomic_store(&stop_target, sync);
    set_handler(on_signal);
}

void stop_signal_remove(void) {
    set_handler(SIG_DFL);
    atomic_store(&stop_target, NULL);
}

int stop_signal_received(void) {
    return stop_received;
}
