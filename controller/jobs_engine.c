/* The thread of the jobs: carries decisions out, has plans searched for, and sees who has fallen
 * silent. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"
#include "jobs_change.h"

#define ENGINE_TICK_NS INT64_C(1000000000)

static const char *engine_state(const struct jobs_live *live) {
    if (live->n_ended < live->registration.n_ranks) {
        return live->is_superseded || clock_monotonic_ns() - live->heard_ns > JOBS_LOST_NS
                   ? "lost"
                   : "running";
    }
    return memchr(live->ends, 2, live->registration.n_ranks) != NULL ? "failed" : "finished";
}

/* Brings the recorded state up to date and lets go of what has ended. What the database refuses now
 * is tried again with every tick, and logged once. */
static void engine_record_state(struct jobs *jobs, int64_t id) {
    struct jobs_change change;
    struct deft_error error = {0};
    enum deft_status status = DEFT_OK;
    int changed = 0;
    int is_again = 0;
    int ended = 0; /* as recorded here: the last rank may end while this is being written */
    jobs_change_init(&change);
    (void)pthread_mutex_lock(&jobs->lock);
    struct jobs_live *live = jobs_live_find(jobs, id);
    if (live != NULL) {
        ended = live->n_ended == live->registration.n_ranks;
        live->changing = 0; /* what changes from here on is another change */
        is_again = live->is_unrecorded;
        changed = strcmp(live->state, engine_state(live)) != 0;
        (void)snprintf(live->state, sizeof(live->state), "%s", engine_state(live));
        status = jobs_change_snapshot(live, &change, &error);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    if (live != NULL && status == DEFT_OK) {
        status = store_run(jobs->options.store, &change.write.write, &error);
    }
    if (live != NULL && changed) {
        log_line(jobs->options.log, LOG_LEVEL_INFO, "job %s: %s is %s", change.job, change.id_text,
                 change.state);
    }
    if (status != DEFT_OK && !is_again) {
        log_line(jobs->options.log, LOG_LEVEL_ERROR, "job %s: its state was not recorded: %s",
                 change.job, error.text);
    }
    (void)pthread_mutex_lock(&jobs->lock);
    live = jobs_live_find(jobs, id);
    if (live != NULL) {
        live->is_unrecorded = status != DEFT_OK && status != DEFT_NOT_FOUND;
        if (ended && !live->is_unrecorded) {
            jobs_live_remove(jobs, live);
        }
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    jobs_change_done(&change);
}

/* Once a second: who has fallen silent, whose state is still to be recorded, and who has been
 * silent for so long that the database is memory enough. With the lock held. */
static void engine_tick(struct jobs *jobs) {
    int64_t now = clock_monotonic_ns();
    for (size_t i = 0; i < JOBS_BUCKETS; i++) {
        struct jobs_live *live = jobs->buckets[i];
        while (live != NULL) {
            struct jobs_live *next = live->next;
            int64_t silence = now - live->heard_ns;
            int running = strcmp(live->state, "running") == 0;
            if (live->is_unrecorded || (silence > JOBS_LOST_NS && running)) {
                jobs_live_changed(jobs, live);
            } else if (silence > JOBS_FORGET_NS && !running && !live->solving) {
                jobs_live_remove(jobs, live);
            }
            live = next;
        }
    }
}

static void engine_do(struct jobs *jobs, const struct jobs_task *task) {
    struct jobs_change change;
    switch (task->kind) {
    case JOBS_SOLVE:
        jobs_solve(jobs, task->id);
        break;
    case JOBS_CHANGE:
        engine_record_state(jobs, task->id);
        break;
    case JOBS_ENACT:
        jobs_change_init(&change);
        jobs_change_enact(jobs, task->id, &task->decision, &change);
        jobs_change_done(&change);
        break;
    }
}

void *jobs_engine(void *context) {
    struct jobs *jobs = context;
    int64_t next_tick_ns = clock_monotonic_ns() + ENGINE_TICK_NS;
    (void)pthread_mutex_lock(&jobs->lock);
    while (!jobs->stopping) {
        struct jobs_task *task = jobs->first;
        jobs->round_ns = clock_monotonic_ns();
        if (task == NULL) {
            (void)thread_condition_wait(&jobs->work, &jobs->lock, next_tick_ns);
        } else {
            jobs->first = task->next;
            if (jobs->first == NULL) {
                jobs->last = &jobs->first;
            }
            (void)pthread_mutex_unlock(&jobs->lock);
            engine_do(jobs, task);
            free(task);
            (void)pthread_mutex_lock(&jobs->lock);
        }
        if (clock_monotonic_ns() >= next_tick_ns) {
            engine_tick(jobs);
            next_tick_ns = clock_monotonic_ns() + ENGINE_TICK_NS;
        }
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    return NULL;
}
