/* deft run: starts what is missing around a job, then the job, and says what came of it. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <dsched/limits.h>

#include "base/clock.h"
#include "base/state_dir.h"
#include "cli.h"
#include "client/http_client.h"
#include "run_environment.h"
#include "run_guard.h"
#include "run_options.h"
#include "run_ranks.h"
#include "run_services.h"
#include "run_verdict.h"

/* Retries and deadlines are looked at this often. */
#define CMD_RUN_TICK_MS 200

enum {
    CMD_RUN_NPROC = 256,
    CMD_RUN_MODE,
    CMD_RUN_JOB,
    CMD_RUN_CONTROLLER,
    CMD_RUN_STATE_DIR,
    CMD_RUN_MAX_MERGE,
    CMD_RUN_MAX_DELAY,
    CMD_RUN_LINKS,
    CMD_RUN_KEEP,
    CMD_RUN_NO_PREFIX,
};

static const struct argp_option cmd_run_table[] = {
    {"nproc", CMD_RUN_NPROC, "N", 0, "Ranks to start (default 1)", 0},
    {"mode", CMD_RUN_MODE, "MODE", 0, "off, observe or auto (default auto)", 0},
    {"job", CMD_RUN_JOB, "NAME", 0, "Job id (default: the command's name and a suffix)", 0},
    {"controller", CMD_RUN_CONTROLLER, "URL", 0,
     "Use this controller (default: DEFT_CONTROLLER, else one of this user on loopback, started "
     "if it is not there)",
     0},
    {"state-dir", CMD_RUN_STATE_DIR, "DIR", 0,
     "Database and logs (default: $XDG_STATE_HOME/deft or ~/.local/state/deft)", 0},
    {"max-merge", CMD_RUN_MAX_MERGE, "K", 0, "Iterations that may share an all-reduce", 0},
    {"max-delay", CMD_RUN_MAX_DELAY, "D", 0, "Boundaries an update may be late", 0},
    {"links", CMD_RUN_LINKS, "L", 0, "Links of the ranks, e.g. gloo:eth0,gloo:eth1", 0},
    {"keep", CMD_RUN_KEEP, NULL, 0, "Leave the controller running at the end", 0},
    {"no-prefix", CMD_RUN_NO_PREFIX, NULL, 0, "Leave the ranks' output as it is", 0},
    {0},
};

struct cmd_run_input {
    struct run_options *options;
    const char *job;
    const char *state_dir;
};

static void cmd_run_check(struct argp_state *state, const struct cmd_run_input *input) {
    if (input->options->command == NULL || input->options->command[0] == NULL) {
        argp_error(state, "a command is expected after the options");
    }
}

