#include "wire_common.h"

#include <stdlib.h>

static void solution_report(const struct dsched_report *report, uint32_t n_links,
                            struct json_out *out) {
    json_out_begin_object(out, "report");
    json_out_int(out, "step_ns", report->step_ns);
    json_out_int(out, "exposed_ns", report->exposed_ns);
    json_out_int(out, "exposed_forward_ns", report->exposed_forward_ns);
    json_out_int(out, "exposed_boundary_ns", report->exposed_boundary_ns);
    json_out_begin_array(out, "link_busy_frac");
    for (uint32_t l = 0; l < n_links && l < DSCHED_MAX_LINKS; l++) {
        json_out_number(out, NULL, report->link_busy_ppm[l] / 1e6);
    }
    json_out_end_array(out);
    json_out_number(out, "updates_per_step", report->updates_per_step_ppm / 1e6);
    json_out_number(out, "mean_delay_steps", report->mean_delay_milli / 1e3);
    json_out_uint(out, "max_delay_steps", report->max_delay);
    json_out_number(out, "ops_per_step", report->ops_per_step_milli / 1e3);
    json_out_uint(out, "pending_bytes", report->pending_bytes);
    json_out_end_object(out);
}

enum deft_status wire_solution_encode(const struct dsched_solution *solution, char **out,
                                      struct deft_error *error) {
    struct json_out text = {0};
    uint32_t n_links = solution->plan.n_links;
    json_out_begin_object(&text, NULL);
    json_out_text(&text, "schema", "deft.solution/1");
    json_out_int(&text, "link_ns", solution->link_ns);
    json_out_int(&text, "split_ns", solution->split_ns);
    json_out_number(&text, "coverage", solution->coverage_ppm / 1e6);
    solution_report(&solution->report, n_links, &text);
    json_out_uint(&text, "chosen", solution->chosen);
    json_out_begin_array(&text, "candidates");
    for (uint32_t i = 0; i < solution->n_candidates && i < DSCHED_MAX_CANDIDATES; i++) {
        const struct dsched_candidate *candidate = &solution->candidates[i];
        const char *rule = dsched_rule_name(candidate->rule);
        json_out_begin_object(&text, NULL);
        json_out_text(&text, "rule", rule != NULL ? rule : "unknown");
        json_out_uint(&text, "max_merge", candidate->max_merge);
        json_out_bool(&text, "feasible", candidate->feasible);
        solution_report(&candidate->report, n_links, &text);
        json_out_end_object(&text);
    }
    json_out_end_array(&text);
    enum deft_status status = wire_plan_write(&solution->plan, "plan", &text, error);
    if (status != DEFT_OK) {
        json_out_done(&text);
        return status;
    }
    json_out_end_object(&text);
    return json_out_finish(&text, out, error);
}
