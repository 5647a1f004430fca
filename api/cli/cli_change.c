#include "cli_change.h"

#include "cli.h"

enum { CLI_CHANGE_REASON = 0x580 };

static const struct argp_option cli_change_table[] = {
    {"reason", CLI_CHANGE_REASON, "TEXT", 0, "What the record of changes says why", 0}, {0}};

static error_t cli_change_parse(int key, char *argument, struct argp_state *state) {
    struct cli_change *change = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &change->controller;
        break;
    case CLI_CHANGE_REASON:
        change->reason = argument;
        break;
    case ARGP_KEY_ARG:
        if (change->job == NULL) {
            change->job = argument;
        } else if (change->value == NULL) {
            change->value = argument;
        } else {
            argp_error(state, "'%s' is not expected", argument);
        }
        break;
    case ARGP_KEY_END:
        if (change->job == NULL) {
            argp_error(state, "the id of a job is expected; 'deft jobs' lists them");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp_child cli_change_children[] = {{&cli_controller_argp, 0, NULL, 0}, {0}};

const struct argp cli_change_argp = {
    .options = cli_change_table, .parser = cli_change_parse, .children = cli_change_children};

enum deft_status cli_change_put(struct cli_change *change, const char *rest, const char *body,
                                struct http_reply *out, struct deft_error *error) {
    char path[CLI_CONTROLLER_PATH_BYTES];
    enum deft_status status = cli_controller_find(&change->controller, error);
    if (status == DEFT_OK) {
        status = cli_controller_path("jobs", change->job, rest, path, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    return body == NULL ? cli_controller_get(&change->controller, path, out, error)
                        : cli_controller_change(&change->controller, "PUT", path, body,
                                                change->reason, out, error);
}
