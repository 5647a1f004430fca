/* deft explain: why a plan is as it is, from the plan alone or from the profile it would serve. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cli_controller.h"
#include "cli_explanation.h"
#include "cli_picture.h"
#include "cli_policy.h"
#include "cli_profile.h"
#include "wire/wire.h"

enum { CMD_EXPLAIN_JOB = 256, CMD_EXPLAIN_PROFILE, CMD_EXPLAIN_JSON, CMD_EXPLAIN_HTML };

static const struct argp_option cmd_explain_table[] = {
    {"job", CMD_EXPLAIN_JOB, "ID", 0, "The plan that this job runs or ended with", 0},
    {"profile", CMD_EXPLAIN_PROFILE, "PROFILE", 0,
     "With a plan: show it on this profile, since a plan has orders but no times", 0},
    {"json", CMD_EXPLAIN_JSON, NULL, 0, "Print JSON", 0},
    {"html", CMD_EXPLAIN_HTML, "FILE", 0, "Draw two cycles as a page in FILE", 0},
    {0},
};

struct cmd_explain_input {
    const char *path;
    const char *job;
    struct cli_controller controller;
    const char *profile;
    const char *html;
    int json;
    struct cli_planner planner;
};

static void cmd_explain_check(const struct argp_state *state,
                              const struct cmd_explain_input *input) {
    if ((input->path == NULL) == (input->job == NULL)) {
        argp_error(state, "a plan or a profile ('-' is standard input), or --job, is expected");
    }
    if (input->profile != NULL && input->path != NULL && strcmp(input->profile, "-") == 0 &&
        strcmp(input->path, "-") == 0) {
        argp_error(state, "plan and profile are both '-', but standard input can be read once");
    }
}

static error_t cmd_explain_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_explain_input *input = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->planner;
        state->child_inputs[1] = &input->controller;
        break;
    case CMD_EXPLAIN_JOB:
        input->job = argument;
        break;
    case CMD_EXPLAIN_PROFILE:
        input->profile = argument;
        break;
    case CMD_EXPLAIN_JSON:
        input->json = 1;
        break;
    case CMD_EXPLAIN_HTML:
        input->html = argument;
        break;
    case ARGP_KEY_ARG:
        if (input->path != NULL) {
            argp_error(state, "one file is expected");
        }
        input->path = argument;
        break;
    case ARGP_KEY_END:
        cmd_explain_check(state, input);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* Everything that can be told of `subject`, to which the picture's window is added. */
static enum deft_status cmd_explain_show(const struct cmd_explain_input *input,
                                         struct cli_explanation subject, struct deft_error *error) {
    struct dsched_window window = {0};
    struct dsched_outcome outcome = {0};
    char *text = NULL;
    enum deft_status status = DEFT_OK;
    if (subject.profile != NULL) {
        status = cli_policy_plan(subject.plan, subject.profile, &window, &outcome, error);
        subject.window = &window;
    } else if (input->html != NULL) {
        status = deft_fail(error, DEFT_INVALID, 0,
                           "a plan has no times to draw; --profile names the profile to draw it "
                           "on");
    }
    if (status == DEFT_OK && input->html != NULL) {
        const struct wire_timeline timeline = {
            .profile = subject.profile, .policy = "deft", .outcome = &outcome, .window = &window};
        status = cli_picture_write(input->html, &timeline, error);
    }
    if (status == DEFT_OK && input->json) {
        status = cli_explanation_json(&subject, &text, error);
    }
    if (status == DEFT_OK && input->json) {
        (void)printf("%s\n", text);
    } else if (status == DEFT_OK) {
        cli_explanation_print(&subject, stdout);
    }
    free(text);
    dsched_window_done(&window);
    return status;
}

static enum deft_status cmd_explain_plan(const struct cmd_explain_input *input,
                                         const struct dsched_plan *plan, struct deft_error *error) {
    struct dsched_profile profile = {0};
    struct cli_explanation subject = {.plan = plan};
    enum deft_status status = DEFT_OK;
    if (input->profile != NULL) {
        status = cli_profile_read(input->profile, &profile, error);
        subject.profile = &profile;
    }
    if (status == DEFT_OK) {
        status = cmd_explain_show(input, subject, error);
    }
    dsched_profile_done(&profile);
    return status;
}

