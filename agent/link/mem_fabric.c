#include "link/mem_fabric.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "link/link_sum.h"

#define FABRIC_MAGIC UINT64_C(0x6d656d6661627269)

/* Where the ranks meet for one op after the other. */
struct fabric_channel {
    struct link_op **present; /* [n_ranks], the op each rank brought */
    int32_t n_present;
    uint64_t round; /* number of the op that meets now */
};

struct mem_fabric {
    uint64_t magic;
    int32_t n_ranks;
    struct mem_faults faults;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct fabric_channel channels[MEM_FABRIC_CHANNELS];
    uint32_t *n_joined; /* [n_ranks] */
    struct deft_error failure;
    char name[40];
};

enum deft_status mem_fabric_create(int32_t n_ranks, const struct mem_faults *faults,
                                   struct mem_fabric **out, struct deft_error *error) {
    if (n_ranks < 1) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "a fabric of %d ranks was asked for, at least 1 is needed", n_ranks);
    }
    struct mem_fabric *fabric = calloc(1, sizeof(*fabric));
    if (fabric == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a fabric");
    }
    (void)pthread_mutex_init(&fabric->lock, NULL);
    (void)pthread_cond_init(&fabric->changed, NULL);
    int complete = (fabric->n_joined = calloc((size_t)n_ranks, sizeof(uint32_t))) != NULL;
    for (uint32_t c = 0; c < MEM_FABRIC_CHANNELS; c++) {
        fabric->channels[c].present = calloc((size_t)n_ranks, sizeof(struct link_op *));
        complete = complete && fabric->channels[c].present != NULL;
    }
    if (!complete) {
        mem_fabric_destroy(fabric);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a fabric of %d ranks", n_ranks);
    }
    fabric->magic = FABRIC_MAGIC;
    fabric->n_ranks = n_ranks;
    if (faults != NULL) {
        fabric->faults = *faults;
    }
    /* Ranks share a process, so an address is a name that needs no registry. */
    (void)snprintf(fabric->name, sizeof(fabric->name), "mem:%" PRIxPTR, (uintptr_t)fabric);
    *out = fabric;
    return DEFT_OK;
}

void mem_fabric_destroy(struct mem_fabric *fabric) {
    if (fabric == NULL) {
        return;
    }
    fabric->magic = 0;
    (void)pthread_cond_destroy(&fabric->changed);
    (void)pthread_mutex_destroy(&fabric->lock);
    for (uint32_t c = 0; c < MEM_FABRIC_CHANNELS; c++) {
        free((void *)fabric->channels[c].present);
    }
    free(fabric->n_joined);
    free(fabric);
}

const char *mem_fabric_link(const struct mem_fabric *fabric) {
    return fabric->name;
}

struct mem_fabric *mem_fabric_find(const char *name) {
    char *end = NULL;
    uintptr_t address = (uintptr_t)strtoull(name, &end, 16);
    if (address == 0 || end == name || *end != '\0' || address % sizeof(void *) != 0) {
        return NULL;
    }
    struct mem_fabric *fabric = (struct mem_fabric *)address;
    return fabric->magic == FABRIC_MAGIC ? fabric : NULL;
}

enum deft_status mem_fabric_join(struct mem_fabric *fabric, int32_t rank, uint32_t *out_channel,
                                 struct deft_error *error) {
    if (rank < 0 || rank >= fabric->n_ranks || fabric->n_joined[rank] == MEM_FABRIC_CHANNELS) {
        return deft_fail(error, DEFT_LIMIT, 0,
                         "rank %d cannot open another link on a fabric of %d ranks", rank,
                         fabric->n_ranks);
    }
    *out_channel = fabric->n_joined[rank]++; /* each rank's own entry: no lock is needed */
    return DEFT_OK;
}

static void fabric_fail(struct mem_fabric *fabric, const struct deft_error *reason) {
    if (fabric->failure.status == DEFT_OK) {
        fabric->failure = *reason;
    }
    (void)pthread_cond_broadcast(&fabric->changed);
}

