#include "wire_common.h"

enum deft_status wire_solution_encode(const struct dsched_solution *solution, char **out,
                                      struct deft_error *error) {
    struct json_out text = {0};
    uint32_t n_links = solution->plan.n_links;
    json_out_begin_object(&text, NULL);
    json_out_text(&text, "schema", "deft.solution/1");
    json_out_int(&text, "link_ns", solution->link_ns);
    json_out_int(&text, "split_ns", solution->split_ns);
    json_out_number(&text, "coverage", solution->coverage_ppm / 1e6);
    wire_figures_write(&solution->report, n_links, &text);
    json_out_uint(&text, "chosen", solution->chosen);
    json_out_begin_array(&text, "candidates");
    for (uint32_t i = 0; i < solution->n_candidates && i < DSCHED_MAX_CANDIDATES; i++) {
        const struct dsched_candidate *candidate = &solution->candidates[i];
        const char *rule = dsched_rule_name(candidate->rule);
        const char *verdict = dsched_verdict_name(candidate->verdict);
        json_out_begin_object(&text, NULL);
        json_out_text(&text, "rule", rule != NULL ? rule : "unknown");
        json_out_uint(&text, "max_merge", candidate->max_merge);
        json_out_bool(&text, "feasible", candidate->feasible);
        json_out_text(&text, "verdict", verdict != NULL ? verdict : "unknown");
        json_out_int(&text, "margin_step_ns", candidate->margin_step_ns);
        json_out_number(&text, "progress", candidate->progress_ppm / 1e6);
        if (candidate->progress_ppm > 0) {
            json_out_int(&text, "cost_ns", candidate->cost_ns);
        } else {
            json_out_null(&text, "cost_ns");
        }
        json_out_number(&text, "gap", candidate->gap_ppm / 1e6);
        wire_figures_write(&candidate->report, n_links, &text);
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
