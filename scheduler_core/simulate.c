#include "refuse.h"
#include "simulation.h"

/* A link that takes more than twice as long is not jitter. */
#define MAX_JITTER_PPM 1000000u

enum dsched_status dsched_simulate_plan(const struct dsched_profile *profile,
                                        const struct dsched_plan *plan, uint32_t jitter_ppm,
                                        dsched_span_fn on_span, void *context,
                                        struct dsched_report *out, struct dsched_error *error) {
    struct space space = {0};
    struct simulation simulation = {.profile = profile,
                                    .space = &space,
                                    .plan = plan,
                                    .ready = program_ready_of(plan->rule),
                                    .jitter_ppm = jitter_ppm};
    enum dsched_status status = dsched_profile_check(profile, error);
    if (status != DSCHED_OK) {
        return status;
    }
    if (jitter_ppm > MAX_JITTER_PPM) {
        return refuse(error, DSCHED_INVALID, "jitter_ppm is %u, but 0..%u is allowed", jitter_ppm,
                      MAX_JITTER_PPM);
    }
    status = space_init(&space, profile, error);
    if (status != DSCHED_OK) {
        return status;
    }
    status = dsched_plan_validate(plan, &space.table, profile->n_links, error);
    if (status == DSCHED_OK) {
        status = simulation_run(&simulation, on_span, context, out, error);
    }
    space_done(&space);
    return status;
}
