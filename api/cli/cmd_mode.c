/* deft mode: what the controller may do to a job. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "cli_controller.h"

enum { CMD_MODE_REASON = 256 };

static const char *const cmd_mode_names[] = {"off", "observe", "auto", NULL};

static const struct argp_option cmd_mode_table[] = {
    {"reason", CMD_MODE_REASON, "TEXT", 0, "What the record of changes says why", 0},
    {0},
};

struct cmd_mode_input {
    struct cli_controller controller;
    const char *job;
    const char *mode;
    const char *reason;
};

static error_t cmd_mode_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_mode_input *input = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->controller;
        break;
    case CMD_MODE_REASON:
        input->reason = argument;
        break;
    case ARGP_KEY_ARG:
        if (input->job == NULL) {
            input->job = argument;
        } else if (input->mode == NULL) {
            input->mode = cmd_mode_names[cli_word(state, "the mode", argument, cmd_mode_names)];
        } else {
            argp_error(state, "'%s' is not expected", argument);
        }
        break;
    case ARGP_KEY_END:
        if (input->mode == NULL) {
            argp_error(state, "the id of a job and off, observe or auto are expected");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static enum deft_status cmd_mode_set(const struct cmd_mode_input *input, struct deft_error *error) {
    struct cli_controller controller = input->controller;
    char path[CLI_CONTROLLER_PATH_BYTES];
    struct http_reply reply = {0};
    struct wire_mode mode = {0};
    char *body = NULL;
    (void)snprintf(mode.mode, sizeof(mode.mode), "%s", input->mode);
    enum deft_status status = cli_controller_find(&controller, error);
    if (status == DEFT_OK) {
        status = cli_controller_path("jobs", input->job, "/mode", path, error);
    }
    if (status == DEFT_OK) {
        status = wire_mode_encode(&mode, &body, error);
    }
    if (status == DEFT_OK) {
        status =
            cli_controller_change(&controller, "PUT", path, body, input->reason, &reply, error);
    }
    if (status == DEFT_OK) {
        status = wire_mode_decode(reply.body, reply.n_bytes, &mode, error);
    }
    if (status == DEFT_OK) {
        (void)printf("job %s: mode %s\n", input->job, mode.mode);
    }
    free(body);
    http_reply_done(&reply);
    return status;
}

static int cmd_mode_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_controller_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .options = cmd_mode_table,
        .parser = cmd_mode_parse,
        .children = children,
        .args_doc = "JOB off|observe|auto",
        .doc = "Sets what the controller may do to a job: off keeps its history, observe says what "
               "could be gained, auto changes plans. Leaving auto returns the job to exact."};
    struct cmd_mode_input input = {0};
    struct deft_error error = {0};
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    return cli_status(cmd_mode_set(&input, &error), &error);
}

const struct cli_command cmd_mode = {
    .name = "mode",
    .summary = "Set what the controller may do to a job",
    .run = cmd_mode_main,
};
