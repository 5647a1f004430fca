#include "daemon_options.h"

#include <argp.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dsched/limits.h>

#include "base/parse.h"
#include "base/state_dir.h"
#include "daemon_spool.h"

#define DAEMON_OPTIONS_EXIT 2

static enum deft_status daemon_options_take_mode(const struct setting *row, const char *name,
                                                 const char *text, void *target,
                                                 struct deft_error *error) {
    static const char *const modes[] = {"off", "observe", "auto", NULL};
    struct daemon_options *options = target;
    size_t i = 0;
    (void)row;
    enum deft_status status = parse_word(name, text, modes, &i, error);
    if (status == DEFT_OK) {
        options->mode = modes[i];
    }
    return status;
}

static enum deft_status daemon_options_take_dir(const struct setting *row, const char *name,
                                                const char *text, void *target,
                                                struct deft_error *error) {
    struct daemon_options *options = target;
    size_t n_bytes = strlen(text);
    (void)row;
    if (n_bytes == 0 || n_bytes >= sizeof(options->spool_dir)) {
        return deft_fail(error, DEFT_INVALID, 0, "%s has %zu bytes, expected 1 to %zu", name,
                         n_bytes, sizeof(options->spool_dir) - 1);
    }
    memcpy(options->spool_dir, text, n_bytes + 1);
    return DEFT_OK;
}

static const struct setting daemon_options_rows[] = {
    {.name = "socket",
     .argument = "PATH",
     .doc = "Listen for ranks here; '@NAME' is an abstract socket",
     .take = settings_take_text,
     .offset = offsetof(struct daemon_options, socket)},
    {.name = "controller",
     .argument = "URL",
     .doc = "Where deft-controller listens",
     .take = settings_take_text,
     .offset = offsetof(struct daemon_options, controller)},
    {.name = "job",
     .argument = "ID",
     .doc = "Register as this job, whatever the ranks call it",
     .take = settings_take_text,
     .offset = offsetof(struct daemon_options, job)},
    {.name = "mode",
     .argument = "MODE",
     .doc = "Wish for the job's mode: off, observe or auto",
     .otherwise = "the job keeps its own",
     .take = daemon_options_take_mode},
    {.name = "max-merge",
     .argument = "K",
     .doc = "Iterations that may share an all-reduce",
     .otherwise = "the controller's",
     .take = settings_take_u32,
     .offset = offsetof(struct daemon_options, max_merge),
     .least = 1,
     .most = DSCHED_MAX_MERGE},
    {.name = "max-delay",
     .argument = "D",
     .doc = "Boundaries an update may be late",
     .otherwise = "the controller's",
     .take = settings_take_u32,
     .offset = offsetof(struct daemon_options, max_delay),
     .least = 1,
     .most = DSCHED_MAX_DELAY},
    {.name = "epsilon",
     .argument = "E",
     .doc = "Excess loss that a plan may cost, 0 to 1",
     .otherwise = "the controller's",
     .take = settings_take_fraction,
     .offset = offsetof(struct daemon_options, epsilon)},
    {.name = "ready-fd",
     .argument = "N",
     .doc = "Write one byte there once ranks can connect",
     .flags = SETTING_ONLY_FLAG,
     .take = settings_take_int,
     .offset = offsetof(struct daemon_options, ready_fd),
     .most = INT_MAX},
    {.name = "exit-with-fd",
     .argument = "N",
     .doc = "Flush and end when this descriptor ends",
     .flags = SETTING_ONLY_FLAG,
     .take = settings_take_int,
     .offset = offsetof(struct daemon_options, owner_fd),
     .most = INT_MAX},
    {.name = "exit-when-done",
     .doc = "End once all ranks have gone",
     .value = "no",
     .take = settings_take_switch,
     .offset = offsetof(struct daemon_options, exit_when_done)},
    {.name = "after-ranks",
     .doc = "On SIGTERM or SIGINT end only once all ranks have gone",
     .value = "no",
     .take = settings_take_switch,
     .offset = offsetof(struct daemon_options, after_ranks)},
    {.name = "spool-dir",
     .argument = "DIR",
     .doc = "Keep reports there while the controller is away",
     .otherwise = "spool in the state directory, else in TMPDIR",
     .take = daemon_options_take_dir},
    {.name = "spool-bytes",
     .argument = "N",
     .doc = "At most so many, 0 for memory only",
     .value = "67108864",
     .take = settings_take_u64,
     .offset = offsetof(struct daemon_options, spool_bytes),
     .most = UINT64_C(1) << 50},
    {.name = "log",
     .argument = "FILE",
     .doc = "Append log lines to FILE",
     .otherwise = "standard error",
     .take = settings_take_text,
     .offset = offsetof(struct daemon_options, log_path)},
    {.name = "verbose",
     .letter = 'v',
     .doc = "Log more",
     .value = "no",
     .take = settings_take_switch,
     .offset = offsetof(struct daemon_options, verbose)},
    {.name = NULL},
};

