#include "cli.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/parse.h"

const struct cli_command *const cli_commands[] = {
    &cmd_run,    &cmd_jobs,  &cmd_top,    &cmd_job,    &cmd_mode,    &cmd_limits,   &cmd_pin,
    &cmd_freeze, &cmd_keep,  &cmd_replay, &cmd_plan,   &cmd_explain, &cmd_simulate, &cmd_compare,
    &cmd_import, &cmd_token, &cmd_db,     &cmd_doctor, NULL,
};

static void cli_print(const char *prefix, const char *format, va_list arguments) DEFT_PRINTF(2, 0);
static void cli_print(const char *prefix, const char *format, va_list arguments) {
    char text[1024];
    (void)vsnprintf(text, sizeof(text), format, arguments);
    (void)fflush(stdout);
    (void)fprintf(stderr, "%s%s\n", prefix, text);
}

void cli_error(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    cli_print("deft: ", format, arguments);
    va_end(arguments);
}

void cli_warn(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    cli_print("deft: warning: ", format, arguments);
    va_end(arguments);
}

int cli_status(enum deft_status status, const struct deft_error *error) {
    if (status == DEFT_OK) {
        return CLI_OK;
    }
    cli_error("%s", error->text);
    return status == DEFT_INVALID || status == DEFT_LIMIT ? CLI_USAGE : CLI_FAILED;
}

uint64_t cli_number(const struct argp_state *state, const char *name, const char *text,
                    uint64_t least, uint64_t most) {
    struct deft_error error;
    uint64_t value = 0;
    if (parse_u64(name, text, least, most, &value, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
    return value;
}

size_t cli_word(const struct argp_state *state, const char *name, const char *text,
                const char *const *words) {
    struct deft_error error;
    size_t i = 0;
    if (parse_word(name, text, words, &i, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
    return i;
}
