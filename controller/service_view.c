/* What viewers ask of jobs, their incarnations and plans. */
#include <stdlib.h>
#include <string.h>

#include "service_answer.h"

#define VIEW_DEFAULT_PAGE   100u
#define VIEW_MAX_PAGE       1000u
#define VIEW_DEFAULT_POINTS 1000u

/* A word of the query, as its place in a list; -1 after a 400. */
static int view_word(struct http_request *request, const char *name, const char *const *words,
                     const char *expected) {
    const char *text = http_request_query(request, name);
    int i = 0;
    if (text == NULL) {
        return 0;
    }
    while (words[i] != NULL && strcmp(words[i], text) != 0) {
        i++;
    }
    if (words[i] == NULL) {
        http_respond_problem(request, 400, "invalid", name, "%s: '%.64s' is not one of %s", name,
                             text, expected);
        return -1;
    }
    return i;
}

/* 0: a problem was answered. */
static int view_filter(struct http_request *request, struct store_filter *out) {
    static const char *const orders[] = {"-created", "created", "-id", "id", "-user", "user", NULL};
    static const char *const states[] = {"running", "finished", "failed", "lost", NULL};
    const char *since = http_request_query(request, "since");
    int order =
        view_word(request, "sort", orders, "created, id and user, falling with '-' before them");
    if (order < 0 ||
        view_word(request, "state", states, "running, finished, failed and lost") < 0) {
        return 0;
    }
    *out = (struct store_filter){.state = http_request_query(request, "state"),
                                 .user = http_request_query(request, "user"),
                                 .order = (enum store_order)(order / 2),
                                 .is_rising = order % 2};
    if (since != NULL && store_time_parse(since, &out->since_ns) != DEFT_OK) {
        http_respond_problem(request, 400, "invalid", "since",
                             "since: a time such as 2026-11-30T03:01:10Z was expected");
        return 0;
    }
    return service_query_u64(request, "limit", 1, VIEW_MAX_PAGE, VIEW_DEFAULT_PAGE, &out->limit) &&
           service_query_u64(request, "offset", 0, INT64_MAX, 0, &out->offset);
}

void service_view_jobs(struct http_request *request, void *context) {
    struct service *service = context;
    struct wire_jobs jobs = {0};
    struct store_filter filter;
    struct deft_error error = {0};
    char *text = NULL;
    if (!view_filter(request, &filter)) {
        return;
    }
    enum deft_status status = jobs_list(service->jobs, &filter, &jobs, &error);
    if (status == DEFT_OK) {
        status = wire_jobs_encode(&jobs, &text, &error);
    }
    service_answer_kept(request, status, text, &error);
    wire_jobs_done(&jobs);
}

void service_view_job(struct http_request *request, void *context) {
    struct service *service = context;
    struct wire_job job;
    struct deft_error error = {0};
    char *text = NULL;
    enum deft_status status =
        jobs_view(service->jobs, http_request_param(request, "job"), &job, &error);
    if (status == DEFT_OK) {
        status = wire_job_encode(&job, &text, &error);
    }
    service_answer_kept(request, status, text, &error);
}

typedef enum deft_status (*view_print_fn)(struct store *store, int64_t incarnation,
                                          struct json_out *out, struct deft_error *error);
typedef enum deft_status (*view_series_fn)(struct store *store, int64_t incarnation,
                                           const struct store_range *range, struct json_out *out,
                                           struct deft_error *error);

/* 404 for an incarnation that is not there, rather than an empty list. */
static enum deft_status view_exists(struct store *store, int64_t id, struct deft_error *error) {
    struct json_out ignored = {0};
    json_out_begin_object(&ignored, NULL);
    enum deft_status status = store_print_incarnation(store, id, &ignored, error);
    json_out_done(&ignored);
    return status;
}

