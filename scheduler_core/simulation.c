#include "simulation.h"

#include "muldiv.h"
#include "spans.h"
#include "steady.h"

#include <stdlib.h>
#include <string.h>

static uint64_t ops_per_cycle(const struct dsched_plan *plan) {
    return (uint64_t)plan->n_buckets * plan->n_generations;
}

static int64_t per(int64_t total, uint64_t n) {
    return (int64_t)(((uint64_t)total + n - 1) / n);
}

/* A link cannot do less than its work. Simulated cycles may miss that while a queue still grows,
 * so the work bounds the step from below. */
static int64_t work_per_cycle(const struct program *program, uint32_t jitter_ppm) {
    int64_t most_ns = 0;
    for (uint32_t l = 0; l < program->plan->n_links; l++) {
        const struct program_lane *lane = &program->lanes[l];
        int64_t ns = 0;
        for (uint32_t i = 0; i < lane->n_ops; i++) {
            ns += muldiv_stretch(program->op_ns[lane->ops[i]], jitter_ppm);
        }
        most_ns = ns > most_ns ? ns : most_ns;
    }
    return most_ns;
}

static void fill_plan_figures(const struct dsched_plan *plan, const struct space *space,
                              struct dsched_report *report) {
    muldiv_wide weighted = 0;
    muldiv_wide all = (muldiv_wide)space->n_elements * plan->n_generations;
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
            weighted += (muldiv_wide)(plan->buckets[b].end - plan->buckets[b].begin) *
                        dsched_plan_op(plan, g, b)->delay;
        }
    }
    report->mean_delay_milli = all == 0 ? 0 : (uint32_t)(weighted * 1000 / all);
    report->max_delay = dsched_plan_max_delay(plan);
    report->cycle = dsched_plan_cycle(plan);
    report->updates_per_step_ppm =
        (uint32_t)(plan->n_generations * MULDIV_PPM / dsched_plan_cycle(plan));
    report->ops_per_step_milli = (uint32_t)(ops_per_cycle(plan) * 1000 / dsched_plan_cycle(plan));
    report->pending_bytes = dsched_plan_pending_bytes(plan, &space->table);
}

static void fill_times(const struct program *program, const struct steady *steady,
                       uint32_t jitter_ppm, struct dsched_report *report) {
    uint64_t n_iterations = steady->n_cycles * program->cycle;
    int64_t least_ns = 0;
    report->step_ns = per(steady->total_ns, n_iterations);
    report->exposed_forward_ns = per(steady->exposed_forward_ns, n_iterations);
    report->exposed_boundary_ns = per(steady->exposed_boundary_ns, n_iterations);
    if (!steady->is_periodic) {
        least_ns = per(work_per_cycle(program, jitter_ppm), program->cycle);
    }
    if (report->step_ns < least_ns) {
        report->exposed_boundary_ns += least_ns - report->step_ns;
        report->step_ns = least_ns;
    }
    report->exposed_ns = report->exposed_forward_ns + report->exposed_boundary_ns;
    for (uint32_t l = 0; l < program->profile->n_links; l++) {
        report->link_busy_ppm[l] = (uint32_t)muldiv_down((uint64_t)steady->busy_ns[l], MULDIV_PPM,
                                                         (uint64_t)steady->total_ns, MULDIV_PPM);
    }
}

/* The prologue and two cycles of what repeats, on a timeline of their own. */
static enum dsched_status show(const struct simulation *simulation, struct program *program,
                               uint64_t first_cycle, dsched_span_fn on_span, void *context,
                               struct dsched_error *error) {
    struct spans spans;
    struct timeline timeline;
    enum dsched_status status = DSCHED_OK;
    spans_init(&spans);
    program_rewind(program);
    timeline_init(&timeline, simulation->profile, &program_ops, program, simulation->jitter_ppm);
    timeline.on_span = spans_add;
    timeline.context = &spans;
    for (uint64_t i = 0; status == DSCHED_OK && i < first_cycle + 2; i++) {
        status = timeline_run(&timeline, error);
    }
    if (status == DSCHED_OK) {
        status = spans_emit(&spans, on_span, context, error);
    }
    spans_done(&spans);
    return status;
}

enum dsched_status simulation_run(const struct simulation *simulation, dsched_span_fn on_span,
                                  void *context, struct dsched_report *out,
                                  struct dsched_error *error) {
    struct program program = {0};
    struct timeline timeline;
    struct steady steady = {0};
    struct dsched_report report = {0};
    enum dsched_status status = program_init(&program, simulation->profile, simulation->space,
                                             simulation->plan, simulation->ready, error);
    if (status != DSCHED_OK) {
        return status;
    }
    timeline_init(&timeline, simulation->profile, &program_ops, &program, simulation->jitter_ppm);
    status = steady_run(&timeline, ops_per_cycle(simulation->plan), &steady, error);
    if (status != DSCHED_OK) {
        goto done;
    }
    fill_plan_figures(simulation->plan, simulation->space, &report);
    fill_times(&program, &steady, simulation->jitter_ppm, &report);
    if (on_span != NULL) {
        status = show(simulation, &program, steady.first_cycle, on_span, context, error);
    }
    if (status == DSCHED_OK) {
        *out = report;
    }
done:
    program_done(&program);
    return status;
}

enum dsched_status simulation_landing(const struct simulation *simulation, uint32_t *out_delays,
                                      struct dsched_error *error) {
    struct program program = {0};
    struct timeline timeline;
    struct steady steady = {0};
    uint64_t n_cycles;
    enum dsched_status status = program_init(&program, simulation->profile, simulation->space,
                                             simulation->plan, simulation->ready, error);
    if (status != DSCHED_OK) {
        return status;
    }
    timeline_init(&timeline, simulation->profile, &program_ops, &program, simulation->jitter_ppm);
    status = steady_run(&timeline, ops_per_cycle(simulation->plan), &steady, error);
    if (status == DSCHED_OK) {
        memset(out_delays, 0, ops_per_cycle(simulation->plan) * sizeof(*out_delays));
        program.landing = out_delays;
        /* Once more around what repeats: every op of the cycle lands in it. */
        n_cycles = steady.is_periodic ? steady.n_cycles : 1;
        for (uint64_t i = 0; status == DSCHED_OK && i < n_cycles; i++) {
            status = timeline_run(&timeline, error);
        }
    }
    program_done(&program);
    return status;
}
