#include "daemon_uplink.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "client/http_client.h"
#include "daemon_pace.h"
#include "daemon_spool.h"
#include "daemon_uplink_calls.h"

/* What is known of an incarnation at the controller. Lives while it is current or has reports. */
struct daemon_uplink_record {
    struct daemon_uplink_record *next;
    struct daemon_incarnation *inc;
    char *registration; /* JSON */
    char id[WIRE_ID_BYTES];
    uint64_t committed_seq;
    int wants_registration;
    int n_reports;
};

struct daemon_uplink {
    const char *agent;
    const struct log *log;
    struct http_client *client;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct daemon_spool spool;
    struct daemon_uplink_record *records; /* the current one first */
    uint64_t n_dropped_told;
    int64_t deadline_ns; /* 0: goes on */
    int has_ended;
    volatile int cancel; /* atomic; ends a request in progress */
    /* The thread's own: */
    struct daemon_pace pace;
    struct log_wait wait;
};

static void daemon_uplink_free_record(struct daemon_uplink_record *record) {
    daemon_incarnation_unref(record->inc);
    free(record->registration);
    free(record);
}

/* Under the lock: an incarnation that is over and whose reports are gone needs no record. */
static void daemon_uplink_sweep(struct daemon_uplink *uplink) {
    if (uplink->records == NULL) {
        return;
    }
    struct daemon_uplink_record **place = &uplink->records->next;
    while (*place != NULL) {
        struct daemon_uplink_record *record = *place;
        if (record->n_reports == 0) {
            *place = record->next;
            daemon_uplink_free_record(record);
        } else {
            place = &record->next;
        }
    }
}

static void daemon_uplink_report_gone(void *owner) {
    ((struct daemon_uplink_record *)owner)->n_reports--;
}

static void daemon_uplink_pop(struct daemon_uplink *uplink) {
    daemon_uplink_report_gone(uplink->spool.first->owner);
    daemon_spool_pop(&uplink->spool);
}

/* Under the lock. The thread sleeps until `until_ns`, something changes or the end is wished. */
static void daemon_uplink_sleep(struct daemon_uplink *uplink, int64_t until_ns) {
    if (uplink->deadline_ns != 0 && uplink->deadline_ns < until_ns) {
        until_ns = uplink->deadline_ns;
    }
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    int had_deadline = uplink->deadline_ns != 0;
    int code = 0;
    while (code == 0 && (uplink->deadline_ns != 0) == had_deadline &&
           clock_monotonic_ns() < until_ns) {
        code = pthread_cond_timedwait(&uplink->changed, &uplink->lock, &until);
    }
}

/* After a failure, under the lock. */
static void daemon_uplink_back_off(struct daemon_uplink *uplink, const struct deft_error *error,
                                   int64_t retry_after_s) {
    int64_t now_ns = clock_monotonic_ns();
    int64_t delay_ns = daemon_pace_next_ns(&uplink->pace);
    if (retry_after_s > 0 && retry_after_s <= 60 && retry_after_s * 1000000000 > delay_ns) {
        delay_ns = retry_after_s * 1000000000;
    }
    log_wait_for(&uplink->wait, uplink->log, now_ns, "the controller (%zu bytes are queued): %s",
                 uplink->spool.n_bytes, error->text);
    daemon_uplink_sleep(uplink, now_ns + delay_ns);
}

static void daemon_uplink_answered(struct daemon_uplink *uplink) {
    daemon_pace_reset(&uplink->pace);
    log_wait_over(&uplink->wait, uplink->log, clock_monotonic_ns(), "the controller");
}

/* Under the lock, which is given up while the request runs. Records are only freed by this thread,
 * by sweep, so `record` stays. */
