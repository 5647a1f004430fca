/* deft plan: the planner on profiles, without any controller. */
#include <stdio.h>
#include <stdlib.h>

#include "cli.h"
#include "cli_chart.h"
#include "cli_files.h"
#include "cli_picture.h"
#include "cli_plan.h"
#include "cli_policy.h"
#include "cli_profile.h"
#include "wire/wire.h"

enum { CMD_PLAN_HTML = 256 };

static const struct argp_option cmd_plan_table[] = {
    {"html", CMD_PLAN_HTML, "FILE", 0, "Draw two cycles of the plan as a page in FILE", 0},
    {0},
};

struct cmd_plan_input {
    struct cli_files files;
    struct cli_planner planner;
    const char *html;
};

static error_t cmd_plan_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_plan_input *input = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->files;
        state->child_inputs[1] = &input->planner;
        break;
    case CMD_PLAN_HTML:
        input->html = argument;
        break;
    case ARGP_KEY_END:
        if (input->html != NULL && input->files.n > 1) {
            argp_error(state, "--html draws one profile, but %zu are given", input->files.n);
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static enum deft_status cmd_plan_json(const struct dsched_solution *solution,
                                      struct deft_error *error) {
    char *text = NULL;
    enum deft_status status = wire_solution_encode(solution, &text, error);
    if (status == DEFT_OK) {
        (void)printf("%s\n", text);
        free(text);
    }
    return status;
}

static enum deft_status cmd_plan_show(const struct cmd_plan_input *input,
                                      const struct dsched_profile *profile,
                                      const struct dsched_solution *solution,
                                      struct deft_error *error) {
    struct dsched_window window = {0};
    struct dsched_outcome outcome = {0};
    int is_priced = input->planner.options.progress != NULL;
    enum deft_status status = DEFT_OK;
    if (!input->files.json || input->html != NULL) {
        status = cli_policy_plan(&solution->plan, profile, &window, &outcome, error);
    }
    if (status == DEFT_OK && input->html != NULL) {
        const struct wire_timeline timeline = {
            .profile = profile, .policy = "deft", .outcome = &outcome, .window = &window};
        status = cli_picture_write(input->html, &timeline, error);
    }
    if (status == DEFT_OK && input->files.json) {
        status = cmd_plan_json(solution, error);
    } else if (status == DEFT_OK) {
        cli_plan_print_solution(profile, solution, is_priced, stdout);
        (void)putchar('\n');
        cli_plan_print_candidates(solution, is_priced, stdout);
        (void)putchar('\n');
        cli_chart_print(profile, &window, stdout);
    }
    dsched_window_done(&window);
    return status;
}

static enum deft_status cmd_plan_one(void *context, const char *path,
                                     const struct dsched_profile *profile,
                                     struct deft_error *error) {
    const struct cmd_plan_input *input = context;
    (void)path;
    struct dsched_solution *solution = calloc(1, sizeof(*solution));
    if (solution == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a solution");
    }
    enum deft_status status = cli_profile_solve(profile, &input->planner.options, solution, error);
    if (status == DEFT_OK) {
        status = cmd_plan_show(input, profile, solution, error);
        dsched_solution_done(solution);
    }
    free(solution);
    return status;
}

static int cmd_plan_main(int argc, char **argv) {
    static const struct argp_child children[] = {
        {&cli_files_argp, 0, NULL, 0}, {&cli_profile_planner_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .options = cmd_plan_table,
        .parser = cmd_plan_parse,
        .args_doc = CLI_FILES_ARGUMENTS,
        .doc = "Plans the communication of the job that a PROFILE describes.\v" CLI_FILES_DOC,
        .children = children};
    struct cmd_plan_input input = {0};
    dsched_planner_defaults(&input.planner.options);
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    return cli_files_run(&input.files, cmd_plan_one, &input);
}

const struct cli_command cmd_plan = {
    .name = "plan",
    .summary = "Plan the communication of profiles",
    .run = cmd_plan_main,
};