static error_t cmd_run_parse(int key, char *argument, struct argp_state *state) {
    static const char *const modes[] = {"off", "observe", "auto", NULL};
    struct cmd_run_input *input = state->input;
    struct run_options *options = input->options;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &options->credentials;
        break;
    case CMD_RUN_NPROC:
        options->n_ranks = (uint32_t)cli_number(state, "--nproc", argument, 1, RUN_MAX_RANKS);
        break;
    case CMD_RUN_MODE:
        options->mode = modes[cli_word(state, "--mode", argument, modes)];
        break;
    case CMD_RUN_JOB:
        input->job = argument;
        break;
    case CMD_RUN_CONTROLLER:
        options->controller = argument;
        break;
    case CMD_RUN_STATE_DIR:
        input->state_dir = argument;
        break;
    case CMD_RUN_MAX_MERGE:
        options->max_merge =
            (uint32_t)cli_number(state, "--max-merge", argument, 1, DSCHED_MAX_MERGE);
        break;
    case CMD_RUN_MAX_DELAY:
        options->max_delay =
            (uint32_t)cli_number(state, "--max-delay", argument, 1, DSCHED_MAX_DELAY);
        break;
    case CMD_RUN_LINKS:
        options->links = argument;
        break;
    case CMD_RUN_KEEP:
        options->keep = 1;
        break;
    case CMD_RUN_NO_PREFIX:
        options->no_prefix = 1;
        break;
    case ARGP_KEY_ARG:
        /* The rest is the command, its own options included. */
        options->command = (const char *const *)&state->argv[state->next - 1];
        state->next = state->argc;
        break;
    case ARGP_KEY_END:
        cmd_run_check(state, input);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static enum deft_status cmd_run_options(int argc, char **argv, struct run_options *options,
                                        struct deft_error *error) {
    static const struct argp_child children[] = {{&client_options_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .children = children,
        .options = cmd_run_table,
        .parser = cmd_run_parse,
        .args_doc = "[--] COMMAND [ARGUMENT...]",
        .doc = "Runs COMMAND as the ranks of one job and tunes its communication.\v"
               "The exit status is that of the first rank that failed (128 + the signal's number "
               "if a signal ended it), else 0. Ctrl-C asks the ranks to end; a second one kills "
               "them.",
    };
    struct cmd_run_input input = {.options = options};
    *options = (struct run_options){.n_ranks = 1, .mode = "auto"};
    (void)argp_parse(&parser, argc, argv, ARGP_IN_ORDER, NULL, &input);
    if (options->controller == NULL) {
        const char *controller = getenv("DEFT_CONTROLLER");
        options->controller = controller != NULL && controller[0] != '\0' ? controller : NULL;
    }
    if (options->controller != NULL && strlen(options->controller) >= CLI_CONTROLLER_URL_BYTES) {
        return deft_fail(error, DEFT_INVALID, 0, "the controller's URL is too long");
    }
    enum deft_status status = run_options_name(options, input.job, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (input.state_dir == NULL) {
        if (state_dir_default(options->state_dir, sizeof(options->state_dir), error) != DEFT_OK) {
            options->state_dir[0] = '\0'; /* the job runs all the same */
        }
        return DEFT_OK;
    }
    if (input.state_dir[0] == '\0' || strlen(input.state_dir) >= sizeof(options->state_dir)) {
        return deft_fail(error, DEFT_INVALID, 0, "--state-dir is empty or too long");
    }
    (void)snprintf(options->state_dir, sizeof(options->state_dir), "%s", input.state_dir);
    return DEFT_OK;
}

/* Before anything is started: a typing error should cost nothing. */
static int cmd_run_find(const char *program) {
    const char *path = getenv("PATH");
    struct stat info;
    path = path != NULL ? path : "/bin:/usr/bin"; /* as execvp takes it */
    if (strchr(program, '/') != NULL) {
        if (stat(program, &info) == 0 && S_ISREG(info.st_mode)) {
            return access(program, X_OK) == 0 ? CLI_OK : CLI_CANNOT_RUN;
        }
        return CLI_NO_PROGRAM;
    }
    while (*path != '\0') {
        char full[PATH_MAX];
        size_t n = strcspn(path, ":");
        int length = snprintf(full, sizeof(full), "%.*s/%s", (int)n, n > 0 ? path : ".", program);
        if (length > 0 && (size_t)length < sizeof(full) && access(full, X_OK) == 0 &&
            stat(full, &info) == 0 && S_ISREG(info.st_mode)) {
            return CLI_OK;
        }
        path += n;
        path += *path == ':';
    }
    return CLI_NO_PROGRAM;
}

struct cmd_run_state {
    struct run_services services;
    struct run_ranks ranks;
    int signal_fd;
    int signal_number; /* of the first wish to end; 0: none */
};

/* Everything that waits in the signal descriptor. */
static void cmd_run_signals(struct cmd_run_state *run) {
    struct signalfd_siginfo info;
    while (read(run->signal_fd, &info, sizeof(info)) == (ssize_t)sizeof(info)) {
        if (info.ssi_signo == SIGCHLD) {
            continue;
        }
        if (run->signal_number == 0) {
            run->signal_number = (int)info.ssi_signo;
            if (run->ranks.n_running > 0) {
                cli_warn("%s: the ranks are asked to end; once more kills them",
                         strsignal(run->signal_number));
                run_ranks_stop(&run->ranks, RUN_RANKS_SIGNAL_GRACE_NS);
            }
        } else {
            run_ranks_stop(&run->ranks, 0);
        }
    }
}

static int cmd_run_interrupted(void *context) {
    struct cmd_run_state *run = context;
    cmd_run_signals(run);
    return run->signal_number != 0;
}

static void cmd_run_reap(struct cmd_run_state *run) {
    for (;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid == 0) {
            return;
        }
        int exit_code = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
        if (!run_ranks_ended(&run->ranks, info.si_pid, exit_code) &&
            !run_services_ended(&run->services, info.si_pid, exit_code)) {
            (void)waitpid(info.si_pid, NULL, 0);
        }
    }
}

static void cmd_run_watch(struct cmd_run_state *run) {
    struct pollfd *fds = calloc(2 * (size_t)run->ranks.n_ranks + 1, sizeof(*fds));
    if (fds == NULL) {
        cli_error("no memory to watch %u ranks", run->ranks.n_ranks);
        run_ranks_stop(&run->ranks, 0);
        return;
    }
    while (run->ranks.n_running > 0) {
        fds[0] = (struct pollfd){.fd = run->signal_fd, .events = POLLIN};
        size_t n = run_ranks_poll(&run->ranks, fds + 1);
        if (poll(fds, n + 1, CMD_RUN_TICK_MS) > 0) {
            run_ranks_serve(&run->ranks, fds + 1, n);
            cmd_run_signals(run);
        }
        cmd_run_reap(run);
        run_ranks_tick(&run->ranks, clock_monotonic_ns());
        if (!run->ranks.stopping) {
            run_services_tick(&run->services, clock_monotonic_ns());
        }
    }
    run_ranks_drain(&run->ranks);
    free(fds);
}

static int cmd_run_job(struct cmd_run_state *run, const struct run_options *options,
                       struct run_guard *guard, struct deft_error *error) {
    struct run_environment environment = {.options = options};
    run_services_start(&run->services, options, guard, cmd_run_interrupted, run);
    if (run->services.socket[0] != '\0') {
        environment.agent_socket = run->services.socket;
    }
    enum deft_status status = DEFT_OK;
    if (run->signal_number == 0) {
        status = run_environment_port(&environment.master_port, error);
        if (status == DEFT_OK) {
            status = run_ranks_start(&run->ranks, &environment, guard, error);
        }
        if (status == DEFT_OK) {
            cmd_run_watch(run);
        }
    }
    int had_agent = run->services.socket[0] != '\0';
    run_services_stop_agent(&run->services);
    if (status == DEFT_OK && had_agent && run->signal_number == 0) {
        run_verdict_print(&run->services.at, options->job,
                          run->services.port != 0 ? options->state_dir : NULL);
    }
    run_services_stop_controller(&run->services);
    int exit_code = run->ranks.exit_code;
    if (exit_code == 0 && run->signal_number == 0 && run->ranks.output_lost) {
        exit_code = CLI_FAILED;
    }
    run_ranks_done(&run->ranks);
    if (status != DEFT_OK) {
        return cli_status(status, error);
    }
    return exit_code == 0 && run->signal_number != 0 ? 128 + run->signal_number : exit_code;
}

static enum deft_status cmd_run_block_signals(int *out_fd, struct deft_error *error) {
    static const int numbers[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP};
    sigset_t set;
    (void)sigemptyset(&set);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        (void)sigaddset(&set, numbers[i]);
    }
    (void)signal(SIGPIPE, SIG_IGN);
    int fd = sigprocmask(SIG_BLOCK, &set, NULL) == 0
                 ? signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK)
                 : -1;
    if (fd < 0) {
        return deft_fail(error, DEFT_IO, errno, "signals cannot be received: %s", strerror(errno));
    }
    *out_fd = fd;
    return DEFT_OK;
}

