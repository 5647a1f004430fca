/* What operators hold of one job: a pinned plan, a freeze, how long its history stays. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "keep_options.h"
#include "service_answer.h"

/* --- pin and freeze ----------------------------------------------------------------------------
 */

void service_hold_pin(struct http_request *request, void *context) {
    struct service *service = context;
    struct service_cause cause;
    struct store_audit audit;
    struct wire_job job;
    struct wire_pin pin;
    struct wire_pin before = {0};
    struct deft_error error = {0};
    char *old = NULL;
    char *new = NULL;
    char *text = NULL;
    size_t n_bytes = 0;
    if (!service_is_json(request) || !service_cause(request, &cause) ||
        !service_before(service, request, &job)) {
        return;
    }
    const char *json = http_request_body(request, &n_bytes);
    memcpy(before.plan, job.pin, sizeof(before.plan));
    enum deft_status status = wire_pin_decode(json, n_bytes, &pin, &error);
    if (status == DEFT_OK) {
        status = jobs_find_pin(service->jobs, http_request_param(request, "job"), pin.plan, &pin,
                               &error);
    }
    if (status == DEFT_OK) {
        status = wire_pin_encode(&before, &old, &error);
    }
    if (status == DEFT_OK) {
        status = wire_pin_encode(&pin, &new, &error);
    }
    if (status == DEFT_OK) {
        service_audit(&cause, "job.pin", http_request_param(request, "job"), &audit);
        audit.before = old;
        audit.after = new;
        status = jobs_set_pin(service->jobs, audit.subject, pin.plan, &audit, &pin, &error);
    }
    if (status == DEFT_OK) {
        status = wire_pin_encode(&pin, &text, &error);
    }
    service_answer_text(request, status, 200, text, &error);
    free(old);
    free(new);
}

void service_hold_freeze(struct http_request *request, void *context) {
    struct service *service = context;
    struct service_cause cause;
    struct store_audit audit;
    struct wire_job job;
    struct wire_freeze freeze;
    struct deft_error error = {0};
    char *old = NULL;
    char *text = NULL;
    size_t n_bytes = 0;
    if (!service_is_json(request) || !service_cause(request, &cause) ||
        !service_before(service, request, &job)) {
        return;
    }
    const char *json = http_request_body(request, &n_bytes);
    const struct wire_freeze before = {.frozen = job.frozen};
    enum deft_status status = wire_freeze_decode(json, n_bytes, &freeze, &error);
    if (status == DEFT_OK) {
        status = wire_freeze_encode(&before, &old, &error);
    }
    if (status == DEFT_OK) {
        status = wire_freeze_encode(&freeze, &text, &error);
    }
    if (status == DEFT_OK) {
        service_audit(&cause, "job.freeze", http_request_param(request, "job"), &audit);
        audit.before = old;
        audit.after = text;
        status = jobs_set_frozen(service->jobs, audit.subject, freeze.frozen, &audit, &error);
    }
    if (status != DEFT_OK) {
        free(text);
        text = NULL;
    }
    service_answer_text(request, status, 200, text, &error);
    free(old);
}

/* --- how long history stays --------------------------------------------------------------------
 */

/* The largest unit that divides it. */
static void hold_age_text(int64_t ns, char out[32]) {
    static const char units[] = "ywdhms";
    static const int64_t factors[] = {31536000, 604800, 86400, 3600, 60, 1};
    int64_t seconds = ns / 1000000000;
    size_t i = 0;
    if (ns == STORE_FOR_EVER) {
        (void)snprintf(out, 32, "forever");
        return;
    }
    while (seconds % factors[i] != 0) {
        i++;
    }
    (void)snprintf(out, 32, "%" PRId64 "%c", seconds / factors[i], units[i]);
}

static void hold_keep_text(const struct store_keep *keep, struct wire_keep *out) {
    const struct {
        const char *word;
        int64_t value;
        int is_age;
    } rows[] = {{"raw", keep->raw_ns, 1},         {"iterations", keep->raw_iterations, 0},
                {"minutes", keep->minutes_ns, 1}, {"hours", keep->hours_ns, 1},
                {"logs", keep->logs_ns, 1},       {"jobs", keep->jobs_ns, 1}};
    size_t n = 0;
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && n < sizeof(out->keep); i++) {
        char value[32];
        if (rows[i].value == 0) {
            continue;
        }
        if (rows[i].is_age || rows[i].value == STORE_FOR_EVER) {
            hold_age_text(rows[i].value, value);
        } else {
            (void)snprintf(value, sizeof(value), "%" PRId64, rows[i].value);
        }
        n += (size_t)snprintf(out->keep + n, sizeof(out->keep) - n, "%s%s=%s", n > 0 ? "," : "",
                              rows[i].word, value);
    }
    if (n == 0) {
        (void)snprintf(out->keep, sizeof(out->keep), "default");
    }
}

static enum deft_status hold_keep_now(struct service *service, const char *job, char **out,
                                      struct deft_error *error) {
    struct store_keep keep;
    struct wire_keep words;
    enum deft_status status = store_read_keep(service->store, job, &keep, error);
    if (status == DEFT_OK) {
        hold_keep_text(&keep, &words);
        status = wire_keep_encode(&words, out, error);
    }
    return status;
}

void service_hold_kept(struct http_request *request, void *context) {
    struct service *service = context;
    struct wire_job job;
    struct deft_error error = {0};
    char *text = NULL;
    if (service_before(service, request, &job)) {
        enum deft_status status =
            hold_keep_now(service, http_request_param(request, "job"), &text, &error);
        service_answer_text(request, status, 200, text, &error);
    }
}

static enum deft_status hold_keep_parse(const char *json, size_t n_bytes, struct store_keep *out,
                                        struct deft_error *error) {
    struct wire_keep wish;
    enum deft_status status = wire_keep_decode(json, n_bytes, &wish, error);
    memset(out, 0, sizeof(*out));
    if (status == DEFT_OK && strcmp(wish.keep, "default") != 0) {
        struct deft_error why = {0};
        status = keep_options_parse("keep", wish.keep, out, &why);
        if (status != DEFT_OK) {
            return deft_fail(error, status, 0, "keep: %.330s", why.text);
        }
    }
    return status;
}

void service_hold_keep(struct http_request *request, void *context) {
    struct service *service = context;
    struct service_cause cause;
    struct store_audit audit;
    struct store_keep_job write;
    struct wire_job job;
    struct wire_keep words;
    struct deft_error error = {0};
    char *old = NULL;
    char *text = NULL;
    size_t n_bytes = 0;
    if (!service_is_json(request) || !service_cause(request, &cause) ||
        !service_before(service, request, &job)) {
        return;
    }
    const char *json = http_request_body(request, &n_bytes);
    store_keep_job_init(&write);
    enum deft_status status = hold_keep_parse(json, n_bytes, &write.keep, &error);
    if (status == DEFT_OK) {
        status = hold_keep_now(service, http_request_param(request, "job"), &old, &error);
    }
    if (status == DEFT_OK) {
        hold_keep_text(&write.keep, &words);
        status = wire_keep_encode(&words, &text, &error);
    }
    if (status == DEFT_OK) {
        service_audit(&cause, "job.keep", http_request_param(request, "job"), &audit);
        audit.before = old;
        audit.after = text;
        write.job = audit.subject;
        write.audit = &audit;
        status = store_run(service->store, &write.write, &error);
    }
    if (status != DEFT_OK) {
        free(text);
        text = NULL;
    }
    service_answer_text(request, status, 200, text, &error);
    free(old);
}
