#include "cli_plan.h"

#include <string.h>

#include "cli_price.h"
#include "cli_table.h"

static void cli_plan_rows(struct cli_table *table, const char *const *headings, size_t n) {
    cli_table_init(table, n);
    for (size_t i = 0; i < n; i++) {
        cli_table_add(table, "%s", headings[i]);
    }
}

void cli_plan_print_report(const struct dsched_report *report, uint32_t n_links, FILE *stream) {
    char step[16];
    char exposed[16] = "nothing";
    char bytes[16];
    cli_table_duration(report->step_ns, step);
    if (report->exposed_ns > 0) {
        cli_table_duration(report->exposed_ns, exposed);
    }
    cli_table_bytes(report->pending_bytes, bytes);
    (void)fprintf(stream, "%-16s %s, of which %s exposed\n", "step", step, exposed);
    (void)fprintf(stream, "%-16s %.3f per step\n", "updates", report->updates_per_step_ppm / 1e6);
    (void)fprintf(stream, "%-16s %.2f boundaries on average, %u at most\n", "delay",
                  report->mean_delay_milli / 1e3, report->max_delay);
    (void)fprintf(stream, "%-16s %.1f per step\n", "all-reduces", report->ops_per_step_milli / 1e3);
    (void)fprintf(stream, "%-16s %s\n", "pending memory", bytes);
    (void)fprintf(stream, "%-16s", "links busy");
    for (uint32_t i = 0; i < n_links && i < DSCHED_MAX_LINKS; i++) {
        (void)fprintf(stream, " %.1f %%", report->link_busy_ppm[i] / 1e4);
    }
    (void)fputc('\n', stream);
}

void cli_plan_print_solution(const struct dsched_profile *profile,
                             const struct dsched_solution *solution, int is_priced, FILE *stream) {
    const struct dsched_plan *plan = &solution->plan;
    char compute[16];
    char link[16];
    char split[16];
    cli_table_duration(profile->forward_ns + profile->backward_ns + profile->optimizer_ns, compute);
    cli_table_duration(solution->link_ns, link);
    cli_table_duration(solution->split_ns, split);
    (void)fprintf(stream, "%-16s %s, %u ranks, %u tensors, %u links\n", "profile", profile->name,
                  profile->world_size, profile->n_tensors, profile->n_links);
    (void)fprintf(stream, "%-16s %s\n", "compute", compute);
    (void)fprintf(stream, "%-16s %s on the first link, %s split over all; coverage rate %.2f\n",
                  "all-reduce", link, split, solution->coverage_ppm / 1e6);
    (void)fprintf(stream, "%-16s %s, %u buckets, %u generations in a cycle of %u iterations\n",
                  "chosen", dsched_rule_name(plan->rule), plan->n_buckets, plan->n_generations,
                  dsched_plan_cycle(plan));
    cli_plan_print_report(&solution->report, profile->n_links, stream);
    if (is_priced) {
        char progress[16];
        char cost[16];
        cli_price_figures(&solution->candidates[solution->chosen], progress, cost);
        (void)fprintf(stream,
                      "%-16s %s per sample of exact's; %s for what an iteration of exact does\n",
                      "progress", progress, cost);
    }
}