static int cmd_run_main(int argc, char **argv) {
    struct run_options options;
    struct run_guard guard = {.fd = -1};
    struct deft_error error = {0};
    enum deft_status status = cmd_run_options(argc, argv, &options, &error);
    if (status != DEFT_OK) {
        return cli_status(status, &error);
    }
    int found = cmd_run_find(options.command[0]);
    if (found != CLI_OK) {
        cli_error("'%.200s' %s", options.command[0],
                  found == CLI_CANNOT_RUN ? "may not be executed" : "is not a program that exists");
        return found;
    }
    struct cmd_run_state *run = calloc(1, sizeof(*run));
    if (run == NULL) {
        return cli_status(deft_fail(&error, DEFT_NO_MEMORY, 0, "no memory for a job"), &error);
    }
    int exit_code = CLI_FAILED;
    run->signal_fd = -1;
    status = run_guard_start(&guard, &error);
    if (status == DEFT_OK) {
        status = cmd_run_block_signals(&run->signal_fd, &error);
    }
    if (status == DEFT_OK) {
        exit_code = cmd_run_job(run, &options, &guard, &error);
    } else {
        exit_code = cli_status(status, &error);
    }
    run_guard_stop(&guard);
    if (run->signal_fd >= 0) {
        (void)close(run->signal_fd);
    }
    free(run);
    return exit_code;
}

const struct cli_command cmd_run = {
    .name = "run",
    .summary = "Run a command as the ranks of a job and tune it",
    .run = cmd_run_main,
};
