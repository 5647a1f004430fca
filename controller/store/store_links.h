/* All-reduces of an incarnation by link and size, in `link_totals`. Only for the store's own files.
 */
#ifndef STORE_LINKS_H
#define STORE_LINKS_H

#include <stdint.h>

#include <deft/status.h>

#include "store/store_db.h"
#include "wire/wire.h"

/* Adds what one report says, [n], within a transaction of the writer. */
DEFT_NODISCARD enum deft_status store_links_add(struct store_db *db, int64_t incarnation,
                                                uint32_t n, const struct wire_op_summary *ops,
                                                struct deft_error *error);

#endif
