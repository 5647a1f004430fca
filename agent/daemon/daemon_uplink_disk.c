/* The uplink's way to the disk: what it writes down while the controller is away, and what agents
 * of the same job have left there. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "daemon_uplink_impl.h"

/* A disk that was full or away may be back later. */
#define DAEMON_UPLINK_DISK_RETRY_NS INT64_C(30000000000)

void daemon_uplink_report_gone(void *owner) {
    ((struct daemon_uplink_record *)owner)->n_reports--;
}

/* --- homes --------------------------------------------------------------------------------------
 */

static struct daemon_uplink_home *daemon_uplink_add_home(struct daemon_uplink *uplink,
                                                         struct daemon_disk *disk) {
    struct daemon_uplink_home *home = calloc(1, sizeof(*home));
    if (home != NULL) {
        home->disk = disk;
        home->next = uplink->homes;
        uplink->homes = home;
    }
    return home;
}

/* Another agent's folder that no record is of is done with. */
static void daemon_uplink_leave_home(struct daemon_uplink *uplink,
                                     struct daemon_uplink_home *home) {
    struct daemon_uplink_home **place = &uplink->homes;
    for (const struct daemon_uplink_record *record = uplink->records; record != NULL;
         record = record->next) {
        if (record->home == home) {
            return;
        }
    }
    if (home == uplink->own) {
        return;
    }
    while (*place != home) {
        place = &(*place)->next;
    }
    *place = home->next;
    daemon_disk_close(home->disk, 1);
    free(home);
}

void daemon_uplink_free_record(struct daemon_uplink *uplink, struct daemon_uplink_record *record) {
    if (record->home != NULL && record->n_reports == 0) {
        daemon_disk_remove_start(record->home->disk, record->start);
        daemon_uplink_leave_home(uplink, record->home);
    }
    daemon_incarnation_unref(record->inc);
    free(record->registration);
    free(record);
}

void daemon_uplink_close_homes(struct daemon_uplink *uplink) {
    while (uplink->homes != NULL) {
        struct daemon_uplink_home *home = uplink->homes;
        uplink->homes = home->next;
        daemon_disk_close(home->disk, 0);
        free(home);
    }
    uplink->own = NULL;
}

void daemon_uplink_unlink(struct daemon_uplink *uplink, const struct daemon_spool_entry *entry) {
    const struct daemon_uplink_record *record = entry->owner;
    if (entry->disk_bytes > 0) {
        (void)pthread_mutex_unlock(&uplink->lock);
        daemon_disk_remove_report(record->home->disk, &entry->name);
        (void)pthread_mutex_lock(&uplink->lock);
    }
}

/* --- writing ------------------------------------------------------------------------------------
 */

static void daemon_uplink_disk_failed(struct daemon_uplink *uplink,
                                      const struct deft_error *error) {
    uplink->disk_retry_ns = clock_monotonic_ns() + DAEMON_UPLINK_DISK_RETRY_NS;
    if (!uplink->disk_has_failed) {
        log_line(uplink->log, LOG_LEVEL_WARNING,
                 "reports stay in memory, at most %u bytes of them, because %s", DAEMON_SPOOL_BYTES,
                 error->text);
    }
    uplink->disk_has_failed = 1;
}

static void daemon_uplink_disk_works(struct daemon_uplink *uplink) {
    if (uplink->disk_has_failed) {
        log_line(uplink->log, LOG_LEVEL_INFO, "the spool's disk takes reports again");
    }
    uplink->disk_has_failed = 0;
    uplink->disk_retry_ns = 0;
}

/* Without the lock. */
static enum deft_status daemon_uplink_make_home(struct daemon_uplink *uplink,
                                                struct deft_error *error) {
    struct daemon_disk *disk = NULL;
    if (uplink->own != NULL) {
        return DEFT_OK;
    }
    enum deft_status status =
        daemon_disk_make(uplink->options.spool_dir, uplink->options.agent, &disk, error);
    if (status != DEFT_OK) {
        return status;
    }
    uplink->own = daemon_uplink_add_home(uplink, disk);
    if (uplink->own == NULL) {
        daemon_disk_close(disk, 1);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "there is no memory for a spool folder");
    }
    return DEFT_OK;
}

/* Without the lock. `registration` NULL: the start file is up to date. */
static enum deft_status daemon_uplink_prepare(struct daemon_uplink *uplink,
                                              const struct daemon_uplink_record *record,
                                              const char *registration,
                                              const struct wire_report *report, char **out_json,
                                              struct deft_error *error) {
    enum deft_status status = daemon_uplink_make_home(uplink, error);
    if (status == DEFT_OK && registration != NULL) {
        status = daemon_disk_write_start(uplink->own->disk, record->start, record->job,
                                         registration, error);
    }
    return status == DEFT_OK ? wire_report_encode(report, out_json, error) : status;
}

