#include "daemon_options.h"

#include <argp.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <dsched/limits.h>

#include "base/parse.h"
#include "base/state_dir.h"
#include "daemon_spool.h"

enum {
    DAEMON_OPTION_SOCKET = 256,
    DAEMON_OPTION_CONTROLLER,
    DAEMON_OPTION_JOB,
    DAEMON_OPTION_MODE,
    DAEMON_OPTION_MAX_MERGE,
    DAEMON_OPTION_MAX_DELAY,
    DAEMON_OPTION_READY_FD,
    DAEMON_OPTION_OWNER_FD,
    DAEMON_OPTION_WHEN_DONE,
    DAEMON_OPTION_LOG,
    DAEMON_OPTION_SPOOL_DIR,
    DAEMON_OPTION_SPOOL_BYTES,
};

static const struct argp_option daemon_options_table[] = {
    {"socket", DAEMON_OPTION_SOCKET, "PATH", 0,
     "Listen for ranks here; '@NAME' is an abstract socket", 0},
    {"controller", DAEMON_OPTION_CONTROLLER, "URL", 0, "Where deft-controller listens", 0},
    {"job", DAEMON_OPTION_JOB, "ID", 0, "Register as this job, whatever the ranks call it", 0},
    {"mode", DAEMON_OPTION_MODE, "MODE", 0,
     "Wish for the job's mode: off, observe or auto; without it the job keeps its own", 0},
    {"max-merge", DAEMON_OPTION_MAX_MERGE, "K", 0, "Iterations that may share an all-reduce", 0},
    {"max-delay", DAEMON_OPTION_MAX_DELAY, "D", 0, "Boundaries an update may be late", 0},
    {"ready-fd", DAEMON_OPTION_READY_FD, "N", 0, "Write one byte there once ranks can connect", 0},
    {"exit-with-fd", DAEMON_OPTION_OWNER_FD, "N", 0, "Flush and end when this descriptor ends", 0},
    {"exit-when-done", DAEMON_OPTION_WHEN_DONE, NULL, 0, "End once all ranks have gone", 0},
    {"spool-dir", DAEMON_OPTION_SPOOL_DIR, "DIR", 0,
     "Keep reports there while the controller is away (default: spool in the state directory, else "
     "in TMPDIR)",
     0},
    {"spool-bytes", DAEMON_OPTION_SPOOL_BYTES, "N", 0,
     "At most so many, 0 for memory only (default: 67108864)", 0},
    {"log", DAEMON_OPTION_LOG, "FILE", 0, "Append log lines to FILE", 0},
    {"verbose", 'v', NULL, 0, "Log more", 0},
    {0},
};

static uint64_t daemon_options_number(struct argp_state *state, const char *name, const char *text,
                                      uint64_t least, uint64_t most) {
    struct deft_error error;
    uint64_t value = 0;
    if (parse_u64(name, text, least, most, &value, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
    return value;
}

static const char *daemon_options_mode(struct argp_state *state, const char *text) {
    static const char *const modes[] = {"off", "observe", "auto", NULL};
    struct deft_error error;
    size_t i = 0;
    if (parse_word("--mode", text, modes, &i, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
    return modes[i];
}

static void daemon_options_spool_dir(struct argp_state *state, const char *path,
                                     struct daemon_options *options) {
    size_t n_bytes = strlen(path);
    if (n_bytes == 0 || n_bytes >= sizeof(options->spool_dir)) {
        argp_error(state, "--spool-dir has %zu bytes, expected 1 to %zu", n_bytes,
                   sizeof(options->spool_dir) - 1);
    }
    memcpy(options->spool_dir, path, n_bytes + 1);
}

/* Where the command line names no folder. A path that is too long leaves memory. */
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

static error_t daemon_options_parse(int key, char *argument, struct argp_state *state) {
    struct daemon_options *options = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->credentials;
        break;
    case DAEMON_OPTION_SOCKET:
        options->socket = argument;
        break;
    case DAEMON_OPTION_CONTROLLER:
        options->controller = argument;
        break;
    case DAEMON_OPTION_JOB:
        options->job = argument;
        break;
    case DAEMON_OPTION_MODE:
        options->mode = daemon_options_mode(state, argument);
        break;
    case DAEMON_OPTION_MAX_MERGE:
        options->max_merge =
            (uint32_t)daemon_options_number(state, "--max-merge", argument, 1, DSCHED_MAX_MERGE);
        break;
    case DAEMON_OPTION_MAX_DELAY:
        options->max_delay =
            (uint32_t)daemon_options_number(state, "--max-delay", argument, 1, DSCHED_MAX_DELAY);
        break;
    case DAEMON_OPTION_READY_FD:
        options->ready_fd = (int)daemon_options_number(state, "--ready-fd", argument, 0, INT_MAX);
        break;
    case DAEMON_OPTION_OWNER_FD:
        options->owner_fd =
            (int)daemon_options_number(state, "--exit-with-fd", argument, 0, INT_MAX);
        break;
    case DAEMON_OPTION_WHEN_DONE:
        options->exit_when_done = 1;
        break;
    case DAEMON_OPTION_LOG:
        options->log_path = argument;
        break;
    case DAEMON_OPTION_SPOOL_DIR:
        daemon_options_spool_dir(state, argument, options);
        break;
    case DAEMON_OPTION_SPOOL_BYTES:
        options->spool_bytes =
            daemon_options_number(state, "--spool-bytes", argument, 0, UINT64_C(1) << 50);
        break;
    case 'v':
        options->verbose = 1;
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not expected", argument);
        break;
    case ARGP_KEY_END:
        if (options->socket == NULL || options->controller == NULL) {
            argp_error(state, "--socket and --controller are needed");
        }
        if (options->job != NULL && options->job[0] == '\0') {
            argp_error(state, "--job must not be empty");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

void daemon_options_read(int argc, char **argv, struct daemon_options *out) {
    static const struct argp_child children[] = {{&client_options_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .children = children,
        .options = daemon_options_table,
        .parser = daemon_options_parse,
        .doc = "Carries what the ranks of one job on this host measure to deft-controller, and "
               "plans back.\vThe ranks never wait for the agent, and the agent never ends a job.",
    };
    struct daemon_options options = {
        .mode = "", .spool_bytes = DAEMON_SPOOL_DISK_BYTES, .ready_fd = -1, .owner_fd = -1};
    argp_err_exit_status = 2;
    (void)argp_parse(&parser, argc, argv, 0, NULL, &options);
    if (options.spool_dir[0] == '\0') {
        daemon_options_default_spool(&options);
    }
    *out = options;
}
