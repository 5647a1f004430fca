/* Streams of viewers: a job as it is now, and again whenever it has changed. */
#ifndef SERVICE_CHANGES_H
#define SERVICE_CHANGES_H

#include <deft/status.h>

#include "jobs.h"

/* Streams at once; each costs a look at its job twice a second. */
#define CHANGES_MAX_STREAMS 512u

struct service_changes;

DEFT_NODISCARD enum deft_status
service_changes_open(struct jobs *jobs, struct service_changes **out, struct deft_error *error);
/* Sends what has changed since, and drops streams whose client or job has gone. To be called a few
 * times a second, from one thread. */
void service_changes_tick(struct service_changes *changes);
/* After the HTTP server has stopped. Takes NULL. */
void service_changes_close(struct service_changes *changes);

#endif
