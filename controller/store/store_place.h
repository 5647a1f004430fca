/* The file of the database: its lock, what else may lie in its place, how it comes to be. Only for
 * the store's own files.
 *
 * Everything that is refused is refused with one sentence that names the file. */
#ifndef STORE_PLACE_H
#define STORE_PLACE_H

#include <deft/status.h>

#include "store/store_db.h"

/* Larger files are looked through at the start only where jobs would not run without it. */
#define STORE_PLACE_CHECKED_BYTES ((int64_t)64 << 20)

/* DEFT_INVALID when the file is, or would be, on a file system of another machine (NFS, SMB). */
DEFT_NODISCARD enum deft_status store_place_local(const char *path, struct deft_error *error);

/* FILE.lock, held until the descriptor is closed. DEFT_STATE when somebody else has it. */
DEFT_NODISCARD enum deft_status store_place_lock(const char *path, int *out_fd,
                                                 struct deft_error *error);

/* Whether a database may be there, by its first bytes. DEFT_INVALID for what is none. */
DEFT_NODISCARD enum deft_status store_place_look(const char *path, int *out_exists,
                                                 struct deft_error *error);

/* Makes an empty one of this program's schema: it is there whole or not at all. */
DEFT_NODISCARD enum deft_status store_place_create(const char *path, struct deft_error *error);

/* DEFT_INVALID unless the database is one of ours. */
DEFT_NODISCARD enum deft_status store_place_identify(struct store_db *db, const char *path,
                                                     struct deft_error *error);

/* Opens the one that is there for writing: applies what a crash has left in the log, brings the
 * schema up to date, and refuses what is damaged. With the lock held. */
DEFT_NODISCARD enum deft_status store_place_open(const char *path, struct store_db **out,
                                                 struct deft_error *error);

/* Makes a rename or a new file in its folder last. */
DEFT_NODISCARD enum deft_status store_place_sync(const char *path, struct deft_error *error);

#endif
