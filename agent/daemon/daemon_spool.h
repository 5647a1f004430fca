/* Reports that the controller has not acknowledged, oldest first, within a bounded memory and, if
 * there is a folder for them (daemon_disk.h), a bounded disk.
 *
 * When a bound is reached the least valuable goes first: op summaries and readiness of the oldest
 * reports, then whole reports without losses or events, then reports without events, then the
 * oldest. The one that was already tried stays, because the controller may have committed it. Not
 * thread-safe: the uplink's lock guards it. */
#ifndef DAEMON_SPOOL_H
#define DAEMON_SPOOL_H

#include <stddef.h>
#include <stdint.h>

#include "daemon_disk.h"
#include "wire/wire.h"

/* Without a disk: hours of a small job's iterations; with the rest of the agent it stays a small
 * process. */
#define DAEMON_SPOOL_BYTES (8u << 20)
/* With one, what is beyond goes there: a minute of eight ranks at ten iterations/s stays, so that a
 * short absence costs nothing, and a kill of the agent loses no more. */
#define DAEMON_SPOOL_RESIDENT_BYTES (1u << 20)
#define DAEMON_SPOOL_DISK_BYTES     (UINT64_C(64) << 20)

struct daemon_spool_entry {
    struct daemon_spool_entry *next;
    struct wire_report report;    /* empty while it is on disk only */
    void *owner;                  /* the uplink's record of the incarnation */
    size_t n_bytes;               /* of memory */
    uint64_t disk_bytes;          /* in whole blocks; 0: not on disk */
    struct daemon_disk_name name; /* what is known of the report, wherever it is */
    int tried;
    int busy; /* the uplink's thread works on it without the lock */
};

struct daemon_spool {
    struct daemon_spool_entry *first;
    struct daemon_spool_entry *last;
    size_t n_bytes;
    size_t limit_bytes;
    uint64_t disk_bytes;
    uint64_t n_on_disk;
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
/* Appends one that is on disk only. */
DEFT_NODISCARD enum deft_status daemon_spool_push_file(struct daemon_spool *spool, void *owner,
                                                       const struct daemon_disk_found *found);
/* Moves all of `other`, which is older, before what is there. */
void daemon_spool_prepend(struct daemon_spool *spool, struct daemon_spool *other);
/* Releases the first entry; its file is the caller's affair. */
void daemon_spool_pop(struct daemon_spool *spool);
void daemon_spool_done(struct daemon_spool *spool);

/* The oldest that is in memory only; NULL when memory holds no more than `resident_bytes`. */
struct daemon_spool_entry *daemon_spool_next_to_write(const struct daemon_spool *spool,
                                                      size_t resident_bytes);
/* The least valuable of those on disk and `candidate`, NULL when all must stay. */
struct daemon_spool_entry *daemon_spool_victim(const struct daemon_spool *spool,
                                               struct daemon_spool_entry *candidate);
/* Its file has been written: memory is given back. */
void daemon_spool_written(struct daemon_spool *spool, struct daemon_spool_entry *entry,
                          uint64_t disk_bytes);
/* Leaves op summaries and readiness of a report in memory out. */
void daemon_spool_strip(struct daemon_spool *spool, struct daemon_spool_entry *entry);
/* Counts it as dropped and releases it; its file is the caller's affair. */
void daemon_spool_drop(struct daemon_spool *spool, struct daemon_spool_entry *entry,
                       void (*dropped)(void *owner));

#endif
