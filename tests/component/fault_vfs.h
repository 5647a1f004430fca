/* A file system under SQLite whose calls fail on request. */
#ifndef FAULT_VFS_H
#define FAULT_VFS_H

#include <stdatomic.h>

/* Installs it as the default of this process, before anything is opened. */
void fault_vfs_install(void);

/* Writes, truncations and syncs: after `n` more of them, the next `n_failing` fail as `code`
 * (SQLITE_FULL, SQLITE_IOERR_WRITE, ...). */
void fault_vfs_fail_after(int n, int n_failing, int code);
/* Nothing fails any more; returns how many calls have failed since. */
int fault_vfs_stop(void);

#endif
