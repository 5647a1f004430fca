#include "daemon_spool.h"

#include <math.h>
#include <stdlib.h>

void daemon_spool_init(struct daemon_spool *spool, size_t limit_bytes) {
    *spool = (struct daemon_spool){.limit_bytes = limit_bytes};
}

static size_t daemon_spool_size(const struct wire_report *report) {
    size_t n_bytes =
        sizeof(struct daemon_spool_entry) + report->n_iterations * sizeof(*report->iterations) +
        report->n_ops * sizeof(*report->ops) + report->n_readiness * sizeof(*report->readiness) +
        report->n_events * sizeof(*report->events);
    for (uint32_t i = 0; i < report->n_readiness; i++) {
        n_bytes += report->readiness[i].n_offsets * sizeof(*report->readiness[i].offsets_ns);
    }
    return n_bytes;
}

static void daemon_spool_unlink(struct daemon_spool *spool, struct daemon_spool_entry *previous,
                                struct daemon_spool_entry *entry) {
    if (previous != NULL) {
        previous->next = entry->next;
    } else {
        spool->first = entry->next;
    }
    if (spool->last == entry) {
        spool->last = previous;
    }
    spool->n_bytes -= entry->n_bytes;
    spool->disk_bytes -= entry->disk_bytes;
    spool->n_on_disk -= entry->disk_bytes > 0;
    wire_report_done(&entry->report);
    free(entry);
}

static int daemon_spool_has_loss(const struct wire_report *report) {
    for (uint32_t i = 0; i < report->n_iterations; i++) {
        if (!isnan(report->iterations[i].loss)) {
            return 1;
        }
    }
    return 0;
}

void daemon_spool_strip(struct daemon_spool *spool, struct daemon_spool_entry *entry) {
    struct wire_report *report = &entry->report;
    struct wire_report stripped = *report;
    *report = (struct wire_report){.n_ops = report->n_ops,
                                   .ops = report->ops,
                                   .n_readiness = report->n_readiness,
                                   .readiness = report->readiness};
    wire_report_done(report);
    stripped.n_ops = 0;
    stripped.ops = NULL;
    stripped.n_readiness = 0;
    stripped.readiness = NULL;
    *report = stripped;
    spool->n_bytes -= entry->n_bytes;
    entry->n_bytes = daemon_spool_size(report);
    spool->n_bytes += entry->n_bytes;
}

enum daemon_spool_stage {
    DAEMON_SPOOL_DETAILS, /* ops and readiness */
    DAEMON_SPOOL_PLAIN,   /* reports without losses and events */
    DAEMON_SPOOL_LOSSES,  /* reports without events */
    DAEMON_SPOOL_ALL,
    DAEMON_SPOOL_N_STAGES,
};

static int daemon_spool_suits(const struct daemon_spool_entry *entry,
                              enum daemon_spool_stage stage) {
    const struct wire_report *report = &entry->report;
    switch (stage) {
    case DAEMON_SPOOL_DETAILS:
        return report->n_ops > 0 || report->n_readiness > 0;
    case DAEMON_SPOOL_PLAIN:
        return entry->name.n_events == 0 && !entry->name.has_loss;
    case DAEMON_SPOOL_LOSSES:
        return entry->name.n_events == 0;
    default:
        return 1;
    }
}

static void daemon_spool_count_dropped(struct daemon_spool *spool,
                                       const struct daemon_spool_entry *entry,
                                       void (*dropped)(void *owner)) {
    spool->n_dropped_iterations += entry->name.n_iterations;
    spool->n_dropped_events += entry->name.n_events;
    spool->n_dropped_reports++;
    if (dropped != NULL) {
        dropped(entry->owner);
    }
}

void daemon_spool_drop(struct daemon_spool *spool, struct daemon_spool_entry *entry,
                       void (*dropped)(void *owner)) {
    struct daemon_spool_entry *previous = NULL;
    struct daemon_spool_entry *place = spool->first;
    while (place != entry) {
        previous = place;
        place = place->next;
    }
    daemon_spool_count_dropped(spool, entry, dropped);
    daemon_spool_unlink(spool, previous, entry);
}

static void daemon_spool_shrink(struct daemon_spool *spool, void (*dropped)(void *owner)) {
    for (int stage = 0; stage < DAEMON_SPOOL_N_STAGES; stage++) {
        struct daemon_spool_entry *previous = NULL;
        struct daemon_spool_entry *entry = spool->first;
        while (entry != NULL && spool->n_bytes > spool->limit_bytes) {
            struct daemon_spool_entry *next = entry->next;
            if (entry->tried || entry->busy || entry->disk_bytes > 0 ||
                !daemon_spool_suits(entry, (enum daemon_spool_stage)stage)) {
                previous = entry;
            } else if (stage == DAEMON_SPOOL_DETAILS) {
                daemon_spool_strip(spool, entry);
                previous = entry;
            } else {
                daemon_spool_count_dropped(spool, entry, dropped);
                daemon_spool_unlink(spool, previous, entry);
            }
            entry = next;
        }
    }
}

