/* The work that keeps the file small, in slices: each is one short transaction between the commits
 * of reports. A round goes through all tasks once; what cannot be done (a damaged page, a full
 * disk) is left out until the next round. Only for the store's own files. */
#ifndef STORE_UPKEEP_H
#define STORE_UPKEEP_H

#include <stdint.h>

#include <deft/status.h>

#include "store/store.h"
#include "store/store_db.h"

/* Above so many sixteenths of max_bytes the oldest history goes, until the other is reached. */
#define STORE_UPKEEP_PRESS_16TH 15
#define STORE_UPKEEP_EASE_16TH  14

enum store_upkeep_task {
    STORE_UPKEEP_LATE,
    STORE_UPKEEP_ROLL,
    STORE_UPKEEP_COUNT,
    STORE_UPKEEP_RAW,
    STORE_UPKEEP_MINUTES,
    STORE_UPKEEP_HOURS,
    STORE_UPKEEP_EVENTS,
    STORE_UPKEEP_EXPIRE,
    STORE_UPKEEP_REMOVE,
    STORE_UPKEEP_PRESS,
    STORE_UPKEEP_VACUUM,
    STORE_UPKEEP_TASKS
};

struct store_upkeep {
    struct store_options options;
    int64_t round_ns; /* clock of the round that is under way; 0: none is */
    int task;
    int64_t cursor; /* incarnation that was visited last */
    /* By task: what is as old as this, or older, has been tried in this round. */
    int64_t floor_ns[STORE_UPKEEP_TASKS];
    int64_t press_floor_ns[STORE_UPKEEP_TASKS];
    int pressed;
    int resting; /* the clock is not trusted: nothing is removed for its age */
};

/* Goes on with the round, or begins one at `now_ns`. `rows` is roughly how many rows are read or
 * removed. `*out_more`: 0 when the round is over. On failure the transaction is undone; what is
 * damaged is left out, any other failure ends the round. */
DEFT_NODISCARD enum deft_status store_upkeep_slice(struct store_upkeep *upkeep, struct store_db *db,
                                                   int64_t now_ns, unsigned rows, int *out_more,
                                                   struct deft_error *error);

#endif
