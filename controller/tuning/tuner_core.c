#include "tuning/tuner_core.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tuning/tuner_compare.h"
#include "tuning/tuner_solution.h"

/* Backing off further than 2^5 dwells would outlast most jobs. */
#define TUNER_MAX_BACKOFF 5u
/* Drift must be seen in this many measurements in a row. */
#define TUNER_DRIFT_LOOKS 2u

const struct tuner_plan tuner_core_builtin = {.rule = DSCHED_EXACT,
                                              .cycle = 1,
                                              .merge = 1,
                                              .updates_ppm = 1000000,
                                              .progress_ppm = 1000000,
                                              .is_exact = 1};

void tuner_state_init(struct tuner_state *state, enum tuner_mode mode) {
    memset(state, 0, sizeof(*state));
    state->mode = mode;
    state->next_seq = 1;
    state->running = state->previous = state->pushed = state->guarded = tuner_core_builtin;
}

/* --- decisions -------------------------------------------------------------------------------- */

void tuner_core_decide(struct tuner_call *core, enum tuner_kind kind, const char *format, ...) {
    const struct tuner_state *state = core->state;
    struct tuner_decision *out = core->out;
    va_list arguments;
    out->kind = kind;
    out->iteration = state->iteration;
    out->plan_seq = state->running.seq;
    out->exact_step_ns = state->exact_step_ns;
    out->before_step_ns = state->before_step_ns;
    out->predicted_step_ns = state->running.predicted_step_ns;
    out->measured_step_ns = state->step_ns;
    va_start(arguments, format);
    (void)vsnprintf(out->reason, sizeof(out->reason), format, arguments);
    va_end(arguments);
}

double tuner_core_ms(int64_t ns) {
    return (double)ns / 1e6;
}

double tuner_core_cost_ns(int64_t step_ns, const struct tuner_plan *plan) {
    return (double)step_ns * 1e6 / (plan->progress_ppm > 0 ? plan->progress_ppm : 1000000);
}

int64_t tuner_core_gain_ppm(double before_ns, double after_ns) {
    double gain = after_ns > 0 ? before_ns / after_ns * 1e6 + 0.5 : 1e6;
    return (gain < 1e15 ? (int64_t)gain : INT64_C(1000000000000000)) - 1000000;
}

static int64_t core_stretch(int64_t ns, uint32_t ppm) {
    return ns + (int64_t)((double)ns * ppm / 1e6);
}

enum tuner_phase tuner_core_rest(const struct tuner_state *state) {
    if (state->running.is_exact) {
        return TUNER_OBSERVING;
    }
    return state->is_committed ? TUNER_COMMITTED : TUNER_CANARY;
}

/* The plan is not tried again, unless another one fails after it or an operator pins it. */
static void core_forbid(struct tuner_state *state, const struct tuner_plan *plan) {
    state->failed_hash = plan->hash;
    state->may_retry = 0;
}

void tuner_core_forbid_merge(struct tuner_state *state, const struct tuner_plan *plan) {
    core_forbid(state, plan);
    if (plan->merge > 1 && (state->most_merge == 0 || plan->merge <= state->most_merge)) {
        state->most_merge = plan->merge - 1;
    }
}

void tuner_core_dwell(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    state->wait_until = state->iteration + ((uint64_t)core->config->n_dwell << state->backoff);
    if (state->backoff < TUNER_MAX_BACKOFF) {
        state->backoff++;
    }
}

void tuner_core_go(struct tuner_call *core, const struct tuner_plan *plan, enum tuner_phase phase) {
    struct tuner_state *state = core->state;
    state->pushed = *plan;
    state->pushed.seq = state->next_seq++;
    state->pushed_iteration = state->iteration;
    state->phase = phase;
    core->out->plan_seq = state->pushed.seq;
    core->out->target_seq = plan->is_exact ? 0 : plan->seq;
    core->out->predicted_step_ns = plan->predicted_step_ns;
}

