#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "service_answer.h"
#include "wire/wire_health.h"

/* A writer that has been at one batch for so long, or a tuner that has not come round, is stuck:
 * solving takes seconds at most. */
#define ADMIN_STUCK_NS INT64_C(30000000000)

/* --- what operators change
 * ------------------------------------------------------------------------
 */

int service_before(struct service *service, struct http_request *request, struct wire_job *out) {
    struct deft_error error = {0};
    if (jobs_view(service->jobs, http_request_param(request, "job"), out, &error) != DEFT_OK) {
        service_fail(request, &error);
        return 0;
    }
    return 1;
}

void service_admin_mode(struct http_request *request, void *context) {
    struct service *service = context;
    struct service_cause cause;
    struct store_audit audit;
    struct wire_job job;
    struct wire_mode body;
    struct wire_mode before = {0};
    struct deft_error error = {0};
    enum tuner_mode mode = TUNER_OBSERVE;
    char *text = NULL;
    char *old = NULL;
    size_t n_bytes = 0;
    if (!service_is_json(request) || !service_cause(request, &cause) ||
        !service_before(service, request, &job)) {
        return;
    }
    const char *json = http_request_body(request, &n_bytes);
    memcpy(before.mode, job.mode, sizeof(before.mode));
    enum deft_status status = wire_mode_decode(json, n_bytes, &body, &error);
    if (status == DEFT_OK) {
        status = tuner_mode_parse(body.mode, &mode);
    }
    if (status == DEFT_OK) {
        status = wire_mode_encode(&before, &old, &error);
    }
    if (status == DEFT_OK) {
        status = wire_mode_encode(&body, &text, &error);
    }
    if (status == DEFT_OK) {
        service_audit(&cause, "job.mode", http_request_param(request, "job"), &audit);
        audit.before = old;
        audit.after = text;
        status = jobs_set_mode(service->jobs, audit.subject, mode, &audit, &error);
    }
    if (status != DEFT_OK) {
        free(text);
        text = NULL;
    }
    service_answer_text(request, status, 200, text, &error);
    free(old);
}

void service_admin_limits(struct http_request *request, void *context) {
    struct service *service = context;
    struct service_cause cause;
    struct store_audit audit;
    struct wire_job job;
    struct wire_limits limits;
    struct deft_error error = {0};
    char *text = NULL;
    char *old = NULL;
    size_t n_bytes = 0;
    if (!service_is_json(request) || !service_cause(request, &cause) ||
        !service_before(service, request, &job)) {
        return;
    }
    const char *json = http_request_body(request, &n_bytes);
    const struct wire_limits before = {.max_merge = job.max_merge,
                                       .max_delay = job.max_delay,
                                       .epsilon = job.epsilon,
                                       .min_progress = job.min_progress,
                                       .loss_floor = job.loss_floor};
    enum deft_status status = wire_limits_decode(json, n_bytes, &limits, &error);
    if (status == DEFT_OK) {
        status = wire_limits_encode(&limits, &text, &error);
    }
    if (status == DEFT_OK) {
        service_audit(&cause, "job.limits", http_request_param(request, "job"), &audit);
        /* A job that has never had limits has nothing that could be written. */
        audit.before = wire_limits_encode(&before, &old, NULL) == DEFT_OK ? old : "";
        audit.after = text;
        status = jobs_set_limits(service->jobs, audit.subject, &limits, &audit, &error);
    }
    if (status != DEFT_OK) {
        free(text);
        text = NULL;
    }
    service_answer_text(request, status, 200, text, &error);
    free(old);
}

/* Answers with the job as it was. */
void service_admin_remove(struct http_request *request, void *context) {
    struct service *service = context;
    struct service_cause cause;
    struct store_audit audit;
    struct wire_job job;
    struct deft_error error = {0};
    char *text = NULL;
    if (!service_cause(request, &cause) || !service_before(service, request, &job)) {
        return;
    }
    enum deft_status status = wire_job_encode(&job, &text, &error);
    if (status == DEFT_OK) {
        service_audit(&cause, "job.remove", http_request_param(request, "job"), &audit);
        audit.before = text;
        status = jobs_remove(service->jobs, audit.subject, &audit, &error);
        status = service_settle(service, request, status, &error);
    }
    if (status != DEFT_OK) {
        free(text);
        text = NULL;
    }
    service_answer_text(request, status, 200, text, &error);
}

/* --- probes: they need no credential and no database
 * ----------------------------------------------
 */

void service_health(struct http_request *request, void *context) {
    struct service *service = context;
    struct store_health health;
    struct deft_error error = {0};
    struct wire_health said = {.refused_writes = 0};
    char *text = NULL;
    store_health(service->store, &health);
    const char *upkeep = health.upkeep_text[0] != '\0' ? health.upkeep_text : "ok";
    int is_degraded = health.failing || health.upkeep_text[0] != '\0';
    (void)snprintf(said.status, sizeof(said.status), "%s", is_degraded ? "degraded" : "ok");
    (void)snprintf(said.version, sizeof(said.version), "%s", DEFT_VERSION_TEXT);
    (void)snprintf(said.database, sizeof(said.database), "%s", health.failing ? health.text : "ok");
    (void)snprintf(said.upkeep, sizeof(said.upkeep), "%s", upkeep);
    said.refused_writes = health.n_failed;
    enum deft_status status = wire_health_encode(&said, &text, &error);
    service_answer_text(request, status, 200, text, &error);
}

/* Ready means that reports are taken and plans are made: not while the database refuses them, and
 * not when one of the threads does not come back. */
void service_ready(struct http_request *request, void *context) {
    struct service *service = context;
    struct store_health health;
    struct jobs_metrics jobs;
    static const char ready[] = "{\"status\":\"ready\"}";
    store_health(service->store, &health);
    jobs_metrics(service->jobs, &jobs);
    if (health.failing) {
        http_respond_problem(request, 503, "store_failed", NULL, "%s", health.text);
    } else if (health.waiting_ns > ADMIN_STUCK_NS) {
        http_respond_problem(request, 503, "store_stuck", NULL,
                             "the database has been at one write for %lld s",
                             (long long)(health.waiting_ns / 1000000000));
    } else if (jobs.silent_ns > ADMIN_STUCK_NS) {
        http_respond_problem(request, 503, "tuner_stuck", NULL,
                             "the thread that makes plans has not come round for %lld s",
                             (long long)(jobs.silent_ns / 1000000000));
    } else {
        http_respond(request, 200, "application/json", ready, sizeof(ready) - 1);
    }
}
