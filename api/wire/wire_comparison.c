#include <string.h>

#include "json_out.h"
#include "wire.h"

void wire_comparison_relate(struct wire_comparison_row *rows, size_t n_rows) {
    int64_t wfbp_ns = 0;
    for (size_t i = 0; i < n_rows; i++) {
        if (strcmp(rows[i].policy->name, "wfbp") == 0) {
            wfbp_ns = rows[i].outcome.report.step_ns;
        }
    }
    for (size_t i = 0; i < n_rows; i++) {
        int64_t step_ns = rows[i].outcome.report.step_ns;
        rows[i].speedup = step_ns > 0 ? (double)wfbp_ns / (double)step_ns : 0.0;
    }
}

static void comparison_print(struct json_out *out, const struct wire_comparison_row *row) {
    const struct dsched_report *report = &row->outcome.report;
    json_out_begin_object(out, NULL);
    json_out_text(out, "policy", row->policy->name);
    json_out_int(out, "step_ns", report->step_ns);
    json_out_int(out, "exposed_ns", report->exposed_ns);
    json_out_number(out, "updates_per_step", report->updates_per_step_ppm / 1e6);
    json_out_text(out, "rule", dsched_rule_name(row->outcome.rule));
    json_out_number(out, "mean_delay_steps", report->mean_delay_milli / 1e3);
    json_out_uint(out, "max_delay_steps", report->max_delay);
    json_out_number(out, "speedup_vs_wfbp", row->speedup);
    json_out_uint(out, "pending_bytes", report->pending_bytes);
    json_out_int(out, "solve_ns", row->solve_ns);
    json_out_text(out, "note", row->outcome.note);
    json_out_end_object(out);
}

enum deft_status wire_comparison_encode(const struct dsched_profile *profile,
                                        const struct dsched_bounds *bounds,
                                        const struct wire_comparison_row *rows, size_t n_rows,
                                        char **out, struct deft_error *error) {
    struct json_out json = {0};
    json_out_begin_object(&json, NULL);
    json_out_text(&json, "profile", profile->name);
    json_out_begin_object(&json, "bound");
    json_out_int(&json, "exact_step_ns", bounds->exact_step_ns);
    json_out_int(&json, "deft_step_ns", bounds->deft_step_ns);
    json_out_number(&json, "updates_per_step", bounds->updates_per_step_ppm / 1e6);
    json_out_end_object(&json);
    json_out_begin_array(&json, "policies");
    for (size_t i = 0; i < n_rows; i++) {
        comparison_print(&json, &rows[i]);
    }
    json_out_end_array(&json);
    json_out_end_object(&json);
    return json_out_finish(&json, out, error);
}
