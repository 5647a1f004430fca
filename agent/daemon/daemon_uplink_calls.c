#include "daemon_uplink_calls.h"

#include <stdio.h>
#include <stdlib.h>

#define DAEMON_UPLINK_PATH_BYTES (3 * WIRE_ID_BYTES + 64)

static enum deft_status daemon_uplink_path(const char *collection, const char *segment,
                                           const char *action, char out[DAEMON_UPLINK_PATH_BYTES],
                                           struct deft_error *error) {
    char escaped[3 * WIRE_ID_BYTES];
    if (http_client_escape(segment, escaped, sizeof(escaped)) != DEFT_OK) {
        return deft_fail(error, DEFT_INVALID, 0, "the id '%.60s' is too long", segment);
    }
    (void)snprintf(out, DAEMON_UPLINK_PATH_BYTES, "/api/v1/%s/%s/%s", collection, escaped, action);
    return DEFT_OK;
}

static enum deft_status daemon_uplink_judge(const struct http_reply *reply, const char *what,
                                            struct deft_error *error) {
    char detail[WIRE_TEXT_BYTES] = "";
    if (reply->status == 200 || reply->status == 201) {
        return DEFT_OK;
    }
    enum deft_status status = DEFT_IO;
    if (reply->status == 404) {
        status = DEFT_NOT_FOUND;
    } else if (reply->status == 409) {
        status = DEFT_STATE;
    } else if (reply->status >= 400 && reply->status < 500 && reply->status != 401 &&
               reply->status != 403 && reply->status != 408 && reply->status != 421 &&
               reply->status != 429) { /* a token that is refused may be replaced */
        status = DEFT_INVALID;
    }
    wire_problem_decode(reply->body, reply->n_bytes, detail);
    return deft_fail(error, status, reply->status,
                     "the controller answered %s with HTTP %d%s%.300s", what, reply->status,
                     detail[0] != '\0' ? ": " : "", detail);
}

/* An answer that is not ours comes from something else on that port, which refuses nothing in the
 * controller's name: ask again later. */
static enum deft_status daemon_uplink_unread(enum deft_status status) {
    return status == DEFT_INVALID ? DEFT_IO : status;
}

enum deft_status daemon_uplink_call_register(struct http_client *client, const char *job,
                                             const char *body, struct wire_registered *out,
                                             int64_t *out_retry_after_s, struct deft_error *error) {
    char path[DAEMON_UPLINK_PATH_BYTES];
    struct http_reply reply = {0};
    enum deft_status status = daemon_uplink_path("jobs", job, "incarnations", path, error);
    if (status == DEFT_OK) {
        status = http_client_request(client, "POST", path, body, DAEMON_UPLINK_TIMEOUT_MS, &reply,
                                     error);
    }
    *out_retry_after_s = reply.retry_after_s;
    if (status == DEFT_OK) {
        status = daemon_uplink_judge(&reply, "the registration", error);
    }
    if (status == DEFT_OK) {
        status = wire_registered_decode(reply.body, reply.n_bytes, out, error);
        status = daemon_uplink_unread(status);
    }
    http_reply_done(&reply);
    return status;
}

enum deft_status daemon_uplink_call_report(struct http_client *client, const char *incarnation,
                                           const struct wire_report *report,
                                           uint64_t *out_committed_seq, int64_t *out_retry_after_s,
                                           struct deft_error *error) {
    char path[DAEMON_UPLINK_PATH_BYTES];
    char *body = NULL;
    struct http_reply reply = {0};
    enum deft_status status =
        daemon_uplink_path("incarnations", incarnation, "reports", path, error);
    if (status == DEFT_OK) {
        status = wire_report_encode(report, &body, error);
    }
    if (status == DEFT_OK) {
        status = http_client_request(client, "POST", path, body, DAEMON_UPLINK_TIMEOUT_MS, &reply,
                                     error);
    }
    *out_retry_after_s = reply.retry_after_s;
    if (status == DEFT_OK) {
        status = daemon_uplink_judge(&reply, "a report", error);
    }
    if (status == DEFT_OK) {
        status = wire_committed_decode(reply.body, reply.n_bytes, out_committed_seq, error);
        status = daemon_uplink_unread(status);
    }
    free(body);
    http_reply_done(&reply);
    return status;
}
