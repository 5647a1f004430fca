#include "tuning/tuner_state.h"

#include <string.h>

#include "wire/wire_shape.h"

static const char *const phase_names[] = {"observing", "solving",   "switching", "canary",
                                          "committed", "returning", "halted",    NULL};

#define R struct tuner_plan
static const struct wire_field plan_fields[] = {
    WIRE_ROW_UINT(R, seq, "seq", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_HEX(R, hash, "hash", 1),
    WIRE_ROW_UINT(R, rule, "rule", 1, 0, DSCHED_N_RULES - 1),
    WIRE_ROW_UINT(R, cycle, "cycle", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, merge, "merge", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, delay, "delay", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, updates_ppm, "updates_ppm", 1, 0, UINT32_MAX),
    WIRE_ROW_FLAG(R, is_exact, "is_exact"),
    WIRE_ROW_INT(R, predicted_step_ns, "predicted_step_ns", 1, 0, WIRE_MAX_INTEGER),
};
#undef R
static const struct wire_shape plan_shape = WIRE_SHAPE(struct tuner_plan, plan_fields, WIRE_KEYED);

#define R struct tuner
static const struct wire_field state_fields[] = {
    WIRE_ROW_NAME(R, phase, "phase", 1, phase_names),
    WIRE_ROW_UINT(R, next_seq, "next_seq", 1, 1, WIRE_MAX_INTEGER),
    WIRE_ROW_OBJECT(R, running, "running", 1, &plan_shape),
    WIRE_ROW_OBJECT(R, previous, "previous", 1, &plan_shape),
    WIRE_ROW_OBJECT(R, pushed, "pushed", 1, &plan_shape),
    WIRE_ROW_UINT(R, iteration, "iteration", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, pushed_iteration, "pushed_iteration", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, wait_until, "wait_until", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_HEX(R, failed_hash, "failed_hash", 1),
    WIRE_ROW_UINT(R, backoff, "backoff", 1, 0, 63),
    WIRE_ROW_UINT(R, n_switches, "n_switches", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_rollbacks, "n_rollbacks", 1, 0, UINT32_MAX),
    WIRE_ROW_FLAG(R, refined, "refined"),
    WIRE_ROW_FLAG(R, finite_loss, "finite_loss"),
    WIRE_ROW_INT(R, exact_step_ns, "exact_step_ns", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, before_step_ns, "before_step_ns", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, step_ns, "step_ns", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, reference_step_ns, "reference_step_ns", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, best_step_ns, "best_step_ns", 1, 0, WIRE_MAX_INTEGER),
};
#undef R
static const struct wire_shape state_shape = WIRE_SHAPE(struct tuner, state_fields, WIRE_KEYED);

enum deft_status tuner_state_encode(const struct tuner *tuner, char **out,
                                    struct deft_error *error) {
    return wire_shape_encode(&state_shape, "the tuner's state", tuner, out, error);
}

enum deft_status tuner_state_decode(const char *text, struct tuner *tuner,
                                    struct deft_error *error) {
    struct tuner restored = {0};
    if (text[0] == '\0') {
        return DEFT_OK;
    }
    enum deft_status status =
        wire_shape_decode(&state_shape, "the tuner's state", text, strlen(text), &restored, error);
    if (status == DEFT_OK) {
        restored.config = tuner->config;
        restored.mode = tuner->mode;
        *tuner = restored;
    }
    return status;
}
