/* Whether the controller works: they need no credential and no database. */
#include <stdio.h>

#include "service_answer.h"
#include "wire/wire_health.h"

/* A writer that has been at one batch for so long, or a tuner that has not come round, is stuck:
 * solving takes seconds at most. */
#define PROBES_STUCK_NS INT64_C(30000000000)

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
    } else if (health.waiting_ns > PROBES_STUCK_NS) {
        http_respond_problem(request, 503, "store_stuck", NULL,
                             "the database has been at one write for %lld s",
                             (long long)(health.waiting_ns / 1000000000));
    } else if (jobs.silent_ns > PROBES_STUCK_NS) {
        http_respond_problem(request, 503, "tuner_stuck", NULL,
                             "the thread that makes plans has not come round for %lld s",
                             (long long)(jobs.silent_ns / 1000000000));
    } else {
        http_respond(request, 200, "application/json", ready, sizeof(ready) - 1);
    }
}
