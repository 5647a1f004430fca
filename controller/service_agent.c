/* What agents ask: to register, to report, and to hear of plans. */
#include <stdlib.h>
#include <string.h>

#include "base/parse.h"
#include "service_answer.h"

static void agent_register_done(void *context, enum deft_status status,
                                const struct wire_registered *registered, const char *field,
                                const struct deft_error *error) {
    struct http_request *request = context;
    struct deft_error why = {0};
    char *text = NULL;
    if (status == DEFT_MISMATCH) {
        http_respond_problem(request, 409, "mismatch", field, "%s", error->text);
    } else if (status != DEFT_OK) {
        service_fail(request, error);
    } else {
        status = wire_registered_encode(registered, &text, &why);
        service_answer_text(request, status, 201, text, &why);
    }
}

void service_agent_register(struct http_request *request, void *context) {
    struct service *service = context;
    struct wire_registration registration = {0};
    struct deft_error error = {0};
    const char *job = http_request_param(request, "job");
    size_t n_bytes = 0;
    if (!service_is_json(request)) {
        return;
    }
    if (strlen(job) >= WIRE_ID_BYTES) {
        http_respond_problem(request, 400, "invalid", "job", "a job id has at most %u bytes",
                             WIRE_ID_BYTES - 1);
        return;
    }
    const char *body = http_request_body(request, &n_bytes);
    enum deft_status status = wire_registration_decode(body, n_bytes, &registration, &error);
    if (status == DEFT_OK) {
        http_request_defer(request);
        status =
            jobs_register(service->jobs, job, &registration, agent_register_done, request, &error);
    }
    if (status != DEFT_OK) {
        service_fail(request, &error);
        wire_registration_done(&registration);
    }
}

static void agent_report_done(void *context, enum deft_status status, uint64_t committed_seq,
                              const struct deft_error *error) {
    struct http_request *request = context;
    struct deft_error why = {0};
    char *text = NULL;
    if (status != DEFT_OK) {
        service_fail(request, error);
        return;
    }
    status = wire_committed_encode(committed_seq, &text, &why);
    service_answer_text(request, status, 200, text, &why);
}

void service_agent_report(struct http_request *request, void *context) {
    struct service *service = context;
    struct wire_report report = {0};
    struct deft_error error = {0};
    size_t n_bytes = 0;
    int64_t id = service_incarnation(request);
    if (id == 0 || !service_is_json(request)) {
        return;
    }
    const char *body = http_request_body(request, &n_bytes);
    enum deft_status status = wire_report_decode(body, n_bytes, &report, &error);
    if (status == DEFT_OK) {
        http_request_defer(request);
        status = jobs_report(service->jobs, id, &report, agent_report_done, request, &error);
    }
    if (status != DEFT_OK) {
        service_fail(request, &error);
        wire_report_done(&report);
    }
}

void service_agent_events(struct http_request *request, void *context) {
    struct service *service = context;
    struct deft_error error = {0};
    const char *last = http_request_header(request, "Last-Event-ID");
    uint64_t last_seq = 0;
    int64_t id = service_incarnation(request);
    if (id == 0) {
        return;
    }
    if (last != NULL && last[0] != '\0' &&
        parse_u64("Last-Event-ID", last, 0, INT64_MAX, &last_seq, &error) != DEFT_OK) {
        http_respond_problem(request, 400, "invalid", "Last-Event-ID", "%s", error.text);
        return;
    }
    if (jobs_has(service->jobs, id, &error) != DEFT_OK) {
        service_fail(request, &error);
        return;
    }
    struct http_stream *stream = http_respond_stream(request);
    if (stream != NULL) {
        jobs_stream(service->jobs, id, stream, last_seq);
    }
}
