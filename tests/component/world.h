/* A world of ranks that are threads of this process, for tests of libdeft over `mem` links. */
#ifndef WORLD_H
#define WORLD_H

#include <stdint.h>
#include <stdio.h>

#include <deft/deft.h>

#include "link/mem_fabric.h"

#define WORLD_MAX_RANKS 8

struct world {
    int32_t n_ranks;
    uint32_t n_links;
    struct mem_fabric *fabrics[4];
    char links[256];
    void *shared; /* the test's own, the same for all ranks */
    struct world_gather *gather;
};

struct world_rank {
    struct world *world;
    int32_t rank;
    struct deft_runtime *rt; /* opened, not committed */
};

typedef void (*world_fn)(struct world_rank *self);

/* Runs `body` on n_ranks threads, each with an open runtime; closes the runtimes behind it. A body
 * reports by writing into world->shared; it must not use cmocka's assertions, which do not work on
 * other threads. `faults` may be NULL. `capabilities` goes into the options.
 * `links` NULL: n_links mem fabrics with `faults`; otherwise what goes into deft_options.links. */
void world_run(int32_t n_ranks, const char *links, uint32_t n_links,
               const struct mem_faults *faults, uint32_t capabilities, void *shared, world_fn body);

/* The same; `tune` changes each rank's options before they are opened. NULL: nothing to change. */
typedef void (*world_tune_fn)(const struct world_rank *self, struct deft_options *options);
void world_run_tuned(int32_t n_ranks, const char *links, uint32_t n_links,
                     const struct mem_faults *faults, world_tune_fn tune, void *shared,
                     world_fn body);

/* For bodies, where an assertion cannot be used: ends the process with a message. */
_Noreturn void world_abort(void);
#define WORLD_CHECK(self, condition, ...)                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            (void)fprintf(stderr, "rank %d: ", (self)->rank);                                      \
            (void)fprintf(stderr, __VA_ARGS__);                                                    \
            world_abort();                                                                         \
        }                                                                                          \
    } while (0)

#endif
