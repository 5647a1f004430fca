#include "tuning/tuner_compare.h"

#include <inttypes.h>
#include <stdio.h>

void tuner_compare_later(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    if (state->guard_every == 0) {
        state->guard_every = core->config->n_guard;
    }
    state->is_paired = 0;
    state->guard_at = state->iteration + state->guard_every;
    state->guard_every = state->guard_every < core->config->n_guard_most / 2
                             ? state->guard_every * 2
                             : core->config->n_guard_most;
}

void tuner_compare_commit(struct tuner_call *core, const char *guard) {
    struct tuner_state *state = core->state;
    state->phase = TUNER_COMMITTED;
    state->is_committed = 1;
    state->backoff = 0;
    state->wait_until = state->iteration + core->config->n_dwell;
    tuner_compare_later(core);
    int64_t gain =
        tuner_core_gain_ppm((double)state->before_step_ns, (double)state->canary_step_ns);
    tuner_core_decide(
        core, TUNER_COMMIT,
        "the step takes %.3f ms instead of %.3f ms (%+.1f %%), predicted were %.3f ms; "
        "%.200s",
        tuner_core_ms(state->canary_step_ns), tuner_core_ms(state->before_step_ns),
        (double)gain / 1e4, tuner_core_ms(state->running.predicted_step_ns), guard);
    core->out->measured_step_ns = state->canary_step_ns;
}

static void compare_begin(struct tuner_call *core, const char *why) {
    struct tuner_state *state = core->state;
    state->guarded = state->running;
    tuner_core_decide(core, TUNER_COMPARE,
                      "exact runs for a window, to compare how the loss falls under plan %" PRIu64
                      " and without it%s",
                      state->running.seq, why);
    tuner_core_go(core, &tuner_core_builtin, TUNER_COMPARING);
}

static void compare_resume(struct tuner_call *core, const char *why) {
    tuner_core_decide(core, TUNER_RESUME, "plan %" PRIu64 " goes on: %.200s",
                      core->state->guarded.seq, why);
    tuner_core_go(core, &core->state->guarded, TUNER_RESUMING);
}

/* The loss, or the gradient, says that the plan hurts. */
static void compare_step_back(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    const struct tuner_plan *plan = state->running.is_exact ? &state->guarded : &state->running;
    int broken = core->evidence->drift == DSCHED_DRIFT_BROKEN;
    int is_last = ++state->n_step_backs >= TUNER_MAX_STEP_BACKS;
    tuner_core_forbid_merge(state, plan);
    tuner_core_dwell(core);
    tuner_core_decide(core, is_last ? TUNER_HALT : TUNER_ROLL_BACK,
                      "under plan %" PRIu64 " %s (z = %.1f; %.200s): back to exact%s", plan->seq,
                      broken ? "a loss or gradient is not finite or far above its average"
                             : "the loss falls more slowly than under exact",
                      core->evidence->drift_z, core->evidence->text,
                      is_last ? ", and this start is left alone" : "");
    tuner_core_go_back(core, &tuner_core_builtin);
    if (is_last) {
        state->phase = TUNER_HALTED;
    }
}

int tuner_compare_waits_for_loss(const struct tuner_evidence *evidence) {
    return evidence->loss_state == DSCHED_LOSS_UNSETTLED ||
           (evidence->loss_state == DSCHED_LOSS_BROKEN &&
            !(evidence->loss_breaks && evidence->loss > 0));
}

void tuner_compare_start_triple(struct tuner_call *core) {
    core->state->is_paired = 1;
    core->state->n_triples = core->evidence->n_triples;
}

void tuner_compare_commit_uncompared(struct tuner_call *core) {
    char text[256];
    (void)snprintf(text, sizeof(text), "its losses were not compared: %.200s",
                   core->evidence->text);
    tuner_compare_commit(core, text);
}

static void compare_canary(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    const struct tuner_evidence *evidence = core->evidence;
    if (!state->is_real || tuner_compare_waits_for_loss(evidence) ||
        evidence->loss_state == DSCHED_LOSS_FEW) { /* after a restart, and soon enough */
        return;
    }
    if (evidence->loss_state != DSCHED_LOSS_FINE) {
        tuner_compare_commit_uncompared(core);
    } else if (!state->is_paired) {
        tuner_compare_start_triple(core); /* after a restart of the controller */
    } else if (evidence->wants == DSCHED_DRIFT_EXACT) {
        compare_begin(core, "");
    }
}

static void compare_committed(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    const struct tuner_evidence *evidence = core->evidence;
    if (state->guard_at == 0) { /* committed by a controller that knew no guard */
        state->is_committed = 1;
        tuner_compare_later(core);
    }
    if (evidence->loss_state != DSCHED_LOSS_FINE) {
        if (state->is_paired) {
            tuner_compare_later(core);
        }
        return;
    }
    int is_alarmed = evidence->loss_rises &&
                     state->iteration >= state->pushed_iteration + core->config->n_guard / 4;
    if (state->is_paired) {
        if (evidence->wants == DSCHED_DRIFT_EXACT) {
            compare_begin(core, "");
        }
    } else if (state->iteration >= state->guard_at || is_alarmed) {
        tuner_compare_start_triple(core);
        compare_begin(core, is_alarmed ? ": the loss has risen" : "");
    }
}

static void compare_comparing(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    const struct tuner_evidence *evidence = core->evidence;
    char text[256];
    if (state->running.seq != state->pushed.seq) {
        return;
    }
    if (!state->is_paired) {
        if (!state->is_committed) {
            tuner_compare_start_triple(core);
        }
        compare_resume(core, "the comparison was cut short");
    } else if (evidence->n_triples != state->n_triples) {
        (void)snprintf(text, sizeof(text), "the loss falls as it does under exact (z = %.1f)",
                       evidence->drift_z);
        tuner_compare_later(core);
        compare_resume(core, text);
    } else if (evidence->loss_state != DSCHED_LOSS_FINE) {
        (void)snprintf(text, sizeof(text), "losses cannot be compared: %.200s", evidence->text);
        tuner_compare_later(core);
        compare_resume(core, text);
    } else if (evidence->wants == DSCHED_DRIFT_PLAN) {
        compare_resume(core, "its own window comes next");
    }
}

void tuner_compare_look(struct tuner_call *core) {
    const struct tuner_evidence *evidence = core->evidence;
    struct tuner_state *state = core->state;
    if (state->is_paired &&
        (evidence->drift == DSCHED_DRIFT_DRIFTING || evidence->drift == DSCHED_DRIFT_BROKEN)) {
        compare_step_back(core);
        return;
    }
    switch (state->phase) {
    case TUNER_CANARY:
        compare_canary(core);
        break;
    case TUNER_COMMITTED:
        compare_committed(core);
        break;
    case TUNER_COMPARING:
        compare_comparing(core);
        break;
    default:
        break;
    }
}
