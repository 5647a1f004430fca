/* Seeds of fuzz_plan_decode: one plan per rule, with what the rule allows. */
#include <stdio.h>
#include <stdlib.h>

#include <dsched/plan.h>

#include "seeds.h"

#define SEEDS_PLAN_MAX_BYTES 4096u

static void seeds_plan_put(const char *folder, const char *name, const struct dsched_plan *plan) {
    uint8_t bytes[SEEDS_PLAN_MAX_BYTES];
    size_t n_bytes = dsched_plan_encode(plan, NULL, 0);
    if (n_bytes > sizeof bytes || dsched_plan_encode(plan, bytes, sizeof bytes) != n_bytes) {
        (void)fprintf(stderr, "%s: %zu bytes are longer than a seed may be\n", name, n_bytes);
        exit(1);
    }
    seeds_write(folder, name, bytes, n_bytes);
}

int main(int argc, char **argv) {
    /* Elements of the table that the target validates against: 1000, 0, 24, 3000000. */
    struct dsched_bucket whole[] = {{0, 3000000}, {3000000, 3000024}, {3000024, 3001024}};
    struct dsched_bucket split[] = {
        {0, 1000000}, {1000000, 3000000}, {3000000, 3000024}, {3000024, 3001024}};
    uint16_t merge[] = {1, 2};
    struct dsched_op now[] = {{0, 0}, {0, 0}, {0, 0}};
    struct dsched_op late[] = {{0, 1}, {1, 0}, {1, 0}};
    struct dsched_op uneven[] = {{0, 1}, {1, 1}, {0, 1}, {1, 1}, {1, 0}, {0, 1}, {0, 1}, {1, 1}};
    struct dsched_plan exact = {.rule = DSCHED_EXACT,
                                .n_links = 1,
                                .n_buckets = 3,
                                .n_generations = 1,
                                .buckets = whole,
                                .merge = merge,
                                .ops = now,
                                .forecast = {.step_ns = 4000, .compute_ns = 3000}};
    struct dsched_plan lookahead = exact;
    struct dsched_plan delayed = exact;
    struct dsched_plan averaged = exact;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    lookahead.rule = DSCHED_LOOKAHEAD;
    lookahead.n_links = 2;
    lookahead.ops = late;
    delayed.rule = DSCHED_DELAYED;
    delayed.n_links = 2;
    delayed.merge = &merge[1];
    delayed.ops = late;
    averaged.rule = DSCHED_AVERAGED;
    averaged.n_links = 2;
    averaged.n_buckets = 4;
    averaged.n_generations = 2;
    averaged.buckets = split;
    averaged.ops = uneven;
    averaged.forecast.updates_per_step_ppm = 666667;
    seeds_plan_put(argv[1], "exact", &exact);
    seeds_plan_put(argv[1], "lookahead", &lookahead);
    seeds_plan_put(argv[1], "delayed", &delayed);
    seeds_plan_put(argv[1], "averaged", &averaged);
    return 0;
}
