/* Archives of jobs from databases before schema 6, which told all-reduces one by one. Only for the
 * import; within its transaction. */
#ifndef STORE_EARLIER_H
#define STORE_EARLIER_H

#include <stdint.h>

#include <deft/status.h>

#include "store/store_db.h"

/* Whether a database of this schema did. */
int store_earlier_is(int64_t version);
/* Makes tables `agents` and `ops` as they were then. Until the end they stand in front of ours. */
DEFT_NODISCARD enum deft_status store_earlier_begin(struct store_db *db, struct deft_error *error);
/* Agents to `agents`, all-reduces that had not been added up to `link_totals`; theirs go. */
DEFT_NODISCARD enum deft_status store_earlier_end(struct store_db *db, struct deft_error *error);

#endif