static const struct settings_group daemon_options_groups[] = {
    {daemon_options_rows, 0},
    {client_options_rows, offsetof(struct daemon_options, credentials)},
};

const struct settings_program daemon_options_program = {
    .name = "deft-agent",
    .prefix = "DEFT_AGENT_",
    .doc = "Carries what the ranks of one job on this host measure to deft-controller, and plans "
           "back.\vThe ranks never wait for the agent, and the agent never ends a job. Settings "
           "may stand in the file of --config as well (max-merge = 2) and in the environment "
           "(DEFT_AGENT_MAX_MERGE=2); the command line wins over the environment, and that over "
           "the file.",
    .groups = daemon_options_groups,
    .n_groups = sizeof(daemon_options_groups) / sizeof(daemon_options_groups[0]),
};

/* Where no setting names a folder. A path that is too long leaves memory. */
static void daemon_options_default_spool(struct daemon_options *options) {
    char state[PATH_MAX];
    const char *temporary = getenv("TMPDIR");
    int n_bytes = 0;
    if (state_dir_default(state, sizeof(state), NULL) == DEFT_OK) {
        n_bytes = snprintf(options->spool_dir, sizeof(options->spool_dir), "%s/spool", state);
    } else {
        n_bytes = snprintf(options->spool_dir, sizeof(options->spool_dir), "%s/deft-%lu/spool",
                           temporary != NULL && temporary[0] == '/' ? temporary : "/tmp",
                           (unsigned long)geteuid());
    }
    if (n_bytes < 0 || (size_t)n_bytes >= sizeof(options->spool_dir)) {
        options->spool_bytes = 0;
    }
}

enum deft_status daemon_options_fill(const struct settings *settings, struct daemon_options *out,
                                     struct deft_error *error) {
    *out = (struct daemon_options){.mode = "", .ready_fd = -1, .owner_fd = -1};
    enum deft_status status = settings_apply(settings, out, error);
    if (status == DEFT_OK && (out->socket == NULL || out->controller == NULL)) {
        status = deft_fail(error, DEFT_INVALID, 0, "--socket and --controller are needed");
    }
    if (status == DEFT_OK) {
        status = client_options_check(&out->credentials, error);
    }
    if (status == DEFT_OK && out->spool_dir[0] == '\0') {
        daemon_options_default_spool(out);
    }
    return status;
}

void daemon_options_read(int argc, char **argv, struct daemon_options *out,
                         struct settings **out_settings) {
    struct settings *settings = NULL;
    struct deft_error error = {0};
    argp_err_exit_status = DAEMON_OPTIONS_EXIT;
    enum deft_status status =
        settings_read(&daemon_options_program, argc, argv, environ, &settings, &error);
    if (status == DEFT_OK) {
        status = daemon_options_fill(settings, out, &error);
    }
    if (status == DEFT_OK && settings_task(settings) == SETTINGS_PRINT) {
        status = settings_print(settings, stdout, &error);
    }
    if (status != DEFT_OK) {
        (void)fprintf(stderr, "deft-agent: %s\n", error.text);
    }
    if (status != DEFT_OK || settings_task(settings) != SETTINGS_RUN) {
        settings_close(settings);
        exit(status == DEFT_OK ? 0 : DAEMON_OPTIONS_EXIT);
    }
    *out_settings = settings;
}
