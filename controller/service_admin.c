/* What operators change of one job: its mode, its limits, and that it is there at all. */
#include <stdlib.h>
#include <string.h>

#include "service_put.h"

static enum deft_status admin_read_mode(struct service_put_call *call, const char *json,
                                        size_t n_bytes, struct deft_error *error) {
    struct wire_mode body;
    struct wire_mode before = {0};
    memcpy(before.mode, call->before->mode, sizeof(before.mode));
    enum deft_status status = wire_mode_decode(json, n_bytes, &body, error);
    if (status == DEFT_OK) {
        status = tuner_mode_parse(body.mode, &call->value.mode);
    }
    if (status == DEFT_OK) {
        status = wire_mode_encode(&before, &call->old_text, error);
    }
    return status == DEFT_OK ? wire_mode_encode(&body, &call->new_text, error) : status;
}

static enum deft_status admin_apply_mode(struct service_put_call *call,
                                         const struct store_audit *audit,
                                         struct deft_error *error) {
    return jobs_set_mode(call->service->jobs, call->job, call->value.mode, audit, error);
}

void service_admin_mode(struct http_request *request, void *context) {
    static const struct service_put put = {"job.mode", admin_read_mode, admin_apply_mode};
    service_put(request, context, &put);
}

static enum deft_status admin_read_limits(struct service_put_call *call, const char *json,
                                          size_t n_bytes, struct deft_error *error) {
    const struct wire_job *job = call->before;
    const struct wire_limits before = {.max_merge = job->max_merge,
                                       .max_delay = job->max_delay,
                                       .epsilon = job->epsilon,
                                       .min_progress = job->min_progress,
                                       .loss_floor = job->loss_floor};
    enum deft_status status = wire_limits_decode(json, n_bytes, &call->value.limits, error);
    if (status == DEFT_OK) {
        status = wire_limits_encode(&call->value.limits, &call->new_text, error);
    }
    /* A job that has never had limits has nothing that could be written. */
    if (status == DEFT_OK && wire_limits_encode(&before, &call->old_text, NULL) != DEFT_OK) {
        call->old_text = NULL;
    }
    return status;
}

static enum deft_status admin_apply_limits(struct service_put_call *call,
                                           const struct store_audit *audit,
                                           struct deft_error *error) {
    return jobs_set_limits(call->service->jobs, call->job, &call->value.limits, audit, error);
}

void service_admin_limits(struct http_request *request, void *context) {
    static const struct service_put put = {"job.limits", admin_read_limits, admin_apply_limits};
    service_put(request, context, &put);
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
