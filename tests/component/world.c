#include "world.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "testing.h"

/* An all-gather between threads: everybody writes, meets, reads, meets. */
struct world_gather {
    pthread_barrier_t barrier;
    uint8_t *bytes;
    size_t capacity_bytes;
    pthread_mutex_t lock;
};

static int world_allgather(void *context, const void *in, size_t n_bytes, void *out) {
    struct world_rank *self = context;
    struct world_gather *gather = self->world->gather;
    size_t total = n_bytes * (size_t)self->world->n_ranks;
    (void)pthread_mutex_lock(&gather->lock);
    if (gather->capacity_bytes < total) {
        gather->bytes = realloc(gather->bytes, total);
        gather->capacity_bytes = total;
    }
    (void)pthread_mutex_unlock(&gather->lock);
    (void)pthread_barrier_wait(&gather->barrier);
    memcpy(gather->bytes + (size_t)self->rank * n_bytes, in, n_bytes);
    (void)pthread_barrier_wait(&gather->barrier);
    memcpy(out, gather->bytes, total);
    (void)pthread_barrier_wait(&gather->barrier);
    return 0;
}

_Noreturn void world_abort(void) {
    (void)fputc('\n', stderr);
    (void)fflush(NULL);
    _exit(1);
}

struct world_thread {
    struct world_rank self;
    world_fn body;
    uint32_t capabilities;
    world_tune_fn tune;
};

static void *world_main(void *argument) {
    struct world_thread *thread = argument;
    struct world_rank *self = &thread->self;
    struct deft_error error = {.text = ""};
    struct deft_options options;
    WORLD_CHECK(self, deft_options_init(&options, &error) == DEFT_OK, "%s", error.text);
    options.rank = self->rank;
    options.n_ranks = self->world->n_ranks;
    options.job_id = "world";
    options.links = self->world->links;
    options.agent_socket = "";
    options.allgather = world_allgather;
    options.allgather_context = self;
    options.capabilities = thread->capabilities;
    if (thread->tune != NULL) {
        thread->tune(self, &options);
    }
    WORLD_CHECK(self, deft_open(&options, &self->rt, &error) == DEFT_OK, "%s", error.text);
    thread->body(self);
    (void)pthread_barrier_wait(
        &self->world->gather->barrier); /* what the star does for processes */
    deft_close(self->rt);
    return NULL;
}

static void world_run_all(int32_t n_ranks, const char *links, uint32_t n_links,
                          const struct mem_faults *faults, const struct world_thread *like,
                          void *shared) {
    struct world_gather gather = {.bytes = NULL};
    struct world world = {
        .n_ranks = n_ranks, .n_links = n_links, .shared = shared, .gather = &gather};
    struct world_thread threads[WORLD_MAX_RANKS];
    pthread_t ids[WORLD_MAX_RANKS];
    size_t length = 0;
    assert_int_equal(pthread_barrier_init(&gather.barrier, NULL, (unsigned)n_ranks), 0);
    assert_int_equal(pthread_mutex_init(&gather.lock, NULL), 0);
    (void)snprintf(world.links, sizeof(world.links), "%s", links != NULL ? links : "");
    for (uint32_t l = 0; l < n_links && links == NULL; l++) {
        assert_int_equal(mem_fabric_create(n_ranks, faults, &world.fabrics[l], NULL), DEFT_OK);
        length += (size_t)snprintf(world.links + length, sizeof(world.links) - length, "%s%s",
                                   l > 0 ? "," : "", mem_fabric_link(world.fabrics[l]));
    }
    for (int32_t r = 0; r < n_ranks; r++) {
        threads[r] = *like;
        threads[r].self = (struct world_rank){.world = &world, .rank = r};
        assert_int_equal(pthread_create(&ids[r], NULL, world_main, &threads[r]), 0);
    }
    for (int32_t r = 0; r < n_ranks; r++) {
        assert_int_equal(pthread_join(ids[r], NULL), 0);
    }
    for (uint32_t l = 0; l < n_links; l++) {
        mem_fabric_destroy(world.fabrics[l]);
    }
    free(gather.bytes);
    (void)pthread_mutex_destroy(&gather.lock);
    (void)pthread_barrier_destroy(&gather.barrier);
}

void world_run(int32_t n_ranks, const char *links, uint32_t n_links,
               const struct mem_faults *faults, uint32_t capabilities, void *shared,
               world_fn body) {
    struct world_thread like = {.body = body, .capabilities = capabilities};
    world_run_all(n_ranks, links, n_links, faults, &like, shared);
}

void world_run_tuned(int32_t n_ranks, const char *links, uint32_t n_links,
                     const struct mem_faults *faults, world_tune_fn tune, void *shared,
                     world_fn body) {
    struct world_thread like = {.body = body, .tune = tune};
    world_run_all(n_ranks, links, n_links, faults, &like, shared);
}
