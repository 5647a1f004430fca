#include "jobs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "jobs_live.h"

#define JOBS_YEAR_NS (UINT64_C(366) * 86400 * 1000000000)

/* --- tasks ---------------------------------------------------------------------------------------
 */

/* Decisions go before all else, in their order: one takes a commit, while a search may take as long
 * as a hundred of them, and ranks wait for what was decided. 0: there is no memory, which is
 * logged. */
static int jobs_queue(struct jobs *jobs, enum jobs_task_kind kind, int64_t id,
                      const struct tuner_decision *decision) {
    struct jobs_task *task = calloc(1, sizeof(*task));
    if (task == NULL) {
        log_line(jobs->options.log, LOG_LEVEL_ERROR, "no memory to carry a decision out");
        return 0;
    }
    task->kind = kind;
    task->id = id;
    if (decision != NULL) {
        task->decision = *decision;
    }
    struct jobs_task **at = jobs->last;
    if (kind == JOBS_ENACT) {
        for (at = &jobs->first; *at != NULL && (*at)->kind == JOBS_ENACT;) {
            at = &(*at)->next;
        }
    }
    task->next = *at;
    *at = task;
    if (task->next == NULL) {
        jobs->last = &task->next;
    }
    (void)pthread_cond_signal(&jobs->work);
    return 1;
}

void jobs_live_changed(struct jobs *jobs, struct jobs_live *live) {
    live->changing = live->changing || jobs_queue(jobs, JOBS_CHANGE, live->id, NULL);
}

static void jobs_enact(struct jobs *jobs, const struct jobs_live *live,
                       const struct tuner_decision *decision) {
    if (decision->kind != TUNER_NOTHING) {
        (void)jobs_queue(jobs, JOBS_ENACT, live->id, decision);
    }
}

void jobs_live_decided(struct jobs *jobs, struct jobs_live *live,
                       const struct tuner_decision *decision) {
    if (live->is_superseded) {
        return; /* its ranks are gone, or belong to another start by now */
    }
    if (decision->kind == TUNER_SOLVE) {
        live->solving = live->solving || jobs_queue(jobs, JOBS_SOLVE, live->id, NULL);
    } else {
        jobs_enact(jobs, live, decision);
    }
}

/* --- start and stop ------------------------------------------------------------------------------
 */

/* What cannot be read now is taken up when its ranks report. */
static void jobs_load(struct jobs *jobs) {
    int64_t *ids = NULL;
    size_t n = 0;
    size_t n_taken = 0;
    struct deft_error error = {0};
    if (store_read_open(jobs->options.store, JOBS_MAX_LOADED, &ids, &n, &error) != DEFT_OK) {
        log_line(jobs->options.log, LOG_LEVEL_WARNING, "running jobs are not taken up yet: %s",
                 error.text);
    }
    for (size_t i = 0; i < n; i++) {
        struct deft_error why = {0};
        struct jobs_live *live = NULL;
        if (jobs_live_load(jobs, ids[i], &live, &why) == DEFT_OK) {
            jobs_live_add(jobs, live);
            n_taken++;
        } else {
            log_line(jobs->options.log, LOG_LEVEL_WARNING, "incarnation i%lld is left out: %s",
                     (long long)ids[i], why.text);
        }
    }
    if (n > 0) {
        log_line(jobs->options.log, LOG_LEVEL_INFO, "%zu running jobs were taken up again",
                 n_taken);
    }
    free(ids);
}

enum deft_status jobs_start(const struct jobs_options *options, struct jobs **out,
                            struct deft_error *error) {
    struct jobs *jobs = calloc(1, sizeof(*jobs));
    if (jobs == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the registry of jobs");
    }
    jobs->options = *options;
    jobs->last = &jobs->first;
    jobs->round_ns = clock_monotonic_ns();
    (void)pthread_mutex_init(&jobs->lock, NULL);
    (void)thread_condition_init(&jobs->work);
    jobs_load(jobs);
    int code = thread_start(&jobs->thread, jobs_engine, jobs);
    jobs->has_thread = code == 0;
    if (code != 0) {
        jobs_stop(jobs);
        return deft_fail(error, DEFT_IO, code, "the tuner's thread cannot be started: %s",
                         strerrordesc_np(code));
    }
    *out = jobs;
    return DEFT_OK;
}

