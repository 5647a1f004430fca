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

enum deft_status cli_controller_url(const char *wished, char out[CLI_CONTROLLER_URL_BYTES],
                                    struct deft_error *error) {
    char state_dir[PATH_MAX / 2];
    uint16_t port = 0;
    if (wished == NULL || wished[0] == '\0') {
        wished = getenv("DEFT_CONTROLLER");
    }
    if (wished != NULL && wished[0] != '\0') {
        if (strlen(wished) >= CLI_CONTROLLER_URL_BYTES) {
            return deft_fail(error, DEFT_INVALID, 0,
                             "the controller's URL has %zu bytes, at most "
                             "%u are allowed",
                             strlen(wished), CLI_CONTROLLER_URL_BYTES - 1);
        }
        (void)snprintf(out, CLI_CONTROLLER_URL_BYTES, "%s", wished);
        return DEFT_OK;
    }
    enum deft_status status = state_dir_default(state_dir, sizeof(state_dir), error);
    if (status == DEFT_OK) {
        status = cli_controller_port(state_dir, &port, error);
    }
    if (status == DEFT_OK) {
        (void)snprintf(out, CLI_CONTROLLER_URL_BYTES, "http://127.0.0.1:%u", port);
    }
    return status;
}

/* `body` NULL: a GET. */
static enum deft_status cli_controller_request(const char *url, const char *path, const char *body,
                                               int timeout_ms, struct http_reply *out,
                                               struct deft_error *error) {
    struct http_client *client = NULL;
    struct http_reply reply = {0};
    enum deft_status status = http_client_open(url, &client, error);
    if (status == DEFT_OK) {
        status = http_client_request(client, body == NULL ? "GET" : "PUT", path, body, timeout_ms,
                                     &reply, error);
    }
    http_client_close(client);
    if (status == DEFT_OK && reply.status != 200) {
        char detail[WIRE_TEXT_BYTES] = "";
        wire_problem_decode(reply.body, reply.n_bytes, detail);
        status = deft_fail(error, reply.status == 404 ? DEFT_NOT_FOUND : DEFT_IO, reply.status,
                           "%.100s answered with HTTP %d%s%.200s", url, reply.status,
                           detail[0] != '\0' ? ": " : "", detail);
        http_reply_done(&reply);
    }
    if (status == DEFT_OK) {
        *out = reply;
    }
    return status;
}

enum deft_status cli_controller_health(const char *url, struct deft_error *error) {
    struct http_reply reply = {0};
    enum deft_status status =
        cli_controller_request(url, "/healthz", NULL, CLI_CONTROLLER_HEALTH_MS, &reply, error);
    http_reply_done(&reply);
    return status;
}

enum deft_status cli_controller_get(const char *url, const char *path, struct http_reply *out,
                                    struct deft_error *error) {
    return cli_controller_request(url, path, NULL, CLI_CONTROLLER_TIMEOUT_MS, out, error);
}

enum deft_status cli_controller_put(const char *url, const char *path, const char *body,
                                    struct http_reply *out, struct deft_error *error) {
    return cli_controller_request(url, path, body, CLI_CONTROLLER_TIMEOUT_MS, out, error);
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

enum deft_status cli_controller_job(const char *url, const char *job, struct wire_job *out,
                                    struct deft_error *error) {
    char path[CLI_CONTROLLER_PATH_BYTES];
    struct http_reply reply = {0};
    enum deft_status status = cli_controller_path("jobs", job, "", path, error);
    if (status == DEFT_OK) {
        status = cli_controller_get(url, path, &reply, error);
    }
    if (status == DEFT_OK) {
        status = wire_job_decode(reply.body, reply.n_bytes, out, error);
    }
    http_reply_done(&reply);
    return status;
}

enum deft_status cli_controller_decisions(const char *url, const char *incarnation,
                                          struct wire_decisions *out, struct deft_error *error) {
    char path[CLI_CONTROLLER_PATH_BYTES];
    struct http_reply reply = {0};
    enum deft_status status =
        cli_controller_path("incarnations", incarnation, "/decisions", path, error);
    if (status == DEFT_OK) {
        status = cli_controller_get(url, path, &reply, error);
    }
    if (status == DEFT_OK) {
        status = wire_decisions_decode(reply.body, reply.n_bytes, out, error);
    }
    http_reply_done(&reply);
    return status;
}