static void view_print(struct http_request *request, struct service *service, view_print_fn print) {
    struct json_out out = {0};
    struct deft_error error = {0};
    int64_t id = service_incarnation(request);
    if (id == 0) {
        return;
    }
    enum deft_status status = view_exists(service->store, id, &error);
    if (status == DEFT_OK) {
        json_out_begin_object(&out, NULL);
        status = print(service->store, id, &out, &error);
        json_out_end_object(&out);
    }
    service_answer_tagged(request, status, &out, &error);
}

static void view_series(struct http_request *request, struct service *service,
                        view_series_fn print) {
    struct json_out out = {0};
    struct deft_error error = {0};
    struct store_range range = {0};
    int64_t id = service_incarnation(request);
    if (id == 0 || !service_query_u64(request, "from", 0, INT64_MAX, 0, &range.from) ||
        !service_query_u64(request, "to", 0, INT64_MAX, INT64_MAX, &range.to) ||
        !service_query_u64(request, "points", 1, STORE_MAX_POINTS, VIEW_DEFAULT_POINTS,
                           &range.points)) {
        return;
    }
    enum deft_status status = view_exists(service->store, id, &error);
    if (status == DEFT_OK) {
        json_out_begin_object(&out, NULL);
        status = print(service->store, id, &range, &out, &error);
        json_out_end_object(&out);
    }
    service_answer_tagged(request, status, &out, &error);
}

void service_view_incarnation(struct http_request *request, void *context) {
    view_print(request, context, store_print_incarnation);
}

void service_view_links(struct http_request *request, void *context) {
    view_print(request, context, store_print_links);
}

void service_view_plans(struct http_request *request, void *context) {
    view_print(request, context, store_print_plans);
}

void service_view_decisions(struct http_request *request, void *context) {
    view_print(request, context, store_print_decisions);
}

void service_view_iterations(struct http_request *request, void *context) {
    view_series(request, context, store_print_iterations);
}

void service_view_losses(struct http_request *request, void *context) {
    view_series(request, context, store_print_losses);
}

void service_view_profile(struct http_request *request, void *context) {
    struct service *service = context;
    struct deft_error error = {0};
    char *text = NULL;
    int64_t id = service_incarnation(request);
    if (id != 0) {
        enum deft_status status = jobs_profile(service->jobs, id, &text, &error);
        service_answer_text(request, status, 200, text, &error);
    }
}

/* 0: a problem was answered. */
static int view_plan_id(struct http_request *request, int64_t *out_incarnation, uint64_t *out_seq) {
    const char *id = http_request_param(request, "id");
    if (store_plan_id_parse(id, out_incarnation, out_seq) != DEFT_OK) {
        http_respond_problem(request, 404, "not_found", NULL, "there is no plan '%.64s'", id);
        return 0;
    }
    return 1;
}

static void view_plan(struct http_request *request, struct service *service, int explain) {
    struct json_out out = {0};
    struct deft_error error = {0};
    int64_t incarnation = 0;
    uint64_t seq = 0;
    if (!view_plan_id(request, &incarnation, &seq)) {
        return;
    }
    json_out_begin_object(&out, NULL);
    enum deft_status status =
        store_print_plan(service->store, incarnation, seq, explain, &out, &error);
    json_out_end_object(&out);
    service_answer_tagged(request, status, &out, &error);
}

void service_view_plan(struct http_request *request, void *context) {
    view_plan(request, context, 0);
}

void service_view_explain(struct http_request *request, void *context) {
    view_plan(request, context, 1);
}

void service_view_timeline(struct http_request *request, void *context) {
    struct service *service = context;
    struct deft_error error = {0};
    int64_t incarnation = 0;
    uint64_t seq = 0;
    char *text = NULL;
    if (view_plan_id(request, &incarnation, &seq)) {
        enum deft_status status =
            jobs_timeline(service->jobs, service->store, incarnation, seq, &text, &error);
        service_answer_kept(request, status, text, &error);
    }
}
