#include "cli_explanation.h"

#include <stdlib.h>

#include "cli_chart.h"
#include "cli_plan.h"
#include "cli_price.h"
#include "cli_table.h"
#include "wire/json_out.h"
#include "wire/wire.h"

static void cli_explanation_plan(const struct dsched_plan *plan, FILE *stream) {
    const struct dsched_forecast *forecast = &plan->forecast;
    char step[16];
    char exposed[16] = "nothing";
    char compute[16];
    cli_table_duration(forecast->step_ns, step);
    if (forecast->exposed_ns > 0) {
        cli_table_duration(forecast->exposed_ns, exposed);
    }
    cli_table_duration(forecast->compute_ns, compute);
    (void)fprintf(stream,
                  "%-16s %s, %u buckets, %u generations in a cycle of %u iterations, hash "
                  "%016llx\n",
                  "plan", dsched_rule_name(plan->rule), plan->n_buckets, plan->n_generations,
                  dsched_plan_cycle(plan), (unsigned long long)dsched_plan_hash(plan));
    if (forecast->step_ns == 0) {
        (void)fprintf(stream, "%-16s none: it was not solved for\n", "forecast");
        return;
    }
    (void)fprintf(stream, "%-16s step %s (compute %s, exposed %s), %.3f updates per step\n",
                  "forecast", step, compute, exposed, forecast->updates_per_step_ppm / 1e6);
}

static double cli_explanation_change(const struct dsched_solution *solution,
                                     const struct dsched_candidate *other) {
    int64_t chosen_ns = solution->report.step_ns;
    return chosen_ns > 0 ? (double)other->report.step_ns / (double)chosen_ns - 1.0 : 0.0;
}

/* Why not the others: the best of each class against the chosen one. */
static void cli_explanation_alternatives(const struct cli_explanation *in, FILE *stream) {
    const struct dsched_solution *solution = in->solution;
    (void)fprintf(stream, "alternatives\n");
    for (uint32_t rule = 0; rule < DSCHED_N_RULES; rule++) {
        const struct dsched_candidate *best =
            cli_plan_alternative(solution, (enum dsched_rule)rule, in->is_priced);
        if (best == NULL) {
            continue;
        }
        char exposed[16] = "nothing";
        if (best->report.exposed_ns > 0) {
            cli_table_duration(best->report.exposed_ns, exposed);
        }
        (void)fprintf(stream,
                      "  %-10s would take %+.1f %% of the step, with %s exposed and %.3f updates "
                      "per step",
                      dsched_rule_name(best->rule), 100.0 * cli_explanation_change(solution, best),
                      exposed, best->report.updates_per_step_ppm / 1e6);
        if (in->is_priced) {
            char progress[16];
            char cost[16];
            cli_price_figures(best, progress, cost);
            (void)fprintf(stream, "; progress %s, cost %s", progress, cost);
        }
        (void)fputc('\n', stream);
    }
}

void cli_explanation_print(const struct cli_explanation *in, FILE *stream) {
    if (in->solution != NULL) {
        cli_plan_print_solution(in->profile, in->solution, in->is_priced, stream);
    } else {
        cli_explanation_plan(in->plan, stream);
    }
    (void)fputc('\n', stream);
    cli_plan_print_packing(in->plan, in->profile, stream);
    if (in->solution != NULL) {
        (void)fputc('\n', stream);
        cli_explanation_alternatives(in, stream);
    }
    if (in->window != NULL) {
        (void)fputc('\n', stream);
        cli_chart_print(in->profile, in->window, stream);
    }
}

static void cli_explanation_packing_json(const struct dsched_plan *plan, struct json_out *out) {
    json_out_begin_array(out, "packing");
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        for (uint32_t link = 0; link < plan->n_links; link++) {
            struct cli_plan_packing packing = cli_plan_packing(plan, g, link);
            json_out_begin_object(out, NULL);
            json_out_uint(out, "generation", g);
            json_out_uint(out, "merge", packing.merge);
            json_out_uint(out, "link", link);
            json_out_uint(out, "buckets", packing.n_buckets);
            json_out_uint(out, "elements", packing.elements);
            json_out_uint(out, "late_buckets", packing.n_late);
            json_out_uint(out, "max_delay_steps", packing.max_delay);
            json_out_end_object(out);
        }
    }
    json_out_end_array(out);
}

static void cli_explanation_alternatives_json(const struct cli_explanation *in,
                                              struct json_out *out) {
    const struct dsched_solution *solution = in->solution;
    json_out_begin_array(out, "alternatives");
    for (uint32_t rule = 0; rule < DSCHED_N_RULES; rule++) {
        const struct dsched_candidate *best =
            cli_plan_alternative(solution, (enum dsched_rule)rule, in->is_priced);
        if (best == NULL) {
            continue;
        }
        json_out_begin_object(out, NULL);
        json_out_text(out, "rule", dsched_rule_name(best->rule));
        json_out_int(out, "step_ns", best->report.step_ns);
        json_out_number(out, "step_change_frac", cli_explanation_change(solution, best));
        json_out_int(out, "exposed_ns", best->report.exposed_ns);
        json_out_number(out, "updates_per_step", best->report.updates_per_step_ppm / 1e6);
        json_out_number(out, "progress", best->progress_ppm / 1e6);
        if (best->progress_ppm > 0) {
            json_out_int(out, "cost_ns", best->cost_ns);
        } else {
            json_out_null(out, "cost_ns");
        }
        json_out_end_object(out);
    }
    json_out_end_array(out);
}

enum deft_status cli_explanation_json(const struct cli_explanation *in, char **out,
                                      struct deft_error *error) {
    struct json_out text = {0};
    char *subject = NULL;
    enum deft_status status = in->solution != NULL
                                  ? wire_solution_encode(in->solution, &subject, error)
                                  : wire_plan_encode(in->plan, &subject, error);
    if (status != DEFT_OK) {
        return status;
    }
    json_out_begin_object(&text, NULL);
    json_out_text(&text, "schema", "deft.explanation/1");
    cli_explanation_packing_json(in->plan, &text);
    if (in->solution != NULL) {
        cli_explanation_alternatives_json(in, &text);
    }
    json_out_raw(&text, in->solution != NULL ? "solution" : "plan", subject);
    json_out_end_object(&text);
    free(subject);
    return json_out_finish(&text, out, error);
}
