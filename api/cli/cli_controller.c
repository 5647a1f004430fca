#include "cli_controller.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/parse.h"
#include "base/state_dir.h"
#include "wire/json_out.h"

#define CLI_CONTROLLER_TIMEOUT_MS 5000
#define CLI_CONTROLLER_HEALTH_MS  1000

enum deft_status cli_controller_port(const char *state_dir, uint16_t *out_port,
                                     struct deft_error *error) {
    char path[PATH_MAX];
    char text[16];
    uint64_t port = 0;
    enum deft_status status =
        state_dir_join(state_dir, CLI_CONTROLLER_PORT_FILE, path, sizeof(path), error);
    if (status != DEFT_OK) {
        return status;
    }
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return deft_fail(error, DEFT_NOT_FOUND, errno,
                         "no controller has written '%.250s'; name one with --controller or "
                         "DEFT_CONTROLLER",
                         path);
    }
    ssize_t n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    text[strcspn(text, "\n")] = '\0';
    status = parse_u64("the port file's content", text, 1, UINT16_MAX, &port, error);
    if (status == DEFT_OK) {
        *out_port = (uint16_t)port;
    }
    return status;
}

/* --- options -----------------------------------------------------------------------------------
 */

enum { CLI_CONTROLLER_KEY = 0x500 };

static const struct argp_option cli_controller_table[] = {
    {"controller", CLI_CONTROLLER_KEY, "URL", 0,
     "Ask this controller (default: DEFT_CONTROLLER, else the user's own)", 1},
    {0}};

