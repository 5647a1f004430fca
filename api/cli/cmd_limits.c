/* deft limits: what the plans of a job may use and cost. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/convergence.h>

#include "base/parse.h"
#include "cli.h"
#include "cli_controller.h"

enum {
    CMD_LIMITS_MAX_MERGE = 256,
    CMD_LIMITS_MAX_DELAY,
    CMD_LIMITS_REASON,
    CMD_LIMITS_EPSILON,
    CMD_LIMITS_MIN_PROGRESS,
    CMD_LIMITS_LOSS_FLOOR,
};

static const struct argp_option cmd_limits_table[] = {
    {"reason", CMD_LIMITS_REASON, "TEXT", 0, "What the record of changes says why", 0},
    {"max-merge", CMD_LIMITS_MAX_MERGE, "K", 0, "Iterations that may share an all-reduce", 0},
    {"max-delay", CMD_LIMITS_MAX_DELAY, "N", 0, "Boundaries an update may be late", 0},
    {"epsilon", CMD_LIMITS_EPSILON, "E", 0,
     "Excess loss over exact's at equal samples, a fraction: 0.01 is 1 %", 0},
    {"min-progress", CMD_LIMITS_MIN_PROGRESS, "P", 0,
     "Least progress per sample, as a fraction of exact's", 0},
    {"loss-floor", CMD_LIMITS_LOSS_FLOOR, "L", 0,
     "Least loss the job can reach, or 'none': what the losses suggest", 0},
    {0},
};

/* Which members of `limits` are named. */
struct cmd_limits_input {
    struct cli_controller controller;
    const char *job;
    const char *reason;
    struct wire_limits limits;
    int has_merge;
    int has_delay;
    int has_epsilon;
    int has_progress;
    int has_floor;
};

static double cmd_limits_real(const struct argp_state *state, const char *name, const char *text,
                              double least, double most) {
    struct deft_error error = {0};
    double value = 0;
    if (parse_real(name, text, least, most, &value, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
    return value;
}

static error_t cmd_limits_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_limits_input *input = state->input;
    struct wire_limits *limits = &input->limits;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->controller;
        break;
    case CMD_LIMITS_REASON:
        input->reason = argument;
        break;
    case CMD_LIMITS_MAX_MERGE:
        limits->max_merge =
            (uint32_t)cli_number(state, "--max-merge", argument, 1, DSCHED_MAX_MERGE);
        input->has_merge = 1;
        break;
    case CMD_LIMITS_MAX_DELAY:
        limits->max_delay =
            (uint32_t)cli_number(state, "--max-delay", argument, 0, DSCHED_MAX_DELAY);
        input->has_delay = 1;
        break;
    case CMD_LIMITS_EPSILON:
        limits->epsilon = cmd_limits_real(state, "--epsilon", argument, 0, 1);
        input->has_epsilon = 1;
        break;
    case CMD_LIMITS_MIN_PROGRESS:
        limits->min_progress = cmd_limits_real(state, "--min-progress", argument, 0, 1);
        input->has_progress = 1;
        break;
    case CMD_LIMITS_LOSS_FLOOR:
        limits->loss_floor = strcmp(argument, "none") == 0
                                 ? (double)NAN
                                 : cmd_limits_real(state, "--loss-floor", argument,
                                                   -DSCHED_MAX_MEASURED, DSCHED_MAX_MEASURED);
        input->has_floor = 1;
        break;
    case ARGP_KEY_ARG:
        if (input->job != NULL) {
            argp_error(state, "'%s' is not expected", argument);
        }
        input->job = argument;
        break;
    case ARGP_KEY_END:
        if (input->job == NULL) {
            argp_error(state, "the id of a job is expected; 'deft jobs' lists them");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* What is not named stays as the job has it. */
static void cmd_limits_merge(const struct cmd_limits_input *input, const struct wire_job *job,
                             struct wire_limits *out) {
    *out = (struct wire_limits){.max_merge = job->max_merge,
                                .max_delay = job->max_delay,
                                .epsilon = job->epsilon,
                                .min_progress = job->min_progress,
                                .loss_floor = job->loss_floor};
    if (input->has_merge) {
        out->max_merge = input->limits.max_merge;
    }
    if (input->has_delay) {
        out->max_delay = input->limits.max_delay;
    }
    if (input->has_epsilon) {
        out->epsilon = input->limits.epsilon;
    }
    if (input->has_progress) {
        out->min_progress = input->limits.min_progress;
    }
    if (input->has_floor) {
        out->loss_floor = input->limits.loss_floor;
    }
}

static enum deft_status cmd_limits_put(const struct cli_controller *controller,
                                       const struct cmd_limits_input *input,
                                       const struct wire_limits *limits, struct wire_limits *out,
                                       struct deft_error *error) {
    char path[CLI_CONTROLLER_PATH_BYTES];
    struct http_reply reply = {0};
    char *body = NULL;
    enum deft_status status = cli_controller_path("jobs", input->job, "/limits", path, error);
    if (status == DEFT_OK) {
        status = wire_limits_encode(limits, &body, error);
    }
    if (status == DEFT_OK) {
        status = cli_controller_change(controller, "PUT", path, body, input->reason, &reply, error);
    }
    if (status == DEFT_OK) {
        status = wire_limits_decode(reply.body, reply.n_bytes, out, error);
    }
    free(body);
    http_reply_done(&reply);
    return status;
}

static enum deft_status cmd_limits_run(const struct cmd_limits_input *input,
                                       struct deft_error *error) {
    struct cli_controller controller = input->controller;
    struct wire_job job;
    struct wire_limits limits;
    int is_change = input->has_merge || input->has_delay || input->has_epsilon ||
                    input->has_progress || input->has_floor;
    enum deft_status status = cli_controller_find(&controller, error);
    if (status == DEFT_OK) {
        status = cli_controller_job(&controller, input->job, &job, error);
    }
    if (status == DEFT_OK) {
        cmd_limits_merge(input, &job, &limits);
        if (is_change) {
            status = cmd_limits_put(&controller, input, &limits, &limits, error);
        }
    }
    if (status == DEFT_OK) {
        (void)printf("job %s: merge at most %u, delay at most %u, epsilon %g, progress at least "
                     "%g, loss floor ",
                     input->job, limits.max_merge, limits.max_delay, limits.epsilon,
                     limits.min_progress);
        (void)(isnan(limits.loss_floor) ? printf("none\n") : printf("%g\n", limits.loss_floor));
    }
    return status;
}

static int cmd_limits_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_controller_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .options = cmd_limits_table,
        .parser = cmd_limits_parse,
        .children = children,
        .args_doc = "JOB",
        .doc =
            "Shows what the next plans of a job may use and cost, after changing what is named."};
    struct cmd_limits_input input = {0};
    struct deft_error error = {0};
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    return cli_status(cmd_limits_run(&input, &error), &error);
}

const struct cli_command cmd_limits = {
    .name = "limits",
    .summary = "Show or set what the plans of a job may use and cost",
    .run = cmd_limits_main,
};
