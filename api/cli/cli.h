/* What every subcommand of `deft` shares. */
#ifndef CLI_H
#define CLI_H

#include <argp.h>
#include <stdint.h>

#include <deft/status.h>

/* Exit codes; `deft run` passes on its command's otherwise. */
enum cli_exit {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
    CLI_CANNOT_RUN = 126,
    CLI_NO_PROGRAM = 127
};

struct cli_command {
    const char *name;
    const char *summary;
    int (*run)(int argc, char **argv); /* argv[0] is "deft NAME" */
};
/* NULL-terminated, in the order of `deft help`. */
extern const struct cli_command *const cli_commands[];

extern const struct cli_command cmd_run;
extern const struct cli_command cmd_jobs;
extern const struct cli_command cmd_top;
extern const struct cli_command cmd_job;
extern const struct cli_command cmd_mode;
extern const struct cli_command cmd_limits;
extern const struct cli_command cmd_pin;
extern const struct cli_command cmd_freeze;
extern const struct cli_command cmd_keep;
extern const struct cli_command cmd_replay;
extern const struct cli_command cmd_plan;
extern const struct cli_command cmd_explain;
extern const struct cli_command cmd_simulate;
extern const struct cli_command cmd_compare;
extern const struct cli_command cmd_import;
extern const struct cli_command cmd_db;
extern const struct cli_command cmd_token;
extern const struct cli_command cmd_doctor;

/* One sentence on standard error, as "deft: ..." and "deft: warning: ...". */
void cli_error(const char *format, ...) DEFT_PRINTF(1, 2);
void cli_warn(const char *format, ...) DEFT_PRINTF(1, 2);
/* Prints the sentence; CLI_USAGE for what the user gave, CLI_FAILED for the rest. */
int cli_status(enum deft_status status, const struct deft_error *error);

/* Values of options; a bad one ends the process with CLI_USAGE and one sentence. */
uint64_t cli_number(const struct argp_state *state, const char *name, const char *text,
                    uint64_t least, uint64_t most);
size_t cli_word(const struct argp_state *state, const char *name, const char *text,
                const char *const *words);

#endif
