/* What operators hold of one job: a pinned plan, a freeze, how long its history stays. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "keep_options.h"
#include "service_put.h"

/* --- pin and freeze ----------------------------------------------------------------------------
 */

static enum deft_status hold_read_pin(struct service_put_call *call, const char *json,
                                      size_t n_bytes, struct deft_error *error) {
    struct wire_pin before = {0};
    struct wire_pin *pin = &call->value.pin;
    memcpy(before.plan, call->before->pin, sizeof(before.plan));
    enum deft_status status = wire_pin_decode(json, n_bytes, pin, error);
    if (status == DEFT_OK) {
        status = jobs_find_pin(call->service->jobs, call->job, pin->plan, pin, error);
    }
    if (status == DEFT_OK) {
        status = wire_pin_encode(&before, &call->old_text, error);
    }
    return status == DEFT_OK ? wire_pin_encode(pin, &call->new_text, error) : status;
}

static enum deft_status hold_apply_pin(struct service_put_call *call,
                                       const struct store_audit *audit, struct deft_error *error) {
    struct wire_pin *pin = &call->value.pin;
    enum deft_status status =
        jobs_set_pin(call->service->jobs, call->job, pin->plan, audit, pin, error);
    return status == DEFT_OK ? wire_pin_encode(pin, &call->new_text, error) : status;
}

void service_hold_pin(struct http_request *request, void *context) {
    static const struct service_put put = {"job.pin", hold_read_pin, hold_apply_pin};
    service_put(request, context, &put);
}

static enum deft_status hold_read_freeze(struct service_put_call *call, const char *json,
                                         size_t n_bytes, struct deft_error *error) {
    const struct wire_freeze before = {.frozen = call->before->frozen};
    struct wire_freeze *freeze = &call->value.freeze;
    enum deft_status status = wire_freeze_decode(json, n_bytes, freeze, error);
    if (status == DEFT_OK) {
        status = wire_freeze_encode(&before, &call->old_text, error);
    }
    return status == DEFT_OK ? wire_freeze_encode(freeze, &call->new_text, error) : status;
}

static enum deft_status hold_apply_freeze(struct service_put_call *call,
                                          const struct store_audit *audit,
                                          struct deft_error *error) {
    return jobs_set_frozen(call->service->jobs, call->job, call->value.freeze.frozen, audit, error);
}

void service_hold_freeze(struct http_request *request, void *context) {
    static const struct service_put put = {"job.freeze", hold_read_freeze, hold_apply_freeze};
    service_put(request, context, &put);
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

static enum deft_status hold_read_keep(struct service_put_call *call, const char *json,
                                       size_t n_bytes, struct deft_error *error) {
    struct store_keep_job *write = &call->value.keep;
    struct wire_keep words;
    store_keep_job_init(write);
    enum deft_status status = hold_keep_parse(json, n_bytes, &write->keep, error);
    if (status == DEFT_OK) {
        status = hold_keep_now(call->service, call->job, &call->old_text, error);
    }
    if (status == DEFT_OK) {
        hold_keep_text(&write->keep, &words);
        status = wire_keep_encode(&words, &call->new_text, error);
    }
    return status;
}

static enum deft_status hold_apply_keep(struct service_put_call *call,
                                        const struct store_audit *audit, struct deft_error *error) {
    struct store_keep_job *write = &call->value.keep;
    write->job = call->job;
    write->audit = audit;
    return store_run(call->service->store, &write->write, error);
}

void service_hold_keep(struct http_request *request, void *context) {
    static const struct service_put put = {"job.keep", hold_read_keep, hold_apply_keep};
    service_put(request, context, &put);
}
