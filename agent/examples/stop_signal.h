/* SIGINT and SIGTERM become a wish to stop, on which the ranks agree. */
#ifndef STOP_SIGNAL_H
#define STOP_SIGNAL_H

#include "sync.h"

/* From now on the first SIGINT or SIGTERM asks `sync` to stop; a second one ends the process as
 * usual. */
void stop_signal_install(struct sync *sync);
/* Back to the default; call it before `sync` is closed. */
void stop_signal_remove(void);
/* The signal that came, or 0. */
int stop_signal_received(void);

#endif
