#include "candidates.h"

#include "delays.h"
#include "muldiv.h"
#include "price.h"
#include "refuse.h"
#include "simulation.h"

#include <string.h>

static int is_same(const struct dsched_candidate *a, const struct dsched_candidate *b) {
    return a->rule == b->rule && a->margin_step_ns == b->margin_step_ns &&
           a->report.step_ns == b->report.step_ns &&
           a->report.updates_per_step_ppm == b->report.updates_per_step_ppm &&
           a->report.mean_delay_milli == b->report.mean_delay_milli &&
           a->report.ops_per_step_milli == b->report.ops_per_step_milli;
}

void candidates_drop_repeated(struct candidates *candidates) {
    uint32_t last = candidates->n - 1;
    for (uint32_t i = 0; i < last; i++) {
        if (is_same(&candidates->items[i], &candidates->items[last])) {
            dsched_plan_done(&candidates->plans[last]);
            candidates->n = last;
            return;
        }
    }
}

void candidates_done(struct candidates *candidates) {
    for (uint32_t i = 0; i < candidates->n; i++) {
        dsched_plan_done(&candidates->plans[i]);
    }
    candidates->n = 0;
}

int64_t candidates_load_ns(const struct candidates *candidates, const struct layout *layout) {
    return muldiv_stretch(layout->load_ns, candidates->options->jitter_ppm);
}

static enum dsched_status make_plan(enum dsched_rule rule, const struct layout *layout,
                                    struct candidates_cycle cycle, struct dsched_plan *out,
                                    struct dsched_error *error) {
    struct dsched_plan plan = {0};
    enum dsched_status status = dsched_plan_init(&plan, layout->n_buckets, cycle.n_generations);
    if (status != DSCHED_OK) {
        return refuse(error, status, "a plan of %u buckets and %u generations could not be made",
                      layout->n_buckets, cycle.n_generations);
    }
    plan.rule = rule;
    plan.n_links = layout->n_links;
    memcpy(plan.buckets, layout->buckets, layout->n_buckets * sizeof(*plan.buckets));
    for (uint32_t g = 0; g < cycle.n_generations; g++) {
        uint32_t begin = g * cycle.n_iterations / cycle.n_generations;
        uint32_t end = (g + 1) * cycle.n_iterations / cycle.n_generations;
        plan.merge[g] = (uint16_t)(end - begin);
        for (uint32_t b = 0; b < layout->n_buckets; b++) {
            plan.ops[(size_t)g * layout->n_buckets + b].link = layout->links[b];
        }
    }
    *out = plan;
    return DSCHED_OK;
}

int candidates_sustain(const struct candidates *candidates, const struct layout *layout,
                       struct candidates_cycle cycle) {
    muldiv_wide load =
        (muldiv_wide)(uint64_t)candidates_load_ns(candidates, layout) * cycle.n_generations;
    return load <= (muldiv_wide)(uint64_t)candidates->compute_ns * cycle.n_iterations;
}

static enum dsched_status set_delays(const struct candidates *candidates,
                                     const struct layout *layout, struct candidates_cycle cycle,
                                     struct dsched_plan *plan, struct dsched_error *error) {
    uint32_t max_delay = candidates->options->max_delay;
    struct simulation simulation = {.profile = candidates->profile,
                                    .space = candidates->space,
                                    .plan = plan,
                                    .ready = program_ready_of(plan->rule),
                                    .jitter_ppm = candidates->options->jitter_ppm};
    if (plan->rule == DSCHED_EXACT) {
        return DSCHED_OK;
    }
    if (plan->rule == DSCHED_LOOKAHEAD && max_delay > 1) {
        max_delay = 1;
    }
    max_delay = cycle.max_delay < max_delay ? cycle.max_delay : max_delay;
    if (!candidates_sustain(candidates, layout, cycle)) {
        /* One generation in flight behind the one that accumulates keeps every link busy. */
        uint32_t delay = dsched_plan_max_merge(plan);
        delays_fill(plan, delay < max_delay ? delay : max_delay);
        return DSCHED_OK;
    }
    return delays_find(&simulation, plan, max_delay, error);
}

/* As many generations at once as memory allows, if not as many as the plan would like. */
static void fit_memory(const struct candidates *candidates, struct dsched_plan *plan) {
    const struct dsched_table *table = &candidates->space->table;
    uint64_t most_bytes = candidates->options->max_pending_bytes;
    uint32_t n_slots = dsched_plan_slots(plan);
    while (most_bytes > 0 && n_slots > 1 && dsched_plan_pending_bytes(plan, table) > most_bytes) {
        delays_fit(plan, --n_slots);
    }
}

enum dsched_status candidates_add(struct candidates *candidates, enum dsched_rule rule,
                                  const struct layout *layout, struct candidates_cycle cycle,
                                  uint32_t gap_ppm, struct dsched_error *error) {
    struct dsched_plan plan = {0};
    struct dsched_candidate item = {.rule = rule, .gap_ppm = gap_ppm};
    struct simulation simulation = {.profile = candidates->profile,
                                    .space = candidates->space,
                                    .plan = &plan,
                                    .ready = program_ready_of(rule)};
    struct dsched_report margin = {0};
    uint64_t most_bytes = candidates->options->max_pending_bytes;
    enum dsched_status status;
    if (candidates->n == DSCHED_MAX_CANDIDATES) {
        return DSCHED_OK;
    }
    status = make_plan(rule, layout, cycle, &plan, error);
    if (status == DSCHED_OK) {
        status = set_delays(candidates, layout, cycle, &plan, error);
    }
    if (status == DSCHED_OK) {
        fit_memory(candidates, &plan);
        status = simulation_run(&simulation, NULL, NULL, &item.report, error);
    }
    margin = item.report;
    if (status == DSCHED_OK && candidates->options->jitter_ppm > 0) {
        simulation.jitter_ppm = candidates->options->jitter_ppm;
        status = simulation_run(&simulation, NULL, NULL, &margin, error);
    }
    if (status != DSCHED_OK) {
        dsched_plan_done(&plan);
        return status;
    }
    item.max_merge = dsched_plan_max_merge(&plan);
    item.feasible = most_bytes == 0 || item.report.pending_bytes <= most_bytes;
    item.margin_step_ns = margin.step_ns;
    item.progress_ppm = price_progress_ppm(candidates->options->progress, &plan, &item.report);
    item.cost_ns = price_cost_ns(item.margin_step_ns, item.progress_ppm);
    candidates->items[candidates->n] = item;
    candidates->plans[candidates->n++] = plan;
    return DSCHED_OK;
}
