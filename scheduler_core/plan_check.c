/* Whether a plan is legal. */
#include "refuse.h"

#include <dsched/plan.h>

#include <inttypes.h>

static enum dsched_status check_shape(const struct dsched_plan *plan, uint32_t n_links,
                                      struct dsched_error *error) {
    if ((uint32_t)plan->rule >= DSCHED_N_RULES) {
        return refuse(error, DSCHED_INVALID, "the plan's rule is %u, but 0..%u is allowed",
                      (unsigned)plan->rule, DSCHED_N_RULES - 1);
    }
    if (plan->n_buckets == 0 || plan->n_generations == 0) {
        return refuse(error, DSCHED_INVALID,
                      "the plan has %u buckets and %u generations, but at least one of each is "
                      "needed",
                      plan->n_buckets, plan->n_generations);
    }
    if (plan->n_buckets > DSCHED_MAX_BUCKETS || plan->n_generations > DSCHED_MAX_GENERATIONS) {
        return refuse(error, DSCHED_LIMIT,
                      "the plan has %u buckets and %u generations, but at most %u and %u are "
                      "allowed",
                      plan->n_buckets, plan->n_generations, DSCHED_MAX_BUCKETS,
                      DSCHED_MAX_GENERATIONS);
    }
    if (plan->n_links == 0 || plan->n_links > n_links) {
        return refuse(error, DSCHED_INVALID, "the plan uses %u links, but the job has %u",
                      plan->n_links, n_links);
    }
    return DSCHED_OK;
}

static uint32_t max_delay_of_rule(enum dsched_rule rule) {
    switch (rule) {
    case DSCHED_EXACT:
        return 0;
    case DSCHED_LOOKAHEAD:
        return 1;
    case DSCHED_DELAYED:
    case DSCHED_AVERAGED:
        break;
    }
    return DSCHED_MAX_DELAY;
}

static enum dsched_status check_numbers(const struct dsched_plan *plan,
                                        struct dsched_error *error) {
    uint32_t max_delay = max_delay_of_rule(plan->rule);
    uint32_t max_merge =
        plan->rule == DSCHED_EXACT || plan->rule == DSCHED_LOOKAHEAD ? 1 : DSCHED_MAX_MERGE;
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        if (plan->merge[g] == 0 || plan->merge[g] > max_merge) {
            return refuse(error, DSCHED_INVALID,
                          "generation %u merges %u iterations, but rule %s allows 1..%u", g,
                          plan->merge[g], dsched_rule_name(plan->rule), max_merge);
        }
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
            const struct dsched_op *op = dsched_plan_op(plan, g, b);
            if (op->link >= plan->n_links) {
                return refuse(error, DSCHED_INVALID,
                              "bucket %u of generation %u is on link %u, but the plan uses %u "
                              "links",
                              b, g, op->link, plan->n_links);
            }
            if (op->delay > max_delay) {
                return refuse(error, DSCHED_INVALID,
                              "bucket %u of generation %u has delay %u, but rule %s allows 0..%u",
                              b, g, op->delay, dsched_rule_name(plan->rule), max_delay);
            }
        }
    }
    return DSCHED_OK;
}

/* Generation g + 1 ends merge[g + 1] boundaries after g; its bucket must be applied later than
 * g's. Equal boundaries would apply two at once, smaller ones would turn the order around. */
static enum dsched_status check_order(const struct dsched_plan *plan, struct dsched_error *error) {
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        uint32_t next = (g + 1) % plan->n_generations;
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
            uint32_t delay = dsched_plan_op(plan, g, b)->delay;
            uint32_t later = plan->merge[next] + dsched_plan_op(plan, next, b)->delay;
            if (later <= delay) {
                return refuse(error, DSCHED_INVALID,
                              "bucket %u of generation %u is applied %u boundaries after its end, "
                              "which is not before that of generation %u (%u), but generations "
                              "apply in order, at most one per boundary",
                              b, g, delay, next, later);
            }
        }
    }
    return DSCHED_OK;
}