void cli_plan_print_candidates(const struct dsched_solution *solution, int is_priced,
                               FILE *stream) {
    static const char *const headings[] = {"",        "rule",  "max merge", "step",   "exposed",
                                           "updates", "delay", "memory",    "verdict"};
    static const char *const priced[] = {"",         "rule",    "max merge", "step",
                                         "exposed",  "updates", "delay",     "memory",
                                         "progress", "cost",    "verdict"};
    struct cli_table table;
    if (is_priced) {
        cli_plan_rows(&table, priced, sizeof(priced) / sizeof(priced[0]));
    } else {
        cli_plan_rows(&table, headings, sizeof(headings) / sizeof(headings[0]));
    }
    for (uint32_t i = 0; i < solution->n_candidates && i < DSCHED_MAX_CANDIDATES; i++) {
        const struct dsched_candidate *candidate = &solution->candidates[i];
        char step[16];
        char exposed[16];
        char memory[16];
        cli_table_duration(candidate->report.step_ns, step);
        cli_table_duration(candidate->report.exposed_ns, exposed);
        cli_table_bytes(candidate->report.pending_bytes, memory);
        cli_table_add(&table, "%s", i == solution->chosen ? "*" : candidate->feasible ? " " : "x");
        cli_table_add(&table, "%s", dsched_rule_name(candidate->rule));
        cli_table_add(&table, "%u", candidate->max_merge);
        cli_table_add(&table, "%s", step);
        cli_table_add(&table, "%s", exposed);
        cli_table_add(&table, "%.3f", candidate->report.updates_per_step_ppm / 1e6);
        cli_table_add(&table, "%.2f", candidate->report.mean_delay_milli / 1e3);
        cli_table_add(&table, "%s", memory);
        if (is_priced) {
            char progress[16];
            char cost[16];
            cli_price_figures(candidate, progress, cost);
            cli_table_add(&table, "%s", progress);
            cli_table_add(&table, "%s", cost);
        }
        cli_table_add(&table, "%s", dsched_verdict_name(candidate->verdict));
    }
    (void)fprintf(stream, "candidates (* chosen, x breaks a limit), and the figure each lost by\n");
    cli_table_print(&table, stream);
    cli_table_done(&table);
}

struct cli_plan_packing cli_plan_packing(const struct dsched_plan *plan, uint32_t generation,
                                         uint32_t link) {
    struct cli_plan_packing packing = {.merge = plan->merge[generation]};
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        const struct dsched_op *op = dsched_plan_op(plan, generation, b);
        if (op->link == link) {
            packing.elements += plan->buckets[b].end - plan->buckets[b].begin;
            packing.n_buckets++;
            packing.n_late += op->delay > 0;
            packing.max_delay = op->delay > packing.max_delay ? op->delay : packing.max_delay;
        }
    }
    return packing;
}

const struct dsched_candidate *cli_plan_alternative(const struct dsched_solution *solution,
                                                    enum dsched_rule rule, int is_priced) {
    const struct dsched_candidate *best = NULL;
    int64_t best_ns = 0;
    for (uint32_t i = 0; i < solution->n_candidates; i++) {
        const struct dsched_candidate *candidate = &solution->candidates[i];
        int64_t ns = is_priced ? candidate->cost_ns : candidate->report.step_ns;
        if (candidate->rule == rule && candidate->feasible && (best == NULL || ns < best_ns)) {
            best = candidate;
            best_ns = ns;
        }
    }
    return best != &solution->candidates[solution->chosen] ? best : NULL;
}

static void cli_plan_packing_row(struct cli_table *table, const struct dsched_plan *plan,
                                 const struct dsched_profile *profile, uint32_t generation,
                                 uint32_t link) {
    struct cli_plan_packing packing = cli_plan_packing(plan, generation, link);
    cli_table_add(table, "%u", generation);
    cli_table_add(table, "%u", packing.merge);
    if (profile != NULL && link < profile->n_links) {
        cli_table_add(table, "%s", profile->links[link].name);
    } else {
        cli_table_add(table, "%u", link);
    }
    cli_table_add(table, "%u", packing.n_buckets);
    cli_table_add(table, "%llu", (unsigned long long)packing.elements);
    cli_table_add(table, "%u", packing.n_late);
    cli_table_add(table, "%u", packing.max_delay);
}

void cli_plan_print_packing(const struct dsched_plan *plan, const struct dsched_profile *profile,
                            FILE *stream) {
    static const char *const headings[] = {"generation", "merge", "link",     "buckets",
                                           "elements",   "late",  "max delay"};
    struct cli_table table;
    cli_plan_rows(&table, headings, sizeof(headings) / sizeof(headings[0]));
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        for (uint32_t link = 0; link < plan->n_links; link++) {
            cli_plan_packing_row(&table, plan, profile, g, link);
        }
    }
    (void)fprintf(stream, "packing\n");
    cli_table_print(&table, stream);
    cli_table_done(&table);
}
