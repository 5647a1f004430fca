/* What the uplink's own files share. */
#ifndef DAEMON_UPLINK_IMPL_H
#define DAEMON_UPLINK_IMPL_H

#include <pthread.h>

#include "daemon_disk.h"
#include "daemon_pace.h"
#include "daemon_spool.h"
#include "daemon_uplink.h"

/* A spool folder: this agent's own, or that of one that lives no more. Only the thread uses it. */
struct daemon_uplink_home {
    struct daemon_uplink_home *next;
    struct daemon_disk *disk;
};

/* What is known of an incarnation at the controller. Lives while it is current or has reports. */
struct daemon_uplink_record {
    struct daemon_uplink_record *next;
    struct daemon_incarnation *inc; /* NULL: another agent's, from its spool folder */
    char job[WIRE_ID_BYTES];
    char agent[WIRE_ID_BYTES]; /* under whose name it reports */
    char *registration;        /* JSON */
    char id[WIRE_ID_BYTES];
    uint64_t last_seq;               /* the newest report's */
    uint64_t committed_seq;          /* what the controller says */
    struct daemon_uplink_home *home; /* NULL: nothing of it was written yet */
    uint32_t start;                  /* its number there */
    int has_start;                   /* the start file is there and holds this registration */
    int wants_registration;
    int is_refused; /* the controller has answered that it will not have it */
    int n_reports;
};

struct daemon_uplink {
    struct daemon_uplink_options options;
    const struct log *log;
    struct http_client *client;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct daemon_spool spool;
    struct daemon_uplink_record *records; /* the oldest first */
    struct daemon_uplink_record *current; /* NULL before the first rank; one of the records */
    uint32_t n_starts;
    uint64_t n_dropped_told;
    int64_t deadline_ns; /* 0: goes on */
    int has_ended;
    int lets_go;         /* of daemon_uplink_current */
    volatile int cancel; /* atomic; ends a request in progress */
    int wants_adoption;  /* the job is known, and its spool folders have not been looked at */
    char job[WIRE_ID_BYTES];
    /* The thread's own: */
    struct daemon_uplink_home *homes;
    struct daemon_uplink_home *own; /* one of them; NULL: not made yet */
    int64_t disk_retry_ns;          /* after a failure, not before */
    int disk_has_failed;
    uint64_t n_torn;
    int clash_told;
    struct daemon_pace pace;
    struct log_wait wait;
};

/* All of these under the lock, which they give up while they touch the disk, and by the thread. */

/* Writes the oldest reports down until memory holds no more than `resident_bytes`. */
void daemon_uplink_write_out(struct daemon_uplink *uplink, size_t resident_bytes);
/* Brings the first entry into memory; 0 when it is not whole and has been dropped. */
int daemon_uplink_load(struct daemon_uplink *uplink);
/* Takes over what agents of the same job have left. */
void daemon_uplink_adopt(struct daemon_uplink *uplink);
/* Removes the file of an entry, if it has one. */
void daemon_uplink_unlink(struct daemon_uplink *uplink, const struct daemon_spool_entry *entry);
/* Releases a record that is in no list, and what the disk holds of it, if it has no reports. */
void daemon_uplink_free_record(struct daemon_uplink *uplink, struct daemon_uplink_record *record);
/* After the last record. */
void daemon_uplink_close_homes(struct daemon_uplink *uplink);
/* A report leaves: told by the spool. */
void daemon_uplink_report_gone(void *owner);

#endif
