#include "jobs_live.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tuning/tuner_state.h"

static size_t live_bucket(int64_t id) {
    return (size_t)((uint64_t)id % JOBS_BUCKETS);
}

struct jobs_live *jobs_live_find(struct jobs *jobs, int64_t id) {
    struct jobs_live *live = jobs->buckets[live_bucket(id)];
    while (live != NULL && live->id != id) {
        live = live->next;
    }
    return live;
}

/* Fowler, Noll and Vo's 1a. Who chooses names that meet in one bucket makes lists slower, no more.
 */
static struct jobs_live **live_named(struct jobs *jobs, const char *job) {
    uint64_t hash = UINT64_C(14695981039346656037);
    for (const char *at = job; *at != '\0'; at++) {
        hash = (hash ^ (uint8_t)*at) * UINT64_C(1099511628211);
    }
    return &jobs->named[hash % JOBS_BUCKETS];
}

struct jobs_live *jobs_live_named(struct jobs *jobs, const char *job) {
    return *live_named(jobs, job);
}

struct jobs_live *jobs_live_find_job(struct jobs *jobs, const char *job) {
    struct jobs_live *newest = NULL;
    for (struct jobs_live *live = jobs_live_named(jobs, job); live != NULL;
         live = live->next_named) {
        if (strcmp(live->job, job) == 0 && (newest == NULL || live->id > newest->id)) {
            newest = live;
        }
    }
    return newest;
}

void jobs_live_add(struct jobs *jobs, struct jobs_live *live) {
    struct jobs_live **bucket = &jobs->buckets[live_bucket(live->id)];
    struct jobs_live **named = live_named(jobs, live->job);
    live->next = *bucket;
    *bucket = live;
    live->next_named = *named;
    *named = live;
}

void jobs_live_remove(struct jobs *jobs, struct jobs_live *live) {
    struct jobs_live **at = &jobs->buckets[live_bucket(live->id)];
    while (*at != live) {
        at = &(*at)->next;
    }
    *at = live->next;
    at = live_named(jobs, live->job);
    while (*at != live) {
        at = &(*at)->next_named;
    }
    *at = live->next_named;
    jobs_live_destroy(live);
}

void jobs_live_destroy(struct jobs_live *live) {
    if (live == NULL) {
        return;
    }
    for (size_t i = 0; i < live->n_streams; i++) {
        http_stream_release(live->streams[i]);
    }
    free(live->streams);
    free(live->plan_event);
    free(live->ends);
    jobs_offer_done(&live->pin);
    observe_destroy(live->observe);
    wire_registration_done(&live->registration);
    free(live);
}

/* --- from the database -------------------------------------------------------------------------
 */

static void live_take_end(void *context, uint32_t rank, int failed) {
    struct jobs_live *live = context;
    if (rank < live->registration.n_ranks && live->ends[rank] == 0) {
        live->ends[rank] = failed ? 2 : 1;
        live->n_ended++;
    }
}

enum deft_status jobs_live_plan_event(const struct jobs_live_plan *plan, char **out,
                                      struct deft_error *error) {
    struct json_out event = {0};
    json_out_begin_object(&event, NULL);
    json_out_uint(&event, "seq", plan->seq);
    json_out_hex(&event, "hash", plan->hash);
    json_out_raw(&event, "plan", plan->text);
    json_out_number(&event, "max_loss", plan->max_loss);
    json_out_number(&event, "max_grad_sq", plan->max_grad_sq);
    json_out_end_object(&event);
    return json_out_finish(&event, out, error);
}

static enum deft_status live_take_plan(struct jobs_live *live, const struct store_incarnation *from,
                                       struct deft_error *error) {
    if (from->plan == NULL) {
        return DEFT_OK;
    }
    const struct jobs_live_plan plan = {.seq = from->plan_seq,
                                        .hash = from->plan_hash,
                                        .text = from->plan,
                                        .max_loss = from->max_loss,
                                        .max_grad_sq = from->max_grad_sq};
    live->plan_seq = from->plan_seq;
    return jobs_live_plan_event(&plan, &live->plan_event, error);
}

/* A pin whose plan is gone, e.g. in a repaired database, holds nothing. */
static void live_take_pin(struct jobs *jobs, struct jobs_live *live, const char *id) {
    struct deft_error why = {0};
    if (id[0] == '\0') {
        return;
    }
    if (jobs_offer_read(jobs->options.store, live->job, id, &live->pin, &why) == DEFT_OK) {
        live->tuner.state.pin_hash = live->pin.hash;
    } else {
        log_line(jobs->options.log, LOG_LEVEL_WARNING, "job %s: the pin %s is not held: %s",
                 live->job, id, why.text);
    }
}

