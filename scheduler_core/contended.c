#include "contended.h"

#include "muldiv.h"
#include "refuse.h"
#include "simulation.h"

#include <stdlib.h>

int contended_any(const struct dsched_profile *profile) {
    for (uint32_t l = 0; l < profile->n_links; l++) {
        if (profile->links[l].contention_ppm > MULDIV_PPM) {
            return 1;
        }
    }
    return 0;
}

int64_t contended_slow_ns(const struct dsched_profile *profile, const int64_t *works_ns) {
    int64_t slow_ns = 0;
    int64_t now_ns = 0;
    for (;;) {
        uint64_t contention_ppm = MULDIV_PPM;
        int64_t next_ns = INT64_MAX;
        for (uint32_t l = 0; l < profile->n_links; l++) {
            if (works_ns[l] > now_ns) {
                next_ns = works_ns[l] < next_ns ? works_ns[l] : next_ns;
                contention_ppm = profile->links[l].contention_ppm > contention_ppm
                                     ? profile->links[l].contention_ppm
                                     : contention_ppm;
            }
        }
        if (next_ns == INT64_MAX) {
            return slow_ns;
        }
        slow_ns += (int64_t)muldiv_down((uint64_t)(next_ns - now_ns), contention_ppm - MULDIV_PPM,
                                        contention_ppm, INT64_MAX);
        now_ns = next_ns;
    }
}

enum dsched_status contended_finish(const struct dsched_profile *profile, const struct space *space,
                                    struct layout *layout, struct dsched_error *error) {
    uint16_t every_iteration = 1;
    struct dsched_plan plan = {.rule = DSCHED_EXACT,
                               .n_links = layout->n_links,
                               .n_buckets = layout->n_buckets,
                               .n_generations = 1,
                               .buckets = layout->buckets,
                               .merge = &every_iteration};
    struct simulation simulation = {
        .profile = profile, .space = space, .plan = &plan, .ready = PROGRAM_READY_DURING_BACKWARD};
    struct dsched_report report;
    enum dsched_status status;
    plan.ops = calloc(layout->n_buckets, sizeof(*plan.ops));
    if (plan.ops == NULL) {
        return refuse_memory(error, "the simulation of a layout");
    }
    for (uint32_t b = 0; b < layout->n_buckets; b++) {
        plan.ops[b].link = layout->links[b];
    }
    status = simulation_run(&simulation, NULL, NULL, &report, error);
    if (status == DSCHED_OK) {
        layout->finish_ns = report.step_ns - profile->forward_ns - profile->optimizer_ns;
    }
    free(plan.ops);
    return status;
}