void tuner_core_go_back(struct tuner_call *core, const struct tuner_plan *target) {
    core->state->n_rollbacks++;
    core->state->is_paired = 0;
    core->state->is_committed = 0;
    core->state->guard_at = 0;
    tuner_core_go(core, target->is_exact ? &tuner_core_builtin : target, TUNER_RETURNING);
}

int tuner_core_is_pinned(const struct tuner_state *state, const struct tuner_plan *plan) {
    return state->mode == TUNER_AUTO && state->pin_hash != 0 && plan->hash == state->pin_hash;
}

/* A pinned plan is asked for until it runs or has been left; beside it, and in a frozen job,
 * nothing is looked for. Mode observe changes nothing and may say what it likes. */
static int core_may_ask(const struct tuner_state *state) {
    if (state->mode == TUNER_AUTO && state->pin_hash != 0) {
        return state->running.hash != state->pin_hash && state->failed_hash != state->pin_hash;
    }
    return state->mode == TUNER_OBSERVE || !state->is_frozen;
}

static void core_ask(struct tuner_call *core) {
    if (core->state->phase != TUNER_CANARY) {
        core->state->before_step_ns = core->state->step_ns;
    }
    core->state->phase = TUNER_SOLVING;
    tuner_core_decide(core, TUNER_SOLVE, "solve");
}

/* --- measurements ----------------------------------------------------------------------------- */

/* The canary is faster. Is it the best that can be had, now that its own iterations are known? */
static void core_refine(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    int64_t predicted_ns = state->running.predicted_step_ns;
    uint32_t ppm = core->config->refine_ppm;
    if (!state->refined && core_may_ask(state) && predicted_ns > 0 &&
        (state->step_ns > core_stretch(predicted_ns, ppm) ||
         core_stretch(state->step_ns, ppm) < predicted_ns)) {
        state->refined = 1;
        core_ask(core);
    }
}

static void core_judge(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    int64_t gain = tuner_core_gain_ppm(tuner_core_cost_ns(state->before_step_ns, &state->previous),
                                       tuner_core_cost_ns(state->step_ns, &state->running));
    if (gain >= (int64_t)core->config->min_measured_ppm ||
        tuner_core_is_pinned(state, &state->running)) {
        state->is_real = 1;
        state->canary_step_ns = state->step_ns;
        state->reference_step_ns = state->step_ns;
        core_refine(core);
        return;
    }
    /* Machines have bad moments. */
    state->may_retry = state->failed_hash != state->running.hash;
    state->failed_hash = state->running.hash;
    tuner_core_dwell(core);
    tuner_core_decide(
        core, TUNER_ROLL_BACK,
        "the step takes %.3f ms instead of %.3f ms (%+.1f %% with its price in samples) "
        "although %.3f ms were predicted: the gain is not real",
        tuner_core_ms(state->step_ns), tuner_core_ms(state->before_step_ns), (double)gain / 1e4,
        tuner_core_ms(state->running.predicted_step_ns));
    tuner_core_go_back(core, &state->previous);
}

static void core_watch(struct tuner_call *core) {
    const struct tuner_config *config = core->config;
    struct tuner_state *state = core->state;
    if (state->reference_step_ns == 0) {
        state->reference_step_ns = state->step_ns; /* after a return or a restart */
        return;
    }
    if (state->mode == TUNER_AUTO && state->pin_hash != 0) {
        if (core_may_ask(state) && state->iteration >= state->wait_until) {
            core_ask(core);
        }
        return;
    }
    /* A shorter step is no harm, but where the machine or the network has become faster another
     * plan may have become the best. */
    int differs = state->step_ns > core_stretch(state->reference_step_ns, config->drift_ppm) ||
                  core_stretch(state->step_ns, config->drift_ppm) < state->reference_step_ns;
    int lost = state->exact_step_ns > 0 && state->step_ns > state->exact_step_ns;
    state->n_drift = differs || lost ? state->n_drift + 1 : 0;
    if (state->n_drift >= TUNER_DRIFT_LOOKS && state->iteration >= state->wait_until) {
        state->n_drift = 0;
        if (lost) {
            /* Whether exact has become slower as well cannot be known without running it. */
            tuner_core_dwell(core);
            tuner_core_decide(
                core, TUNER_ROLL_BACK,
                "the step takes %.3f ms by now, longer than the %.3f ms of the exact plan: "
                "back to exact to measure anew",
                tuner_core_ms(state->step_ns), tuner_core_ms(state->exact_step_ns));
            tuner_core_go_back(core, &tuner_core_builtin);
            return;
        }
        if (core_may_ask(state)) {
            core_ask(core);
        }
    }
}

