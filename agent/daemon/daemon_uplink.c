#include "daemon_uplink.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "daemon_text.h"
#include "daemon_uplink_calls.h"
#include "daemon_uplink_impl.h"

/* What a controller may wish for with Retry-After; it asks for seconds. */
#define DAEMON_UPLINK_RETRY_MOST_S 60

/* Under the lock: an incarnation that is over and whose reports are gone needs no record. */
static void daemon_uplink_sweep(struct daemon_uplink *uplink) {
    struct daemon_uplink_record **place = &uplink->records;
    while (*place != NULL) {
        struct daemon_uplink_record *record = *place;
        if (record->n_reports == 0 && record != uplink->current) {
            *place = record->next;
            daemon_uplink_free_record(uplink, record);
        } else {
            place = &record->next;
        }
    }
}

static void daemon_uplink_pop(struct daemon_uplink *uplink) {
    daemon_uplink_unlink(uplink, uplink->spool.first);
    daemon_uplink_report_gone(uplink->spool.first->owner);
    daemon_spool_pop(&uplink->spool);
}

/* Under the lock. The thread sleeps until `until_ns`, something changes or the end is wished. */
static void daemon_uplink_sleep(struct daemon_uplink *uplink, int64_t until_ns) {
    if (uplink->deadline_ns != 0 && uplink->deadline_ns < until_ns) {
        until_ns = uplink->deadline_ns;
    }
    int had_deadline = uplink->deadline_ns != 0;
    int code = 0;
    while (code == 0 && (uplink->deadline_ns != 0) == had_deadline &&
           clock_monotonic_ns() < until_ns) {
        daemon_uplink_write_out(uplink, DAEMON_SPOOL_RESIDENT_BYTES);
        if ((uplink->deadline_ns != 0) != had_deadline) {
            break; /* it was wished for while the lock was given up */
        }
        code = thread_condition_wait(&uplink->changed, &uplink->lock, until_ns);
    }
}

/* After a failure, under the lock. */
static void daemon_uplink_back_off(struct daemon_uplink *uplink, const struct deft_error *error,
                                   int64_t retry_after_s) {
    int64_t now_ns = clock_monotonic_ns();
    int64_t delay_ns = daemon_pace_next_ns(&uplink->pace);
    if (retry_after_s > 0) { /* and the random part, so that not all return at once */
        int64_t wished_s =
            retry_after_s < DAEMON_UPLINK_RETRY_MOST_S ? retry_after_s : DAEMON_UPLINK_RETRY_MOST_S;
        delay_ns += wished_s * 1000000000;
    }
    log_wait_for(
        &uplink->wait, uplink->log, now_ns,
        "the controller (%zu bytes in memory, %" PRIu64 " on disk; asked again in %.1f s): %s",
        uplink->spool.n_bytes, uplink->spool.disk_bytes, (double)delay_ns / 1e9, error->text);
    daemon_uplink_sleep(uplink, now_ns + delay_ns);
}

static void daemon_uplink_answered(struct daemon_uplink *uplink) {
    daemon_pace_reset(&uplink->pace);
    log_wait_over(&uplink->wait, uplink->log, clock_monotonic_ns(), "the controller");
}

/* Under the lock: the controller will never take the reports of an incarnation that is over. */
static void daemon_uplink_give_up(struct daemon_uplink *uplink, struct daemon_uplink_record *record,
                                  const struct deft_error *error) {
    struct daemon_spool_entry *entry = uplink->spool.first;
    log_line(uplink->log, LOG_LEVEL_ERROR, "%d reports of job '%s' are given up: %s",
             record->n_reports, record->job, error->text);
    while (entry != NULL) {
        struct daemon_spool_entry *next = entry->next;
        if (entry->owner == record) {
            daemon_uplink_unlink(uplink, entry);
            next = entry->next;
            daemon_spool_drop(&uplink->spool, entry, daemon_uplink_report_gone);
        }
        entry = next;
    }
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
        status = daemon_uplink_call_register(uplink->client, record->job, body, &registered,
                                             &retry_after_s, &error);
        free(body);
    } else {
        status = deft_fail(&error, DEFT_NO_MEMORY, 0, "no memory for a registration");
    }
    (void)pthread_mutex_lock(&uplink->lock);
    if (status != DEFT_OK) {
        record->wants_registration = 1;
        record->is_refused = status == DEFT_INVALID || status == DEFT_STATE;
        if (record->is_refused && record != uplink->current) {
            daemon_uplink_give_up(uplink, record, &error);
        } else {
            daemon_uplink_back_off(uplink, &error, retry_after_s);
        }
        return;
    }
    daemon_uplink_answered(uplink);
    record->is_refused = 0;
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

