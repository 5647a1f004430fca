#include <dsched/plan.h>

#include <stdlib.h>
#include <string.h>

static const char *const rule_names[DSCHED_N_RULES] = {
    [DSCHED_EXACT] = "exact",
    [DSCHED_DELAYED] = "delayed",
    [DSCHED_LOOKAHEAD] = "lookahead",
    [DSCHED_AVERAGED] = "averaged",
};

const char *dsched_rule_name(enum dsched_rule rule) {
    return (uint32_t)rule < DSCHED_N_RULES ? rule_names[rule] : NULL;
}

enum dsched_status dsched_rule_parse(const char *name, enum dsched_rule *out) {
    for (uint32_t i = 0; i < DSCHED_N_RULES; i++) {
        if (strcmp(name, rule_names[i]) == 0) {
            *out = (enum dsched_rule)i;
            return DSCHED_OK;
        }
    }
    return DSCHED_INVALID;
}

uint32_t dsched_plan_cycle(const struct dsched_plan *plan) {
    uint32_t n_iterations = 0;
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        n_iterations += plan->merge[g];
    }
    return n_iterations;
}

uint32_t dsched_plan_max_merge(const struct dsched_plan *plan) {
    uint32_t merge = 0;
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        merge = plan->merge[g] > merge ? plan->merge[g] : merge;
    }
    return merge;
}

uint32_t dsched_plan_max_delay(const struct dsched_plan *plan) {
    size_t n_ops = (size_t)plan->n_generations * plan->n_buckets;
    uint32_t delay = 0;
    for (size_t i = 0; i < n_ops; i++) {
        delay = plan->ops[i].delay > delay ? plan->ops[i].delay : delay;
    }
    return delay;
}

enum dsched_status dsched_plan_init(struct dsched_plan *plan, uint32_t n_buckets,
                                    uint32_t n_generations) {
    struct dsched_plan made = {.n_buckets = n_buckets, .n_generations = n_generations};
    if (n_buckets == 0 || n_generations == 0) {
        return DSCHED_INVALID;
    }
    if (n_buckets > DSCHED_MAX_BUCKETS || n_generations > DSCHED_MAX_GENERATIONS) {
        return DSCHED_LIMIT;
    }
    made.buckets = calloc(n_buckets, sizeof(*made.buckets));
    made.merge = calloc(n_generations, sizeof(*made.merge));
    made.ops = calloc((size_t)n_generations * n_buckets, sizeof(*made.ops));
    if (made.buckets == NULL || made.merge == NULL || made.ops == NULL) {
        dsched_plan_done(&made);
        return DSCHED_NO_MEMORY;
    }
    *plan = made;
    return DSCHED_OK;
}

void dsched_plan_done(struct dsched_plan *plan) {
    if (plan == NULL) {
        return;
    }
    free(plan->buckets);
    free(plan->merge);
    free(plan->ops);
    memset(plan, 0, sizeof(*plan));
}

enum dsched_status dsched_plan_copy(const struct dsched_plan *plan, struct dsched_plan *out) {
    struct dsched_plan made = {0};
    enum dsched_status status = dsched_plan_init(&made, plan->n_buckets, plan->n_generations);
    if (status != DSCHED_OK) {
        return status;
    }
    made.rule = plan->rule;
    made.n_links = plan->n_links;
    made.forecast = plan->forecast;
    memcpy(made.buckets, plan->buckets, plan->n_buckets * sizeof(*made.buckets));
    memcpy(made.merge, plan->merge, plan->n_generations * sizeof(*made.merge));
    memcpy(made.ops, plan->ops, (size_t)plan->n_generations * plan->n_buckets * sizeof(*made.ops));
    *out = made;
    return DSCHED_OK;
}
