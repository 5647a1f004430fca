/* What is there of an incarnation's iterations, and how it shrinks: rows of ranks become minutes,
 * minutes become hours. Only for the store's own files; all calls are within a transaction of the
 * writer.
 *
 * Time is the controller's, of receipt, and never runs backwards along the iterations: what comes
 * late belongs to the time when it came, and so does everything behind it. */
#ifndef STORE_HISTORY_H
#define STORE_HISTORY_H

#include <stdint.h>

#include <deft/status.h>

#include "store/store_db.h"

#define STORE_MINUTE_S 60
#define STORE_HOUR_S   3600
/* A run of a roll-up ends at the minute or hour, where the plan changes, where more iterations than
 * this are missing, so that gaps stay gaps, and at this many, so that what was sent after a day of
 * silence is not one point. */
#define STORE_RUN_MAX_MISSING      60
#define STORE_RUN_MINUTE_MAX_ITERS 1024
#define STORE_RUN_HOUR_MAX_ITERS   65536

/* A row of `upkeep`, and what it takes to know when an iteration is complete. Times are 0 where
 * there is nothing. */
struct store_history {
    int64_t incarnation;
    int64_t n_ranks;
    int64_t newest;
    int64_t rolled_to;
    int64_t hours_to;
    int64_t raw_from;
    int64_t n_rolled;
    int64_t n_raw;
    int64_t late_from; /* meaningful while late_ns is not 0 */
    int64_t late_ns;
    int64_t raw_ns;
    int64_t minutes_ns;
    int64_t hours_ns;
};
/* DEFT_NOT_FOUND when it has never reported an iteration. */
DEFT_NODISCARD enum deft_status store_history_read(struct store_db *db, int64_t incarnation,
                                                   struct store_history *out,
                                                   struct deft_error *error);
DEFT_NODISCARD enum deft_status store_history_write(struct store_db *db,
                                                    const struct store_history *history,
                                                    struct deft_error *error);

/* Rolls up iterations that are complete, or received before `settled_ns`, in order, about `rows`
 * rows of them. `*out_rows` is how many were looked at. Changes `history`, does not write it. */
DEFT_NODISCARD enum deft_status store_history_roll(struct store_db *db,
                                                   struct store_history *history,
                                                   int64_t settled_ns, unsigned rows,
                                                   unsigned *out_rows, struct deft_error *error);
/* Takes roll-ups back to where rows came late, as far as the rows are still there, so that they are
 * rolled up again. */
DEFT_NODISCARD enum deft_status
store_history_unroll(struct store_db *db, struct store_history *history, struct deft_error *error);

/* Removals take the oldest first, about `rows` rows, received before `before_ns`, and nothing that
 * has not been rolled up. `*out_rows`: how many went; 0: there is nothing more.
 * store_history_trim_raw also stops after `max_iterations`. */
DEFT_NODISCARD enum deft_status store_history_trim_raw(struct store_db *db,
                                                       struct store_history *history,
                                                       int64_t before_ns, int64_t max_iterations,
                                                       unsigned rows, unsigned *out_rows,
                                                       struct deft_error *error);
DEFT_NODISCARD enum deft_status
store_history_trim_minutes(struct store_db *db, struct store_history *history, int64_t before_ns,
                           unsigned rows, unsigned *out_rows, struct deft_error *error);
DEFT_NODISCARD enum deft_status
store_history_trim_hours(struct store_db *db, struct store_history *history, int64_t before_ns,
                         unsigned rows, unsigned *out_rows, struct deft_error *error);

#endif
