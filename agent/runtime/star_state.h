/* Inside of a star, shared by star.c (meeting) and star_watch.c (watching). */
#ifndef STAR_STATE_H
#define STAR_STATE_H

#include <pthread.h>

#include "runtime/star.h"

struct star_peer {
    int fd; /* -1: no connection */
    int departed;
    char name[160]; /* "rank 1 (host, address)" */
};

struct star {
    int32_t rank;
    int32_t n_ranks;
    uint16_t port;
    int64_t timeout_ns;
    struct star_peer *peers; /* [n_ranks]; on ranks other than 0 only peers[0] is connected */
    struct deft_error failure;
    /* the watch */
    pthread_mutex_t lock; /* guards departed and over */
    pthread_cond_t changed;
    int over; /* the watch has ended */
    int said_goodbye;
    pthread_t thread;
    int watching;
    int wake_fd; /* eventfd that ends the watch */
    int32_t departed;
    star_lost_fn on_lost;
    void *context;
};

#endif