static void core_measured(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    state->step_ns = core->evidence->step_ns;
    if (state->running.is_exact) {
        state->exact_step_ns = state->step_ns;
    }
    if (state->mode == TUNER_OFF) {
        return;
    }
    switch (state->phase) {
    case TUNER_OBSERVING:
        if (core_may_ask(state) && state->running.is_exact &&
            state->iteration >= state->wait_until &&
            state->n_iterations >= core->config->n_warmup && !core->evidence->rate_rises &&
            !tuner_compare_waits_for_loss(core->evidence)) {
            core_ask(core);
        }
        break;
    case TUNER_CANARY:
        if (!state->is_real) {
            core_judge(core);
        }
        break;
    case TUNER_COMMITTED:
        if (!state->is_paired) {
            core_watch(core);
        }
        break;
    default:
        break;
    }
}

/* --- iterations ------------------------------------------------------------------------------- */

static void core_run(struct tuner_call *core, const struct tuner_plan *plan) {
    struct tuner_state *state = core->state;
    state->running = *plan;
    state->step_ns = 0;
    state->n_drift = 0;
    core->is_other = 1;
}

/* Back at the canary that was found to be faster: what is left to judge are its losses. */
static void core_try_again(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    state->phase = TUNER_CANARY;
    state->is_real = 1;
    state->is_committed = 0;
    state->canary_step_ns = state->before_step_ns;
    state->before_step_ns = state->exact_step_ns;
    tuner_compare_start_triple(core);
}

static void core_switched(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    enum tuner_phase phase = state->phase;
    if (!state->pushed.is_exact && phase != TUNER_RETURNING && phase != TUNER_RESUMING) {
        state->previous = state->running;
        state->previous_on_trial = !state->running.is_exact && !state->is_committed;
    }
    core_run(core, &state->pushed);
    state->n_switches++;
    state->reference_step_ns = 0;
    if (phase == TUNER_HALTED || phase == TUNER_COMPARING) {
        return;
    }
    if (phase == TUNER_RESUMING) {
        state->phase = state->is_committed || !state->is_paired ? TUNER_COMMITTED : TUNER_CANARY;
        if (!state->is_committed && !state->is_paired) {
            if (core->evidence->n_triples != state->n_triples) {
                tuner_compare_commit(core, "the loss falls as it does under exact");
            } else {
                tuner_compare_commit_uncompared(core);
            }
        }
        return;
    }
    if (phase == TUNER_RETURNING && !state->running.is_exact && state->previous_on_trial) {
        core_try_again(core);
        return;
    }
    if (phase == TUNER_RETURNING || state->running.is_exact) {
        state->is_committed = !state->running.is_exact;
        state->phase = tuner_core_rest(state);
        return;
    }
    state->phase = TUNER_CANARY;
    state->is_real = 0;
    state->is_committed = 0;
    tuner_compare_start_triple(core);
}

/* The ranks run what this controller has no record of, e.g. after its database was lost. */
static void core_meet_unknown(struct tuner_call *core, uint64_t seq) {
    struct tuner_state *state = core->state;
    const struct tuner_plan unknown = {.seq = seq, .cycle = 1, .merge = 1, .progress_ppm = 1000000};
    core_run(core, &unknown);
    state->is_paired = 0;
    if (state->mode == TUNER_AUTO && state->phase != TUNER_HALTED) {
        tuner_core_decide(
            core, TUNER_ROLL_BACK,
            "the ranks run plan %" PRIu64 ", of which there is no record: back to exact", seq);
        tuner_core_go_back(core, &tuner_core_builtin);
    }
}

