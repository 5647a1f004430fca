/* deft freeze: what a job runs stays. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "cli_change.h"

static const char *const cmd_freeze_words[] = {"off", "on", NULL};

static enum deft_status cmd_freeze_set(struct cli_change *change, int frozen,
                                       struct deft_error *error) {
    struct http_reply reply = {0};
    struct wire_freeze freeze = {.frozen = frozen};
    char *body = NULL;
    enum deft_status status = wire_freeze_encode(&freeze, &body, error);
    if (status == DEFT_OK) {
        status = cli_change_put(change, "/freeze", body, &reply, error);
    }
    if (status == DEFT_OK) {
        status = wire_freeze_decode(reply.body, reply.n_bytes, &freeze, error);
    }
    if (status == DEFT_OK) {
        (void)printf("job %s: %s\n", change->job, freeze.frozen ? "frozen" : "not frozen");
    }
    free(body);
    http_reply_done(&reply);
    return status;
}

struct cmd_freeze_input {
    struct cli_change change;
    int frozen;
};

static error_t cmd_freeze_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_freeze_input *input = state->input;
    (void)argument;
    if (key == ARGP_KEY_INIT) {
        state->child_inputs[0] = &input->change;
    } else if (key == ARGP_KEY_SUCCESS) {
        const char *word = input->change.value != NULL ? input->change.value : "";
        input->frozen = (int)cli_word(state, "the freeze", word, cmd_freeze_words);
    } else {
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static int cmd_freeze_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_change_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .parser = cmd_freeze_parse,
        .children = children,
        .args_doc = "JOB on|off",
        .doc = "Freezes a job: what it runs stays, and no plan is looked for. The guard of the "
               "losses, the fuse and steps longer than exact's still lead back to exact."};
    struct cmd_freeze_input input = {0};
    struct deft_error error = {0};
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    return cli_status(cmd_freeze_set(&input.change, input.frozen, &error), &error);
}

const struct cli_command cmd_freeze = {
    .name = "freeze",
    .summary = "Keep what a job runs, and look for no plan",
    .run = cmd_freeze_main,
};
