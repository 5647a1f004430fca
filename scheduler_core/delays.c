#include "delays.h"

#include "refuse.h"

#include <stdlib.h>

static size_t n_ops(const struct dsched_plan *plan) {
    return (size_t)plan->n_generations * plan->n_buckets;
}

void delays_fill(struct dsched_plan *plan, uint32_t delay) {
    for (size_t i = 0; i < n_ops(plan); i++) {
        plan->ops[i].delay = (uint8_t)delay;
    }
}

/* Buckets that share a tensor form chains; a chain takes its largest delay. */
static void share(const struct space *space, struct dsched_plan *plan, uint32_t g) {
    struct dsched_op *ops = &plan->ops[(size_t)g * plan->n_buckets];
    uint32_t first = 0;
    uint32_t p = 0;
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        uint8_t most = 0;
        while (p + 1 < space->n_pieces && space->pieces[p].end < plan->buckets[b].end) {
            p++;
        }
        if (space->pieces[p].end > plan->buckets[b].end) {
            continue; /* the next bucket begins inside this tensor */
        }
        for (uint32_t i = first; i <= b; i++) {
            most = ops[i].delay > most ? ops[i].delay : most;
        }
        for (; first <= b; first++) {
            ops[first].delay = most;
        }
    }
}

/* Per bucket, each generation is applied at least one boundary after the one before. Twice around
 * the cycle settles it, since merges are at least 1. */
static void order(struct dsched_plan *plan) {
    uint32_t g = 0;
    for (uint32_t i = 0; i < 2 * plan->n_generations; i++) {
        uint32_t next = g + 1 == plan->n_generations ? 0 : g + 1;
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
            uint32_t delay = dsched_plan_op(plan, g, b)->delay;
            struct dsched_op *op = &plan->ops[(size_t)next * plan->n_buckets + b];
            if (op->delay + (uint32_t)plan->merge[next] <= delay) {
                op->delay = (uint8_t)(delay + 1 - plan->merge[next]);
            }
        }
        g = next;
    }
}

enum dsched_status delays_find(const struct simulation *simulation, struct dsched_plan *plan,
                               uint32_t max_delay, struct dsched_error *error) {
    uint32_t *landing = calloc(n_ops(plan), sizeof(*landing));
    enum dsched_status status;
    if (landing == NULL) {
        return refuse_memory(error, "the delays of a plan");
    }
    delays_fill(plan, DSCHED_MAX_DELAY);
    status = simulation_landing(simulation, landing, error);
    if (status == DSCHED_OK) {
        for (size_t i = 0; i < n_ops(plan); i++) {
            plan->ops[i].delay = (uint8_t)(landing[i] < max_delay ? landing[i] : max_delay);
        }
        for (uint32_t g = 0; plan->rule != DSCHED_AVERAGED && g < plan->n_generations; g++) {
            share(simulation->space, plan, g);
        }
        order(plan);
    }
    free(landing);
    return status;
}

/* A generation leaves its slot when the one that needs it begins: `n_slots` later, at the end of
 * that one under averaged, else at its begin. */
void delays_fit(struct dsched_plan *plan, uint32_t n_slots) {
    uint32_t n_after = plan->rule == DSCHED_AVERAGED ? n_slots : n_slots - 1;
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        uint32_t most = 0;
        for (uint32_t i = 1; i <= n_after && most < DSCHED_MAX_DELAY; i++) {
            most += plan->merge[(g + i) % plan->n_generations];
        }
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
            struct dsched_op *op = &plan->ops[(size_t)g * plan->n_buckets + b];
            op->delay = (uint8_t)(op->delay > most ? most : op->delay);
        }
    }
}
