/* Generations that are alive at once, and what they hold of memory. */
#include <dsched/plan.h>

static uint32_t max_delay_of(const struct dsched_plan *plan, uint32_t g) {
    uint32_t delay = 0;
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        uint32_t d = dsched_plan_op(plan, g, b)->delay;
        delay = d > delay ? d : delay;
    }
    return delay;
}

uint32_t dsched_plan_slots(const struct dsched_plan *plan) {
    uint32_t delays[DSCHED_MAX_GENERATIONS];
    uint32_t begins[DSCHED_MAX_GENERATIONS];
    uint32_t cycle = 0;
    uint32_t most = 0;
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        delays[g] = max_delay_of(plan, g);
        begins[g] = cycle;
        cycle += plan->merge[g];
    }
    for (uint32_t t = 0; t < cycle; t++) {
        uint32_t alive = 0;
        for (uint32_t g = 0; g < plan->n_generations; g++) {
            /* Occupied for `span` iterations from `begin` on, and so again every cycle. Under
             * averaged a generation is the change of the parameters: it takes memory from its end
             * on, in the place of the one that the same boundary applies. */
            int averaged = plan->rule == DSCHED_AVERAGED;
            uint32_t begin = averaged ? (begins[g] + plan->merge[g]) % cycle : begins[g];
            uint32_t span = averaged ? (delays[g] > 0 ? delays[g] : 1) : plan->merge[g] + delays[g];
            uint32_t offset = (t + cycle - begin) % cycle;
            alive += offset < span ? (span - offset + cycle - 1) / cycle : 0;
        }
        most = alive > most ? alive : most;
    }
    return most;
}

uint64_t dsched_plan_pending_bytes(const struct dsched_plan *plan,
                                   const struct dsched_table *table) {
    uint64_t slots = dsched_plan_slots(plan);
    uint64_t copies = slots;
    if (plan->rule == DSCHED_LOOKAHEAD) {
        copies = slots + 1;
    } else if (plan->rule == DSCHED_AVERAGED) {
        copies = 2 * slots + 1;
    }
    return copies * dsched_table_bytes(table);
}
