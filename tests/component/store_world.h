/* A store in a folder of its own, driven without a controller, and a look behind it. */
#ifndef STORE_WORLD_H
#define STORE_WORLD_H

#include <stdint.h>

#include "store/store.h"
#include "wire/wire.h"

#define STORE_WORLD_SECOND_NS INT64_C(1000000000)
#define STORE_WORLD_DAY_NS    (86400 * STORE_WORLD_SECOND_NS)
/* When the tests begin: a whole hour of a day in 2026. */
#define STORE_WORLD_BEGIN_NS (INT64_C(494000) * 3600 * STORE_WORLD_SECOND_NS)

struct store_world {
    char dir[64];
    char path[96];
    struct store_options options; /* no upkeep but that of store_tidy */
    struct store *store;
};
void store_world_start(struct store_world *world);
/* Closes and opens again. */
void store_world_restart(struct store_world *world);
/* Removes the folder with all that is in it. */
void store_world_stop(struct store_world *world);
void store_world_remove_files(const struct store_world *world);

/* Registers agent "a"; returns the incarnation. */
int64_t store_world_register(struct store_world *world, const char *job, const char *key,
                             uint32_t n_ranks, int64_t now_ns);
/* The job and its newest incarnation have ended. */
void store_world_end(struct store_world *world, const char *job, int64_t incarnation,
                     int64_t now_ns);

/* An iteration as any: numbers that add up without rounding. */
struct wire_iteration store_world_row(uint32_t rank, uint64_t iteration, uint64_t plan_seq);
/* Takes what `report` holds; it stays the caller's. */
void store_world_report(struct store_world *world, int64_t incarnation,
                        const struct wire_report *report, int64_t now_ns);
/* All ranks of iterations [first, first + n), as one report of agent "a". */
void store_world_iterations(struct store_world *world, int64_t incarnation, uint64_t seq,
                            uint32_t n_ranks, uint64_t first, uint32_t n, int64_t now_ns);

void store_world_tidy(struct store_world *world, int64_t now_ns);

/* The one integer that a query gives, on a connection of its own. */
int64_t store_world_int(const struct store_world *world, const char *format, ...) DEFT_PRINTF(2, 3);
/* Runs statements, on a connection of its own. */
void store_world_sql(const struct store_world *world, const char *format, ...) DEFT_PRINTF(2, 3);

/* Every row of a rank that was ever taken is remembered in a file beside: call it after reports. */
void store_world_remember(const struct store_world *world);
/* What upkeep has made of the rows is what SQL says of all that were ever there: minutes and hours
 * together cover each iteration once, and their sums are those of its rows. */
void store_world_check(const struct store_world *world);

/* The answer of the API to GET iterations; malloc'ed. */
char *store_world_series(struct store_world *world, int64_t incarnation, uint64_t from, uint64_t to,
                         uint64_t points);

#endif
