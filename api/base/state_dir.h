/* Where a user's programs keep what must outlive them: databases, port files, logs. */
#ifndef STATE_DIR_H
#define STATE_DIR_H

#include <stddef.h>

#include <deft/status.h>

/* $XDG_STATE_HOME/deft, else $HOME/.local/state/deft, else the home of the password database.
 * Does not create anything. */
DEFT_NODISCARD enum deft_status state_dir_default(char *out, size_t capacity_bytes,
                                                  struct deft_error *error);

/* Makes `path` and its parents where they are missing; the last one with mode 0700. */
DEFT_NODISCARD enum deft_status state_dir_make(const char *path, struct deft_error *error);

/* "DIR/NAME" into `out`. */
DEFT_NODISCARD enum deft_status state_dir_join(const char *dir, const char *name, char *out,
                                               size_t capacity_bytes, struct deft_error *error);

#endif
