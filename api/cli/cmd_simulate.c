/* deft simulate: one policy on a profile. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "cli_plan.h"
#include "cli_profile.h"

enum { CMD_SIMULATE_POLICY = 256 };

static const struct argp_option cmd_simulate_table[] = {
    {"policy", CMD_SIMULATE_POLICY, "NAME", 0, "The policy; 'list' shows them all", 0},
    {0},
};

struct cmd_simulate_input {
    const char *path;
    const char *policy;
};

static error_t cmd_simulate_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_simulate_input *input = state->input;
    switch (key) {
    case CMD_SIMULATE_POLICY:
        input->policy = argument;
        break;
    case ARGP_KEY_ARG:
        if (input->path != NULL) {
            argp_error(state, "one profile is expected");
        }
        input->path = argument;
        break;
    case ARGP_KEY_END:
        if (input->policy == NULL) {
            argp_error(state, "--policy is needed; '--policy list' shows them all");
        } else if (input->path == NULL && strcmp(input->policy, "list") != 0) {
            argp_error(state, "a profile is expected ('-' is standard input)");
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

static int cmd_simulate_main(int argc, char **argv) {
    static const struct argp parser = {
        .options = cmd_simulate_table,
        .parser = cmd_simulate_parse,
        .args_doc = "PROFILE",
        .doc = "Simulates one policy on the job that PROFILE (deft.profile/1) describes."};
    struct cmd_simulate_input input = {0};
    struct deft_error error = {0};
    struct dsched_error reason = {{0}};
    struct dsched_profile profile = {0};
    struct dsched_outcome outcome = {0};
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    if (strcmp(input.policy, "list") == 0) {
        return cmd_simulate_list();
    }
    const struct dsched_policy *policy = dsched_policy_find(input.policy);
    if (policy == NULL) {
        cli_error("there is no policy '%.40s'; '--policy list' shows them all", input.policy);
        return CLI_USAGE;
    }
    enum deft_status status = cli_profile_read(input.path, &profile, &error);
    if (status == DEFT_OK) {
        status = cli_profile_failed(policy->simulate(&profile, NULL, NULL, &outcome, &reason),
                                    &reason, &error);
    }
    if (status == DEFT_OK) {
        (void)printf("%-16s %s (%s)\n", "policy", policy->name, dsched_rule_name(outcome.rule));
        cli_plan_print_report(&outcome.report, profile.n_links, stdout);
    }
    dsched_profile_done(&profile);
    return cli_status(status, &error);
}

const struct cli_command cmd_simulate = {
    .name = "simulate",
    .summary = "Simulate one policy on a profile",
    .run = cmd_simulate_main,
};
