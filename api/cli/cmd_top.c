/* deft top: the running jobs, again and again. */
#include <locale.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli.h"
#include "cli_controller.h"
#include "top_screen.h"

#define CMD_TOP_PATH    "/api/v1/jobs?state=running&limit=1000"
#define CMD_TOP_COLUMNS 120u /* where nothing says how wide it is */

enum { CMD_TOP_INTERVAL = 256, CMD_TOP_ONCE, CMD_TOP_SORT };

static const struct argp_option cmd_top_table[] = {
    {"interval", CMD_TOP_INTERVAL, "SECONDS", 0, "Ask the controller so often, 1 to 3600 (2)", 0},
    {"once", CMD_TOP_ONCE, NULL, 0, "Print once and end, as where there is no terminal", 0},
    {"sort", CMD_TOP_SORT, "BY", 0, "gain, step, ranks, phase or job (gain)", 0},
    {0},
};

struct cmd_top_input {
    struct cli_controller controller;
    uint64_t interval_s;
    int once;
    enum top_order order;
};

static volatile sig_atomic_t cmd_top_signal; /* what to end of; 0: nothing */

static void cmd_top_end(int number) {
    cmd_top_signal = number;
}

static error_t cmd_top_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_top_input *input = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->controller;
        break;
    case CMD_TOP_INTERVAL:
        input->interval_s = cli_number(state, "--interval", argument, 1, 3600);
        break;
    case CMD_TOP_ONCE:
        input->once = 1;
        break;
    case CMD_TOP_SORT:
        input->order = (enum top_order)cli_word(state, "--sort", argument, top_order_names);
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not expected; 'deft job ID' shows one job", argument);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* `out` is untouched on failure. */
static enum deft_status cmd_top_ask(const struct cmd_top_input *input, struct wire_jobs *out,
                                    struct deft_error *error) {
    struct http_reply reply = {0};
    struct wire_jobs jobs = {0};
    enum deft_status status = cli_controller_get(&input->controller, CMD_TOP_PATH, &reply, error);
    if (status == DEFT_OK) {
        status = wire_jobs_decode(reply.body, reply.n_bytes, &jobs, error);
    }
    http_reply_done(&reply);
    if (status == DEFT_OK) {
        wire_jobs_done(out);
        *out = jobs;
        top_rows_sort(out, input->order);
    }
    return status;
}

static unsigned cmd_top_columns(void) {
    struct winsize size = {0};
    int known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
    return known ? size.ws_col : CMD_TOP_COLUMNS;
}

static enum deft_status cmd_top_once(const struct cmd_top_input *input, struct deft_error *error) {
    struct wire_jobs jobs = {0};
    char line[TOP_TEXT_BYTES];
    unsigned columns = cmd_top_columns();
    enum deft_status status = cmd_top_ask(input, &jobs, error);
    if (status == DEFT_OK) {
        top_rows_summary(&jobs, columns, line);
        (void)printf("%s\n", line);
        top_rows_heading(columns, line);
        (void)printf("%s\n", line);
        for (uint32_t i = 0; i < jobs.n_jobs; i++) {
            top_rows_line(&jobs.jobs[i], columns, line);
            (void)printf("%s\n", line);
        }
    }
    wire_jobs_done(&jobs);
    return status;
}

static void cmd_top_catch(void) {
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
    struct sigaction action = {.sa_handler = cmd_top_end};
    (void)sigemptyset(&action.sa_mask);
    for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
        (void)sigaction(numbers[i], &action, NULL);
    }
}

/* Until the next answer is due; TOP_QUIT when it is to end. */
static enum top_key cmd_top_keys(struct cmd_top_input *input, struct wire_jobs *jobs,
                                 struct top_screen *screen, int64_t due_ns) {
    int64_t left_ns;
    while ((left_ns = due_ns - clock_monotonic_ns()) > 0) {
        enum top_key key = top_screen_wait(screen, (int)(left_ns / 1000000) + 1, &cmd_top_signal);
        if (key == TOP_QUIT) {
            return key;
        }
        if (key == TOP_SORT) {
            input->order = (input->order + 1) % TOP_N_ORDERS;
            screen->order = input->order;
            top_rows_sort(jobs, input->order);
        }
        if (key != TOP_NONE) {
            top_screen_draw(screen);
        }
    }
    return TOP_NONE;
}

static void cmd_top_watch(struct cmd_top_input *input) {
    struct wire_jobs jobs = {0};
    char trouble[DEFT_ERROR_TEXT_BYTES + 64] = "";
    struct top_screen screen = {
        .jobs = &jobs, .order = input->order, .url = input->controller.url, .trouble = trouble};
    enum top_key key = TOP_NONE;
    while (key != TOP_QUIT && !cmd_top_signal) {
        struct deft_error error = {0};
        trouble[0] = '\0';
        if (cmd_top_ask(input, &jobs, &error) != DEFT_OK) {
            (void)snprintf(trouble, sizeof(trouble), "no answer, tried again: %s", error.text);
        }
        int64_t due_ns = clock_monotonic_ns() + (int64_t)input->interval_s * 1000000000;
        top_screen_draw(&screen);
        key = cmd_top_keys(input, &jobs, &screen, due_ns);
    }
    wire_jobs_done(&jobs);
}

static int cmd_top_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_controller_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .options = cmd_top_table,
        .parser = cmd_top_parse,
        .children = children,
        .doc = "Shows the running jobs with gain, phase and what is heard of them, and keeps the "
               "list up to date. Keys: q ends, s sorts by something else, arrows choose a job, "
               "whose state stands below."};
    struct cmd_top_input input = {.interval_s = 2};
    struct deft_error error = {0};
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    (void)setlocale(LC_CTYPE, ""); /* numbers stay as they are everywhere */
    enum deft_status status = cli_controller_find(&input.controller, &error);
    if (status != DEFT_OK || input.once || !isatty(STDOUT_FILENO) || !isatty(STDIN_FILENO)) {
        status = status == DEFT_OK ? cmd_top_once(&input, &error) : status;
        return cli_status(status, &error);
    }
    cmd_top_catch();
    input.controller.stop = &cmd_top_signal;
    status = top_screen_open(&error);
    if (status != DEFT_OK) {
        return cli_status(status, &error);
    }
    cmd_top_watch(&input);
    top_screen_close();
    if (cmd_top_signal) { /* who waits for us learns why it ended */
        (void)signal(cmd_top_signal, SIG_DFL);
        (void)raise(cmd_top_signal);
    }
    return CLI_OK;
}

const struct cli_command cmd_top = {
    .name = "top",
    .summary = "Watch the running jobs in a terminal",
    .run = cmd_top_main,
};
