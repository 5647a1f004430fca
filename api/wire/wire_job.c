#include "wire_common.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/convergence.h>

/* A page of the jobs list. */
#define JOB_MAX_PAGE 1000

#define R struct wire_job
static const struct wire_field job_fields[] = {
    WIRE_ROW_TEXT(R, id, "id", 1),
    WIRE_ROW_TEXT(R, name, "name", 0),
    WIRE_ROW_TEXT(R, user, "user", 0),
    WIRE_ROW_TEXT(R, state, "state", 1),
    WIRE_ROW_TEXT(R, mode, "mode", 1),
    WIRE_ROW_TEXT(R, phase, "phase", 0),
    WIRE_ROW_TEXT(R, incarnation, "incarnation", 0),
    WIRE_ROW_UINT(R, n_ranks, "n_ranks", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, iterations, "iterations", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_TEXT(R, plan, "plan", 0),
    WIRE_ROW_UINT(R, plan_seq, "plan_seq", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_TEXT(R, rule, "rule", 0),
    WIRE_ROW_UINT(R, merge, "merge", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, delay, "delay", 0, 0, UINT32_MAX),
    WIRE_ROW_REAL(R, updates_per_step, "updates_per_step"),
    WIRE_ROW_INT(R, exact_step_ns, "exact_step_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, step_ns, "step_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, predicted_step_ns, "predicted_step_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_REAL(R, gain, "gain"),
    WIRE_ROW_REAL(R, predicted_gain, "predicted_gain"),
    WIRE_ROW_REAL(R, coverage, "coverage"),
    WIRE_ROW_UINT(R, n_switches, "n_switches", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_rollbacks, "n_rollbacks", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, n_ranks_heard, "n_ranks_heard", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, first_unheard, "first_unheard", 0, 0, UINT32_MAX),
    WIRE_ROW_UINT(R, max_merge, "max_merge", 0, 0, DSCHED_MAX_MERGE),
    WIRE_ROW_UINT(R, max_delay, "max_delay", 0, 0, DSCHED_MAX_DELAY),
    WIRE_ROW_REAL(R, epsilon, "epsilon"),
    WIRE_ROW_REAL(R, min_progress, "min_progress"),
    WIRE_ROW_REAL(R, loss_floor, "loss_floor"),
    WIRE_ROW_FLAG(R, frozen, "frozen"),
    WIRE_ROW_TEXT(R, pin, "pin", 0),
    WIRE_ROW_REAL(R, progress, "progress"),
    WIRE_ROW_REAL(R, noise_samples, "noise_samples"),
    WIRE_ROW_REAL(R, disagreement, "disagreement"),
    WIRE_ROW_REAL(R, loss, "loss"),
    WIRE_ROW_TEXT(R, loss_state, "loss_state", 0),
    WIRE_ROW_TEXT(R, status, "status", 0),
    WIRE_ROW_TEXT(R, decision, "decision", 0),
    WIRE_ROW_TEXT(R, registered_at, "registered_at", 0),
    WIRE_ROW_TEXT(R, updated_at, "updated_at", 0),
};
#undef R
static const struct wire_shape job_shape = WIRE_SHAPE(struct wire_job, job_fields, WIRE_KEYED);

static const struct wire_field jobs_fields[] = {
    WIRE_ROW_ARRAY(struct wire_jobs, jobs, n_jobs, "jobs", 1, JOB_MAX_PAGE, &job_shape),
    WIRE_ROW_UINT(struct wire_jobs, total, "total", 1, 0, WIRE_MAX_INTEGER),
};
static const struct wire_shape jobs_shape = WIRE_SHAPE(struct wire_jobs, jobs_fields, WIRE_KEYED);

#define R struct wire_decision
static const struct wire_field decision_fields[] = {
    WIRE_ROW_TEXT(R, at, "at", 0),
    WIRE_ROW_TEXT(R, kind, "kind", 1),
    WIRE_ROW_UINT(R, iteration, "iteration", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_UINT(R, plan_seq, "plan_seq", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, exact_step_ns, "exact_step_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, before_step_ns, "before_step_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, predicted_step_ns, "predicted_step_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_INT(R, measured_step_ns, "measured_step_ns", 0, 0, WIRE_MAX_INTEGER),
    WIRE_ROW_TEXT(R, reason, "reason", 1),
};
#undef R
static const struct wire_shape decision_shape =
    WIRE_SHAPE(struct wire_decision, decision_fields, WIRE_KEYED);

static const struct wire_field decisions_fields[] = {
    WIRE_ROW_ARRAY(struct wire_decisions, decisions, n_decisions, "decisions", 1, JOB_MAX_PAGE,
                   &decision_shape),
};
static const struct wire_shape decisions_shape =
    WIRE_SHAPE(struct wire_decisions, decisions_fields, WIRE_KEYED);

static const struct wire_field mode_fields[] = {
    WIRE_ROW_TEXT(struct wire_mode, mode, "mode", 1),
};
static const struct wire_shape mode_shape = WIRE_SHAPE(struct wire_mode, mode_fields, WIRE_KEYED);

static const struct wire_field limits_fields[] = {
    WIRE_ROW_UINT(struct wire_limits, max_merge, "max_merge", 1, 1, DSCHED_MAX_MERGE),
    WIRE_ROW_UINT(struct wire_limits, max_delay, "max_delay", 1, 0, DSCHED_MAX_DELAY),
    WIRE_ROW_REAL(struct wire_limits, epsilon, "epsilon"),
    WIRE_ROW_REAL(struct wire_limits, min_progress, "min_progress"),
    WIRE_ROW_REAL(struct wire_limits, loss_floor, "loss_floor"),
};
static const struct wire_shape limits_shape =
    WIRE_SHAPE(struct wire_limits, limits_fields, WIRE_KEYED);

enum deft_status wire_job_encode(const struct wire_job *in, char **out, struct deft_error *error) {
    return wire_shape_encode(&job_shape, "the job", in, out, error);
}

enum deft_status wire_job_decode(const char *text, size_t n_bytes, struct wire_job *out,
                                 struct deft_error *error) {
    return wire_shape_decode(&job_shape, "the job", text, n_bytes, out, error);
}

void wire_jobs_done(struct wire_jobs *jobs) {
    wire_shape_done(&jobs_shape, jobs);
}

enum deft_status wire_jobs_encode(const struct wire_jobs *in, char **out,
                                  struct deft_error *error) {
    return wire_shape_encode(&jobs_shape, "the list of jobs", in, out, error);
}

enum deft_status wire_jobs_decode(const char *text, size_t n_bytes, struct wire_jobs *out,
                                  struct deft_error *error) {
    return wire_shape_decode(&jobs_shape, "the list of jobs", text, n_bytes, out, error);
}

void wire_decisions_done(struct wire_decisions *decisions) {
    wire_shape_done(&decisions_shape, decisions);
}

enum deft_status wire_decisions_encode(const struct wire_decisions *in, char **out,
                                       struct deft_error *error) {
    return wire_shape_encode(&decisions_shape, "the list of decisions", in, out, error);
}

enum deft_status wire_decisions_decode(const char *text, size_t n_bytes, struct wire_decisions *out,
                                       struct deft_error *error) {
    return wire_shape_decode(&decisions_shape, "the list of decisions", text, n_bytes, out, error);
}

enum deft_status wire_mode_encode(const struct wire_mode *in, char **out,
                                  struct deft_error *error) {
    return wire_shape_encode(&mode_shape, "the mode", in, out, error);
}

enum deft_status wire_mode_decode(const char *text, size_t n_bytes, struct wire_mode *out,
                                  struct deft_error *error) {
    static const char *const names[] = {"off", "observe", "auto", NULL};
    struct wire_mode decoded = {0};
    enum deft_status status =
        wire_shape_decode(&mode_shape, "the mode", text, n_bytes, &decoded, error);
    if (status != DEFT_OK) {
        return status;
    }
    if (!wire_is_one_of(decoded.mode, names)) {
        return deft_fail(error, DEFT_INVALID, 0,
                         "mode: 'off', 'observe' or 'auto' was expected, not '%s'", decoded.mode);
    }
    *out = decoded;
    return DEFT_OK;
}

/* NaN: absent. */
static enum deft_status limits_check_share(const char *field, double share,
                                           struct deft_error *error) {
    if (share < 0 || share > 1) {
        return deft_fail(error, DEFT_INVALID, 0, "%s: 0..1 was expected, not %g", field, share);
    }
    return DEFT_OK;
}

static enum deft_status limits_check(const struct wire_limits *limits, struct deft_error *error) {
    enum deft_status status = limits_check_share("epsilon", limits->epsilon, error);
    return status == DEFT_OK ? limits_check_share("min_progress", limits->min_progress, error)
                             : status;
}

enum deft_status wire_limits_encode(const struct wire_limits *in, char **out,
                                    struct deft_error *error) {
    enum deft_status status = limits_check(in, error);
    return status == DEFT_OK ? wire_shape_encode(&limits_shape, "the limits", in, out, error)
                             : status;
}

enum deft_status wire_limits_decode(const char *text, size_t n_bytes, struct wire_limits *out,
                                    struct deft_error *error) {
    struct wire_limits limits = {0};
    enum deft_status status =
        wire_shape_decode(&limits_shape, "the limits", text, n_bytes, &limits, error);
    if (status == DEFT_OK) {
        status = limits_check(&limits, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    if (isnan(limits.epsilon)) {
        limits.epsilon = DSCHED_DEFAULT_EPSILON_FRAC;
    }
    if (isnan(limits.min_progress)) {
        limits.min_progress = DSCHED_DEFAULT_FLOOR_FRAC;
    }
    *out = limits;
    return DEFT_OK;
}
