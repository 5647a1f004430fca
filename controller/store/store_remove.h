/* Removal of a job with all that is known of it. Only for the store's own files; all calls are
 * within a transaction of the writer.
 *
 * The job vanishes at once: it takes a name that is longer than any that agents can give, so that
 * its own is free again, and the state "removing", which nobody is shown. Its rows go later, some
 * at a time. */
#ifndef STORE_REMOVE_H
#define STORE_REMOVE_H

#include <deft/status.h>

#include "store/store_db.h"

struct store_audit;
/* DEFT_NOT_FOUND when there is none, DEFT_STATE while it runs. Tokens that are for it alone end
 * with it; `cause` is who removes it, NULL: upkeep. */
DEFT_NODISCARD enum deft_status store_remove_mark(struct store_db *db, const char *job,
                                                  const struct store_audit *cause,
                                                  struct deft_error *error);
/* Removes about `rows` rows of jobs that are marked. `*out_again`: 0 when there is no such job. */
DEFT_NODISCARD enum deft_status store_remove_some(struct store_db *db, unsigned rows,
                                                  int *out_again, struct deft_error *error);

#endif