static void daemon_uplink_register(struct daemon_uplink *uplink,
                                   struct daemon_uplink_record *record) {
    struct wire_registered registered = {0};
    struct deft_error error = {0};
    int64_t retry_after_s = 0;
    char *body = strdup(record->registration);
    record->wants_registration = 0; /* unless it grows meanwhile */
    (void)pthread_mutex_unlock(&uplink->lock);
    enum deft_status status;
    if (body != NULL) {
        status = daemon_uplink_call_register(uplink->client, record->inc->job, body, &registered,
                                             &retry_after_s, &error);
        free(body);
    } else {
        status = deft_fail(&error, DEFT_NO_MEMORY, 0, "no memory for a registration");
    }
    (void)pthread_mutex_lock(&uplink->lock);
    if (status != DEFT_OK) {
        record->wants_registration = 1;
        daemon_uplink_back_off(uplink, &error, retry_after_s);
        return;
    }
    daemon_uplink_answered(uplink);
    memcpy(record->id, registered.incarnation, sizeof(record->id));
    record->committed_seq = registered.committed_seq;
    log_line(uplink->log, LOG_LEVEL_INFO,
             "job '%s' is registered as incarnation %s in mode %s, report %" PRIu64
             " was the last one committed",
             registered.job, record->id, registered.mode, record->committed_seq);
    (void)pthread_cond_broadcast(&uplink->changed);
}

/* What history must hold from here on, as runs of iterations: tests/bench/fail_open compares. */
static void daemon_uplink_tell_committed(const struct daemon_uplink *uplink,
                                         const struct wire_report *report, uint64_t seq) {
    for (uint32_t i = 0; uplink->log->least == LOG_LEVEL_DEBUG && i < report->n_iterations;) {
        const struct wire_iteration *first = &report->iterations[i];
        uint32_t n = 1;
        while (i + n < report->n_iterations && first[n].rank == first->rank &&
               first[n].iteration == first->iteration + n) {
            n++;
        }
        log_line(uplink->log, LOG_LEVEL_DEBUG,
                 "report %" PRIu64 " is committed: rank %u iterations %" PRIu64 "-%" PRIu64, seq,
                 first->rank, first->iteration, first->iteration + n - 1);
        i += n;
    }
}

/* Under the lock: what the answer to the first report means. */
static void daemon_uplink_settle(struct daemon_uplink *uplink, struct daemon_uplink_record *record,
                                 enum deft_status status, uint64_t seq, uint64_t committed_seq,
                                 const struct deft_error *error, int64_t retry_after_s) {
    switch (status) {
    case DEFT_OK:
        daemon_uplink_answered(uplink);
        if (committed_seq > record->committed_seq) {
            record->committed_seq = committed_seq;
        }
        if (record->committed_seq >= seq) {
            daemon_uplink_tell_committed(uplink, &uplink->spool.first->report, seq);
            daemon_uplink_pop(uplink);
        }
        break;
    case DEFT_NOT_FOUND:
    case DEFT_STATE:
        log_line(uplink->log, LOG_LEVEL_WARNING, "report %" PRIu64 ": %s; registering again", seq,
                 error->text);
        record->id[0] = '\0';
        record->wants_registration = 1;
        daemon_uplink_sleep(uplink, clock_monotonic_ns() + daemon_pace_next_ns(&uplink->pace));
        break;
    case DEFT_INVALID:
        log_line(uplink->log, LOG_LEVEL_ERROR, "report %" PRIu64 " is given up: %s", seq,
                 error->text);
        uplink->spool.n_dropped_reports++;
        uplink->spool.n_dropped_iterations += uplink->spool.first->report.n_iterations;
        uplink->spool.n_dropped_events += uplink->spool.first->report.n_events;
        daemon_uplink_pop(uplink);
        break;
    default:
        daemon_uplink_back_off(uplink, error, retry_after_s);
        break;
    }
}

/* Under the lock, which is given up while the request runs. `tried` keeps the entry in the spool.
 */
static void daemon_uplink_send(struct daemon_uplink *uplink) {
    struct daemon_spool_entry *entry = uplink->spool.first;
    struct daemon_uplink_record *record = entry->owner;
    struct deft_error error = {0};
    int64_t retry_after_s = 0;
    uint64_t committed_seq = 0;
    char id[WIRE_ID_BYTES];
    /* A number once given stays, so that a report whose acknowledgement was lost is not counted
     * twice; after a registration that says it was committed, it is done. */
    if (entry->tried && entry->report.seq <= record->committed_seq) {
        daemon_uplink_pop(uplink);
        return;
    }
    entry->tried = 1;
    entry->report.seq = record->committed_seq + 1;
    memcpy(entry->report.agent, uplink->agent, strlen(uplink->agent) + 1);
    memcpy(id, record->id, sizeof(id));
    (void)pthread_mutex_unlock(&uplink->lock);
    enum deft_status status = daemon_uplink_call_report(uplink->client, id, &entry->report,
                                                        &committed_seq, &retry_after_s, &error);
    (void)pthread_mutex_lock(&uplink->lock);
    daemon_uplink_settle(uplink, record, status, entry->report.seq, committed_seq, &error,
                         retry_after_s);
}

