/* deft compare: every policy on profiles, beside the bound. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "cli.h"
#include "cli_files.h"
#include "cli_policy.h"
#include "cli_profile.h"
#include "cli_summary.h"
#include "cli_table.h"
#include "wire/wire.h"

struct cmd_compare_input {
    struct cli_files files;
    struct cli_planner planner;
    struct cli_summary summary;
};

static error_t cmd_compare_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_compare_input *input = state->input;
    (void)argument;
    if (key != ARGP_KEY_INIT) {
        return ARGP_ERR_UNKNOWN;
    }
    state->child_inputs[0] = &input->files;
    state->child_inputs[1] = &input->planner;
    return 0;
}

static enum deft_status cmd_compare_run(const struct dsched_profile *profile,
                                        const struct cli_planner *planner,
                                        struct wire_comparison_row *rows, size_t *out_n,
                                        struct deft_error *error) {
    size_t n = 0;
    for (; dsched_policies[n] != NULL && n < CLI_POLICY_MAX; n++) {
        struct wire_comparison_row *row = &rows[n];
        int64_t begin_ns = clock_monotonic_ns();
        row->policy = dsched_policies[n];
        enum deft_status status =
            cli_policy_run(row->policy, planner, profile, NULL, &row->outcome, error);
        row->solve_ns = clock_monotonic_ns() - begin_ns;
        if (status != DEFT_OK) {
            return status;
        }
    }
    wire_comparison_relate(rows, n);
    *out_n = n;
    return DEFT_OK;
}

static void cmd_compare_notes(const struct wire_comparison_row *rows, size_t n) {
    const char *lead = "\n";
    for (size_t i = 0; i < n; i++) {
        if (rows[i].outcome.note[0] != '\0') {
            (void)printf("%s%s: %s\n", lead, rows[i].policy->name, rows[i].outcome.note);
            lead = "";
        }
    }
}

static void cmd_compare_text(const struct dsched_profile *profile,
                             const struct dsched_bounds *bounds,
                             const struct wire_comparison_row *rows, size_t n) {
    static const char *const headings[] = {"policy",  "rule",         "step",
                                           "exposed", "updates/step", "mean delay (steps)",
                                           "memory",  "x wfbp",       "solved in"};
    size_t n_columns = sizeof(headings) / sizeof(headings[0]);
    char text[4][16];
    struct cli_table table;
    cli_table_duration(bounds->exact_step_ns, text[0]);
    cli_table_duration(bounds->deft_step_ns, text[1]);
    (void)printf("%s: no exact schedule is below %s; DeFT's bound is %s with %.3f updates per "
                 "step\n\n",
                 profile->name, text[0], text[1], bounds->updates_per_step_ppm / 1e6);
    cli_table_init(&table, n_columns);
    for (size_t i = 0; i < n_columns; i++) {
        cli_table_add(&table, "%s", headings[i]);
    }
    for (size_t i = 0; i < n; i++) {
        const struct dsched_report *report = &rows[i].outcome.report;
        cli_table_duration(report->step_ns, text[0]);
        cli_table_duration(report->exposed_ns, text[1]);
        cli_table_bytes(report->pending_bytes, text[2]);
        cli_table_duration(rows[i].solve_ns, text[3]);
        cli_table_add(&table, "%s", rows[i].policy->name);
        cli_table_add(&table, "%s", dsched_rule_name(rows[i].outcome.rule));
        cli_table_add(&table, "%s", text[0]);
        cli_table_add(&table, "%s", text[1]);
        cli_table_add(&table, "%.3f", report->updates_per_step_ppm / 1e6);
        cli_table_add(&table, "%.2f", report->mean_delay_milli / 1e3);
        cli_table_add(&table, "%s", text[2]);
        cli_table_add(&table, "%.2f", rows[i].speedup);
        cli_table_add(&table, "%s", text[3]);
    }
    cli_table_print(&table, stdout);
    cli_table_done(&table);
    cmd_compare_notes(rows, n);
}

static enum deft_status cmd_compare_json(const struct dsched_profile *profile,
                                         const struct dsched_bounds *bounds,
                                         const struct wire_comparison_row *rows, size_t n,
                                         struct deft_error *error) {
    char *text = NULL;
    enum deft_status status = wire_comparison_encode(profile, bounds, rows, n, &text, error);
    if (status == DEFT_OK) {
        (void)printf("%s\n", text);
        free(text);
    }
    return status;
}

static void cmd_compare_keep(const char *path, const struct wire_comparison_row *rows, size_t n,
                             struct cli_summary *summary) {
    struct cli_summary_row *kept = cli_summary_add(summary, path);
    for (size_t i = 0; i < n; i++) {
        const struct dsched_report *report = &rows[i].outcome.report;
        kept->step_ns[i] = report->step_ns;
        kept->updates_per_step[i] = report->updates_per_step_ppm / 1e6;
        kept->max_delay[i] = report->max_delay;
    }
}

static enum deft_status cmd_compare_one(void *context, const char *path,
                                        const struct dsched_profile *profile,
                                        struct deft_error *error) {
    struct cmd_compare_input *input = context;
    struct dsched_error reason = {{0}};
    struct dsched_bounds bounds = {0};
    struct wire_comparison_row rows[CLI_POLICY_MAX] = {0};
    size_t n = 0;
    enum deft_status status =
        cli_profile_failed(dsched_bounds(profile, &bounds, &reason), &reason, error);
    if (status == DEFT_OK) {
        status = cmd_compare_run(profile, &input->planner, rows, &n, error);
    }
    if (status == DEFT_OK) {
        cmd_compare_keep(path, rows, n, &input->summary);
    }
    if (status == DEFT_OK && input->files.json) {
        status = cmd_compare_json(profile, &bounds, rows, n, error);
    } else if (status == DEFT_OK) {
        cmd_compare_text(profile, &bounds, rows, n);
    }
    return status;
}

static int cmd_compare_main(int argc, char **argv) {
    static const struct argp_child children[] = {
        {&cli_files_argp, 0, NULL, 0}, {&cli_profile_planner_argp, 0, NULL, 0}, {0}};
    static const struct argp parser = {
        .parser = cmd_compare_parse,
        .args_doc = CLI_FILES_ARGUMENTS,
        .doc = "Simulates every policy on the job that a PROFILE describes. Several profiles are "
               "followed by a summary (not with --json).\v" CLI_FILES_DOC
               "\n\nLimits of the planner hold for the policy 'deft' only; without any it has no "
               "limit and no margin. The others are tuned as their authors say.",
        .children = children};
    struct cmd_compare_input input = {0};
    struct deft_error error = {0};
    cli_policy_defaults(&input.planner);
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    enum deft_status status = cli_summary_init(&input.summary, input.files.n, &error);
    if (status != DEFT_OK) {
        return cli_status(status, &error);
    }
    int code = cli_files_run(&input.files, cmd_compare_one, &input);
    if (!input.files.json && input.files.n > 1) {
        (void)putchar('\n');
        status = cli_summary_print(&input.summary, stdout, &error);
        int failed = cli_status(status, &error);
        code = failed > code ? failed : code;
    }
    cli_summary_done(&input.summary);
    return code;
}

const struct cli_command cmd_compare = {
    .name = "compare",
    .summary = "Compare all policies on profiles",
    .run = cmd_compare_main,
};
