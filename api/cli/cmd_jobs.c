/* deft jobs: what the controller knows, one line a job. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "cli_controller.h"
#include "cli_table.h"

enum {
    CMD_JOBS_JSON = 256,
    CMD_JOBS_QUERY, /* and behind it one key per entry of cmd_jobs_queries */
};

static const char *const cmd_jobs_queries[] = {"state", "user", "since", "sort", "limit", "offset"};
#define CMD_JOBS_N_QUERIES (sizeof(cmd_jobs_queries) / sizeof(cmd_jobs_queries[0]))

static const struct argp_option cmd_jobs_table[] = {
    {"json", CMD_JOBS_JSON, NULL, 0, "Print the controller's JSON", 0},
    {"state", CMD_JOBS_QUERY, "STATE", 0, "Only running, finished, failed or lost ones", 0},
    {"user", CMD_JOBS_QUERY + 1, "USER", 0, "Only of this user", 0},
    {"since", CMD_JOBS_QUERY + 2, "TIME", 0,
     "Only those that run or have changed since a time such as 2026-11-30T03:01:10Z", 0},
    {"sort", CMD_JOBS_QUERY + 3, "BY", 0,
     "created, id or user, with - before it falling (-created)", 0},
    {"limit", CMD_JOBS_QUERY + 4, "N", 0, "Jobs at most, up to 1000 (100)", 0},
    {"offset", CMD_JOBS_QUERY + 5, "N", 0, "Leave out so many before", 0},
    {0},
};

struct cmd_jobs_input {
    struct cli_controller controller;
    int json;
    const char *queries[CMD_JOBS_N_QUERIES]; /* NULL: not given */
};

static error_t cmd_jobs_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_jobs_input *input = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->controller;
        break;
    case CMD_JOBS_JSON:
        input->json = 1;
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not expected; 'deft job ID' shows one job", argument);
        break;
    default:
        if (key < CMD_JOBS_QUERY || key >= CMD_JOBS_QUERY + (int)CMD_JOBS_N_QUERIES) {
            return ARGP_ERR_UNKNOWN;
        }
        input->queries[key - CMD_JOBS_QUERY] = argument;
        break;
    }
    return 0;
}

/* The controller checks what is asked for, and says what it expects. */
static enum deft_status cmd_jobs_path(const struct cmd_jobs_input *input, char *out,
                                      size_t capacity_bytes, struct deft_error *error) {
    size_t n = (size_t)snprintf(out, capacity_bytes, "/api/v1/jobs");
    char lead = '?';
    for (size_t i = 0; i < CMD_JOBS_N_QUERIES; i++) {
        char escaped[3 * WIRE_ID_BYTES];
        if (input->queries[i] == NULL) {
            continue;
        }
        if (http_client_escape(input->queries[i], escaped, sizeof(escaped)) != DEFT_OK) {
            return deft_fail(error, DEFT_INVALID, 0, "--%s '%.60s' is empty or too long",
                             cmd_jobs_queries[i], input->queries[i]);
        }
        n += (size_t)snprintf(out + n, capacity_bytes - n, "%c%s=%s", lead, cmd_jobs_queries[i],
                              escaped);
        lead = '&';
    }
    return DEFT_OK;
}

static void cmd_jobs_row(struct cli_table *table, const struct wire_job *job) {
    char step[16];
    char exact[16];
    cli_table_duration(job->exact_step_ns, exact);
    cli_table_duration(job->step_ns, step);
    cli_table_add(table, "%s", job->id);
    cli_table_add(table, "%s", job->user);
    cli_table_add(table, "%s", job->state);
    cli_table_add(table, "%s", job->mode);
    cli_table_add(table, "%u", job->n_ranks);
    cli_table_add(table, "%s", job->rule[0] != '\0' ? job->rule : "exact");
    cli_table_add(table, "%s", exact);
    cli_table_add(table, "%s", step);
    if (isfinite(job->gain)) {
        cli_table_add(table, "%.2fx", job->gain);
    } else {
        cli_table_add(table, "-");
    }
    cli_table_add(table, "%s", job->updated_at);
}

static void cmd_jobs_print(const struct wire_jobs *jobs) {
    static const char *const headings[] = {"JOB",  "USER",  "STATE", "MODE", "RANKS",
                                           "RULE", "EXACT", "STEP",  "GAIN", "UPDATED"};
    size_t n_columns = sizeof(headings) / sizeof(headings[0]);
    struct cli_table table;
    cli_table_init(&table, n_columns);
    for (size_t i = 0; i < n_columns; i++) {
        cli_table_add(&table, "%s", headings[i]);
    }
    for (uint32_t i = 0; i < jobs->n_jobs; i++) {
        cmd_jobs_row(&table, &jobs->jobs[i]);
    }
    cli_table_print(&table, stdout);
    cli_table_done(&table);
    if (jobs->total > jobs->n_jobs) {
        (void)printf("%llu more are not shown: --limit and --offset\n",
                     (unsigned long long)(jobs->total - jobs->n_jobs));
    }
}

static int cmd_jobs_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_controller_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {.options = cmd_jobs_table,
                                       .parser = cmd_jobs_parse,
                                       .children = children,
                                       .doc = "Lists the jobs that the controller knows."};
    struct cmd_jobs_input input = {0};
    struct deft_error error = {0};
    struct http_reply reply = {0};
    struct wire_jobs jobs = {0};
    char path[CMD_JOBS_N_QUERIES * 4 * WIRE_ID_BYTES];
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    enum deft_status status = cli_controller_find(&input.controller, &error);
    if (status == DEFT_OK) {
        status = cmd_jobs_path(&input, path, sizeof(path), &error);
    }
    if (status == DEFT_OK) {
        status = cli_controller_get(&input.controller, path, &reply, &error);
    }
    if (status == DEFT_OK && input.json) {
        (void)printf("%s\n", reply.body);
    } else if (status == DEFT_OK) {
        status = wire_jobs_decode(reply.body, reply.n_bytes, &jobs, &error);
        if (status == DEFT_OK) {
            cmd_jobs_print(&jobs);
        }
    }
    wire_jobs_done(&jobs);
    http_reply_done(&reply);
    return cli_status(status, &error);
}

const struct cli_command cmd_jobs = {
    .name = "jobs",
    .summary = "List the jobs that the controller knows",
    .run = cmd_jobs_main,
};
