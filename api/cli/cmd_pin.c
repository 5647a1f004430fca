/* deft pin: the plan that a job shall run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cli_change.h"

static enum deft_status cmd_pin_set(struct cli_change *change, struct deft_error *error) {
    struct http_reply reply = {0};
    struct wire_pin pin = {0};
    char *body = NULL;
    if (strlen(change->value) >= sizeof(pin.plan)) {
        return deft_fail(error, DEFT_INVALID, 0, "'%.64s...' is too long for the id of a plan",
                         change->value);
    }
    if (strcmp(change->value, "none") != 0) {
        (void)snprintf(pin.plan, sizeof(pin.plan), "%s", change->value);
    }
    enum deft_status status = wire_pin_encode(&pin, &body, error);
    if (status == DEFT_OK) {
        status = cli_change_put(change, "/pin", body, &reply, error);
    }
    if (status == DEFT_OK) {
        status = wire_pin_decode(reply.body, reply.n_bytes, &pin, error);
    }
    if (status == DEFT_OK) {
        (void)printf("job %s: %s is pinned\n", change->job,
                     pin.plan[0] != '\0' ? pin.plan : "no plan");
    }
    free(body);
    http_reply_done(&reply);
    return status;
}

static error_t cmd_pin_parse(int key, char *argument, struct argp_state *state) {
    struct cli_change *change = state->input;
    (void)argument;
    if (key == ARGP_KEY_INIT) {
        state->child_inputs[0] = change;
    } else if (key == ARGP_KEY_SUCCESS && change->value == NULL) {
        argp_error(state, "the id of a plan, its hash or none is expected");
    } else if (key != ARGP_KEY_SUCCESS) {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static int cmd_pin_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_change_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .parser = cmd_pin_parse,
        .children = children,
        .args_doc = "JOB PLAN|none",
        .doc = "Pins one of a job's plans, named by its id or its hash: in mode auto the job runs "
               "it and no other, also when it starts anew. The guard of the losses and the fuse "
               "may still leave it. none takes that back."};
    struct cli_change change = {0};
    struct deft_error error = {0};
    (void)argp_parse(&parser, argc, argv, 0, NULL, &change);
    return cli_status(cmd_pin_set(&change, &error), &error);
}

const struct cli_command cmd_pin = {
    .name = "pin",
    .summary = "Pin the plan that a job shall run",
    .run = cmd_pin_main,
};
