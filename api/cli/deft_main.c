/* deft: the command line of DeFT Tuner. Every subcommand is one file, cmd_*.c. */
#include <stdio.h>
#include <string.h>

#include "base/streams.h"
#include "cli.h"

const char *argp_program_version = "deft " DEFT_VERSION_TEXT;

static void deft_usage(FILE *stream) {
    (void)fprintf(stream, "Usage: deft COMMAND [OPTION...]\n\nCommands:\n");
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        (void)fprintf(stream, "  %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    }
    (void)fprintf(stream, "  %-10s %s\n\n", "help", "Show this, or the help of a command");
    (void)fprintf(stream, "'deft COMMAND --help' tells more.\n");
}

static const struct cli_command *deft_find(const char *name) {
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (strcmp(cli_commands[i]->name, name) == 0) {
            return cli_commands[i];
        }
    }
    cli_error("there is no command '%.40s'; 'deft help' lists them", name);
    return NULL;
}

/* argp takes the name for its messages from argv[0]. */
static int deft_dispatch(const struct cli_command *command, int argc, char **argv) {
    char name[32];
    (void)snprintf(name, sizeof(name), "deft %s", command->name);
    argv[0] = name;
    return command->run(argc, argv);
}

static int deft_help(int argc, char **argv) {
    char option[] = "--help";
    if (argc < 2) {
        deft_usage(stdout);
        return CLI_OK;
    }
    const struct cli_command *command = deft_find(argv[1]);
    char *arguments[] = {NULL, option, NULL};
    return command != NULL ? deft_dispatch(command, 2, arguments) : CLI_USAGE;
}

int main(int argc, char **argv) {
    streams_begin("deft");
    argp_err_exit_status = CLI_USAGE;
    if (argc < 2) {
        deft_usage(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        return deft_help(argc - 1, argv + 1);
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)puts(argp_program_version);
        return CLI_OK;
    }
    const struct cli_command *command = deft_find(argv[1]);
    return command != NULL ? deft_dispatch(command, argc - 1, argv + 1) : CLI_USAGE;
}
