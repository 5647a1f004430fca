#include "service_put.h"

#include <stdlib.h>

void service_put(struct http_request *request, struct service *service,
                 const struct service_put *put) {
    struct service_cause cause;
    struct store_audit audit;
    struct wire_job before;
    struct deft_error error = {0};
    size_t n_bytes = 0;
    if (!service_is_json(request) || !service_cause(request, &cause) ||
        !service_before(service, request, &before)) {
        return;
    }
    struct service_put_call call = {
        .service = service, .job = http_request_param(request, "job"), .before = &before};
    const char *json = http_request_body(request, &n_bytes);
    enum deft_status status = put->read(&call, json, n_bytes, &error);
    char *asked = call.new_text;
    if (status == DEFT_OK) {
        service_audit(&cause, put->action, call.job, &audit);
        audit.before = call.old_text != NULL ? call.old_text : "";
        audit.after = asked;
        status = put->apply(&call, &audit, &error);
    }
    if (call.new_text != asked) {
        free(asked);
    }
    if (status != DEFT_OK) {
        free(call.new_text);
        call.new_text = NULL;
    }
    service_answer_text(request, status, 200, call.new_text, &error);
    free(call.old_text);
}