static error_t cli_controller_parse(int key, char *argument, struct argp_state *state) {
    struct cli_controller *controller = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &controller->credentials;
        return 0;
    case CLI_CONTROLLER_KEY:
        controller->wished = argument;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child cli_controller_children[] = {{&client_options_argp, 0, NULL, 0},
                                                            {0}};
const struct argp cli_controller_argp = {.options = cli_controller_table,
                                         .parser = cli_controller_parse,
                                         .children = cli_controller_children};

/* --- which one ---------------------------------------------------------------------------------
 */

enum deft_status cli_controller_local(struct cli_controller *controller, const char *state_dir,
                                      uint16_t port, struct deft_error *error) {
    char path[PATH_MAX];
    struct http_client_options named;
    enum deft_status status =
        state_dir_join(state_dir, CLI_CONTROLLER_TOKEN, path, sizeof(path), error);
    if (status != DEFT_OK) {
        return status;
    }
    client_options_fill(&controller->credentials, controller->url, &named);
    controller->token_file[0] = '\0';
    if (named.token == NULL && named.token_file == NULL && access(path, F_OK) == 0) {
        memcpy(controller->token_file, path, sizeof(path));
    }
    (void)snprintf(controller->url, sizeof(controller->url), "http://127.0.0.1:%u", port);
    return DEFT_OK;
}

enum deft_status cli_controller_find(struct cli_controller *controller, struct deft_error *error) {
    char state_dir[PATH_MAX / 2];
    uint16_t port = 0;
    const char *wished = controller->wished;
    if (wished == NULL || wished[0] == '\0') {
        wished = getenv("DEFT_CONTROLLER");
    }
    if (wished != NULL && wished[0] != '\0') {
        if (strlen(wished) >= CLI_CONTROLLER_URL_BYTES) {
            return deft_fail(error, DEFT_INVALID, 0,
                             "the controller's URL has %zu bytes, at most %u are allowed",
                             strlen(wished), CLI_CONTROLLER_URL_BYTES - 1);
        }
        (void)snprintf(controller->url, CLI_CONTROLLER_URL_BYTES, "%s", wished);
        return DEFT_OK;
    }
    enum deft_status status = state_dir_default(state_dir, sizeof(state_dir), error);
    if (status == DEFT_OK) {
        status = cli_controller_port(state_dir, &port, error);
    }
    return status == DEFT_OK ? cli_controller_local(controller, state_dir, port, error) : status;
}

/* --- talking to it ------------------------------------------------------------------------------
 */

static enum deft_status cli_controller_request(const struct cli_controller *controller,
                                               const char *method, const char *path,
                                               const char *body, int timeout_ms,
                                               struct http_reply *out, struct deft_error *error) {
    struct http_client *client = NULL;
    struct http_client_options options;
    struct http_reply reply = {0};
    client_options_fill(&controller->credentials, controller->url, &options);
    if (controller->token_file[0] != '\0') {
        options.token_file = controller->token_file;
    }
    enum deft_status status = http_client_open(&options, &client, error);
    if (status == DEFT_OK) {
        http_client_stop_flag(client, controller->stop);
        status = http_client_request(client, method, path, body, timeout_ms, &reply, error);
    }
    http_client_close(client);
    if (status == DEFT_OK && reply.status != 200 && reply.status != 201) {
        char detail[WIRE_TEXT_BYTES] = "";
        wire_problem_decode(reply.body, reply.n_bytes, detail);
        enum deft_status failure = reply.status == 404   ? DEFT_NOT_FOUND
                                   : reply.status == 400 ? DEFT_INVALID
                                                         : DEFT_IO;
        status = deft_fail(
            error, failure, reply.status, "%.100s answered with HTTP %d%s%.200s%s", controller->url,
            reply.status, detail[0] != '\0' ? ": " : "", detail,
            reply.status == 401 ? " (from --token-file, DEFT_TOKEN_FILE or DEFT_TOKEN)" : "");
        http_reply_done(&reply);
    }
    if (status == DEFT_OK) {
        *out = reply;
    }
    return status;
}

enum deft_status cli_controller_health(const struct cli_controller *controller,
                                       struct deft_error *error) {
    struct http_reply reply = {0};
    enum deft_status status = cli_controller_request(controller, "GET", "/healthz", NULL,
                                                     CLI_CONTROLLER_HEALTH_MS, &reply, error);
    http_reply_done(&reply);
    return status;
}

enum deft_status cli_controller_get(const struct cli_controller *controller, const char *path,
                                    struct http_reply *out, struct deft_error *error) {
    return cli_controller_request(controller, "GET", path, NULL, CLI_CONTROLLER_TIMEOUT_MS, out,
                                  error);
}

/* The object `body` with one member more. */
static enum deft_status cli_controller_with_reason(const char *body, const char *reason, char **out,
                                                   struct deft_error *error) {
    struct json_out text = {0};
    char *member = NULL;
    size_t n = strlen(body);
    json_out_text(&text, NULL, reason);
    enum deft_status status = json_out_finish(&text, &member, error);
    if (status != DEFT_OK) {
        return status;
    }
    const char *comma = n > 2 ? "," : "";
    if (asprintf(out, "%.*s%s\"reason\":%s}", (int)n - 1, body, comma, member) < 0) {
        status = deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a request");
    }
    free(member);
    return status;
}

enum deft_status cli_controller_change(const struct cli_controller *controller, const char *method,
                                       const char *path, const char *body, const char *reason,
                                       struct http_reply *out, struct deft_error *error) {
    char *longer = NULL;
    enum deft_status status = DEFT_OK;
    body = body != NULL ? body : "{}";
    if (reason != NULL) {
        status = cli_controller_with_reason(body, reason, &longer, error);
        body = longer;
    }
    if (status == DEFT_OK) {
        status = cli_controller_request(controller, method, path, body, CLI_CONTROLLER_TIMEOUT_MS,
                                        out, error);
    }
    free(longer);
    return status;
}

enum deft_status cli_controller_path(const char *collection, const char *id, const char *rest,
                                     char out[CLI_CONTROLLER_PATH_BYTES],
                                     struct deft_error *error) {
    char escaped[3 * WIRE_ID_BYTES];
    if (http_client_escape(id, escaped, sizeof(escaped)) != DEFT_OK) {
        return deft_fail(error, DEFT_INVALID, 0, "the id '%.60s...' is too long", id);
    }
    (void)snprintf(out, CLI_CONTROLLER_PATH_BYTES, "/api/v1/%s/%s%s", collection, escaped, rest);
    return DEFT_OK;
}

enum deft_status cli_controller_job(const struct cli_controller *controller, const char *job,
                                    struct wire_job *out, struct deft_error *error) {
    char path[CLI_CONTROLLER_PATH_BYTES];
    struct http_reply reply = {0};
    enum deft_status status = cli_controller_path("jobs", job, "", path, error);
    if (status == DEFT_OK) {
        status = cli_controller_get(controller, path, &reply, error);
    }
    if (status == DEFT_OK) {
        status = wire_job_decode(reply.body, reply.n_bytes, out, error);
    }
    http_reply_done(&reply);
    return status;
}

enum deft_status cli_controller_decisions(const struct cli_controller *controller,
                                          const char *incarnation, struct wire_decisions *out,
                                          struct deft_error *error) {
    char path[CLI_CONTROLLER_PATH_BYTES];
    struct http_reply reply = {0};
    enum deft_status status =
        cli_controller_path("incarnations", incarnation, "/decisions", path, error);
    if (status == DEFT_OK) {
        status = cli_controller_get(controller, path, &reply, error);
    }
    if (status == DEFT_OK) {
        status = wire_decisions_decode(reply.body, reply.n_bytes, out, error);
    }
    http_reply_done(&reply);
    return status;
}
