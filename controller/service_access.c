/* Who may do what with which route, tokens over REST, and the record of changes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "service_answer.h"

#define ACCESS_DEFAULT_PAGE 100u
#define ACCESS_MAX_PAGE     1000u

/* --- who may --------------------------------------------------------------------------------- */

static void access_refuse_unknown(struct http_request *request, int has_token) {
    if (has_token == 0) {
        http_respond_problem(request, 401, "no_token", "Authorization",
                             "this needs 'Authorization: Bearer TOKEN'");
    } else {
        http_respond_problem(request, 401, "bad_token", "Authorization",
                             "the token is unknown, expired or revoked");
    }
}

static void access_refuse_role(struct http_request *request, const struct access_user *user,
                               const char *needs) {
    http_respond_problem(request, 403, "forbidden", NULL, "the token '%s' is not %s", user->name,
                         needs);
}

/* An agent's token is good for the routes of agents and there for its own jobs; 0: answered. */
static int access_agent_may(struct service *service, struct http_request *request,
                            const struct access_user *user) {
    char of_incarnation[WIRE_ID_BYTES];
    struct deft_error error = {0};
    const char *job = http_request_param(request, "job");
    if (job == NULL) {
        int64_t id = service_incarnation(request);
        if (id == 0) {
            return 0;
        }
        if (jobs_name(service->jobs, id, of_incarnation, &error) != DEFT_OK) {
            service_fail(request, &error);
            return 0;
        }
        job = of_incarnation;
    }
    if (!access_is_for(user, job)) {
        access_refuse_role(request, user, "for this job");
        return 0;
    }
    return 1;
}

static int access_role_may(struct service *service, struct http_request *request, int need,
                           const struct access_user *user) {
    if (user->role == ACCESS_OPERATOR || (need == SERVICE_VIEWER && user->role == ACCESS_VIEWER)) {
        return 1;
    }
    if (need == SERVICE_AGENT && user->role == ACCESS_AGENT) {
        return access_agent_may(service, request, user);
    }
    access_refuse_role(request, user,
                       need == SERVICE_VIEWER  ? "a viewer's or an operator's"
                       : need == SERVICE_AGENT ? "an agent's"
                                               : "an operator's");
    return 0;
}

int service_authorize(struct http_request *request, const struct http_route *route, void *context) {
    struct service *service = context;
    struct access_user user = {0};
    const char *token = NULL;
    size_t n_bytes = 0;
    if (route->need == SERVICE_NOBODY) {
        return 1;
    }
    if (service->wants_certificates && !http_request_has_certificate(request)) {
        http_respond_problem(request, 403, "client_certificate", NULL,
                             "this needs a client certificate of an authority that the controller "
                             "was started with");
        return 0;
    }
    if (access_is_open(service->access)) {
        http_request_set_user(request, "(anybody)", 0);
        return 1;
    }
    int has_token = http_request_bearer(request, &token, &n_bytes);
    if (has_token <= 0 || !access_find(service->access, token, n_bytes, clock_wall_ns(), &user)) {
        access_refuse_unknown(request, has_token);
        return 0;
    }
    http_request_set_user(request, user.name, user.number);
    return access_role_may(service, request, route->need, &user);
}

/* --- why ------------------------------------------------------------------------------------- */

int service_cause(struct http_request *request, struct service_cause *out) {
    struct deft_error error = {0};
    size_t n_bytes = 0;
    const char *header = http_request_header(request, "Deft-Reason");
    const char *body = http_request_body(request, &n_bytes);
    out->reason[0] = '\0';
    if (n_bytes > 0 && wire_reason_decode(body, n_bytes, out->reason, &error) != DEFT_OK) {
        service_fail(request, &error);
        return 0;
    }
    if (out->reason[0] == '\0' && header != NULL) {
        if (strlen(header) >= sizeof(out->reason)) {
            http_respond_problem(request, 400, "invalid", "Deft-Reason",
                                 "a reason has at most %zu bytes", sizeof(out->reason) - 1);
            return 0;
        }
        (void)snprintf(out->reason, sizeof(out->reason), "%s", header);
    }
    out->cause = (struct access_cause){.who = http_request_user(request),
                                       .source = http_request_peer(request),
                                       .reason = out->reason};
    return 1;
}

