/* deft simulate: one policy on profiles. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cli_chart.h"
#include "cli_files.h"
#include "cli_picture.h"
#include "cli_plan.h"
#include "cli_policy.h"

enum { CMD_SIMULATE_POLICY = 256, CMD_SIMULATE_HTML };

static const struct argp_option cmd_simulate_table[] = {
    {"policy", CMD_SIMULATE_POLICY, "NAME", 0, "The policy; 'list' shows them all", 0},
    {"html", CMD_SIMULATE_HTML, "FILE", 0, "Draw two cycles of the policy as a page in FILE", 0},
    {0},
};

struct cmd_simulate_input {
    struct cli_files files;
    const struct dsched_policy *policy; /* NULL: list them */
    int has_policy;
    const char *html;
};

static void cmd_simulate_choose(const struct argp_state *state, const char *name,
                                struct cmd_simulate_input *input) {
    input->has_policy = 1;
    input->files.may_be_none = strcmp(name, "list") == 0;
    input->policy = dsched_policy_find(name);
    if (input->policy == NULL && !input->files.may_be_none) {
        argp_error(state, "there is no policy '%.40s'; '--policy list' shows them all", name);
    }
}

static error_t cmd_simulate_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_simulate_input *input = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->files;
        break;
    case CMD_SIMULATE_POLICY:
        cmd_simulate_choose(state, argument, input);
        break;
    case CMD_SIMULATE_HTML:
        input->html = argument;
        break;
    case ARGP_KEY_END:
        if (!input->has_policy) {
            argp_error(state, "--policy is needed; '--policy list' shows them all");
        } else if (input->html != NULL && input->files.n > 1) {
            argp_error(state, "--html draws one profile, but %zu are given", input->files.n);
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static int cmd_simulate_list(void) {
    for (size_t i = 0; dsched_policies[i] != NULL; i++) {
        (void)printf("%-14s %s\n", dsched_policies[i]->name, dsched_policies[i]->summary);
    }
    return CLI_OK;
}

static void cmd_simulate_text(const struct wire_timeline *timeline) {
    const struct dsched_profile *profile = timeline->profile;
    const struct dsched_outcome *outcome = timeline->outcome;
    (void)printf("%-16s %s, %u ranks, %u tensors, %u links\n", "profile", profile->name,
                 profile->world_size, profile->n_tensors, profile->n_links);
    (void)printf("%-16s %s (%s)\n", "policy", timeline->policy, dsched_rule_name(outcome->rule));
    if (outcome->note[0] != '\0') {
        (void)printf("%-16s %s\n", "note", outcome->note);
    }
    cli_plan_print_report(&outcome->report, profile->n_links, stdout);
    (void)putchar('\n');
    cli_chart_print(profile, timeline->window, stdout);
}

/* The figures alone: spans are for pictures. */
static enum deft_status cmd_simulate_json(const struct wire_timeline *timeline,
                                          struct deft_error *error) {
    struct wire_timeline figures = *timeline;
    char *text = NULL;
    figures.window = NULL;
    enum deft_status status = wire_timeline_encode(&figures, &text, error);
    if (status == DEFT_OK) {
        (void)printf("%s\n", text);
        free(text);
    }
    return status;
}

static enum deft_status cmd_simulate_one(void *context, const char *path,
                                         const struct dsched_profile *profile,
                                         struct deft_error *error) {
    const struct cmd_simulate_input *input = context;
    struct dsched_window window = {0};
    struct dsched_outcome outcome = {0};
    const struct wire_timeline timeline = {
        .profile = profile, .policy = input->policy->name, .outcome = &outcome, .window = &window};
    (void)path;
    enum deft_status status =
        cli_policy_run(input->policy, NULL, profile, &window, &outcome, error);
    if (status == DEFT_OK && input->html != NULL) {
        status = cli_picture_write(input->html, &timeline, error);
    }
    if (status == DEFT_OK && input->files.json) {
        status = cmd_simulate_json(&timeline, error);
    } else if (status == DEFT_OK) {
        cmd_simulate_text(&timeline);
    }
    dsched_window_done(&window);
    return status;
}

static int cmd_simulate_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_files_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .options = cmd_simulate_table,
        .parser = cmd_simulate_parse,
        .args_doc = "--policy=NAME " CLI_FILES_ARGUMENTS "\n--policy=list",
        .doc = "Simulates one policy on the job that a PROFILE describes.\v" CLI_FILES_DOC,
        .children = children};
    struct cmd_simulate_input input = {0};
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    if (input.policy == NULL) {
        return cmd_simulate_list();
    }
    return cli_files_run(&input.files, cmd_simulate_one, &input);
}

const struct cli_command cmd_simulate = {
    .name = "simulate",
    .summary = "Simulate one policy on profiles",
    .run = cmd_simulate_main,
};
