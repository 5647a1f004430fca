#include <stdlib.h>
#include <string.h>

#include "service_answer.h"
#include "service_openapi.h"

void service_admin_mode(struct http_request *request, void *context) {
    struct service *service = context;
    struct wire_mode body;
    struct deft_error error = {0};
    enum tuner_mode mode = TUNER_OBSERVE;
    char *text = NULL;
    size_t n_bytes = 0;
    if (!service_is_json(request)) {
        return;
    }
    const char *json = http_request_body(request, &n_bytes);
    enum deft_status status = wire_mode_decode(json, n_bytes, &body, &error);
    if (status == DEFT_OK) {
        status = tuner_mode_parse(body.mode, &mode);
    }
    if (status == DEFT_OK) {
        status = jobs_set_mode(service->jobs, http_request_param(request, "job"), mode, &error);
    }
    if (status == DEFT_OK) {
        status = wire_mode_encode(&body, &text, &error);
    }
    service_answer_text(request, status, 200, text, &error);
}

void service_admin_limits(struct http_request *request, void *context) {
    struct service *service = context;
    struct wire_limits limits;
    struct deft_error error = {0};
    char *text = NULL;
    size_t n_bytes = 0;
    if (!service_is_json(request)) {
        return;
    }
    const char *json = http_request_body(request, &n_bytes);
    enum deft_status status = wire_limits_decode(json, n_bytes, &limits, &error);
    if (status == DEFT_OK) {
        status =
            jobs_set_limits(service->jobs, http_request_param(request, "job"), &limits, &error);
    }
    if (status == DEFT_OK) {
        status = wire_limits_encode(&limits, &text, &error);
    }
    service_answer_text(request, status, 200, text, &error);
}

/* --- probes: they need no credential and no database
 * ---------------------------------------------- */

void service_health(struct http_request *request, void *context) {
    struct service *service = context;
    struct store_health health;
    struct deft_error error = {0};
    struct json_out out = {0};
    store_health(service->store, &health);
    json_out_begin_object(&out, NULL);
    json_out_text(&out, "status", health.failing ? "degraded" : "ok");
    json_out_uint(&out, "refused_writes", health.n_failed);
    json_out_text(&out, "database", health.failing ? health.text : "ok");
    json_out_end_object(&out);
    service_answer_json(request, DEFT_OK, &out, &error);
}

/* Ready means that reports are taken: not while the database refuses them. */
void service_ready(struct http_request *request, void *context) {
    struct service *service = context;
    struct store_health health;
    static const char ready[] = "{\"status\":\"ready\"}";
    store_health(service->store, &health);
    if (health.failing) {
        http_respond_problem(request, 503, "store_failed", NULL, "%s", health.text);
    } else {
        http_respond(request, 200, "application/json", ready, sizeof(ready) - 1);
    }
}

void service_spec(struct http_request *request, void *context) {
    (void)context;
    http_respond(request, 200, "application/yaml", service_openapi, strlen(service_openapi));
}