static void *daemon_uplink_run(void *argument) {
    struct daemon_uplink *uplink = argument;
    (void)pthread_mutex_lock(&uplink->lock);
    for (;;) {
        daemon_uplink_sweep(uplink);
        int64_t now_ns = clock_monotonic_ns();
        struct daemon_uplink_record *record =
            uplink->spool.first != NULL ? uplink->spool.first->owner : uplink->records;
        int has_work =
            record != NULL && (record->wants_registration || uplink->spool.first != NULL);
        if (uplink->deadline_ns != 0 && (!has_work || now_ns >= uplink->deadline_ns)) {
            break;
        }
        if (!has_work) {
            (void)pthread_cond_wait(&uplink->changed, &uplink->lock);
        } else if (record->wants_registration) {
            daemon_uplink_register(uplink, record);
        } else {
            daemon_uplink_send(uplink);
        }
    }
    if (uplink->spool.first != NULL) {
        log_line(uplink->log, LOG_LEVEL_WARNING,
                 "%zu bytes of reports could not be delivered before the end",
                 uplink->spool.n_bytes);
    }
    uplink->has_ended = 1;
    (void)pthread_cond_broadcast(&uplink->changed);
    (void)pthread_mutex_unlock(&uplink->lock);
    return NULL;
}

static enum deft_status daemon_uplink_init_locks(struct daemon_uplink *uplink) {
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0) {
        return DEFT_NO_MEMORY;
    }
    int code = pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    code = code == 0 ? pthread_cond_init(&uplink->changed, &attributes) : code;
    (void)pthread_condattr_destroy(&attributes);
    if (code == 0 && pthread_mutex_init(&uplink->lock, NULL) != 0) {
        (void)pthread_cond_destroy(&uplink->changed);
        code = ENOMEM;
    }
    return code == 0 ? DEFT_OK : DEFT_NO_MEMORY;
}

enum deft_status daemon_uplink_start(const struct http_client_options *controller,
                                     const char *agent, const struct log *log,
                                     struct daemon_uplink **out, struct deft_error *error) {
    struct daemon_uplink *uplink = calloc(1, sizeof(*uplink));
    if (uplink == NULL || daemon_uplink_init_locks(uplink) != DEFT_OK) {
        free(uplink);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the uplink");
    }
    uplink->agent = agent;
    uplink->log = log;
    daemon_spool_init(&uplink->spool, DAEMON_SPOOL_BYTES);
    daemon_pace_init(&uplink->pace, daemon_pace_entropy());
    enum deft_status status = http_client_open(controller, &uplink->client, error);
    if (status == DEFT_OK) {
        http_client_stop_flag(uplink->client, &uplink->cancel);
        int code = pthread_create(&uplink->thread, NULL, daemon_uplink_run, uplink);
        if (code != 0) {
            status = deft_fail(error, DEFT_IO, code, "the uplink's thread cannot start: %s",
                               strerror(code));
        }
    }
    if (status != DEFT_OK) {
        http_client_close(uplink->client);
        (void)pthread_cond_destroy(&uplink->changed);
        (void)pthread_mutex_destroy(&uplink->lock);
        free(uplink);
        return status;
    }
    *out = uplink;
    return DEFT_OK;
}

enum deft_status daemon_uplink_announce(struct daemon_uplink *uplink,
                                        struct daemon_incarnation *inc, struct deft_error *error) {
    char *registration = NULL;
    enum deft_status status = wire_registration_encode(&inc->registration, &registration, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&uplink->lock);
    struct daemon_uplink_record *record = uplink->records;
    if (record == NULL || record->inc != inc) {
        record = calloc(1, sizeof(*record));
        if (record == NULL) {
            free(registration);
            status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for an incarnation");
            goto done;
        }
        record->inc = daemon_incarnation_ref(inc);
        record->next = uplink->records;
        uplink->records = record;
    }
    free(record->registration);
    record->registration = registration;
    record->wants_registration = 1;
    (void)pthread_cond_broadcast(&uplink->changed);
done:
    (void)pthread_mutex_unlock(&uplink->lock);
    return status;
}