void service_audit(const struct service_cause *cause, const char *action, const char *subject,
                   struct store_audit *out) {
    *out = (struct store_audit){.who = cause->cause.who,
                                .source = cause->cause.source,
                                .action = action,
                                .subject = subject,
                                .before = "",
                                .after = "",
                                .reason = cause->cause.reason,
                                .now_ns = clock_wall_ns()};
}

/* --- tokens ---------------------------------------------------------------------------------- */

enum deft_status service_settle(struct service *service, struct http_request *request,
                                enum deft_status status, struct deft_error *error) {
    if (status == DEFT_OK) {
        status = access_refresh(service->access, error);
        http_server_check_streams(http_request_server(request), service_keeps_stream, service);
    }
    return status;
}

int service_keeps_stream(uint64_t user, void *context) {
    struct service *service = context;
    return access_holds(service->access, user, clock_wall_ns());
}

void service_token_create(struct http_request *request, void *context) {
    struct service *service = context;
    struct service_cause cause;
    struct wire_token_request wish;
    struct wire_token token;
    struct deft_error error = {0};
    char *text = NULL;
    size_t n_bytes = 0;
    if (!service_is_json(request) || !service_cause(request, &cause)) {
        return;
    }
    const char *body = http_request_body(request, &n_bytes);
    enum deft_status status = wire_token_request_decode(body, n_bytes, &wish, &error);
    if (status == DEFT_OK) {
        status = access_create(service->store, &wish, &cause.cause, &token, &error);
    }
    status = service_settle(service, request, status, &error);
    if (status == DEFT_OK) {
        status = wire_token_encode(&token, &text, &error);
    }
    service_answer_text(request, status, 201, text, &error);
}

void service_token_revoke(struct http_request *request, void *context) {
    struct service *service = context;
    struct service_cause cause;
    struct wire_token token;
    struct deft_error error = {0};
    char *text = NULL;
    if (!service_cause(request, &cause)) {
        return;
    }
    enum deft_status status = access_revoke(service->store, http_request_param(request, "name"),
                                            &cause.cause, &token, &error);
    status = service_settle(service, request, status, &error);
    if (status == DEFT_OK) {
        status = wire_token_encode(&token, &text, &error);
    }
    service_answer_text(request, status, 200, text, &error);
}

void service_token_list(struct http_request *request, void *context) {
    struct service *service = context;
    struct wire_tokens tokens = {0};
    struct deft_error error = {0};
    char *text = NULL;
    enum deft_status status = access_list(service->store, &tokens, &error);
    if (status == DEFT_OK) {
        status = wire_tokens_encode(&tokens, &text, &error);
    }
    service_answer_text(request, status, 200, text, &error);
    wire_tokens_done(&tokens);
}

/* --- the record ------------------------------------------------------------------------------ */

void service_audit_list(struct http_request *request, void *context) {
    struct service *service = context;
    struct json_out out = {0};
    struct deft_error error = {0};
    struct store_audit_filter filter = {.subject = http_request_query(request, "subject")};
    if (!service_query_u64(request, "limit", 1, ACCESS_MAX_PAGE, ACCESS_DEFAULT_PAGE,
                           &filter.limit) ||
        !service_query_u64(request, "before", 1, INT64_MAX, 0, &filter.before)) {
        return;
    }
    json_out_begin_object(&out, NULL);
    enum deft_status status = store_print_audit(service->store, &filter, &out, &error);
    json_out_end_object(&out);
    service_answer_json(request, status, &out, &error);
}