void mem_fabric_abort(struct mem_fabric *fabric, const struct deft_error *reason) {
    (void)pthread_mutex_lock(&fabric->lock);
    fabric_fail(fabric, reason);
    (void)pthread_mutex_unlock(&fabric->lock);
}

/* All ranks are there and the lock is held: pairing is checked, then everybody gets the result. */
static enum deft_status fabric_meet(struct mem_fabric *fabric, struct fabric_channel *channel,
                                    struct deft_error *error) {
    struct link_op *first = channel->present[0];
    for (int32_t r = 1; r < fabric->n_ranks; r++) {
        const struct link_op *op = channel->present[r];
        if (op->elements != first->elements || op->dtype != first->dtype ||
            op->reduce != first->reduce) {
            return deft_fail(error, DEFT_MISMATCH, 0,
                             "op %" PRIu64 ": rank 0 brought %" PRIu64
                             " elements of type %d, rank %d brought %" PRIu64 " of type %d",
                             channel->round, first->elements, (int)first->dtype, r, op->elements,
                             (int)op->dtype);
        }
    }
    for (int32_t r = 1; r < fabric->n_ranks; r++) {
        if (first->reduce == LINK_SUM) {
            link_sum(first->data, channel->present[r]->data, first->elements, first->dtype);
        } else {
            link_max_i64(first->data, channel->present[r]->data, first->elements);
        }
    }
    size_t n_bytes = (size_t)first->elements * link_dtype_bytes(first->dtype);
    for (int32_t r = 1; r < fabric->n_ranks; r++) {
        memcpy(channel->present[r]->data, first->data, n_bytes);
    }
    return DEFT_OK;
}

static enum deft_status fabric_inject(struct mem_fabric *fabric, int32_t rank, uint32_t channel,
                                      uint64_t number, struct deft_error *error) {
    const struct mem_faults *faults = &fabric->faults;
    if (faults->delay_ns != NULL) {
        int64_t ns = faults->delay_ns(faults->context, rank, channel, number);
        if (ns > 0) {
            struct timespec delay = {.tv_sec = ns / INT64_C(1000000000),
                                     .tv_nsec = ns % INT64_C(1000000000)};
            (void)nanosleep(&delay, NULL);
        }
    }
    if (faults->fail != NULL && faults->fail(faults->context, rank, channel, number)) {
        return deft_fail(error, DEFT_PEER_LOST, 0, "rank %d was cut off at op %" PRIu64, rank,
                         number);
    }
    return DEFT_OK;
}

enum deft_status mem_fabric_reduce(struct mem_fabric *fabric, int32_t rank, uint32_t channel,
                                   uint64_t number, struct link_op *op, struct deft_error *error) {
    struct deft_error reason = {.status = DEFT_OK};
    enum deft_status status = fabric_inject(fabric, rank, channel, number, &reason);
    struct fabric_channel *meeting = &fabric->channels[channel];
    (void)pthread_mutex_lock(&fabric->lock);
    if (status != DEFT_OK) {
        fabric_fail(fabric, &reason);
    }
    while (fabric->failure.status == DEFT_OK && meeting->round != number) {
        (void)pthread_cond_wait(&fabric->changed, &fabric->lock);
    }
    if (fabric->failure.status == DEFT_OK) {
        meeting->present[rank] = op;
        meeting->n_present++;
        if (meeting->n_present == fabric->n_ranks) {
            meeting->n_present = 0;
            if (fabric_meet(fabric, meeting, &reason) == DEFT_OK) {
                meeting->round++;
                (void)pthread_cond_broadcast(&fabric->changed);
            } else {
                fabric_fail(fabric, &reason);
            }
        }
        while (fabric->failure.status == DEFT_OK && meeting->round == number) {
            (void)pthread_cond_wait(&fabric->changed, &fabric->lock);
        }
    }
    if (fabric->failure.status != DEFT_OK && meeting->round <= number) {
        /* A round that met before the failure is whole; this one did not meet. */
        status = fabric->failure.status;
        if (error != NULL) {
            *error = fabric->failure;
        }
    }
    (void)pthread_mutex_unlock(&fabric->lock);
    return status;
}
