#include "tuning/tuner_state.h"

#include <stdlib.h>
#include <string.h>

#include "wire/wire_shape.h"

static const char *const event_names[] = {"iteration", "solution", "refusal", "fuse",
                                          "mode",      "hold",     NULL};
static const char *const loss_names[] = {"absent",  "fine",   "few",       "constant", "sparse",
                                         "missing", "broken", "unsettled", "stepped",  NULL};
static const char *const drift_names[] = {"undecided", "fine", "drifting", "broken", NULL};
static const char *const label_names[] = {"exact", "plan", NULL};

#define R struct tuner_plan
static const struct wire_field plan_fields[] = {
    WIRE_ROW_UINT(R, seq, "seq", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_HEX(R, hash, "hash", 1),
    WIRE_ROW_UINT(R, rule, "rule", 1, 0, DSCHED_N_RULES - 1),
    WIRE_ROW_UINT(R, cycle, "cycle", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, merge, "merge", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, delay, "delay", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, updates_ppm, "updates_ppm", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, progress_ppm, "progress_ppm", 0, 0, UINT32_MAX),
    WIRE_ROW_FLAG(R, is_exact, "is_exact"),
    WIRE_ROW_INT(R, predicted_step_ns, "predicted_step_ns", 1, 0, WIRE_MAX_INTEGER),
};
#undef R
static const struct wire_shape plan_shape = WIRE_SHAPE(struct tuner_plan, plan_fields, WIRE_KEYED);

#define R struct tuner_state
static const struct wire_field state_fields[] = {
    WIRE_ROW_NAME(R, mode, "mode", 0, tuner_mode_names),
    WIRE_ROW_NAME(R, phase, "phase", 1, tuner_phase_names),
    WIRE_ROW_UINT(R, next_seq, "next_seq", 1, 1, WIRE_MAX_INTEGER),
    WIRE_ROW_OBJECT(R, running, "running", 1, &plan_shape),
    WIRE_ROW_OBJECT(R, previous, "previous", 1, &plan_shape),
    WIRE_ROW_OBJECT(R, pushed, "pushed", 1, &plan_shape),
    WIRE_ROW_OBJECT(R, guarded, "guarded", 0, &plan_shape),
    WIRE_ROW_UINT(R, iteration, "iteration", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, n_iterations, "n_iterations", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, pushed_iteration, "pushed_iteration", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, wait_until, "wait_until", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_HEX(R, failed_hash, "failed_hash", 1),
    WIRE_ROW_HEX(R, pin_hash, "pin_hash", 0),
    WIRE_ROW_UINT(R, guard_at, "guard_at", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, n_triples, "n_triples", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, guard_every, "guard_every", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, backoff, "backoff", 1, 0, 63),
    WIRE_ROW_UINT(R, n_switches, "n_switches", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_rollbacks, "n_rollbacks", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_step_backs, "n_step_backs", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, most_merge, "most_merge", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_drift, "n_drift", 0, 0, UINT32_MAX),
    WIRE_ROW_FLAG(R, is_frozen, "is_frozen"),
    WIRE_ROW_FLAG(R, may_retry, "may_retry"),
    WIRE_ROW_FLAG(R, refined, "refined"),
    WIRE_ROW_FLAG(R, is_real, "is_real"),
    WIRE_ROW_FLAG(R, previous_on_trial, "previous_on_trial"),
    WIRE_ROW_FLAG(R, is_committed, "is_committed"),
    WIRE_ROW_FLAG(R, is_paired, "is_paired"),
    WIRE_ROW_FLAG(R, finite_loss, "finite_loss"),
    WIRE_ROW_INT(R, exact_step_ns, "exact_step_ns", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, before_step_ns, "before_step_ns", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, step_ns, "step_ns", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, canary_step_ns, "canary_step_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, reference_step_ns, "reference_step_ns", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, best_step_ns, "best_step_ns", 1, 0, WIRE_MAX_INTEGER),
};
#undef R
static const struct wire_shape state_shape =
    WIRE_SHAPE(struct tuner_state, state_fields, WIRE_KEYED);

/* --- what a restart keeps --------------------------------------------------------------------- */

#define R struct dsched_noise
static const struct wire_field noise_fields[] = {
    WIRE_ROW_REAL(R, weight, "weight"),
    WIRE_ROW_REAL(R, weight2, "weight2"),
    WIRE_ROW_REAL(R, gradient_norm2, "gradient_norm2"),
    WIRE_ROW_REAL(R, trace, "trace"),
    WIRE_ROW_REAL(R, moment_gg, "moment_gg"),
    WIRE_ROW_REAL(R, moment_tt, "moment_tt"),
    WIRE_ROW_REAL(R, moment_gt, "moment_gt"),
    WIRE_ROW_UINT(R, n_used, "n_used", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, n_broken, "n_broken", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, n_single, "n_single", 0, 0, WIRE_MAX_INTEGER),
};
#undef R
static const struct wire_shape noise_shape =
    WIRE_SHAPE(struct dsched_noise, noise_fields, WIRE_KEYED);

#define R struct tuner
static const struct wire_field tuner_fields[] = {
    WIRE_ROW_OBJECT(R, state, "state", 1, &state_shape),
    WIRE_ROW_UINT(R, n_triples, "n_triples", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_OBJECT(R, quantify.noise, "noise", 0, &noise_shape),
    WIRE_ROW_OBJECT(R, quantify.disagreement.noise, "disagreement", 0, &noise_shape),
    WIRE_ROW_UINT(R, quantify.disagreement.n_ranks, "disagreement_ranks", 0, 0, UINT32_MAX),
    WIRE_ROW_REAL(R, quantify.grad_sq, "grad_sq"),
    WIRE_ROW_UINT(R, quantify.n_grad_sq, "n_grad_sq", 0, 0, WIRE_MAX_INTEGER),
};
#undef R
static const struct wire_shape tuner_shape = WIRE_SHAPE(struct tuner, tuner_fields, WIRE_KEYED);

enum deft_status tuner_state_encode(const struct tuner *tuner, char **out,
                                    struct deft_error *error) {
    return wire_shape_encode(&tuner_shape, "the tuner's state", tuner, out, error);
}

enum deft_status tuner_state_decode(const char *text, struct tuner *tuner,
                                    struct deft_error *error) {
    if (text[0] == '\0') {
        return DEFT_OK;
    }
    struct tuner *restored = calloc(1, sizeof(*restored));
    if (restored == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a tuner");
    }
    enum deft_status status =
        wire_shape_decode(&tuner_shape, "the tuner's state", text, strlen(text), restored, error);
    if (status == DEFT_OK) {
        restored->state.mode = tuner->state.mode;
        restored->state.is_frozen = tuner->state.is_frozen;
        restored->state.pin_hash = tuner->state.pin_hash;
        tuner->state = restored->state;
        tuner->n_triples = restored->n_triples;
        tuner->quantify.noise = restored->quantify.noise;
        tuner->quantify.disagreement = restored->quantify.disagreement;
        tuner->quantify.grad_sq = restored->quantify.grad_sq;
        tuner->quantify.n_grad_sq = restored->quantify.n_grad_sq;
    }
    free(restored);
    return status;
}

/* --- what a decision is made of --------------------------------------------------------------- */

#define R struct tuner_config
static const struct wire_field config_fields[] = {
    WIRE_ROW_UINT(R, n_skip, "n_skip", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_warmup, "n_warmup", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_observe, "n_observe", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_settle, "n_settle", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_window, "n_window", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_dwell, "n_dwell", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_switch_timeout, "n_switch_timeout", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_guard, "n_guard", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_guard_most, "n_guard_most", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, min_predicted_ppm, "min_predicted_ppm", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, min_measured_ppm, "min_measured_ppm", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, refine_ppm, "refine_ppm", 1, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, drift_ppm, "drift_ppm", 1, 0, UINT32_MAX),
};
#undef R
static const struct wire_shape config_shape =
    WIRE_SHAPE(struct tuner_config, config_fields, WIRE_KEYED);

#define R struct tuner_evidence
static const struct wire_field evidence_fields[] = {
    WIRE_ROW_NAME(R, event, "event", 1, event_names),
    WIRE_ROW_UINT(R, iteration, "iteration", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, plan_seq, "plan_seq", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, step_ns, "step_ns", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, loss, "loss", 1, -1, 1),
    WIRE_ROW_NAME(R, loss_state, "loss_state", 1, loss_names),
    WIRE_ROW_FLAG(R, loss_breaks, "loss_breaks"),
    WIRE_ROW_FLAG(R, rate_rises, "rate_rises"),
    WIRE_ROW_FLAG(R, loss_rises, "loss_rises"),
    WIRE_ROW_NAME(R, drift, "drift", 1, drift_names),
    WIRE_ROW_NAME(R, wants, "wants", 1, label_names),
    WIRE_ROW_UINT(R, n_triples, "n_triples", 1, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_REAL(R, drift_z, "drift_z"),
    WIRE_ROW_FLAG(R, has_proposal, "has_proposal"),
    WIRE_ROW_OBJECT(R, proposal, "proposal", 1, &plan_shape),
    WIRE_ROW_INT(R, running_ns, "running_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_NAME(R, mode, "mode", 1, tuner_mode_names),
    WIRE_ROW_FLAG(R, is_frozen, "is_frozen"),
    WIRE_ROW_HEX(R, pin_hash, "pin_hash", 0),
    WIRE_ROW_TEXT(R, text, "text", 1),
};
#undef R
static const struct wire_shape evidence_shape =
    WIRE_SHAPE(struct tuner_evidence, evidence_fields, WIRE_KEYED);

#define R struct tuner_inputs
static const struct wire_field inputs_fields[] = {
    WIRE_ROW_OBJECT(R, config, "config", 1, &config_shape),
    WIRE_ROW_OBJECT(R, before, "before", 1, &state_shape),
    WIRE_ROW_OBJECT(R, evidence, "evidence", 1, &evidence_shape),
};
#undef R
static const struct wire_shape inputs_shape =
    WIRE_SHAPE(struct tuner_inputs, inputs_fields, WIRE_KEYED);

enum deft_status tuner_inputs_encode(const struct tuner_config *config,
                                     const struct tuner_decision *decision, char **out,
                                     struct deft_error *error) {
    const struct tuner_inputs inputs = {
        .config = *config, .before = decision->before, .evidence = decision->evidence};
    return wire_shape_encode(&inputs_shape, "a decision's inputs", &inputs, out, error);
}

enum deft_status tuner_inputs_decode(const char *text, size_t n_bytes, struct tuner_inputs *out,
                                     struct deft_error *error) {
    return wire_shape_decode(&inputs_shape, "a decision's inputs", text, n_bytes, out, error);
}
