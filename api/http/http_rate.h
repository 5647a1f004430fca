/* How often one client may ask. Pure: the time is passed in. */
#ifndef HTTP_RATE_H
#define HTTP_RATE_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Clients that are told apart at a time: an entry is given up only when it is idle or, if more than
 * HTTP_RATE_PROBES of the busy ones share a place, when it is the least busy of them. */
#define HTTP_RATE_ENTRIES 8192u
#define HTTP_RATE_PROBES  8u

struct http_rate_entry {
    uint64_t client;
    int64_t due_ns; /* when everything asked so far will have been earned */
};
struct http_rate {
    pthread_mutex_t lock;
    int64_t interval_ns; /* 0: no limit; atomic */
    int64_t burst_ns;
    uint64_t salt; /* so that nobody can choose addresses that collide */
    struct http_rate_entry *entries;
};

/* Each client may ask `per_s` times a second and that many at once. 0: always. `salt`: any random
 * number. Returns 0 when memory is short. */
int http_rate_init(struct http_rate *rate, uint32_t per_s, uint64_t salt);
/* Any thread, at any time. */
void http_rate_set(struct http_rate *rate, uint32_t per_s);
void http_rate_done(struct http_rate *rate);

/* A client is an IPv4 address or the 64-bit prefix of an IPv6 one, since a host owns a whole one of
 * those. Others are one client. */
uint64_t http_rate_client(const struct sockaddr *address);
/* 0: may ask now; otherwise nanoseconds until it may. Any thread. */
int64_t http_rate_take(struct http_rate *rate, uint64_t client, int64_t now_ns);

#endif
