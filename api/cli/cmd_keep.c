/* deft keep: how long the history of a job stays. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cli_change.h"

static enum deft_status cmd_keep_run(struct cli_change *change, struct deft_error *error) {
    struct http_reply reply = {0};
    struct wire_keep keep = {0};
    char *body = NULL;
    enum deft_status status = DEFT_OK;
    if (change->value != NULL && strlen(change->value) >= sizeof(keep.keep)) {
        status = deft_fail(error, DEFT_INVALID, 0, "'%.64s...' is longer than all that is kept",
                           change->value);
    } else if (change->value != NULL) {
        (void)snprintf(keep.keep, sizeof(keep.keep), "%s", change->value);
        status = wire_keep_encode(&keep, &body, error);
    }
    if (status == DEFT_OK) {
        status = cli_change_put(change, "/keep", body, &reply, error);
    }
    if (status == DEFT_OK) {
        status = wire_keep_decode(reply.body, reply.n_bytes, &keep, error);
    }
    if (status == DEFT_OK) {
        (void)printf("job %s: %s\n", change->job, keep.keep);
    }
    free(body);
    http_reply_done(&reply);
    return status;
}

static error_t cmd_keep_parse(int key, char *argument, struct argp_state *state) {
    (void)argument;
    if (key != ARGP_KEY_INIT) {
        return ARGP_ERR_UNKNOWN;
    }
    state->child_inputs[0] = state->input;
    return 0;
}

static int cmd_keep_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_change_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .parser = cmd_keep_parse,
        .children = children,
        .args_doc = "JOB [WHAT=AGE,...|default]",
        .doc = "Shows how long the history of a job stays, after changing it: raw, minutes, hours, "
               "logs and jobs with an age such as raw=30d or jobs=forever, iterations with a "
               "number. What is not named is as for all jobs."};
    struct cli_change change = {0};
    struct deft_error error = {0};
    (void)argp_parse(&parser, argc, argv, 0, NULL, &change);
    return cli_status(cmd_keep_run(&change, &error), &error);
}

const struct cli_command cmd_keep = {
    .name = "keep",
    .summary = "Show or set how long the history of a job stays",
    .run = cmd_keep_main,
};
