/* What all handlers do with what they got. Only for the service*.c files. */
#ifndef SERVICE_ANSWER_H
#define SERVICE_ANSWER_H

#include "service.h"

/* Answers with the problem that fits the status; the field is what precedes the sentence's colon.
 */
void service_fail(struct http_request *request, const struct deft_error *error);
/* Answers with `text`, which is freed, or with the problem. */
void service_answer_text(struct http_request *request, enum deft_status status, int http_status,
                         char *text, const struct deft_error *error);
/* Answers with what was printed, or with the problem; `out` is released. */
void service_answer_json(struct http_request *request, enum deft_status status,
                         struct json_out *out, struct deft_error *error);

/* The parameter {id} as an incarnation; 0 after a 404. */
int64_t service_incarnation(struct http_request *request);
/* A body of JSON, or 0 after a 415. */
int service_is_json(struct http_request *request);
/* A whole number of the query, `absent` when it is not there; 0 after a 400. */
int service_query_u64(struct http_request *request, const char *name, uint64_t least, uint64_t most,
                      uint64_t absent, uint64_t *out);

/* Who asks for a change and why: the reason of the body or of the header Deft-Reason. 0: a problem
 * was answered. */
struct service_cause {
    struct access_cause cause;
    char reason[STORE_AUDIT_REASON_BYTES];
};
int service_cause(struct http_request *request, struct service_cause *out);
/* Its record, still without values; it points into the cause. */
void service_audit(const struct service_cause *cause, const char *action, const char *subject,
                   struct store_audit *out);
/* The job of the path as it is before a change; 0: a problem was answered. */
int service_before(struct service *service, struct http_request *request, struct wire_job *out);
/* After tokens were changed: the table in memory follows at once, and streams whose tokens have
 * ended end. Whoever gets the answer can rely on it. */
enum deft_status service_settle(struct service *service, struct http_request *request,
                                enum deft_status status, struct deft_error *error);
/* Like service_answer_text with 200, for what clients may keep and ask for by its tag. */
void service_answer_kept(struct http_request *request, enum deft_status status, char *text,
                         const struct deft_error *error);
/* Like service_answer_json, likewise. */
void service_answer_tagged(struct http_request *request, enum deft_status status,
                           struct json_out *out, struct deft_error *error);

/* The handlers, by file. */
void service_agent_register(struct http_request *request, void *context);
void service_agent_report(struct http_request *request, void *context);
void service_agent_events(struct http_request *request, void *context);
void service_view_jobs(struct http_request *request, void *context);
void service_view_job(struct http_request *request, void *context);
void service_view_incarnation(struct http_request *request, void *context);
void service_view_iterations(struct http_request *request, void *context);
void service_view_losses(struct http_request *request, void *context);
void service_view_links(struct http_request *request, void *context);
void service_view_plans(struct http_request *request, void *context);
void service_view_decisions(struct http_request *request, void *context);
void service_view_profile(struct http_request *request, void *context);
void service_view_plan(struct http_request *request, void *context);
void service_view_explain(struct http_request *request, void *context);
void service_view_timeline(struct http_request *request, void *context);
void service_view_changes(struct http_request *request, void *context);
void service_admin_mode(struct http_request *request, void *context);
void service_admin_limits(struct http_request *request, void *context);
void service_admin_remove(struct http_request *request, void *context);
void service_hold_pin(struct http_request *request, void *context);
void service_hold_freeze(struct http_request *request, void *context);
void service_hold_kept(struct http_request *request, void *context);
void service_hold_keep(struct http_request *request, void *context);
void service_simulate(struct http_request *request, void *context);
void service_token_create(struct http_request *request, void *context);
void service_token_revoke(struct http_request *request, void *context);
void service_token_list(struct http_request *request, void *context);
void service_audit_list(struct http_request *request, void *context);
void service_config(struct http_request *request, void *context);
void service_metrics(struct http_request *request, void *context);
void service_index(struct http_request *request, void *context);
void service_asset(struct http_request *request, void *context);
void service_spec(struct http_request *request, void *context);
void service_health(struct http_request *request, void *context);
void service_ready(struct http_request *request, void *context);

#endif
