/* deft db: a controller's database as a file. The work is deft-controller's, which has the
 * database; the command line is its own too. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "cli_program.h"

static int cmd_db_main(int argc, char **argv) {
    char program[PATH_MAX];
    char subcommand[] = "db";
    char **command = calloc((size_t)argc + 2, sizeof(*command));
    if (command == NULL) {
        cli_error("no memory to run a program");
        return CLI_FAILED;
    }
    cli_program_find("deft-controller", program);
    command[0] = program;
    command[1] = subcommand;
    for (int i = 1; i < argc; i++) {
        command[i + 1] = argv[i];
    }
    (void)execvp(program, command);
    int code = errno;
    free(command);
    cli_error("'%.200s' cannot be run: %s", program, strerror(code));
    return code == ENOENT ? CLI_NO_PROGRAM : CLI_CANNOT_RUN;
}

const struct cli_command cmd_db = {
    .name = "db",
    .summary = "Check, back up, compact or repair a controller's database, or move a job",
    .run = cmd_db_main,
};
