/* What iterations were like over a range, from rows of ranks where that is quick, and from roll-ups
 * where it is not or where the rows have gone. Only for the store's own files. */
#ifndef STORE_SERIES_H
#define STORE_SERIES_H

#include <stdint.h>

#include <deft/status.h>

#include "store/store_db.h"
#include "store/store_sums.h"

/* Rows that a query looks at, at most, besides those that are not rolled up yet: tens of
 * milliseconds. A range with more rows of ranks is answered from minutes, one with more minutes
 * from hours. */
#define STORE_SERIES_MAX_ROWS    65536
#define STORE_SERIES_MAX_MINUTES 20000

/* Called in the order of iterations; what it is given may begin before the range or end behind it,
 * where it comes from a roll-up. */
typedef void (*store_series_fn)(void *context, const struct store_sums *sums);
/* Within one read transaction. */
DEFT_NODISCARD enum deft_status store_series_each(struct store_db *db, int64_t incarnation,
                                                  int64_t from, int64_t to, store_series_fn found,
                                                  void *context, struct deft_error *error);

#endif
