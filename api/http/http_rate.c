#include "http_rate.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

void http_rate_set(struct http_rate *rate, uint32_t per_s) {
    int64_t interval_ns = per_s > 0 ? INT64_C(1000000000) / per_s : 0;
    __atomic_store_n(&rate->interval_ns, interval_ns, __ATOMIC_RELAXED);
}

int http_rate_init(struct http_rate *rate, uint32_t per_s, uint64_t salt) {
    memset(rate, 0, sizeof(*rate));
    (void)pthread_mutex_init(&rate->lock, NULL);
    rate->burst_ns = INT64_C(1000000000);
    rate->salt = salt;
    rate->entries = calloc(HTTP_RATE_ENTRIES, sizeof(*rate->entries));
    http_rate_set(rate, per_s);
    return rate->entries != NULL;
}

void http_rate_done(struct http_rate *rate) {
    free(rate->entries);
    (void)pthread_mutex_destroy(&rate->lock);
}

uint64_t http_rate_client(const struct sockaddr *address) {
    uint64_t client = 0;
    if (address != NULL && address->sa_family == AF_INET) {
        const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)address;
        client = ntohl(v4->sin_addr.s_addr);
    } else if (address != NULL && address->sa_family == AF_INET6) {
        const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)address;
        const uint8_t *bytes = v6->sin6_addr.s6_addr;
        if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) { /* to a socket that takes both */
            uint32_t v4 = 0;
            memcpy(&v4, bytes + 12, sizeof(v4));
            return ntohl(v4);
        }
        memcpy(&client, bytes, sizeof(client));
        client |= UINT64_C(1) << 63; /* apart from IPv4 */
    }
    return client;
}

/* The finalizer of splitmix64, a bijection: http://prng.di.unimi.it/splitmix64.c */
static uint64_t rate_mix(uint64_t x) {
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

/* With the lock held: the client's own entry, or the one that loses least when it is taken over. */
static struct http_rate_entry *rate_entry(struct http_rate *rate, uint64_t client) {
    struct http_rate_entry *best = NULL;
    uint64_t place = rate_mix(client ^ rate->salt);
    for (unsigned i = 0; i < HTTP_RATE_PROBES; i++) {
        struct http_rate_entry *entry = &rate->entries[(place + i) % HTTP_RATE_ENTRIES];
        if (entry->due_ns != 0 && entry->client == client) {
            return entry;
        }
        if (best == NULL || entry->due_ns < best->due_ns) {
            best = entry;
        }
    }
    *best = (struct http_rate_entry){.client = client, .due_ns = 0};
    return best;
}

int64_t http_rate_take(struct http_rate *rate, uint64_t client, int64_t now_ns) {
    int64_t wait_ns = 0;
    int64_t interval_ns = __atomic_load_n(&rate->interval_ns, __ATOMIC_RELAXED);
    if (interval_ns == 0) {
        return 0;
    }
    (void)pthread_mutex_lock(&rate->lock);
    struct http_rate_entry *entry = rate_entry(rate, client);
    int64_t due_ns = (entry->due_ns > now_ns ? entry->due_ns : now_ns) + interval_ns;
    if (due_ns - now_ns > rate->burst_ns) {
        wait_ns = due_ns - now_ns - rate->burst_ns; /* and what was refused costs nothing */
    } else {
        entry->due_ns = due_ns;
    }
    (void)pthread_mutex_unlock(&rate->lock);
    return wait_ns;
}