static enum deft_status live_fill(struct jobs *jobs, struct jobs_live *live,
                                  const struct store_incarnation *from, struct deft_error *error) {
    enum tuner_mode mode = TUNER_OBSERVE;
    struct quantify_job described;
    enum deft_status status = wire_registration_decode(
        from->registration, strlen(from->registration), &live->registration, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (tuner_mode_parse(from->job.mode, &mode) != DEFT_OK) {
        return deft_fail(error, DEFT_INVALID, 0, "the database has no such mode as '%s'",
                         from->job.mode);
    }
    live->id = from->id;
    store_id_text(from->id, live->id_text);
    memcpy(live->job, from->job.id, sizeof(live->job));
    memcpy(live->state, from->state, sizeof(live->state));
    memcpy(live->decision, from->decision, sizeof(live->decision));
    live->n_iterations = from->n_iterations;
    live->registered_ns = from->registered_ns;
    live->updated_ns = from->updated_ns;
    live->heard_ns = clock_monotonic_ns();
    live->ends = calloc(live->registration.n_ranks, 1);
    if (live->ends == NULL ||
        observe_create(live->registration.n_ranks, live->registration.n_tensors,
                       live->registration.n_links, &live->observe) != DEFT_OK) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for job '%s'", live->job);
    }
    live->is_superseded = from->is_superseded;
    quantify_job_of(&live->registration, &described);
    tuner_init(&live->tuner, &jobs->options.tuner, mode, &described, &from->job.limits);
    live->tuner.state.is_frozen = from->job.frozen;
    live_take_pin(jobs, live, from->job.pin);
    if (from->tuner[0] != '\0') {
        status = tuner_state_decode(from->tuner, &live->tuner, error);
        tuner_resume(&live->tuner);
    }
    /* A plan may be stored whose tuner state is older: numbers must not be used twice. */
    if (status == DEFT_OK && live->tuner.state.next_seq <= from->plan_seq) {
        live->tuner.state.next_seq = from->plan_seq + 1;
    }
    return status == DEFT_OK ? live_take_plan(live, from, error) : status;
}

enum deft_status jobs_live_load(struct jobs *jobs, int64_t id, struct jobs_live **out,
                                struct deft_error *error) {
    struct store_incarnation from = {0};
    enum deft_status status = store_read_incarnation(jobs->options.store, id, &from, error);
    if (status != DEFT_OK) {
        return status;
    }
    struct jobs_live *live = calloc(1, sizeof(*live));
    if (live == NULL) {
        store_incarnation_done(&from);
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a job");
    }
    status = live_fill(jobs, live, &from, error);
    store_incarnation_done(&from);
    if (status == DEFT_OK) {
        status = store_read_ends(jobs->options.store, id, live_take_end, live, error);
    }
    if (status != DEFT_OK) {
        jobs_live_destroy(live);
        return status;
    }
    *out = live;
    return DEFT_OK;
}

/* --- streams ------------------------------------------------------------------------------------
 */

void jobs_live_send(struct jobs_live *live, const char *id, const char *event, const char *data) {
    size_t kept = 0;
    for (size_t i = 0; i < live->n_streams; i++) {
        struct http_stream *stream = live->streams[i];
        if (http_stream_send(stream, id, event, data) == DEFT_OK) {
            live->streams[kept++] = stream;
        } else {
            http_stream_release(stream); /* the agent connects again and gets the newest plan */
        }
    }
    live->n_streams = kept;
}

void jobs_live_send_mode(struct jobs_live *live) {
    char data[64];
    (void)snprintf(data, sizeof(data), "{\"mode\":\"%s\"}",
                   tuner_mode_name(live->tuner.state.mode));
    jobs_live_send(live, NULL, "mode", data);
}

static void live_drop_closed_streams(struct jobs_live *live) {
    size_t kept = 0;
    for (size_t i = 0; i < live->n_streams; i++) {
        if (http_stream_closed(live->streams[i])) {
            http_stream_release(live->streams[i]);
        } else {
            live->streams[kept++] = live->streams[i];
        }
    }
    live->n_streams = kept;
}

int jobs_live_is_watched(struct jobs_live *live) {
    live_drop_closed_streams(live);
    return live->n_streams > 0;
}

enum deft_status jobs_live_add_stream(struct jobs_live *live, struct http_stream *stream) {
    live_drop_closed_streams(live);
    if (live->n_streams == JOBS_MAX_STREAMS) {
        return DEFT_LIMIT;
    }
    if (live->n_streams == live->stream_capacity) {
        size_t capacity = live->stream_capacity < 4 ? 4 : live->stream_capacity * 2;
        struct http_stream **grown =
            realloc(live->streams, capacity * sizeof(struct http_stream *));
        if (grown == NULL) {
            return DEFT_NO_MEMORY;
        }
        live->streams = grown;
        live->stream_capacity = capacity;
    }
    live->streams[live->n_streams++] = stream;
    return DEFT_OK;
}