static void core_not_finite(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    core_forbid(state, &state->running);
    tuner_core_decide(core, TUNER_HALT,
                      "the loss is not finite under plan %" PRIu64
                      " and was finite before: back to exact, and this start is left alone",
                      state->running.seq);
    tuner_core_go_back(core, &tuner_core_builtin);
    state->phase = TUNER_HALTED;
}

/* The ranks have not taken up yet what was pushed. */
static int core_awaits(const struct tuner_state *state) {
    return state->phase == TUNER_SWITCHING || state->phase == TUNER_RETURNING ||
           state->phase == TUNER_RESUMING ||
           (state->phase == TUNER_COMPARING && state->running.seq != state->pushed.seq);
}

/* What was pushed does not run: what runs goes on as if nothing had been. */
static void core_stay(struct tuner_state *state) {
    state->phase = tuner_core_rest(state);
    if (state->phase == TUNER_CANARY) {
        state->before_step_ns = state->exact_step_ns;
    }
}

/* Who has been told to return is asked for nothing else. */
static void core_time_out(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    if (!core_awaits(state) || state->phase == TUNER_RETURNING ||
        state->iteration <= state->pushed_iteration + core->config->n_switch_timeout) {
        return;
    }
    tuner_core_dwell(core);
    state->is_paired = 0;
    if (state->phase == TUNER_COMPARING) {
        tuner_compare_later(core);
    }
    core_stay(state);
    tuner_core_decide(core, TUNER_REFUSED,
                      "the ranks have not taken up plan %" PRIu64 " within %u iterations",
                      state->pushed.seq, core->config->n_switch_timeout);
    core->out->plan_seq = state->pushed.seq;
}

static void core_iteration(struct tuner_call *core) {
    const struct tuner_evidence *evidence = core->evidence;
    struct tuner_state *state = core->state;
    state->iteration = evidence->iteration;
    state->n_iterations++;
    if (evidence->plan_seq < state->running.seq) {
        return;
    }
    if (evidence->plan_seq >= state->next_seq) {
        state->next_seq = evidence->plan_seq + 1; /* ranks take up larger numbers only */
    }
    if (evidence->plan_seq != state->running.seq) {
        if (evidence->plan_seq == state->pushed.seq) {
            core_switched(core);
        } else if (evidence->plan_seq < state->pushed.seq && core_awaits(state)) {
            core_time_out(core); /* the ranks were taking up a plan when the next one was pushed */
        } else {
            core_meet_unknown(core, evidence->plan_seq);
        }
        return;
    }
    if (evidence->loss < 0 && !state->running.is_exact && state->finite_loss &&
        state->phase != TUNER_RETURNING && state->phase != TUNER_HALTED) {
        core_not_finite(core);
        return;
    }
    if (state->running.is_exact && evidence->loss != 0) {
        state->finite_loss = evidence->loss > 0;
    }
    if (evidence->step_ns > 0) {
        core_measured(core);
    }
    if (core->out->kind == TUNER_NOTHING && state->mode == TUNER_AUTO) {
        tuner_compare_look(core);
    }
    if (core->out->kind == TUNER_NOTHING) {
        core_time_out(core);
    }
}

/* --- refusals, fuses, modes --------------------------------------------------------------------
 */

static void core_refusal(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    uint64_t seq = core->evidence->plan_seq;
    if (seq != state->pushed.seq || seq == state->running.seq || !core_awaits(state)) {
        return; /* every rank says so: the first word counts */
    }
    if (state->phase == TUNER_COMPARING) {
        tuner_compare_later(core);
    } else {
        core_forbid(state, &state->pushed);
    }
    state->is_paired = 0;
    tuner_core_dwell(core);
    core_stay(state);
    tuner_core_decide(core, TUNER_REFUSED, "a rank refused plan %" PRIu64 ": %.200s", seq,
                      core->evidence->text);
    core->out->plan_seq = seq;
}