void jobs_stop(struct jobs *jobs) {
    if (jobs == NULL) {
        return;
    }
    if (jobs->has_thread) {
        (void)pthread_mutex_lock(&jobs->lock);
        jobs->stopping = 1;
        (void)pthread_cond_signal(&jobs->work);
        (void)pthread_mutex_unlock(&jobs->lock);
        (void)pthread_join(jobs->thread, NULL);
    }
    for (size_t i = 0; i < JOBS_BUCKETS; i++) {
        while (jobs->buckets[i] != NULL) {
            jobs_live_remove(jobs, jobs->buckets[i]);
        }
    }
    while (jobs->first != NULL) {
        struct jobs_task *task = jobs->first;
        jobs->first = task->next;
        free(task);
    }
    (void)pthread_cond_destroy(&jobs->work);
    (void)pthread_mutex_destroy(&jobs->lock);
    free(jobs);
}

/* --- registrations
 * -------------------------------------------------------------------------------- */

/* Locks, and takes the incarnation up from the database if it is not in memory. The lock is held
 * when DEFT_OK is returned. */
static enum deft_status jobs_find_locked(struct jobs *jobs, int64_t id, struct jobs_live **out,
                                         struct deft_error *error) {
    struct jobs_live *loaded = NULL;
    (void)pthread_mutex_lock(&jobs->lock);
    struct jobs_live *live = jobs_live_find(jobs, id);
    if (live == NULL) {
        (void)pthread_mutex_unlock(&jobs->lock);
        enum deft_status status = jobs_live_load(jobs, id, &loaded, error);
        if (status != DEFT_OK) {
            return status;
        }
        (void)pthread_mutex_lock(&jobs->lock);
        live = jobs_live_find(jobs, id);
        if (live == NULL) {
            live = loaded;
            jobs_live_add(jobs, live);
        } else {
            jobs_live_destroy(loaded); /* another thread was faster */
        }
    }
    *out = live;
    return DEFT_OK;
}

/* Clients' clocks order nothing; what one says is kept within what can be: not behind this
 * controller's, and not before the year that ends now. */
static uint64_t jobs_clamp_time(uint64_t started_ns, int64_t now_ns) {
    uint64_t most = now_ns > 0 ? (uint64_t)now_ns : 0;
    uint64_t least = most > JOBS_YEAR_NS ? most - JOBS_YEAR_NS : 0;
    return started_ns > most ? most : started_ns < least ? least : started_ns;
}

/* With the lock held: a job runs once at a time. */
static void jobs_supersede(struct jobs *jobs, const struct jobs_live *newest) {
    for (struct jobs_live *live = jobs_live_named(jobs, newest->job); live != NULL;
         live = live->next_named) {
        if (live->id < newest->id && !live->is_superseded && strcmp(live->job, newest->job) == 0) {
            live->is_superseded = 1;
            jobs_live_changed(jobs, live);
        }
    }
}

struct jobs_registering {
    struct store_register write; /* first */
    struct jobs *jobs;
    char job[WIRE_ID_BYTES];
    struct wire_registration registration;
    char *text;
    jobs_register_fn done;
    void *context;
};

static void jobs_registering_free(struct jobs_registering *registering) {
    wire_registration_done(&registering->registration);
    free(registering->text);
    free(registering);
}