static enum deft_status cmd_explain_profile(const struct cmd_explain_input *input,
                                            const struct dsched_profile *profile,
                                            struct deft_error *error) {
    if (input->profile != NULL) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "'%.100s' is a profile already, so --profile has no plan to show on "
                         "another one",
                         cli_profile_label(input->path));
    }
    struct dsched_solution *solution = calloc(1, sizeof(*solution));
    if (solution == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a solution");
    }
    enum deft_status status = cli_profile_solve(profile, &input->planner.options, solution, error);
    if (status == DEFT_OK) {
        const struct cli_explanation subject = {.plan = &solution->plan,
                                                .profile = profile,
                                                .solution = solution,
                                                .is_priced =
                                                    input->planner.options.progress != NULL};
        status = cmd_explain_show(input, subject, error);
        dsched_solution_done(solution);
    }
    free(solution);
    return status;
}

static enum deft_status cmd_explain_file(const struct cmd_explain_input *input,
                                         struct deft_error *error) {
    char *text = NULL;
    size_t n_bytes = 0;
    struct dsched_plan plan = {0};
    struct dsched_profile profile = {0};
    struct deft_error plan_error = {0};
    struct deft_error profile_error = {0};
    enum deft_status status = cli_profile_text(input->path, &text, &n_bytes, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (wire_plan_decode(text, n_bytes, &plan, &plan_error) == DEFT_OK) {
        status = cmd_explain_plan(input, &plan, error);
        dsched_plan_done(&plan);
    } else if (wire_profile_decode(text, n_bytes, &profile, &profile_error) == DEFT_OK) {
        status = cmd_explain_profile(input, &profile, error);
        dsched_profile_done(&profile);
    } else {
        status = deft_fail(error, DEFT_INVALID, 0,
                           "'%.60s' is neither a plan (%.120s) nor a profile (%.120s)",
                           cli_profile_label(input->path), plan_error.text, profile_error.text);
    }
    free(text);
    return status;
}

/* The plan that libdeft has without being told one. */
static enum deft_status cmd_explain_built_in(const struct cmd_explain_input *input,
                                             struct deft_error *error) {
    if (input->html != NULL) {
        return deft_fail(error, DEFT_STATE, 0,
                         "job '%.100s' runs the built-in exact plan, which is drawn by 'deft "
                         "simulate --policy wfbp --html FILE PROFILE'",
                         input->job);
    }
    if (input->json) {
        (void)printf("{\"schema\":\"deft.explanation/1\",\"packing\":[],\"plan\":null}\n");
    } else {
        (void)printf("%-16s the built-in exact plan\n", "plan");
    }
    return DEFT_OK;
}

static enum deft_status cmd_explain_job(const struct cmd_explain_input *input,
                                        struct deft_error *error) {
    struct cli_controller controller = input->controller;
    char path[CLI_CONTROLLER_PATH_BYTES];
    struct wire_job job;
    struct http_reply reply = {0};
    struct wire_plan_event event = {0};
    enum deft_status status = cli_controller_find(&controller, error);
    if (status == DEFT_OK) {
        status = cli_controller_job(&controller, input->job, &job, error);
    }
    if (status == DEFT_OK && job.plan_seq == 0) {
        return cmd_explain_built_in(input, error);
    }
    if (status == DEFT_OK) {
        status = cli_controller_path("plans", job.plan, "", path, error);
    }
    if (status == DEFT_OK) {
        status = cli_controller_get(&controller, path, &reply, error);
    }
    if (status == DEFT_OK) {
        status = wire_plan_event_decode(reply.body, reply.n_bytes, &event, error);
    }
    if (status == DEFT_OK) {
        status = cmd_explain_plan(input, &event.plan, error);
        wire_plan_event_done(&event);
    }
    http_reply_done(&reply);
    return status;
}

static int cmd_explain_main(int argc, char **argv) {
    static const struct argp_child children[] = {
        {&cli_profile_planner_argp, 0, NULL, 0}, {&cli_controller_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .options = cmd_explain_table,
        .parser = cmd_explain_parse,
        .args_doc = "PLAN|PROFILE\n--job=ID",
        .doc = "Tells what a plan packs where, what stays exposed, and what the alternatives "
               "would have cost. A file is a plan (deft.plan/1), or a profile (deft.profile/1) "
               "that is planned under the limits below.",
        .children = children};
    struct cmd_explain_input input = {0};
    struct deft_error error = {0};
    dsched_planner_defaults(&input.planner.options);
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    enum deft_status status =
        input.job != NULL ? cmd_explain_job(&input, &error) : cmd_explain_file(&input, &error);
    return cli_status(status, &error);
}

const struct cli_command cmd_explain = {
    .name = "explain",
    .summary = "Explain a plan, the plan for a profile, or that of a job",
    .run = cmd_explain_main,
};