/* Makes room for `n_bytes` of `entry`; 0 when the entry itself is the least valuable and is gone.
 */
static int daemon_uplink_make_room(struct daemon_uplink *uplink, struct daemon_spool_entry *entry,
                                   uint64_t n_bytes) {
    struct daemon_spool *spool = &uplink->spool;
    while (spool->disk_bytes + n_bytes > uplink->options.spool_bytes) {
        struct daemon_spool_entry *victim = daemon_spool_victim(spool, entry);
        victim = victim != NULL ? victim : entry;
        int is_itself = victim == entry;
        daemon_uplink_unlink(uplink, victim);
        daemon_spool_drop(spool, victim, daemon_uplink_report_gone);
        if (is_itself) {
            return 0;
        }
    }
    return 1;
}

/* 1 when the next may be tried. */
static int daemon_uplink_write_one(struct daemon_uplink *uplink, struct daemon_spool_entry *entry) {
    struct daemon_uplink_record *record = entry->owner;
    struct deft_error error = {0};
    char *json = NULL;
    char *registration = record->has_start ? NULL : strdup(record->registration);
    int wants_start = !record->has_start;
    if (wants_start && registration == NULL) {
        deft_ignore(deft_fail(&error, DEFT_NO_MEMORY, 0, "there is no memory for a spool file"));
        daemon_uplink_disk_failed(uplink, &error);
        return 0;
    }
    if (uplink->spool.disk_bytes > uplink->options.spool_bytes / 2) {
        daemon_spool_strip(&uplink->spool, entry); /* losses are worth more than details */
    }
    record->has_start = 1; /* unless it grows meanwhile */
    entry->busy = 1;
    entry->name.start = record->start;
    (void)pthread_mutex_unlock(&uplink->lock);
    enum deft_status status =
        daemon_uplink_prepare(uplink, record, registration, &entry->report, &json, &error);
    free(registration);
    (void)pthread_mutex_lock(&uplink->lock);
    uint64_t n_bytes = json != NULL ? daemon_disk_file_bytes(strlen(json)) : 0;
    if (status == DEFT_OK) {
        record->home = uplink->own;
        if (!daemon_uplink_make_room(uplink, entry, n_bytes)) {
            free(json);
            return 1;
        }
        (void)pthread_mutex_unlock(&uplink->lock);
        status = daemon_disk_write_report(record->home->disk, &entry->name, json, &error);
        (void)pthread_mutex_lock(&uplink->lock);
    } else if (wants_start) {
        record->has_start = 0;
    }
    free(json);
    entry->busy = 0;
    if (status != DEFT_OK) {
        daemon_uplink_disk_failed(uplink, &error);
        return 0;
    }
    daemon_spool_written(&uplink->spool, entry, n_bytes);
    daemon_uplink_disk_works(uplink);
    return 1;
}

void daemon_uplink_write_out(struct daemon_uplink *uplink, size_t resident_bytes) {
    while (uplink->options.spool_dir != NULL && clock_monotonic_ns() >= uplink->disk_retry_ns) {
        struct daemon_spool_entry *entry =
            daemon_spool_next_to_write(&uplink->spool, resident_bytes);
        if (entry == NULL || !daemon_uplink_write_one(uplink, entry)) {
            break;
        }
    }
}

/* --- reading ------------------------------------------------------------------------------------
 */

static enum deft_status daemon_uplink_read(const struct daemon_uplink_record *record,
                                           const struct daemon_disk_name *name,
                                           struct wire_report *out, struct deft_error *error) {
    char *json = NULL;
    size_t n_bytes = 0;
    enum deft_status status =
        daemon_disk_read_report(record->home->disk, name, &json, &n_bytes, error);
    if (status == DEFT_OK) {
        status = wire_report_decode(json, n_bytes, out, error);
    }
    if (status == DEFT_OK && (out->seq != name->seq || strcmp(out->agent, record->agent) != 0)) {
        wire_report_done(out);
        status = deft_fail(error, DEFT_INVALID, 0, "a spool file is not what its name says");
    }
    free(json);
    return status;
}

static void daemon_uplink_tell_torn(struct daemon_uplink *uplink, const struct deft_error *error) {
    uplink->n_torn++;
    log_line(uplink->log, LOG_LEVEL_WARNING, "a spool file is skipped, %" PRIu64 " so far: %s",
             uplink->n_torn, error->text);
}