static void core_fuse(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    uint64_t seq = core->evidence->plan_seq;
    struct tuner_plan exact = tuner_core_builtin;
    if (seq == state->pushed.seq && seq != state->running.seq && !state->pushed.is_exact) {
        core_run(core, &state->pushed); /* its iterations are still on their way */
    }
    if (seq != state->running.seq || state->running.is_exact) {
        return; /* every rank says so */
    }
    state->iteration = core->evidence->iteration;
    tuner_core_forbid_merge(state, &state->running);
    exact.seq = seq;
    core_run(core, &exact);
    state->n_rollbacks++;
    state->is_paired = 0;
    state->is_committed = 0;
    state->guard_at = 0;
    tuner_core_dwell(core);
    int is_last = ++state->n_step_backs >= TUNER_MAX_STEP_BACKS;
    state->phase = is_last || state->phase == TUNER_HALTED ? TUNER_HALTED : TUNER_OBSERVING;
    tuner_core_decide(core, is_last ? TUNER_HALT : TUNER_FUSED,
                      "the ranks left plan %" PRIu64 " for exact: %.200s%s", seq,
                      core->evidence->text, is_last ? "; this start is left alone" : "");
    core->out->plan_seq = is_last ? 0 : seq;
}

static void core_mode(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    enum tuner_mode old = state->mode;
    enum tuner_mode mode = core->evidence->mode;
    int is_away = !state->running.is_exact || state->phase == TUNER_SWITCHING ||
                  state->phase == TUNER_RESUMING || state->phase == TUNER_COMPARING;
    state->mode = mode;
    if (mode == old || state->phase == TUNER_HALTED) {
        return;
    }
    if (old == TUNER_AUTO && is_away) {
        if (core->evidence->text[0] != '\0') {
            tuner_core_decide(core, TUNER_ROLL_BACK, "%s: back to exact", core->evidence->text);
        } else {
            tuner_core_decide(core, TUNER_ROLL_BACK, "the mode is %s now: back to exact",
                              tuner_mode_name(mode));
        }
        tuner_core_go_back(core, &tuner_core_builtin);
    } else if (state->phase == TUNER_SOLVING || mode == TUNER_AUTO) {
        if (state->phase == TUNER_SOLVING) {
            state->phase = tuner_core_rest(state);
        }
        state->wait_until = 0;
        state->backoff = 0;
    }
}

/* Who pins a plan again insists, also on one that was left before. */
static void core_hold(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    const struct tuner_evidence *evidence = core->evidence;
    if (state->phase == TUNER_SOLVING) {
        state->phase = tuner_core_rest(state);
    }
    if (evidence->pin_hash != state->pin_hash) {
        state->wait_until = 0;
        state->backoff = 0;
        if (evidence->pin_hash == state->failed_hash) {
            state->failed_hash = 0;
        }
    }
    state->pin_hash = evidence->pin_hash;
    state->is_frozen = evidence->is_frozen;
}

int tuner_core(const struct tuner_config *config, struct tuner_state *state,
               const struct tuner_evidence *evidence, struct tuner_decision *out) {
    struct tuner_call core = {.config = config, .state = state, .evidence = evidence, .out = out};
    const struct tuner_state before = *state;
    memset(out, 0, sizeof(*out));
    switch (evidence->event) {
    case TUNER_ITERATION:
        core_iteration(&core);
        break;
    case TUNER_SOLUTION:
        tuner_solution_take(&core);
        break;
    case TUNER_REFUSAL:
        core_refusal(&core);
        break;
    case TUNER_FUSE:
        core_fuse(&core);
        break;
    case TUNER_MODE:
        core_mode(&core);
        break;
    case TUNER_HOLD:
        core_hold(&core);
        break;
    }
    if (out->kind != TUNER_NOTHING) {
        out->before = before;
        out->evidence = *evidence;
    }
    return core.is_other;
}
