/* Reports that the controller has not acknowledged, oldest first, within a bounded memory.
 *
 * When the bound is reached the least valuable goes first: op summaries and readiness of the oldest
 * reports, then whole reports without losses or events, then reports without events, then the
 * oldest. The one that was already tried stays, because the controller may have committed it and
 * its number must not be given to another. Not thread-safe: the uplink's lock guards it. */
#ifndef DAEMON_SPOOL_H
#define DAEMON_SPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "wire/wire.h"

/* Hours of a job's iterations; with the rest of the agent it stays a small process. */
#define DAEMON_SPOOL_BYTES (16u << 20)

struct daemon_spool_entry {
    struct daemon_spool_entry *next;
    struct wire_report report;
    void *owner; /* the uplink's record of the incarnation */
    size_t n_bytes;
    int tried;
};

struct daemon_spool {
    struct daemon_spool_entry *first;
    struct daemon_spool_entry *last;
    size_t n_bytes;
    size_t limit_bytes;
    uint64_t n_dropped_iterations;
    uint64_t n_dropped_events;
    uint64_t n_dropped_reports; /* whole reports */
};

void daemon_spool_init(struct daemon_spool *spool, size_t limit_bytes);
/* Takes the report over; on DEFT_NO_MEMORY it is released and counted as dropped. `dropped` (may be
 * NULL) is told the owner of every report that leaves whole. */
DEFT_NODISCARD enum deft_status daemon_spool_push(struct daemon_spool *spool,
                                                  struct wire_report *report, void *owner,
                                                  void (*dropped)(void *owner));
/* Releases the first entry. */
void daemon_spool_pop(struct daemon_spool *spool);
void daemon_spool_done(struct daemon_spool *spool);

#endif