/* Numbers beyond ours: somebody else reports under this name, a copy of this machine, say. What was
 * just sent was not taken, and goes again behind the other's. */
static void daemon_uplink_clash(struct daemon_uplink *uplink, struct daemon_uplink_record *record,
                                uint64_t committed_seq) {
    if (!uplink->clash_told) {
        log_line(uplink->log, LOG_LEVEL_ERROR,
                 "another agent reports as %s too: the controller has report %" PRIu64
                 ", this agent has sent %" PRIu64,
                 record->agent, committed_seq, uplink->spool.first->report.seq);
    }
    uplink->clash_told = 1;
    record->committed_seq = committed_seq;
    uplink->spool.first->tried = 0;
}

/* Under the lock: what the answer to the first report means. */
static void daemon_uplink_settle(struct daemon_uplink *uplink, struct daemon_uplink_record *record,
                                 enum deft_status status, uint64_t seq, uint64_t committed_seq,
                                 const struct deft_error *error, int64_t retry_after_s) {
    struct deft_error late = {0};
    switch (status) {
    case DEFT_OK:
        daemon_uplink_answered(uplink);
        if (committed_seq > seq) {
            daemon_uplink_clash(uplink, record, committed_seq);
        } else if (committed_seq == seq) {
            record->committed_seq = committed_seq;
            daemon_uplink_tell_committed(uplink, &uplink->spool.first->report, seq);
            daemon_uplink_pop(uplink);
        } else {
            deft_ignore(deft_fail(&late, DEFT_IO, 0,
                                  "it has committed %" PRIu64 " and not report %" PRIu64,
                                  committed_seq, seq));
            daemon_uplink_back_off(uplink, &late, 0);
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
        daemon_uplink_unlink(uplink, uplink->spool.first);
        daemon_spool_drop(&uplink->spool, uplink->spool.first, daemon_uplink_report_gone);
        break;
    default:
        daemon_uplink_back_off(uplink, error, retry_after_s);
        break;
    }
}

/* Under the lock, which is given up while the request runs. `tried` keeps the entry in the spool.
 */
static void daemon_uplink_send(struct daemon_uplink *uplink) {
    if (!daemon_uplink_load(uplink)) {
        return;
    }
    struct daemon_spool_entry *entry = uplink->spool.first;
    struct daemon_uplink_record *record = entry->owner;
    struct deft_error error = {0};
    int64_t retry_after_s = 0;
    uint64_t committed_seq = 0;
    char id[WIRE_ID_BYTES];
    if (entry->report.seq <= record->committed_seq) {
        /* A report whose acknowledgement was lost is done; so is one that another agent had sent
         * before it left its file. One that never left us is in the way of a clash. */
        if (entry->tried || record->inc == NULL) {
            daemon_uplink_pop(uplink);
            return;
        }
        entry->report.seq = record->committed_seq + 1;
    }
    entry->tried = 1;
    entry->busy = 1;
    memcpy(id, record->id, sizeof(id));
    (void)pthread_mutex_unlock(&uplink->lock);
    enum deft_status status = daemon_uplink_call_report(uplink->client, id, &entry->report,
                                                        &committed_seq, &retry_after_s, &error);
    (void)pthread_mutex_lock(&uplink->lock);
    entry->busy = 0;
    daemon_uplink_settle(uplink, record, status, entry->report.seq, committed_seq, &error,
                         retry_after_s);
}

/* Under the lock. The oldest incarnation is registered first, so that the newest is the last one
 * the controller hears of; one that it will not have does not keep reports of others back. NULL:
 * none.
 */
static struct daemon_uplink_record *daemon_uplink_to_register(const struct daemon_uplink *uplink) {
    const struct daemon_spool_entry *first = uplink->spool.first;
    struct daemon_uplink_record *refused = NULL;
    for (struct daemon_uplink_record *record = uplink->records; record != NULL;
         record = record->next) {
        if (record->wants_registration && !record->is_refused) {
            return record;
        }
        refused = record->wants_registration ? record : refused;
    }
    int can_send =
        first != NULL && !((struct daemon_uplink_record *)first->owner)->wants_registration;
    return can_send ? NULL : refused;
}

static void daemon_uplink_tell_end(const struct daemon_uplink *uplink) {
    const struct daemon_spool *spool = &uplink->spool;
    size_t files_bytes = (size_t)spool->n_on_disk * sizeof(struct daemon_spool_entry);
    if (spool->n_on_disk > 0) {
        log_line(uplink->log, LOG_LEVEL_WARNING,
                 "%" PRIu64 " reports stay in %s for the next agent of the job", spool->n_on_disk,
                 uplink->options.spool_dir);
    }
    if (spool->n_bytes > files_bytes) {
        log_line(uplink->log, LOG_LEVEL_WARNING,
                 "%zu bytes of reports could not be delivered before the end",
                 spool->n_bytes - files_bytes);
    }
}

static void *daemon_uplink_run(void *argument) {
    struct daemon_uplink *uplink = argument;
    (void)pthread_mutex_lock(&uplink->lock);
    for (;;) {
        daemon_uplink_sweep(uplink);
        if (uplink->wants_adoption) {
            daemon_uplink_adopt(uplink);
        }
        int64_t now_ns = clock_monotonic_ns();
        struct daemon_uplink_record *record = daemon_uplink_to_register(uplink);
        int has_work = record != NULL || uplink->spool.first != NULL;
        if (uplink->deadline_ns != 0 && (!has_work || now_ns >= uplink->deadline_ns)) {
            break;
        }
        if (!has_work) {
            (void)pthread_cond_wait(&uplink->changed, &uplink->lock);
        } else if (record != NULL) {
            daemon_uplink_register(uplink, record);
        } else {
            daemon_uplink_send(uplink);
        }
        daemon_uplink_write_out(uplink, DAEMON_SPOOL_RESIDENT_BYTES);
    }
    daemon_uplink_write_out(uplink, 0);
    daemon_uplink_tell_end(uplink);
    uplink->has_ended = 1;
    (void)pthread_cond_broadcast(&uplink->changed);
    (void)pthread_mutex_unlock(&uplink->lock);
    return NULL;
}

static enum deft_status daemon_uplink_init_locks(struct daemon_uplink *uplink) {
    if (thread_condition_init(&uplink->changed) != 0) {
        return DEFT_NO_MEMORY;
    }
    if (pthread_mutex_init(&uplink->lock, NULL) != 0) {
        (void)pthread_cond_destroy(&uplink->changed);
        return DEFT_NO_MEMORY;
    }
    return DEFT_OK;
}

enum deft_status daemon_uplink_start(const struct daemon_uplink_options *options,
                                     const struct log *log, struct daemon_uplink **out,
                                     struct deft_error *error) {
    struct daemon_uplink *uplink = calloc(1, sizeof(*uplink));
    if (uplink == NULL || daemon_uplink_init_locks(uplink) != DEFT_OK) {
        free(uplink);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the uplink");
    }
    uplink->options = *options;
    uplink->log = log;
    if (options->job != NULL) {
        daemon_text_copy(uplink->job, sizeof(uplink->job), options->job);
        uplink->wants_adoption = 1;
    }
    daemon_spool_init(&uplink->spool, DAEMON_SPOOL_BYTES);
    daemon_pace_init(&uplink->pace, daemon_pace_entropy());
    enum deft_status status = http_client_open(options->controller, &uplink->client, error);
    if (status == DEFT_OK) {
        http_client_stop_flag(uplink->client, &uplink->cancel);
        int code = thread_start(&uplink->thread, daemon_uplink_run, uplink);
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

/* Under the lock. */
static struct daemon_uplink_record *daemon_uplink_add_record(struct daemon_uplink *uplink,
                                                             struct daemon_incarnation *inc) {
    struct daemon_uplink_record **place = &uplink->records;
    struct daemon_uplink_record *record = calloc(1, sizeof(*record));
    if (record == NULL) {
        return NULL;
    }
    record->inc = daemon_incarnation_ref(inc);
    memcpy(record->job, inc->job, sizeof(record->job));
    memcpy(record->agent, uplink->options.agent, strlen(uplink->options.agent) + 1);
    record->start = ++uplink->n_starts;
    while (*place != NULL) {
        place = &(*place)->next;
    }
    *place = record;
    uplink->current = record;
    if (strcmp(uplink->job, inc->job) != 0) {
        memcpy(uplink->job, inc->job, sizeof(uplink->job));
        uplink->wants_adoption = 1;
    }
    return record;
}

enum deft_status daemon_uplink_announce(struct daemon_uplink *uplink,
                                        struct daemon_incarnation *inc, struct deft_error *error) {
    char *registration = NULL;
    enum deft_status status = wire_registration_encode(&inc->registration, &registration, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)pthread_mutex_lock(&uplink->lock);
    struct daemon_uplink_record *record = uplink->current;
    if (record == NULL || record->inc != inc) {
        record = daemon_uplink_add_record(uplink, inc);
        if (record == NULL) {
            free(registration);
            status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for an incarnation");
            goto done;
        }
    }
    free(record->registration);
    record->registration = registration;
    record->has_start = 0;
    record->wants_registration = 1;
    (void)pthread_cond_broadcast(&uplink->changed);
done:
    (void)pthread_mutex_unlock(&uplink->lock);
    return status;
}

void daemon_uplink_push(struct daemon_uplink *uplink, struct wire_report *report) {
    (void)pthread_mutex_lock(&uplink->lock);
    struct daemon_uplink_record *record = uplink->current;
    if (record == NULL) {
        wire_report_done(report);
    } else {
        report->seq = ++record->last_seq;
        memcpy(report->agent, record->agent, sizeof(report->agent));
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
    int code = 0;
    (void)pthread_mutex_lock(&uplink->lock);
    while (code == 0 && !uplink->lets_go &&
           (uplink->current == NULL || uplink->current->id[0] == '\0')) {
        code = thread_condition_wait(&uplink->changed, &uplink->lock, until_ns);
    }
    if (uplink->current != NULL && uplink->current->id[0] != '\0') {
        memcpy(out_id, uplink->current->id, WIRE_ID_BYTES);
        *out_inc = daemon_incarnation_ref(uplink->current->inc);
        status = DEFT_OK;
    }
    (void)pthread_mutex_unlock(&uplink->lock);
    return status;
}

void daemon_uplink_let_go(struct daemon_uplink *uplink) {
    (void)pthread_mutex_lock(&uplink->lock);
    uplink->lets_go = 1;
    (void)pthread_cond_broadcast(&uplink->changed);
    (void)pthread_mutex_unlock(&uplink->lock);
}

int daemon_uplink_is_current(struct daemon_uplink *uplink, const char *id) {
    (void)pthread_mutex_lock(&uplink->lock);
    int is_current = uplink->current != NULL && strcmp(uplink->current->id, id) == 0;
    (void)pthread_mutex_unlock(&uplink->lock);
    return is_current;
}

void daemon_uplink_forget(struct daemon_uplink *uplink, const char *id) {
    (void)pthread_mutex_lock(&uplink->lock);
    if (uplink->current != NULL && strcmp(uplink->current->id, id) == 0) {
        uplink->current->id[0] = '\0';
        uplink->current->wants_registration = 1;
        (void)pthread_cond_broadcast(&uplink->changed);
    }
    (void)pthread_mutex_unlock(&uplink->lock);
}

void daemon_uplink_stop(struct daemon_uplink *uplink, int64_t deadline_ns) {
    if (uplink == NULL) {
        return;
    }
    int code = 0;
    (void)pthread_mutex_lock(&uplink->lock);
    uplink->deadline_ns = deadline_ns;
    (void)pthread_cond_broadcast(&uplink->changed);
    while (code == 0 && !uplink->has_ended) {
        code = thread_condition_wait(&uplink->changed, &uplink->lock, deadline_ns);
    }
    (void)pthread_mutex_unlock(&uplink->lock);
    __atomic_store_n(&uplink->cancel, 1, __ATOMIC_RELAXED);
    (void)pthread_join(uplink->thread, NULL);
    daemon_spool_done(&uplink->spool);
    while (uplink->records != NULL) {
        struct daemon_uplink_record *record = uplink->records;
        uplink->records = record->next;
        daemon_uplink_free_record(uplink, record);
    }
    daemon_uplink_close_homes(uplink);
    http_client_close(uplink->client);
    (void)pthread_cond_destroy(&uplink->changed);
    (void)pthread_mutex_destroy(&uplink->lock);
    free(uplink);
}
