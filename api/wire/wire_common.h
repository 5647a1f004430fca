/* Shapes that several messages share. */
#ifndef WIRE_COMMON_H
#define WIRE_COMMON_H

#include <dsched/plan.h>
#include <dsched/profile.h>
#include <dsched/simulate.h>

#include "wire.h"
#include "wire_shape.h"

extern const char *const wire_rule_names[];       /* by enum dsched_rule */
extern const char *const wire_dtype_names[];      /* by enum dsched_dtype */
extern const struct wire_shape wire_sample_shape; /* [bytes, ns] */

/* A plan as it travels: generations own their links and delays. */
struct wire_generation {
    uint16_t merge;
    uint32_t n_links;
    uint8_t *links;
    uint32_t n_delays;
    uint8_t *delays;
};
struct wire_plan_message {
    char schema[32];
    enum dsched_rule rule;
    uint32_t n_links;
    uint32_t cycle; /* 0: not stated */
    uint32_t n_buckets;
    struct dsched_bucket *buckets;
    uint32_t n_generations;
    struct wire_generation *generations;
    struct dsched_forecast forecast;
    char hash[20]; /* "": not stated */
};
extern const struct wire_shape wire_plan_shape;

/* Leaves the message empty of what the plan takes over; the message must still be released. */
DEFT_NODISCARD enum deft_status wire_plan_from_message(struct wire_plan_message *message,
                                                       struct dsched_plan *out,
                                                       struct deft_error *error);
DEFT_NODISCARD enum deft_status wire_plan_write(const struct dsched_plan *plan, const char *key,
                                                struct json_out *out, struct deft_error *error);

#define WIRE_PROFILE_SCHEMA "deft.profile/1"
struct wire_profile_message {
    char schema[32];
    struct dsched_profile profile;
};
extern const struct wire_shape wire_profile_shape;
/* After decoding: the schema's name, and what dsched_profile_check finds. */
DEFT_NODISCARD enum deft_status wire_profile_check(const struct wire_profile_message *message,
                                                   struct deft_error *error);

/* "report": what a simulation came to. */
void wire_figures_write(const struct dsched_report *report, uint32_t n_links, struct json_out *out);

/* 1 when `text` is one of the NULL-terminated names. */
int wire_is_one_of(const char *text, const char *const *names);

/* Status of the scheduling library in our terms. */
enum deft_status wire_from_dsched(enum dsched_status status, const struct dsched_error *from,
                                  struct deft_error *error);

#endif
