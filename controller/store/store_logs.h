/* The rows of `events`, which come by report and go by age. Only for the store's own files; all
 * calls are within a transaction of the writer. */
#ifndef STORE_LOGS_H
#define STORE_LOGS_H

#include <stdint.h>

#include <deft/status.h>

#include "store/store_db.h"

/* Removes the oldest events of one agent, at most `rows`, received before `before_ns`. `*out_rows`:
 * how many went. */
DEFT_NODISCARD enum deft_status store_logs_trim(struct store_db *db, int64_t incarnation,
                                                const char *agent, int64_t before_ns, unsigned rows,
                                                unsigned *out_rows, struct deft_error *error);

#endif