static void daemon_spool_append(struct daemon_spool *spool, struct daemon_spool_entry *entry) {
    if (spool->last != NULL) {
        spool->last->next = entry;
    } else {
        spool->first = entry;
    }
    spool->last = entry;
    spool->n_bytes += entry->n_bytes;
    spool->disk_bytes += entry->disk_bytes;
    spool->n_on_disk += entry->disk_bytes > 0;
}

enum deft_status daemon_spool_push(struct daemon_spool *spool, struct wire_report *report,
                                   void *owner, void (*dropped)(void *owner)) {
    struct daemon_spool_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL) {
        spool->n_dropped_iterations += report->n_iterations;
        spool->n_dropped_events += report->n_events;
        spool->n_dropped_reports++;
        wire_report_done(report);
        return DEFT_NO_MEMORY;
    }
    *entry = (struct daemon_spool_entry){.report = *report,
                                         .owner = owner,
                                         .n_bytes = daemon_spool_size(report),
                                         .name = {.seq = report->seq,
                                                  .n_iterations = report->n_iterations,
                                                  .n_events = report->n_events,
                                                  .has_loss = daemon_spool_has_loss(report)}};
    *report = (struct wire_report){0};
    daemon_spool_append(spool, entry);
    daemon_spool_shrink(spool, dropped);
    return DEFT_OK;
}

enum deft_status daemon_spool_push_file(struct daemon_spool *spool, void *owner,
                                        const struct daemon_disk_found *found) {
    struct daemon_spool_entry *entry = calloc(1, sizeof(*entry));
    if (entry == NULL) {
        return DEFT_NO_MEMORY;
    }
    *entry = (struct daemon_spool_entry){.owner = owner,
                                         .n_bytes = sizeof(*entry),
                                         .disk_bytes = found->n_bytes,
                                         .name = found->name};
    daemon_spool_append(spool, entry);
    return DEFT_OK;
}

void daemon_spool_prepend(struct daemon_spool *spool, struct daemon_spool *other) {
    if (other->first == NULL) {
        return;
    }
    other->last->next = spool->first;
    spool->first = other->first;
    spool->last = spool->last != NULL ? spool->last : other->last;
    spool->n_bytes += other->n_bytes;
    spool->disk_bytes += other->disk_bytes;
    spool->n_on_disk += other->n_on_disk;
    *other = (struct daemon_spool){.limit_bytes = other->limit_bytes};
}

struct daemon_spool_entry *daemon_spool_next_to_write(const struct daemon_spool *spool,
                                                      size_t resident_bytes) {
    struct daemon_spool_entry *entry = spool->first;
    size_t n_files_bytes = (size_t)spool->n_on_disk * sizeof(*entry);
    while (entry != NULL && entry->disk_bytes > 0) {
        entry = entry->next;
    }
    return spool->n_bytes - n_files_bytes > resident_bytes ? entry : NULL;
}

struct daemon_spool_entry *daemon_spool_victim(const struct daemon_spool *spool,
                                               struct daemon_spool_entry *candidate) {
    for (int stage = DAEMON_SPOOL_PLAIN; stage < DAEMON_SPOOL_N_STAGES; stage++) {
        for (struct daemon_spool_entry *entry = spool->first; entry != NULL; entry = entry->next) {
            if ((entry->disk_bytes > 0 || entry == candidate) && !entry->tried &&
                daemon_spool_suits(entry, (enum daemon_spool_stage)stage)) {
                return entry;
            }
        }
    }
    return NULL;
}

void daemon_spool_written(struct daemon_spool *spool, struct daemon_spool_entry *entry,
                          uint64_t disk_bytes) {
    wire_report_done(&entry->report);
    entry->report = (struct wire_report){0};
    spool->n_bytes -= entry->n_bytes;
    entry->n_bytes = sizeof(*entry);
    spool->n_bytes += entry->n_bytes;
    entry->disk_bytes = disk_bytes;
    spool->disk_bytes += disk_bytes;
    spool->n_on_disk++;
}

void daemon_spool_pop(struct daemon_spool *spool) {
    if (spool->first != NULL) {
        daemon_spool_unlink(spool, NULL, spool->first);
    }
}

void daemon_spool_done(struct daemon_spool *spool) {
    while (spool->first != NULL) {
        daemon_spool_pop(spool);
    }
}