/* What is on disk now is taken up, unless it is there already. */
static enum deft_status jobs_take_registration(struct jobs_registering *registering,
                                               struct wire_registered *out,
                                               struct deft_error *error) {
    struct jobs *jobs = registering->jobs;
    const struct store_register *write = &registering->write;
    struct jobs_live *live = NULL;
    enum deft_status status = jobs_find_locked(jobs, write->incarnation, &live, error);
    if (status != DEFT_OK) {
        return status;
    }
    live->heard_ns = clock_monotonic_ns();
    memset(out, 0, sizeof(*out));
    memcpy(out->incarnation, live->id_text, sizeof(live->id_text));
    memcpy(out->job, live->job, sizeof(out->job));
    memcpy(out->mode, tuner_mode_name(live->tuner.state.mode),
           strlen(tuner_mode_name(live->tuner.state.mode)));
    out->committed_seq = write->committed_seq;
    if (write->is_new) {
        if (write->has_older) {
            jobs_supersede(jobs, live);
        }
        jobs_live_changed(jobs, live);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    log_line(jobs->options.log, LOG_LEVEL_INFO,
             "job %s: agent %s registered for %u of %u ranks as %s", registering->job,
             registering->registration.agent, registering->registration.n_local_ranks,
             registering->registration.n_ranks, out->incarnation);
    return DEFT_OK;
}

static void jobs_register_done(struct store_write *write, enum deft_status status,
                               const struct deft_error *error) {
    struct jobs_registering *registering = (struct jobs_registering *)write;
    struct wire_registered registered;
    struct deft_error why = *error;
    const char *field = NULL;
    if (status == DEFT_MISMATCH) {
        field = registering->write.n_ranks != registering->registration.n_ranks ? "n_ranks"
                                                                                : "table_hash";
    }
    if (status == DEFT_OK) {
        status = jobs_take_registration(registering, &registered, &why);
    }
    registering->done(registering->context, status, &registered, field, &why);
    jobs_registering_free(registering);
}

/* Leaves the struct to its caller. */
static enum deft_status jobs_submit_registration(struct jobs_registering *registering,
                                                 struct deft_error *error) {
    struct jobs *jobs = registering->jobs;
    struct store_register *write = &registering->write;
    const struct wire_registration *registration = &registering->registration;
    int64_t now_ns = clock_wall_ns();
    struct wire_registration kept = *registration;
    kept.started_ns = jobs_clamp_time(registration->started_ns, now_ns);
    enum deft_status status = wire_registration_encode(&kept, &registering->text, error);
    if (status != DEFT_OK) {
        return status;
    }
    store_register_init(write);
    write->write.done = jobs_register_done;
    write->write.n_bytes = sizeof(*registering) + 2 * strlen(registering->text);
    write->job = registering->job;
    write->registration = registration;
    write->registration_text = registering->text;
    (void)pthread_mutex_lock(&jobs->lock); /* jobs_set_defaults */
    write->mode =
        registration->mode[0] != '\0' ? registration->mode : tuner_mode_name(jobs->options.mode);
    write->limits = jobs->options.limits;
    (void)pthread_mutex_unlock(&jobs->lock);
    if (registration->max_merge > 0) {
        write->limits.max_merge = registration->max_merge;
    }
    if (registration->max_delay > 0) {
        write->limits.max_delay = registration->max_delay;
    }
    if (registration->epsilon > 0.0) {
        write->limits.epsilon = registration->epsilon;
    }
    write->now_ns = now_ns;
    return store_submit(jobs->options.store, &write->write, error);
}

enum deft_status jobs_register(struct jobs *jobs, const char *job,
                               struct wire_registration *registration, jobs_register_fn done,
                               void *context, struct deft_error *error) {
    struct jobs_registering *registering = calloc(1, sizeof(*registering));
    if (registering == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a registration");
    }
    (void)snprintf(registering->job, sizeof(registering->job), "%s", job);
    registering->jobs = jobs;
    registering->done = done;
    registering->context = context;
    registering->registration = *registration;
    enum deft_status status = jobs_submit_registration(registering, error);
    if (status != DEFT_OK) {
        free(registering->text);
        free(registering);
        return status;
    }
    memset(registration, 0, sizeof(*registration)); /* taken over */
    return DEFT_OK;
}

/* --- reports
 * --------------------------------------------------------------------------------------- */

struct jobs_pending {
    struct store_report write; /* first */
    struct jobs *jobs;
    jobs_report_fn done;
    void *context;
};

static enum deft_status jobs_check_report(const struct jobs_live *live,
                                          const struct wire_report *report,
                                          struct deft_error *error) {
    uint32_t n_ranks = live->registration.n_ranks;
    uint32_t highest = 0;
    for (uint32_t i = 0; i < report->n_iterations; i++) {
        highest = report->iterations[i].rank > highest ? report->iterations[i].rank : highest;
    }
    for (uint32_t i = 0; i < report->n_ops; i++) {
        highest = report->ops[i].rank > highest ? report->ops[i].rank : highest;
        if (report->ops[i].link >= live->registration.n_links) {
            return deft_fail(error, DEFT_INVALID, 0, "ops[%u].link: %u, but the job has %u links",
                             i, report->ops[i].link, live->registration.n_links);
        }
    }
    for (uint32_t i = 0; i < report->n_events; i++) {
        highest = report->events[i].rank > highest ? report->events[i].rank : highest;
    }
    for (uint32_t i = 0; i < report->n_readiness; i++) {
        const struct wire_readiness *row = &report->readiness[i];
        highest = row->rank > highest ? row->rank : highest;
        if (row->n_offsets != live->registration.n_tensors) {
            return deft_fail(error, DEFT_INVALID, 0,
                             "readiness[%u].offsets_ns: %u elements, but the job has %u tensors", i,
                             row->n_offsets, live->registration.n_tensors);
        }
    }
    if (highest >= n_ranks) {
        return deft_fail(error, DEFT_INVALID, 0, "rank: %u, but the job has ranks 0..%u only",
                         highest, n_ranks - 1);
    }
    return DEFT_OK;
}

static void jobs_take_event(struct jobs *jobs, struct jobs_live *live,
                            const struct wire_event *event) {
    struct tuner_decision decision = {0};
    int failed = strcmp(event->kind, "failed") == 0;
    if (strcmp(event->kind, "refused") == 0) {
        tuner_refused(&live->tuner, event->plan_seq, event->text, &decision);
        jobs_live_decided(jobs, live, &decision);
    } else if (strcmp(event->kind, "fused") == 0) {
        tuner_fused(&live->tuner, event->plan_seq, event->iteration, event->text, &decision);
        jobs_live_decided(jobs, live, &decision);
    } else if (failed || strcmp(event->kind, "finished") == 0) {
        if (live->ends[event->rank] == 0) {
            live->ends[event->rank] = failed ? 2 : 1;
            live->n_ended++;
        }
        if (live->n_ended == live->registration.n_ranks) {
            jobs_live_changed(jobs, live);
        }
    }
}

static void jobs_tell_plan(struct jobs_live *live) {
    const struct tuner_plan *running = &live->tuner.state.running;
    const struct contention_plan plan = {
        .seq = running->seq,
        .is_exact = running->is_exact,
        .at_boundary = running->rule == DSCHED_AVERAGED,
        .cycle = running->cycle > 0 ? running->cycle : 1,
        .n_merged = running->updates_ppm > 0 ? 1e6 / running->updates_ppm : 1};
    observe_runs(live->observe, &plan);
}

/* What is on disk now goes to the tuner. With the lock held. */
static void jobs_take_report(struct jobs *jobs, struct jobs_live *live,
                             const struct wire_report *report) {
    for (uint32_t i = 0; i < report->n_readiness; i++) {
        observe_readiness(live->observe, &report->readiness[i]);
    }
    for (uint32_t i = 0; i < report->n_ops; i++) {
        observe_ops(live->observe, &report->ops[i]);
    }
    for (uint32_t i = 0; i < report->n_iterations; i++) {
        struct observed whole;
        struct tuner_decision decision = {0};
        jobs_tell_plan(live);
        if (!observe_iteration(live->observe, &report->iterations[i], &whole)) {
            continue;
        }
        live->n_iterations++;
        if (!whole.is_mixed) {
            const struct tuner_sample sample = {
                .plan_seq = whole.plan_seq, .step_ns = whole.step_ns, .figures = whole.figures};
            tuner_sample(&live->tuner, &sample, &decision);
            jobs_live_decided(jobs, live, &decision);
        }
    }
    for (uint32_t i = 0; i < report->n_events; i++) {
        jobs_take_event(jobs, live, &report->events[i]);
    }
}

/* A start whose job has started anew, and whose ranks are at work all the same: two jobs of one id.
 * Nobody judges its plan any more, so it does not keep one. With the lock held. */
static void jobs_let_go(struct jobs *jobs, struct jobs_live *live) {
    struct tuner_decision decision = {0};
    if (live->tuner.state.mode != TUNER_OFF && jobs_live_is_watched(live)) {
        tuner_leave(&live->tuner, "the job has started anew", &decision);
        jobs_enact(jobs, live, &decision);
    }
}

static void jobs_report_done(struct store_write *write, enum deft_status status,
                             const struct deft_error *error) {
    struct jobs_pending *pending = (struct jobs_pending *)write;
    struct jobs *jobs = pending->jobs;
    if (status == DEFT_OK) {
        (void)pthread_mutex_lock(&jobs->lock);
        struct jobs_live *live = jobs_live_find(jobs, pending->write.incarnation);
        if (live != NULL) {
            live->heard_ns = clock_monotonic_ns();
            live->updated_ns = pending->write.now_ns;
            if (strcmp(live->state, "lost") == 0 && !live->is_superseded) {
                jobs_live_changed(jobs, live);
            }
            if (pending->write.is_fresh) {
                jobs_take_report(jobs, live, &pending->write.report);
            }
            if (live->is_superseded) {
                jobs_let_go(jobs, live);
            }
        }
        (void)pthread_mutex_unlock(&jobs->lock);
    }
    pending->done(pending->context, status, pending->write.committed_seq, error);
    wire_report_done(&pending->write.report);
    free(pending);
}

/* Roughly. */
static size_t jobs_report_bytes(const struct wire_report *report) {
    size_t n = report->n_iterations * sizeof(*report->iterations) +
               report->n_ops * sizeof(*report->ops) + report->n_events * sizeof(*report->events) +
               report->n_readiness * sizeof(*report->readiness);
    for (uint32_t i = 0; i < report->n_readiness; i++) {
        n += report->readiness[i].n_offsets * sizeof(int64_t);
    }
    return n;
}

enum deft_status jobs_report(struct jobs *jobs, int64_t incarnation, struct wire_report *report,
                             jobs_report_fn done, void *context, struct deft_error *error) {
    struct jobs_live *live = NULL;
    enum deft_status status = jobs_find_locked(jobs, incarnation, &live, error);
    if (status != DEFT_OK) {
        return status;
    }
    status = jobs_check_report(live, report, error);
    (void)pthread_mutex_unlock(&jobs->lock);
    if (status != DEFT_OK) {
        return status;
    }
    struct jobs_pending *pending = calloc(1, sizeof(*pending));
    if (pending == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a report");
    }
    store_report_init(&pending->write);
    pending->write.write.done = jobs_report_done;
    pending->write.write.n_bytes = sizeof(*pending) + jobs_report_bytes(report);
    pending->write.incarnation = incarnation;
    pending->write.now_ns = clock_wall_ns();
    pending->write.report = *report;
    pending->jobs = jobs;
    pending->done = done;
    pending->context = context;
    status = store_submit(jobs->options.store, &pending->write.write, error);
    if (status != DEFT_OK) {
        free(pending);
        return status;
    }
    memset(report, 0, sizeof(*report)); /* taken over */
    return DEFT_OK;
}

/* --- streams
 * ---------------------------------------------------------------------------------------- */

enum deft_status jobs_has(struct jobs *jobs, int64_t incarnation, struct deft_error *error) {
    struct jobs_live *live = NULL;
    enum deft_status status = jobs_find_locked(jobs, incarnation, &live, error);
    if (status == DEFT_OK) {
        (void)pthread_mutex_unlock(&jobs->lock);
    }
    return status;
}

enum deft_status jobs_name(struct jobs *jobs, int64_t incarnation, char out[WIRE_ID_BYTES],
                           struct deft_error *error) {
    struct jobs_live *live = NULL;
    enum deft_status status = jobs_find_locked(jobs, incarnation, &live, error);
    if (status == DEFT_OK) {
        memcpy(out, live->job, WIRE_ID_BYTES);
        (void)pthread_mutex_unlock(&jobs->lock);
    }
    return status;
}

void jobs_stream(struct jobs *jobs, int64_t incarnation, struct http_stream *stream,
                 uint64_t last_seq) {
    struct jobs_live *live = NULL;
    char mode[64];
    if (jobs_find_locked(jobs, incarnation, &live, NULL) != DEFT_OK) {
        http_stream_release(stream);
        return;
    }
    const char *name = tuner_mode_name(live->tuner.state.mode);
    enum deft_status status = DEFT_OK;
    if (live->plan_event != NULL && live->plan_seq > last_seq) {
        char id[24];
        (void)snprintf(id, sizeof(id), "%llu", (unsigned long long)live->plan_seq);
        status = http_stream_send(stream, id, "plan", live->plan_event);
    }
    (void)snprintf(mode, sizeof(mode), "{\"mode\":\"%s\"}", name);
    if (status == DEFT_OK) {
        status = http_stream_send(stream, NULL, "mode", mode);
    }
    if (status != DEFT_OK || jobs_live_add_stream(live, stream) != DEFT_OK) {
        http_stream_release(stream);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
}
