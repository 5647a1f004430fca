#include "wire_common.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PLAN_SCHEMA "deft.plan/1"

static const struct wire_field byte_fields[] = {
    {.kind = WIRE_UINT, .size = sizeof(uint8_t), .max = UINT8_MAX},
};
static const struct wire_shape byte_shape = WIRE_SHAPE(uint8_t, byte_fields, WIRE_BARE);

static const struct wire_field bucket_fields[] = {
    WIRE_ROW_UINT(struct dsched_bucket, begin, "begin", 1, 0, DSCHED_MAX_ELEMENTS),
    WIRE_ROW_UINT(struct dsched_bucket, end, "end", 1, 0, DSCHED_MAX_ELEMENTS),
};
static const struct wire_shape bucket_shape =
    WIRE_SHAPE(struct dsched_bucket, bucket_fields, WIRE_TUPLE);

static const struct wire_field generation_fields[] = {
    WIRE_ROW_UINT(struct wire_generation, merge, "merge", 1, 1, DSCHED_MAX_MERGE),
    WIRE_ROW_ARRAY(struct wire_generation, links, n_links, "links", 1, DSCHED_MAX_BUCKETS,
                   &byte_shape),
    WIRE_ROW_ARRAY(struct wire_generation, delays, n_delays, "delays", 1, DSCHED_MAX_BUCKETS,
                   &byte_shape),
};
static const struct wire_shape generation_shape =
    WIRE_SHAPE(struct wire_generation, generation_fields, WIRE_KEYED);

static const struct wire_field forecast_fields[] = {
    WIRE_ROW_INT(struct dsched_forecast, step_ns, "step_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(struct dsched_forecast, exposed_ns, "exposed_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(struct dsched_forecast, compute_ns, "compute_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_RATIO(struct dsched_forecast, updates_per_step_ppm, "updates_per_step", 1000000, 0),
    WIRE_ROW_RATIO(struct dsched_forecast, mean_delay_milli, "mean_delay_steps", 1000, 0),
    WIRE_ROW_UINT(struct dsched_forecast, max_delay, "max_delay_steps", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(struct dsched_forecast, pending_bytes, "pending_bytes", 0, 0, WIRE_MAX_INTEGER),
};
static const struct wire_shape forecast_shape =
    WIRE_SHAPE(struct dsched_forecast, forecast_fields, WIRE_KEYED);

static const struct wire_field plan_fields[] = {
    WIRE_ROW_TEXT(struct wire_plan_message, schema, "schema", 1),
    WIRE_ROW_NAME(struct wire_plan_message, rule, "rule", 1, wire_rule_names),
    WIRE_ROW_UINT(struct wire_plan_message, n_links, "links", 1, 1, DSCHED_MAX_LINKS),
    WIRE_ROW_UINT(struct wire_plan_message, cycle, "cycle", 0, 1,
                  ((uint64_t)DSCHED_MAX_GENERATIONS * DSCHED_MAX_MERGE)),
    WIRE_ROW_ARRAY(struct wire_plan_message, buckets, n_buckets, "buckets", 1, DSCHED_MAX_BUCKETS,
                   &bucket_shape),
    WIRE_ROW_ARRAY(struct wire_plan_message, generations, n_generations, "generations", 1,
                   DSCHED_MAX_GENERATIONS, &generation_shape),
    WIRE_ROW_OBJECT(struct wire_plan_message, forecast, "forecast", 0, &forecast_shape),
    WIRE_ROW_TEXT(struct wire_plan_message, hash, "hash", 0),
};
const struct wire_shape wire_plan_shape =
    WIRE_SHAPE_OF(struct wire_plan_message, plan_fields, WIRE_KEYED, WIRE_MAX_PLAN_VALUES);

static enum deft_status plan_fill(const struct wire_plan_message *message, struct dsched_plan *plan,
                                  struct deft_error *error) {
    plan->rule = message->rule;
    plan->n_links = message->n_links;
    plan->forecast = message->forecast;
    memcpy(plan->buckets, message->buckets, message->n_buckets * sizeof(*plan->buckets));
    for (uint32_t g = 0; g < message->n_generations; g++) {
        const struct wire_generation *from = &message->generations[g];
        if (from->n_links != message->n_buckets || from->n_delays != message->n_buckets) {
            return deft_fail(error, DEFT_INVALID, 0,
                             "generations[%u]: %u links and %u delays for %u buckets", g,
                             from->n_links, from->n_delays, message->n_buckets);
        }
        plan->merge[g] = from->merge;
        for (uint32_t b = 0; b < message->n_buckets; b++) {
            if (from->links[b] >= message->n_links || from->delays[b] > DSCHED_MAX_DELAY) {
                return deft_fail(error, DEFT_INVALID, 0,
                                 "generations[%u]: bucket %u has link %u and delay %u, but the "
                                 "plan has %u links and at most %u boundaries of delay",
                                 g, b, from->links[b], from->delays[b], message->n_links,
                                 DSCHED_MAX_DELAY);
            }
            struct dsched_op *op = &plan->ops[(size_t)g * message->n_buckets + b];
            op->link = from->links[b];
            op->delay = from->delays[b];
        }
    }
    if (message->cycle != 0 && message->cycle != dsched_plan_cycle(plan)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "cycle: %u was stated, but the merges add up to %u", message->cycle,
                         dsched_plan_cycle(plan));
    }
    return DEFT_OK;
}

static void plan_hash_text(const struct dsched_plan *plan, char out[20]) {
    (void)snprintf(out, 20, "%016llx", (unsigned long long)dsched_plan_hash(plan));
}

enum deft_status wire_plan_from_message(struct wire_plan_message *message, struct dsched_plan *out,
                                        struct deft_error *error) {
    struct dsched_plan plan = {0};
    char hash[20];
    enum deft_status status = DEFT_OK;
    if (strcmp(message->schema, PLAN_SCHEMA) != 0) {
        return deft_fail(error, DEFT_INVALID, 0, "schema: '%s' was expected, not '%s'", PLAN_SCHEMA,
                         message->schema);
    }
    if (message->n_buckets == 0 || message->n_generations == 0) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "buckets, generations: a plan has at least one of each");
    }
    if (dsched_plan_init(&plan, message->n_buckets, message->n_generations) != DSCHED_OK) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a plan of %u buckets",
                         message->n_buckets);
    }
    status = plan_fill(message, &plan, error);
    if (status == DEFT_OK && message->hash[0] != '\0') {
        plan_hash_text(&plan, hash);
        if (strcmp(hash, message->hash) != 0) {
            status = deft_fail(error, DEFT_INVALID, 0, "hash: '%s' was stated, but the plan has %s",
                               message->hash, hash);
        }
    }
    if (status != DEFT_OK) {
        dsched_plan_done(&plan);
        return status;
    }
    *out = plan;
    return DEFT_OK;
}

