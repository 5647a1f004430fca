/* deft compare: every policy on one profile, beside the bound. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli.h"
#include "cli_profile.h"
#include "cli_table.h"
#include "wire/json_out.h"

enum { CMD_COMPARE_JSON = 256 };
/* More policies than there are; the table is walked to its end anyway. */
#define CMD_COMPARE_MAX_POLICIES 32u

static const struct argp_option cmd_compare_table[] = {
    {"json", CMD_COMPARE_JSON, NULL, 0, "Print JSON", 0},
    {0},
};

struct cmd_compare_input {
    const char *path;
    int json;
};

struct cmd_compare_row {
    const struct dsched_policy *policy;
    struct dsched_outcome outcome;
    int64_t solve_ns;
    double speedup; /* over wfbp; 0: unknown */
};

static error_t cmd_compare_parse(int key, char *argument, struct argp_state *state) {
    struct cmd_compare_input *input = state->input;
    switch (key) {
    case CMD_COMPARE_JSON:
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

static enum deft_status cmd_compare_run(const struct dsched_profile *profile,
                                        struct cmd_compare_row *rows, size_t *out_n,
                                        struct deft_error *error) {
    struct dsched_error reason = {{0}};
    int64_t wfbp_ns = 0;
    size_t n = 0;
    for (; dsched_policies[n] != NULL && n < CMD_COMPARE_MAX_POLICIES; n++) {
        struct cmd_compare_row *row = &rows[n];
        int64_t begin_ns = clock_monotonic_ns();
        row->policy = dsched_policies[n];
        enum dsched_status status =
            row->policy->simulate(profile, NULL, NULL, &row->outcome, &reason);
        row->solve_ns = clock_monotonic_ns() - begin_ns;
        if (status != DSCHED_OK) {
            return cli_profile_failed(status, &reason, error);
        }
        if (strcmp(row->policy->name, "wfbp") == 0) {
            wfbp_ns = row->outcome.report.step_ns;
        }
    }
    for (size_t i = 0; i < n; i++) {
        int64_t step_ns = rows[i].outcome.report.step_ns;
        rows[i].speedup = step_ns > 0 ? (double)wfbp_ns / (double)step_ns : 0.0;
    }
    *out_n = n;
    return DEFT_OK;
}

static void cmd_compare_text(const struct dsched_profile *profile,
                             const struct dsched_bounds *bounds, const struct cmd_compare_row *rows,
                             size_t n) {
    static const char *const headings[] = {"policy", "rule",   "step",   "exposed",  "updates",
                                           "delay",  "memory", "x wfbp", "solved in"};
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
}

static enum deft_status cmd_compare_json(const struct dsched_profile *profile,
                                         const struct dsched_bounds *bounds,
                                         const struct cmd_compare_row *rows, size_t n,
                                         struct deft_error *error) {
    struct json_out out = {0};
    char *text = NULL;
    json_out_begin_object(&out, NULL);
    json_out_text(&out, "profile", profile->name);
    json_out_begin_object(&out, "bound");
    json_out_int(&out, "exact_step_ns", bounds->exact_step_ns);
    json_out_int(&out, "deft_step_ns", bounds->deft_step_ns);
    json_out_number(&out, "updates_per_step", bounds->updates_per_step_ppm / 1e6);
    json_out_end_object(&out);
    json_out_begin_array(&out, "policies");
    for (size_t i = 0; i < n; i++) {
        const struct dsched_report *report = &rows[i].outcome.report;
        json_out_begin_object(&out, NULL);
        json_out_text(&out, "policy", rows[i].policy->name);
        json_out_int(&out, "step_ns", report->step_ns);
        json_out_int(&out, "exposed_ns", report->exposed_ns);
        json_out_number(&out, "updates_per_step", report->updates_per_step_ppm / 1e6);
        json_out_text(&out, "rule", dsched_rule_name(rows[i].outcome.rule));
        json_out_number(&out, "mean_delay_steps", report->mean_delay_milli / 1e3);
        json_out_uint(&out, "max_delay_steps", report->max_delay);
        json_out_number(&out, "speedup_vs_wfbp", rows[i].speedup);
        json_out_uint(&out, "pending_bytes", report->pending_bytes);
        json_out_int(&out, "solve_ns", rows[i].solve_ns);
        json_out_end_object(&out);
    }
    json_out_end_array(&out);
    json_out_end_object(&out);
    enum deft_status status = json_out_finish(&out, &text, error);
    if (status == DEFT_OK) {
        (void)printf("%s\n", text);
        free(text);
    }
    return status;
}

static int cmd_compare_main(int argc, char **argv) {
    static const struct argp parser = {
        .options = cmd_compare_table,
        .parser = cmd_compare_parse,
        .args_doc = "PROFILE",
        .doc = "Simulates every policy on the job that PROFILE (deft.profile/1) describes."};
    struct cmd_compare_input input = {0};
    struct deft_error error = {0};
    struct dsched_error reason = {{0}};
    struct dsched_profile profile = {0};
    struct dsched_bounds bounds = {0};
    struct cmd_compare_row rows[CMD_COMPARE_MAX_POLICIES] = {0};
    size_t n = 0;
    (void)argp_parse(&parser, argc, argv, 0, NULL, &input);
    enum deft_status status = cli_profile_read(input.path, &profile, &error);
    if (status == DEFT_OK) {
        status = cli_profile_failed(dsched_bounds(&profile, &bounds, &reason), &reason, &error);
    }
    if (status == DEFT_OK) {
        status = cmd_compare_run(&profile, rows, &n, &error);
    }
    if (status == DEFT_OK && input.json) {
        status = cmd_compare_json(&profile, &bounds, rows, n, &error);
    } else if (status == DEFT_OK) {
        cmd_compare_text(&profile, &bounds, rows, n);
    }
    dsched_profile_done(&profile);
    return cli_status(status, &error);
}

const struct cli_command cmd_compare = {
    .name = "compare",
    .summary = "Compare all policies on a profile",
    .run = cmd_compare_main,
};
