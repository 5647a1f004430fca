/* What the files of store_file.h share. Only for the store's own files. */
#ifndef STORE_COPY_H
#define STORE_COPY_H

#include <deft/status.h>

#include "store/store_db.h"

/* For reading, also beside a controller and where nothing may be written. DEFT_INVALID for what is
 * no database of ours; leaves no files behind that were not there. */
DEFT_NODISCARD enum deft_status store_copy_open_source(const char *path, struct store_db **out,
                                                       struct deft_error *error);

/* A result while it is made: a file beside `to`, which gets that name in the end. */
struct store_copy_target {
    const char *to;
    char *name; /* malloc'ed */
};
/* DEFT_MISMATCH when `to` is there. */
DEFT_NODISCARD enum deft_status store_copy_begin(const char *to, struct store_copy_target *out,
                                                 struct deft_error *error);
/* Synced and renamed when `status` is DEFT_OK, removed otherwise; returns what came of it. */
enum deft_status store_copy_end(struct store_copy_target *target, enum deft_status status,
                                struct deft_error *error);
/* DEFT_STORE with the first finding, unless `db` is whole. */
DEFT_NODISCARD enum deft_status store_copy_verify(struct store_db *db, const char *what,
                                                  struct deft_error *error);

#endif