/* Buckets are borrowed from the plan; generations and their arrays are the message's. */
static enum deft_status plan_to_message(const struct dsched_plan *plan,
                                        struct wire_plan_message *message,
                                        struct deft_error *error) {
    message->rule = plan->rule;
    message->n_links = plan->n_links;
    message->cycle = dsched_plan_cycle(plan);
    message->n_buckets = plan->n_buckets;
    message->buckets = plan->buckets;
    message->forecast = plan->forecast;
    plan_hash_text(plan, message->hash);
    message->generations = calloc(plan->n_generations, sizeof(*message->generations));
    if (message->generations == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to print a plan");
    }
    message->n_generations = plan->n_generations;
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        struct wire_generation *to = &message->generations[g];
        to->merge = plan->merge[g];
        to->links = malloc(plan->n_buckets);
        to->delays = malloc(plan->n_buckets);
        if (to->links == NULL || to->delays == NULL) {
            return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to print a plan");
        }
        to->n_links = plan->n_buckets;
        to->n_delays = plan->n_buckets;
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
            to->links[b] = dsched_plan_op(plan, g, b)->link;
            to->delays[b] = dsched_plan_op(plan, g, b)->delay;
        }
    }
    return DEFT_OK;
}

enum deft_status wire_plan_write(const struct dsched_plan *plan, const char *key,
                                 struct json_out *out, struct deft_error *error) {
    struct wire_plan_message message = {.schema = PLAN_SCHEMA};
    enum deft_status status = plan_to_message(plan, &message, error);
    if (status == DEFT_OK) {
        status = wire_shape_write(&wire_plan_shape, "the plan", key, &message, out, error);
    }
    message.buckets = NULL;
    wire_shape_done(&wire_plan_shape, &message);
    return status;
}

enum deft_status wire_plan_encode(const struct dsched_plan *plan, char **out,
                                  struct deft_error *error) {
    struct json_out text = {0};
    enum deft_status status = wire_plan_write(plan, NULL, &text, error);
    if (status != DEFT_OK) {
        json_out_done(&text);
        return status;
    }
    return json_out_finish(&text, out, error);
}

enum deft_status wire_plan_decode(const char *text, size_t n_bytes, struct dsched_plan *out,
                                  struct deft_error *error) {
    struct wire_plan_message message = {0};
    enum deft_status status =
        wire_shape_decode(&wire_plan_shape, "the plan", text, n_bytes, &message, error);
    if (status == DEFT_OK) {
        status = wire_plan_from_message(&message, out, error);
        wire_shape_done(&wire_plan_shape, &message);
    }
    return status;
}