void daemon_uplink_push(struct daemon_uplink *uplink, struct wire_report *report) {
    (void)pthread_mutex_lock(&uplink->lock);
    struct daemon_uplink_record *record = uplink->records;
    if (record == NULL) {
        wire_report_done(report);
    } else {
        record->n_reports++;
        if (daemon_spool_push(&uplink->spool, report, record, daemon_uplink_report_gone) !=
            DEFT_OK) {
            record->n_reports--;
        }
        (void)pthread_cond_broadcast(&uplink->changed);
    }
    (void)pthread_mutex_unlock(&uplink->lock);
}

uint64_t daemon_uplink_take_dropped(struct daemon_uplink *uplink) {
    (void)pthread_mutex_lock(&uplink->lock);
    uint64_t n = uplink->spool.n_dropped_iterations + uplink->spool.n_dropped_events;
    uint64_t fresh = n - uplink->n_dropped_told;
    uplink->n_dropped_told = n;
    (void)pthread_mutex_unlock(&uplink->lock);
    return fresh;
}

enum deft_status daemon_uplink_current(struct daemon_uplink *uplink, int timeout_ms,
                                       char out_id[WIRE_ID_BYTES],
                                       struct daemon_incarnation **out_inc) {
    enum deft_status status = DEFT_TIMEOUT;
    int64_t until_ns = clock_monotonic_ns() + (int64_t)timeout_ms * 1000000;
    struct timespec until = {.tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000};
    int code = 0;
    (void)pthread_mutex_lock(&uplink->lock);
    while (code == 0 && (uplink->records == NULL || uplink->records->id[0] == '\0')) {
        code = pthread_cond_timedwait(&uplink->changed, &uplink->lock, &until);
    }
    if (uplink->records != NULL && uplink->records->id[0] != '\0') {
        memcpy(out_id, uplink->records->id, WIRE_ID_BYTES);
        *out_inc = daemon_incarnation_ref(uplink->records->inc);
        status = DEFT_OK;
    }
    (void)pthread_mutex_unlock(&uplink->lock);
    return status;
}

int daemon_uplink_is_current(struct daemon_uplink *uplink, const char *id) {
    (void)pthread_mutex_lock(&uplink->lock);
    int is_current = uplink->records != NULL && strcmp(uplink->records->id, id) == 0;
    (void)pthread_mutex_unlock(&uplink->lock);
    return is_current;
}

void daemon_uplink_forget(struct daemon_uplink *uplink, const char *id) {
    (void)pthread_mutex_lock(&uplink->lock);
    if (uplink->records != NULL && strcmp(uplink->records->id, id) == 0) {
        uplink->records->id[0] = '\0';
        uplink->records->wants_registration = 1;
        (void)pthread_cond_broadcast(&uplink->changed);
    }
    (void)pthread_mutex_unlock(&uplink->lock);
}

void daemon_uplink_stop(struct daemon_uplink *uplink, int64_t deadline_ns) {
    if (uplink == NULL) {
        return;
    }
    struct timespec until = {.tv_sec = deadline_ns / 1000000000,
                             .tv_nsec = deadline_ns % 1000000000};
    int code = 0;
    (void)pthread_mutex_lock(&uplink->lock);
    uplink->deadline_ns = deadline_ns;
    (void)pthread_cond_broadcast(&uplink->changed);
    while (code == 0 && !uplink->has_ended) {
        code = pthread_cond_timedwait(&uplink->changed, &uplink->lock, &until);
    }
    (void)pthread_mutex_unlock(&uplink->lock);
    __atomic_store_n(&uplink->cancel, 1, __ATOMIC_RELAXED);
    (void)pthread_join(uplink->thread, NULL);
    daemon_spool_done(&uplink->spool);
    while (uplink->records != NULL) {
        struct daemon_uplink_record *record = uplink->records;
        uplink->records = record->next;
        daemon_uplink_free_record(record);
    }
    http_client_close(uplink->client);
    (void)pthread_cond_destroy(&uplink->changed);
    (void)pthread_mutex_destroy(&uplink->lock);
    free(uplink);
}
