/* The rows of `ops` and `events`, which come by report and go by age. Only for the store's own
 * files; all calls are within a transaction of the writer. */
#ifndef STORE_LOGS_H
#define STORE_LOGS_H

#include <stdint.h>

#include <deft/status.h>

#include "store/store_db.h"

/* Adds all-reduces that are not in `link_totals` yet, about `rows` rows. `*out_rows`: how many. */
DEFT_NODISCARD enum deft_status store_logs_roll(struct store_db *db, int64_t incarnation,
                                                unsigned rows, unsigned *out_rows,
                                                struct deft_error *error);

/* Removals take the oldest rows of one agent, at most `rows`, received before `before_ns`.
 * `*out_rows`: how many went. */
DEFT_NODISCARD enum deft_status store_logs_trim_ops(struct store_db *db, int64_t incarnation,
                                                    const char *agent, int64_t before_ns,
                                                    unsigned rows, unsigned *out_rows,
                                                    struct deft_error *error);
DEFT_NODISCARD enum deft_status store_logs_trim_events(struct store_db *db, int64_t incarnation,
                                                       const char *agent, int64_t before_ns,
                                                       unsigned rows, unsigned *out_rows,
                                                       struct deft_error *error);

#endif