int daemon_uplink_load(struct daemon_uplink *uplink) {
    struct daemon_spool_entry *entry = uplink->spool.first;
    struct wire_report report = {0};
    struct deft_error error = {0};
    if (entry->disk_bytes == 0 || entry->report.seq != 0) {
        return 1;
    }
    (void)pthread_mutex_unlock(&uplink->lock);
    enum deft_status status = daemon_uplink_read(entry->owner, &entry->name, &report, &error);
    (void)pthread_mutex_lock(&uplink->lock);
    if (status == DEFT_OK) {
        entry->report = report;
        return 1;
    }
    daemon_uplink_tell_torn(uplink, &error);
    daemon_uplink_unlink(uplink, entry);
    daemon_spool_drop(&uplink->spool, entry, daemon_uplink_report_gone);
    return 0;
}

/* --- what others have left ----------------------------------------------------------------------
 */

struct daemon_uplink_adoption {
    struct daemon_uplink *uplink;
    struct daemon_spool spool;
    struct daemon_uplink_record *first;
    struct daemon_uplink_record *last;
};

static struct daemon_uplink_record *
daemon_uplink_adopt_start(struct daemon_uplink_adoption *adoption, struct daemon_uplink_home *home,
                          uint32_t start) {
    struct wire_registration registration = {0};
    struct deft_error error = {0};
    struct daemon_uplink_record *record = calloc(1, sizeof(*record));
    enum deft_status status = DEFT_NO_MEMORY;
    if (record != NULL) {
        status =
            daemon_disk_read_start(home->disk, start, record->job, &record->registration, &error);
    }
    if (status == DEFT_OK) {
        status = wire_registration_decode(record->registration, strlen(record->registration),
                                          &registration, &error);
    }
    if (status != DEFT_OK) {
        daemon_uplink_tell_torn(adoption->uplink, &error);
        free(record != NULL ? record->registration : NULL);
        free(record);
        return NULL;
    }
    memcpy(record->agent, registration.agent, sizeof(record->agent));
    wire_registration_done(&registration);
    record->home = home;
    record->start = start;
    record->has_start = 1;
    record->wants_registration = 1;
    if (adoption->last != NULL) {
        adoption->last->next = record;
    } else {
        adoption->first = record;
    }
    adoption->last = record;
    return record;
}

static void daemon_uplink_adopt_home(void *context, struct daemon_disk *disk) {
    struct daemon_uplink_adoption *adoption = context;
    struct daemon_uplink *uplink = adoption->uplink;
    struct daemon_disk_found *found = NULL;
    struct daemon_uplink_record *record = NULL;
    size_t n_found = 0;
    size_t n_taken = 0;
    struct deft_error error = {0};
    enum deft_status status = daemon_disk_list(disk, &found, &n_found, &error);
    struct daemon_uplink_home *home =
        status == DEFT_OK && n_found > 0 ? daemon_uplink_add_home(uplink, disk) : NULL;
    if (home == NULL) {
        daemon_disk_close(disk, status == DEFT_OK && n_found == 0);
        free(found);
        return;
    }
    for (size_t i = 0; i < n_found; i++) {
        const struct daemon_disk_name *name = &found[i].name;
        if (i == 0 || name->start != found[i - 1].name.start) {
            record = daemon_uplink_adopt_start(adoption, home, name->start);
        }
        if (record == NULL ||
            daemon_spool_push_file(&adoption->spool, record, &found[i]) != DEFT_OK) {
            daemon_disk_remove_report(disk, name);
            adoption->spool.n_dropped_reports++;
            adoption->spool.n_dropped_iterations += name->n_iterations;
            adoption->spool.n_dropped_events += name->n_events;
            continue;
        }
        record->n_reports++;
        record->last_seq = name->seq;
        n_taken++;
    }
    free(found);
    log_line(uplink->log, LOG_LEVEL_INFO,
             "%zu reports that another agent of job '%s' has left are delivered first", n_taken,
             uplink->job);
}

void daemon_uplink_adopt(struct daemon_uplink *uplink) {
    struct daemon_uplink_adoption adoption = {.uplink = uplink};
    uplink->wants_adoption = 0;
    if (uplink->options.spool_dir == NULL) {
        return;
    }
    (void)pthread_mutex_unlock(&uplink->lock);
    daemon_disk_scan(uplink->options.spool_dir, uplink->job, daemon_uplink_adopt_home, &adoption);
    (void)pthread_mutex_lock(&uplink->lock);
    uplink->spool.n_dropped_reports += adoption.spool.n_dropped_reports;
    uplink->spool.n_dropped_iterations += adoption.spool.n_dropped_iterations;
    uplink->spool.n_dropped_events += adoption.spool.n_dropped_events;
    daemon_spool_prepend(&uplink->spool, &adoption.spool);
    if (adoption.first != NULL) {
        adoption.last->next = uplink->records;
        uplink->records = adoption.first;
    }
}