static enum dsched_status check_shared(const struct dsched_plan *plan, uint32_t b, uint32_t tensor,
                                       struct dsched_error *error) {
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        uint32_t delay = dsched_plan_op(plan, g, b)->delay;
        uint32_t next = dsched_plan_op(plan, g, b + 1)->delay;
        if (delay != next) {
            return refuse(error, DSCHED_INVALID,
                          "buckets %u and %u of generation %u share tensor %u but have delays %u "
                          "and %u, and rule %s steps whole tensors",
                          b, b + 1, g, tensor, delay, next, dsched_rule_name(plan->rule));
        }
    }
    return DSCHED_OK;
}

/* Where the walk along the gradient space is: inside `tensor`, which ends at element `end`. */
struct cursor {
    uint32_t tensor; /* counts down; n_tensors before the first */
    uint64_t end;
};

/* Walks to the end of `bucket` and checks that its dtype does not change on the way. */
static enum dsched_status walk_bucket(const struct dsched_table *table, uint32_t b,
                                      const struct dsched_bucket *bucket, struct cursor *cursor,
                                      struct dsched_error *error) {
    int dtype = cursor->end > bucket->begin ? table->dtypes[cursor->tensor] : -1;
    while (cursor->end < bucket->end) {
        if (cursor->tensor == 0) {
            return refuse(error, DSCHED_INVALID,
                          "bucket %u ends at element %" PRIu64
                          ", but the gradient space has only %" PRIu64,
                          b, bucket->end, cursor->end);
        }
        cursor->tensor--;
        if (table->elements[cursor->tensor] == 0) {
            continue;
        }
        if (dtype >= 0 && dtype != table->dtypes[cursor->tensor]) {
            return refuse(error, DSCHED_INVALID,
                          "bucket %u holds two dtypes at tensor %u, but a bucket has one", b,
                          cursor->tensor);
        }
        dtype = table->dtypes[cursor->tensor];
        cursor->end += table->elements[cursor->tensor];
    }
    return DSCHED_OK;
}

static enum dsched_status check_buckets(const struct dsched_plan *plan,
                                        const struct dsched_table *table,
                                        struct dsched_error *error) {
    struct cursor cursor = {.tensor = table->n_tensors, .end = 0};
    uint64_t elements = dsched_table_elements(table);
    uint64_t at = 0;
    for (uint32_t b = 0; b < plan->n_buckets; b++) {
        const struct dsched_bucket *bucket = &plan->buckets[b];
        enum dsched_status status;
        if (bucket->begin != at || bucket->end <= bucket->begin) {
            return refuse(error, DSCHED_INVALID,
                          "bucket %u is elements %" PRIu64 "..%" PRIu64
                          ", but it must begin at %" PRIu64 " and not be empty",
                          b, bucket->begin, bucket->end, at);
        }
        status = walk_bucket(table, b, bucket, &cursor, error);
        if (status == DSCHED_OK && plan->rule != DSCHED_AVERAGED && cursor.end > bucket->end &&
            b + 1 < plan->n_buckets) {
            status = check_shared(plan, b, cursor.tensor, error);
        }
        if (status != DSCHED_OK) {
            return status;
        }
        at = bucket->end;
    }
    if (at != elements) {
        return refuse(error, DSCHED_INVALID,
                      "the buckets end at element %" PRIu64 ", but the gradient space has %" PRIu64,
                      at, elements);
    }
    return DSCHED_OK;
}

enum dsched_status dsched_plan_validate(const struct dsched_plan *plan,
                                        const struct dsched_table *table, uint32_t n_links,
                                        struct dsched_error *error) {
    enum dsched_status status = check_shape(plan, n_links, error);
    if (status == DSCHED_OK) {
        status = check_numbers(plan, error);
    }
    if (status == DSCHED_OK) {
        status = check_order(plan, error);
    }
    if (status == DSCHED_OK) {
        status = check_buckets(plan, table, error);
    }
    return status;
}
