/* deft replay: decides again what a controller has decided. The work is deft-controller's, since
 * it has the deciding and the database. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "cli_program.h"

#define CMD_REPLAY_JSON 256

static const struct argp_option cmd_replay_table[] = {
    {"json", CMD_REPLAY_JSON, NULL, 0, "Print one JSON object", 0}, {0}};

struct cmd_replay_input {
    char *db;
    char *job;
    int json;
};

static error_t cmd_replay_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_replay_input *input = state->input;
    switch (key) {
    case CMD_REPLAY_JSON:
        input->json = 1;
        break;
    case ARGP_KEY_ARG:
        if (input->db == NULL) {
            input->db = argument;
        } else if (input->job == NULL) {
            input->job = argument;
        } else {
            argp_error(state, "'%s' is not expected", argument);
        }
        break;
    case ARGP_KEY_END:
        if (input->job == NULL) {
            argp_error(state, "a database and the id of a job are expected");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static int cmd_replay_main(int argc, char **argv) {
    static const struct argp parser = {
        .options = cmd_replay_table,
        .parser = cmd_replay_parse,
        .args_doc = "DB JOB",
        .doc = "Decides again what was decided for JOB, from the inputs that the controller's "
               "database DB keeps with each decision, solves again what was solved, and compares. "
               "DB is only read, also while a controller has it open.\v"
               "Runs deft-controller, which is looked for beside this program and then along PATH. "
               "Exit status: 0 when all decisions agree, 1 when one differs, 2 for a wrong command "
               "line or when there is nothing to compare."};
    struct cmd_replay_input input = {0};
    char program[PATH_MAX];
    char subcommand[] = "replay";
    char json[] = "--json";
    char end[] = "--"; /* a job may be called "-x" */
    char *command[8] = {program, subcommand};
    size_t n = 2;
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    cli_program_find("deft-controller", program);
    if (input.json) {
        command[n++] = json;
    }
    command[n++] = end;
    command[n++] = input.db;
    command[n] = input.job;
    (void)execvp(program, command);
    int code = errno;
    cli_error("'%.200s' cannot be run: %s", program, strerror(code));
    return code == ENOENT ? CLI_NO_PROGRAM : CLI_CANNOT_RUN;
}

const struct cli_command cmd_replay = {
    .name = "replay",
    .summary = "Decide again what was decided for a job, and compare",
    .run = cmd_replay_main,
};
