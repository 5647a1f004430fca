/* deft plan: the planner on a profile, without any controller. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "cli_chart.h"
#include "cli_plan.h"
#include "cli_profile.h"
#include "wire/wire.h"

enum { CMD_PLAN_JSON = 256 };

static const struct argp_option cmd_plan_table[] = {
    {"json", CMD_PLAN_JSON, NULL, 0, "Print the plan with its candidates as JSON", 0},
    {0},
};

struct cmd_plan_input {
    const char *path;
    int json;
    struct dsched_planner_options planner;
};

static error_t cmd_plan_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_plan_input *input = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->planner;
        break;
    case CMD_PLAN_JSON:
        input->json = 1;
        break;
    case ARGP_KEY_ARG:
        if (input->path != NULL) {
            argp_error(state, "one profile is expected");
        }
        input->path = argument;
        break;
    case ARGP_KEY_END:
        if (input->path == NULL) {
            argp_error(state, "a profile is expected ('-' is standard input)");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static enum deft_status cmd_plan_show(const struct cmd_plan_input *input,
                                      const struct dsched_profile *profile,
                                      const struct dsched_solution *solution,
                                      struct deft_error *error) {
    if (input->json) {
        char *text = NULL;
        enum deft_status status = wire_solution_encode(solution, &text, error);
        if (status == DEFT_OK) {
            (void)printf("%s\n", text);
            free(text);
        }
        return status;
    }
    cli_plan_print_solution(profile, solution, stdout);
    (void)putchar('\n');
    cli_plan_print_candidates(solution, stdout);
    (void)putchar('\n');
    return cli_chart_print(profile, &solution->plan, stdout, error);
}

static int cmd_plan_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_profile_planner_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .options = cmd_plan_table,
        .parser = cmd_plan_parse,
        .args_doc = "PROFILE",
        .doc = "Plans the communication of the job that PROFILE (deft.profile/1) describes.",
        .children = children};
    struct cmd_plan_input input = {0};
    struct deft_error error = {0};
    struct dsched_profile profile = {0};
    struct dsched_solution *solution = calloc(1, sizeof(*solution));
    dsched_planner_defaults(&input.planner);
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    enum deft_status status = DEFT_NO_MEMORY;
    if (solution == NULL) {
        (void)deft_fail(&error, status, 0, "no memory for a solution");
    } else {
        status = cli_profile_read(input.path, &profile, &error);
    }
    if (status == DEFT_OK) {
        status = cli_profile_solve(&profile, &input.planner, solution, &error);
        if (status == DEFT_OK) {
            status = cmd_plan_show(&input, &profile, solution, &error);
            dsched_solution_done(solution);
        }
    }
    free(solution);
    dsched_profile_done(&profile);
    return cli_status(status, &error);
}

const struct cli_command cmd_plan = {
    .name = "plan",
    .summary = "Plan the communication of a profile",
    .run = cmd_plan_main,
};