/* --- views ---------------------------------------------------------------------------------------
 */

static double live_ratio(int64_t a, int64_t b) {
    return a > 0 && b > 0 ? (double)a / (double)b : (double)NAN;
}

static void live_view_convergence(const struct jobs_live *live, struct wire_job *out) {
    const struct quantify *quantify = &live->tuner.quantify;
    const struct dsched_loss_estimate *loss = quantify_loss(quantify);
    const struct tuner_plan *plan = &live->tuner.state.running;
    struct dsched_noise_estimate noise;
    struct dsched_disagreement_estimate apart;
    const char *loss_state = dsched_loss_state_name(loss->state);
    quantify_noise(quantify, &noise);
    dsched_disagreement_get(&quantify->disagreement, plan->merge, DSCHED_UNKNOWN, &apart);
    out->max_merge = quantify->limits.max_merge;
    out->max_delay = quantify->limits.max_delay;
    out->epsilon = quantify->limits.epsilon;
    out->min_progress = quantify->limits.min_progress;
    out->loss_floor = quantify->limits.loss_floor;
    out->frozen = live->tuner.state.is_frozen;
    memcpy(out->pin, live->pin.id, sizeof(live->pin.id));
    out->progress = plan->progress_ppm > 0 ? plan->progress_ppm / 1e6 : (double)NAN;
    out->noise_samples = noise.is_known ? noise.noise_samples : (double)NAN;
    out->disagreement = plan->rule == DSCHED_AVERAGED && apart.is_known ? apart.rho : (double)NAN;
    out->loss = loss->n > 0 ? loss->level : (double)NAN;
    (void)snprintf(out->loss_state, sizeof(out->loss_state), "%s",
                   loss_state != NULL ? loss_state : "");
    tuner_status(&live->tuner, out->status);
}

void jobs_live_view(const struct jobs_live *live, struct wire_job *out) {
    const struct tuner_state *tuner = &live->tuner.state;
    const struct tuner_plan *plan = &tuner->running;
    const char *rule = dsched_rule_name((enum dsched_rule)plan->rule);
    memset(out, 0, sizeof(*out));
    memcpy(out->id, live->job, sizeof(out->id));
    memcpy(out->name, live->registration.name, sizeof(out->name));
    memcpy(out->user, live->registration.user, sizeof(out->user));
    memcpy(out->state, live->state, sizeof(out->state));
    memcpy(out->decision, live->decision, sizeof(out->decision));
    (void)snprintf(out->mode, sizeof(out->mode), "%s", tuner_mode_name(tuner->mode));
    (void)snprintf(out->phase, sizeof(out->phase), "%s", tuner_phase_name(tuner->phase));
    (void)snprintf(out->incarnation, sizeof(out->incarnation), "%s", live->id_text);
    (void)snprintf(out->rule, sizeof(out->rule), "%s", rule != NULL ? rule : "");
    if (plan->seq > 0) {
        store_plan_id_text(live->id, plan->seq, out->plan);
    }
    out->n_ranks = live->registration.n_ranks;
    out->iterations = live->n_iterations;
    out->plan_seq = plan->seq;
    out->merge = plan->merge;
    out->delay = plan->delay;
    out->updates_per_step = plan->updates_ppm / 1e6;
    out->exact_step_ns = tuner->exact_step_ns;
    out->step_ns = tuner_estimate(&live->tuner);
    out->predicted_step_ns = plan->predicted_step_ns;
    if (plan->is_exact) { /* what could be had, as long as anything is still to be tried */
        out->predicted_step_ns = tuner->phase != TUNER_HALTED ? tuner->best_step_ns : 0;
    }
    out->gain = live_ratio(tuner->exact_step_ns, out->step_ns);
    out->predicted_gain = live_ratio(tuner->exact_step_ns, out->predicted_step_ns);
    out->coverage = live->coverage_ppm > 0 ? (double)live->coverage_ppm / 1e6 : (double)NAN;
    out->n_switches = tuner->n_switches;
    out->n_rollbacks = tuner->n_rollbacks;
    out->n_ranks_heard = observe_heard(live->observe, &out->first_unheard);
    live_view_convergence(live, out);
    store_time_text(live->registered_ns, out->registered_at);
    store_time_text(live->updated_ns, out->updated_at);
}

char *jobs_live_summary(const struct jobs_live *live) {
    struct wire_job job;
    char *text = NULL;
    jobs_live_view(live, &job);
    return wire_job_encode(&job, &text, NULL) == DEFT_OK ? text : NULL;
}
