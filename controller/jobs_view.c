/* What is read of jobs: from memory where they run, from the database otherwise. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "jobs_live.h"
#include "tuning/profile_build.h"

/* Largest page of a list. */
#define VIEW_MAX_PAGE 1000u

/* 1 when the job is in memory, which knows better than its last summary. */
static int view_view_live(struct jobs *jobs, const char *job, struct wire_job *out) {
    (void)pthread_mutex_lock(&jobs->lock);
    const struct jobs_live *live = jobs_live_find_job(jobs, job);
    if (live != NULL) {
        jobs_live_view(live, out);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    return live != NULL;
}

/* A job whose first summary has not been written yet has an empty one. */
static enum deft_status view_view_summary(const char *id, const char *summary, struct wire_job *out,
                                          struct deft_error *error) {
    if (summary[0] != '\0') {
        return wire_job_decode(summary, strlen(summary), out, error);
    }
    static const char unknown[] = "{\"id\":\"\",\"state\":\"running\",\"mode\":\"observe\"}";
    enum deft_status status = wire_job_decode(unknown, sizeof(unknown) - 1, out, error);
    if (status == DEFT_OK) {
        size_t n = strlen(id);
        memcpy(out->id, id, n < sizeof(out->id) ? n + 1 : sizeof(out->id) - 1);
    }
    return status;
}

enum deft_status jobs_view(struct jobs *jobs, const char *job, struct wire_job *out,
                           struct deft_error *error) {
    struct store_job known;
    char *summary = NULL;
    if (view_view_live(jobs, job, out)) {
        return DEFT_OK;
    }
    enum deft_status status = store_read_job(jobs->options.store, job, &known, &summary, error);
    if (status == DEFT_OK) {
        status = view_view_summary(job, summary, out, error);
    }
    if (status == DEFT_OK) { /* what an operator may have set since the job ended */
        memcpy(out->mode, known.mode, sizeof(out->mode));
        out->max_merge = known.limits.max_merge;
        out->max_delay = known.limits.max_delay;
        out->epsilon = known.limits.epsilon;
        out->min_progress = known.limits.min_progress;
        out->loss_floor = known.limits.loss_floor;
        out->frozen = known.frozen;
        memset(out->pin, 0, sizeof(out->pin));
        memcpy(out->pin, known.pin, sizeof(known.pin));
    }
    free(summary);
    return status;
}

struct view_list {
    struct jobs *jobs;
    struct wire_jobs *out;
    uint32_t capacity;
};

static enum deft_status view_list_row(void *context, const char *id, const char *summary) {
    struct view_list *list = context;
    if (list->out->n_jobs == list->capacity) {
        return DEFT_OK;
    }
    struct wire_job *job = &list->out->jobs[list->out->n_jobs];
    if (view_view_live(list->jobs, id, job) ||
        view_view_summary(id, summary, job, NULL) == DEFT_OK) {
        list->out->n_jobs++;
    }
    return DEFT_OK;
}

enum deft_status jobs_list(struct jobs *jobs, const struct store_filter *filter,
                           struct wire_jobs *out, struct deft_error *error) {
    struct wire_jobs page = {0};
    struct store_filter bounded = *filter;
    if (bounded.limit > VIEW_MAX_PAGE) {
        bounded.limit = VIEW_MAX_PAGE;
    }
    page.jobs = calloc(bounded.limit > 0 ? bounded.limit : 1, sizeof(*page.jobs));
    if (page.jobs == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a list of jobs");
    }
    struct view_list list = {.jobs = jobs, .out = &page, .capacity = (uint32_t)bounded.limit};
    enum deft_status status =
        store_read_jobs(jobs->options.store, &bounded, view_list_row, &list, &page.total, error);
    if (status != DEFT_OK) {
        wire_jobs_done(&page);
        return status;
    }
    *out = page;
    return DEFT_OK;
}

/* --- for operators
 * ------------------------------------------------------------------------------------- */

void jobs_metrics(struct jobs *jobs, struct jobs_metrics *out) {
    (void)pthread_mutex_lock(&jobs->lock);
    memcpy(out->n_decisions, jobs->n_decisions, sizeof(out->n_decisions));
    out->silent_ns = clock_monotonic_ns() - jobs->round_ns;
    out->n_tasks = 0;
    for (const struct jobs_task *task = jobs->first; task != NULL; task = task->next) {
        out->n_tasks++;
    }
    (void)pthread_mutex_unlock(&jobs->lock);
}

/* The lock is given up between buckets: reports do not wait for a whole scrape. */
void jobs_each(struct jobs *jobs, jobs_each_fn found, void *context) {
    struct wire_job view;
    for (size_t i = 0; i < JOBS_BUCKETS; i++) {
        (void)pthread_mutex_lock(&jobs->lock);
        for (const struct jobs_live *live = jobs->buckets[i]; live != NULL; live = live->next) {
            if (strcmp(live->state, "running") == 0 && !live->is_superseded) {
                jobs_live_view(live, &view);
                found(context, &view);
            }
        }
        (void)pthread_mutex_unlock(&jobs->lock);
    }
}

enum deft_status jobs_profile(struct jobs *jobs, int64_t incarnation, char **out,
                              struct deft_error *error) {
    struct dsched_profile profile = {0};
    enum deft_status status = DEFT_NOT_FOUND;
    (void)pthread_mutex_lock(&jobs->lock);
    const struct jobs_live *live = jobs_live_find(jobs, incarnation);
    if (live != NULL) {
        status = profile_build(&live->registration, live->observe, &profile, error);
    }
    (void)pthread_mutex_unlock(&jobs->lock);
    if (status == DEFT_OK) {
        status = wire_profile_encode(&profile, out, error);
        dsched_profile_done(&profile);
        return status;
    }
    return store_read_profile(jobs->options.store, incarnation, out, error);
}
