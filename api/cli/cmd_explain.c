/* deft explain: why a plan is as it is, from the plan alone or from the profile it would serve. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "cli_chart.h"
#include "cli_controller.h"
#include "cli_plan.h"
#include "cli_profile.h"
#include "cli_table.h"
#include "wire/wire.h"

enum { CMD_EXPLAIN_JOB = 256, CMD_EXPLAIN_CONTROLLER };

static const struct argp_option cmd_explain_table[] = {
    {"job", CMD_EXPLAIN_JOB, "ID", 0, "The plan that this job runs or ended with", 0},
    {"controller", CMD_EXPLAIN_CONTROLLER, "URL", 0,
     "With --job: ask this controller (default: DEFT_CONTROLLER, else the user's own)", 0},
    {0},
};

struct cmd_explain_input {
    const char *path;
    const char *job;
    const char *controller;
    struct dsched_planner_options planner;
};

static error_t cmd_explain_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_explain_input *input = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &input->planner;
        break;
    case CMD_EXPLAIN_JOB:
        input->job = argument;
        break;
    case CMD_EXPLAIN_CONTROLLER:
        input->controller = argument;
        break;
    case ARGP_KEY_ARG:
        if (input->path != NULL) {
            argp_error(state, "one file is expected");
        }
        input->path = argument;
        break;
    case ARGP_KEY_END:
        if ((input->path == NULL) == (input->job == NULL)) {
            argp_error(state, "a plan or a profile ('-' is standard input), or --job, is expected");
        }
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static void cmd_explain_plan(const struct dsched_plan *plan) {
    const struct dsched_forecast *forecast = &plan->forecast;
    char step[16];
    char exposed[16];
    char compute[16];
    cli_table_duration(forecast->step_ns, step);
    cli_table_duration(forecast->exposed_ns, exposed);
    cli_table_duration(forecast->compute_ns, compute);
    (void)printf("%-16s %s, %u buckets, %u generations in a cycle of %u iterations, hash %016llx\n",
                 "plan", dsched_rule_name(plan->rule), plan->n_buckets, plan->n_generations,
                 dsched_plan_cycle(plan), (unsigned long long)dsched_plan_hash(plan));
    (void)printf("%-16s step %s (compute %s, exposed %s), %.3f updates per step\n\n", "forecast",
                 step, compute, exposed, forecast->updates_per_step_ppm / 1e6);
    cli_plan_print_packing(plan, NULL, stdout);
}

/* Why not the others: the best of each class against the chosen one. */
static void cmd_explain_alternatives(const struct dsched_solution *solution) {
    const struct dsched_report *chosen = &solution->report;
    (void)printf("alternatives\n");
    for (uint32_t rule = 0; rule < DSCHED_N_RULES; rule++) {
        const struct dsched_candidate *best = NULL;
        for (uint32_t i = 0; i < solution->n_candidates; i++) {
            const struct dsched_candidate *candidate = &solution->candidates[i];
            if (candidate->rule == (enum dsched_rule)rule && candidate->feasible &&
                (best == NULL || candidate->report.step_ns < best->report.step_ns)) {
                best = candidate;
            }
        }
        if (best == NULL || best == &solution->candidates[solution->chosen]) {
            continue;
        }
        double change = chosen->step_ns > 0
                            ? 100.0 * ((double)best->report.step_ns / (double)chosen->step_ns - 1.0)
                            : 0.0;
        char exposed[16] = "nothing";
        if (best->report.exposed_ns > 0) {
            cli_table_duration(best->report.exposed_ns, exposed);
        }
        (void)printf("  %-10s would take %+.1f %% of the step, with %s exposed and %.3f updates "
                     "per step\n",
                     dsched_rule_name(best->rule), change, exposed,
                     best->report.updates_per_step_ppm / 1e6);
    }
}

static enum deft_status cmd_explain_profile(const struct dsched_profile *profile,
                                            const struct dsched_planner_options *options,
                                            struct deft_error *error) {
    struct dsched_solution *solution = calloc(1, sizeof(*solution));
    if (solution == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a solution");
    }
    enum deft_status status = cli_profile_solve(profile, options, solution, error);
    if (status == DEFT_OK) {
        cli_plan_print_solution(profile, solution, stdout);
        (void)putchar('\n');
        cli_plan_print_packing(&solution->plan, profile, stdout);
        (void)putchar('\n');
        cmd_explain_alternatives(solution);
        (void)putchar('\n');
        status = cli_chart_print(profile, &solution->plan, stdout, error);
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
        cmd_explain_plan(&plan);
        dsched_plan_done(&plan);
    } else if (wire_profile_decode(text, n_bytes, &profile, &profile_error) == DEFT_OK) {
        status = cmd_explain_profile(&profile, &input->planner, error);
        dsched_profile_done(&profile);
    } else {
        status = deft_fail(error, DEFT_INVALID, 0,
                           "'%.60s' is neither a plan (%.120s) nor a profile (%.120s)", input->path,
                           plan_error.text, profile_error.text);
    }
    free(text);
    return status;
}

static enum deft_status cmd_explain_job(const struct cmd_explain_input *input,
                                        struct deft_error *error) {
    char url[CLI_CONTROLLER_URL_BYTES];
    char path[CLI_CONTROLLER_PATH_BYTES];
    struct wire_job job;
    struct http_reply reply = {0};
    struct wire_plan_event event = {0};
    enum deft_status status = cli_controller_url(input->controller, url, error);
    if (status == DEFT_OK) {
        status = cli_controller_job(url, input->job, &job, error);
    }
    if (status == DEFT_OK && job.plan_seq == 0) {
        (void)printf("%-16s the built-in exact plan\n", "plan");
        return DEFT_OK;
    }
    if (status == DEFT_OK) {
        status = cli_controller_path("plans", job.plan, "", path, error);
    }
    if (status == DEFT_OK) {
        status = cli_controller_get(url, path, &reply, error);
    }
    if (status == DEFT_OK) {
        status = wire_plan_event_decode(reply.body, reply.n_bytes, &event, error);
    }
    if (status == DEFT_OK) {
        cmd_explain_plan(&event.plan);
        wire_plan_event_done(&event);
    }
    http_reply_done(&reply);
    return status;
}

static enum deft_status cmd_explain_any(const struct cmd_explain_input *input,
                                        struct deft_error *error) {
    if (input->job == NULL) {
        return cmd_explain_file(input, error);
    }
    return cmd_explain_job(input, error);
}

static int cmd_explain_main(int argc, char **argv) {
    static const struct argp_child children[] = {{&cli_profile_planner_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .options = cmd_explain_table,
        .parser = cmd_explain_parse,
        .args_doc = "PLAN|PROFILE\n--job=ID",
        .doc = "Tells what a plan packs where, what stays exposed, and what the alternatives "
               "would have cost.",
        .children = children};
    struct cmd_explain_input input = {0};
    struct deft_error error = {0};
    dsched_planner_defaults(&input.planner);
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    enum deft_status status = cmd_explain_any(&input, &error);
    return cli_status(status, &error);
}

const struct cli_command cmd_explain = {
    .name = "explain",
    .summary = "Explain a plan, the plan for a profile, or that of a job",
    .run = cmd_explain_main,
};
