/* Makes what was saved of a damaged database fit together again. Only for the store's own files. */
#ifndef STORE_MEND_H
#define STORE_MEND_H

#include <stdint.h>

#include <deft/status.h>

#include "store/store_db.h"

/* Rows that others refer to and that were lost get stand-ins: a job "recovered", starts in state
 * lost. What upkeep keeps books of is counted again. `*out_n` is the number of stand-ins. */
DEFT_NODISCARD enum deft_status store_mend(struct store_db *db, uint64_t *out_n,
                                           struct deft_error *error);

#endif
