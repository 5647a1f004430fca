#include "service_answer.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/parse.h"

struct answer_code {
    enum deft_status status;
    int http_status;
    const char *code;
};
static const struct answer_code answer_codes[] = {
    {DEFT_INVALID, 400, "invalid"},     {DEFT_NOT_FOUND, 404, "not_found"},
    {DEFT_MISMATCH, 409, "mismatch"},   {DEFT_STATE, 409, "not_yet"},
    {DEFT_LIMIT, 429, "busy"},          {DEFT_STORE, 503, "store_failed"},
    {DEFT_NO_MEMORY, 503, "no_memory"},
};

/* "iterations[3].rank: ..." names its field; other sentences have no colon that early. */
static const char *answer_field(const char *text, char *out, size_t capacity_bytes) {
    size_t length = strcspn(text, ": ");
    if (text[length] != ':' || length == 0 || length >= capacity_bytes) {
        return NULL;
    }
    memcpy(out, text, length);
    out[length] = '\0';
    return out;
}

void service_fail(struct http_request *request, const struct deft_error *error) {
    char field[128];
    struct answer_code answer = {DEFT_OK, 500, "internal"};
    for (size_t i = 0; i < sizeof(answer_codes) / sizeof(answer_codes[0]); i++) {
        if (answer_codes[i].status == error->status) {
            answer = answer_codes[i];
        }
    }
    http_respond_problem(request, answer.http_status, answer.code,
                         answer_field(error->text, field, sizeof(field)), "%s", error->text);
}

void service_answer_text(struct http_request *request, enum deft_status status, int http_status,
                         char *text, const struct deft_error *error) {
    if (status == DEFT_OK) {
        http_respond(request, http_status, "application/json", text, strlen(text));
        free(text);
    } else {
        service_fail(request, error);
    }
}

void service_answer_kept(struct http_request *request, enum deft_status status, char *text,
                         const struct deft_error *error) {
    if (status == DEFT_OK) {
        http_respond_tagged(request, "application/json", text, strlen(text));
        free(text);
    } else {
        service_fail(request, error);
    }
}

void service_answer_json(struct http_request *request, enum deft_status status,
                         struct json_out *out, struct deft_error *error) {
    char *text = NULL;
    if (status == DEFT_OK) {
        status = json_out_finish(out, &text, error);
    } else {
        json_out_done(out);
    }
    service_answer_text(request, status, 200, text, error);
}

void service_answer_tagged(struct http_request *request, enum deft_status status,
                           struct json_out *out, struct deft_error *error) {
    char *text = NULL;
    if (status == DEFT_OK) {
        status = json_out_finish(out, &text, error);
    } else {
        json_out_done(out);
    }
    service_answer_kept(request, status, text, error);
}

int64_t service_incarnation(struct http_request *request) {
    int64_t id = 0;
    const char *text = http_request_param(request, "id");
    if (store_id_parse(text, &id) != DEFT_OK) {
        http_respond_problem(request, 404, "not_found", NULL, "there is no incarnation '%.64s'",
                             text);
        return 0;
    }
    return id;
}

int service_before(struct service *service, struct http_request *request, struct wire_job *out) {
    struct deft_error error = {0};
    if (jobs_view(service->jobs, http_request_param(request, "job"), out, &error) != DEFT_OK) {
        service_fail(request, &error);
        return 0;
    }
    return 1;
}

int service_is_json(struct http_request *request) {
    static const char json[] = "application/json";
    const char *type = http_request_header(request, "Content-Type");
    size_t length = sizeof(json) - 1;
    if (type == NULL || strncasecmp(type, json, length) != 0 ||
        strchr("; \t", type[length]) == NULL) {
        http_respond_problem(request, 415, "media_type", "Content-Type",
                             "application/json was expected");
        return 0;
    }
    return 1;
}

int service_query_u64(struct http_request *request, const char *name, uint64_t least, uint64_t most,
                      uint64_t absent, uint64_t *out) {
    struct deft_error error = {0};
    const char *text = http_request_query(request, name);
    if (text == NULL) {
        *out = absent;
        return 1;
    }
    if (parse_u64(name, text, least, most, out, &error) != DEFT_OK) {
        http_respond_problem(request, 400, "invalid", name, "%s", error.text);
        return 0;
    }
    return 1;
}
