#include "wire_common.h"

#include <stdlib.h>
#include <string.h>

#define SOLVE_SCHEMA "deft.solve/1"

struct solve_row {
    enum dsched_rule rule;
    uint32_t n_merges;
    uint32_t *merges; /* of merge 1 and up */
    uint32_t n_delays;
    uint32_t *delays; /* of delay 0 and up */
};
struct solve_message {
    char schema[32];
    struct dsched_planner_options options;
    uint32_t n_rows;
    struct solve_row *rows;
    struct wire_profile_message profile;
};

static const struct wire_field ppm_fields[] = {
    {.kind = WIRE_UINT, .size = sizeof(uint32_t), .max = UINT32_MAX},
};
static const struct wire_shape ppm_shape = WIRE_SHAPE(uint32_t, ppm_fields, WIRE_BARE);

#define R struct solve_row
static const struct wire_field row_fields[] = {
    WIRE_ROW_NAME(R, rule, "rule", 1, wire_rule_names),
    WIRE_ROW_ARRAY(R, merges, n_merges, "merge", 1, DSCHED_MAX_MERGE, &ppm_shape),
    WIRE_ROW_ARRAY(R, delays, n_delays, "delay", 1, DSCHED_MAX_DELAY + 1, &ppm_shape),
};
#undef R
static const struct wire_shape row_shape = WIRE_SHAPE(struct solve_row, row_fields, WIRE_KEYED);

#define R struct solve_message
static const struct wire_field solve_fields[] = {
    WIRE_ROW_TEXT(R, schema, "schema", 1),
    WIRE_ROW_UINT(R, options.rules, "rules", 1, 0, DSCHED_RULE_BIT(DSCHED_N_RULES) - 1),
    WIRE_ROW_UINT(R, options.max_merge, "max_merge", 1, 1, DSCHED_MAX_MERGE),
    WIRE_ROW_UINT(R, options.max_delay, "max_delay", 1, 0, DSCHED_MAX_DELAY),
    WIRE_ROW_UINT(R, options.max_pending_bytes, "max_pending_bytes", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, options.jitter_ppm, "jitter_ppm", 1, 0, 1000000),
    WIRE_ROW_UINT(R, options.tolerance_ppm, "tolerance_ppm", 1, 0, 1000000),
    WIRE_ROW_ARRAY(R, rows, n_rows, "progress", 0, DSCHED_N_RULES, &row_shape),
    WIRE_ROW_OBJECT(R, profile, "profile", 1, &wire_profile_shape),
};
#undef R
static const struct wire_shape solve_shape =
    WIRE_SHAPE(struct solve_message, solve_fields, WIRE_KEYED);

void wire_solve_done(struct wire_solve *solve) {
    if (solve != NULL) {
        dsched_profile_done(&solve->profile);
        memset(solve, 0, sizeof(*solve));
    }
}

static uint32_t solve_used(const uint32_t *values, uint32_t n) {
    while (n > 0 && values[n - 1] == 0) {
        n--;
    }
    return n;
}

enum deft_status wire_solve_encode(const struct dsched_profile *profile,
                                   const struct dsched_planner_options *options, char **out,
                                   struct deft_error *error) {
    struct solve_row rows[DSCHED_N_RULES];
    struct dsched_progress progress; /* the walk writes through pointers to plain members */
    struct solve_message message = {
        .schema = SOLVE_SCHEMA,
        .options = *options,
        .profile = {.schema = WIRE_PROFILE_SCHEMA, .profile = *profile}};
    if (options->progress != NULL) {
        progress = *options->progress;
        for (uint32_t r = 0; r < DSCHED_N_RULES; r++) {
            rows[r] = (struct solve_row){
                .rule = (enum dsched_rule)r,
                .n_merges = solve_used(progress.merge_ppm[r] + 1, DSCHED_MAX_MERGE),
                .merges = progress.merge_ppm[r] + 1,
                .n_delays = solve_used(progress.delay_ppm[r], DSCHED_MAX_DELAY + 1),
                .delays = progress.delay_ppm[r],
            };
        }
        message.n_rows = DSCHED_N_RULES;
        message.rows = rows;
    }
    return wire_shape_encode(&solve_shape, "the problem", &message, out, error);
}

/* A second row of a rule would undo the first in silence. */
static enum deft_status solve_check_rows(const struct solve_message *message,
                                         struct deft_error *error) {
    uint32_t rules = 0;
    for (uint32_t i = 0; i < message->n_rows; i++) {
        uint32_t bit = DSCHED_RULE_BIT(message->rows[i].rule);
        if ((rules & bit) != 0) {
            return deft_fail(error, DEFT_INVALID, 0, "progress[%u].rule: '%s' was there before", i,
                             wire_rule_names[message->rows[i].rule]);
        }
        rules |= bit;
    }
    return DEFT_OK;
}

enum deft_status wire_solve_decode(const char *text, size_t n_bytes, struct wire_solve *out,
                                   struct deft_error *error) {
    struct solve_message message = {0};
    enum deft_status status =
        wire_shape_decode(&solve_shape, "the problem", text, n_bytes, &message, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (strcmp(message.schema, SOLVE_SCHEMA) != 0) {
        status = deft_fail(error, DEFT_INVALID, 0, "schema: '%s' was expected, not '%s'",
                           SOLVE_SCHEMA, message.schema);
    } else {
        status = wire_profile_check(&message.profile, error);
    }
    if (status == DEFT_OK) {
        status = solve_check_rows(&message, error);
    }
    if (status == DEFT_OK) {
        memset(out, 0, sizeof(*out));
        out->options = message.options;
        out->options.progress = message.n_rows > 0 ? &out->progress : NULL;
        for (uint32_t i = 0; i < message.n_rows; i++) {
            const struct solve_row *row = &message.rows[i];
            if (row->n_merges > 0) {
                memcpy(out->progress.merge_ppm[row->rule] + 1, row->merges,
                       row->n_merges * sizeof(*row->merges));
            }
            if (row->n_delays > 0) {
                memcpy(out->progress.delay_ppm[row->rule], row->delays,
                       row->n_delays * sizeof(*row->delays));
            }
        }
        out->profile = message.profile.profile;
        memset(&message.profile.profile, 0, sizeof(message.profile.profile));
    }
    wire_shape_done(&solve_shape, &message);
    return status;
}
