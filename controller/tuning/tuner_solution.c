#include "tuning/tuner_solution.h"

#include <stdio.h>
#include <string.h>

static void solution_keep(struct tuner_call *core, const char *why) {
    struct tuner_state *state = core->state;
    tuner_core_dwell(core);
    state->phase = tuner_core_rest(state);
    if (!state->running.is_exact) {
        state->reference_step_ns = state->step_ns; /* the new normal: do not ask again at once */
    }
    tuner_core_decide(core, TUNER_KEEP, "%s", why);
    core->out->predicted_step_ns = state->best_step_ns;
}

/* "rule averaged, merge 3, delay 1 is predicted to take ..." */
static void solution_describe(const struct tuner_plan *plan, int64_t before_ns, int64_t gain,
                              const char *verb, const char *price, char *out, size_t n_bytes) {
    (void)snprintf(out, n_bytes,
                   "rule %s, merge %u, delay %u %s %.3f ms instead of %.3f ms and %.1f %% more "
                   "samples (%+.1f %% in all); %.319s",
                   dsched_rule_name((enum dsched_rule)plan->rule), plan->merge, plan->delay, verb,
                   tuner_core_ms(plan->predicted_step_ns), tuner_core_ms(before_ns),
                   plan->progress_ppm > 0 ? 1e8 / plan->progress_ppm - 100 : 0.0,
                   (double)gain / 1e4, price);
}

/* A profile errs: some of what a job does it does not know. Where it errs on the plan that runs, it
 * is taken to err as much on one that would run in its place. */
#define SOLUTION_MAX_ERROR 2.0
static int64_t solution_foretell(const struct tuner_evidence *evidence, int64_t before_ns) {
    double error = evidence->running_ns > 0 ? (double)before_ns / (double)evidence->running_ns : 1;
    error = error < SOLUTION_MAX_ERROR ? error : SOLUTION_MAX_ERROR;
    error = error > 1 / SOLUTION_MAX_ERROR ? error : 1 / SOLUTION_MAX_ERROR;
    return (int64_t)((double)evidence->proposal.predicted_step_ns * error);
}

static void solution_push(struct tuner_call *core, const struct tuner_plan *proposal,
                          int64_t before_ns, const char *text) {
    struct tuner_state *state = core->state;
    if (tuner_core_rest(state) != TUNER_CANARY) {
        state->refined = 0;
    }
    state->before_step_ns = before_ns;
    tuner_core_decide(core, TUNER_PUSH, "%s", text);
    tuner_core_go(core, proposal, TUNER_SWITCHING);
    core->out->target_seq = 0;
}

void tuner_solution_take(struct tuner_call *core) {
    struct tuner_state *state = core->state;
    struct tuner_plan proposal = core->evidence->proposal;
    char text[WIRE_TEXT_BYTES];
    if (state->phase != TUNER_SOLVING) {
        return; /* overtaken by a mode change or an unknown plan */
    }
    if (!core->evidence->has_proposal) {
        (void)snprintf(text, sizeof(text), "no plan was found: %.300s", core->evidence->text);
        solution_keep(core, text);
        return;
    }
    int on_trial = tuner_core_rest(state) == TUNER_CANARY;
    int64_t before_ns = on_trial ? state->canary_step_ns : state->before_step_ns;
    proposal.predicted_step_ns = solution_foretell(core->evidence, before_ns);
    int64_t gain = tuner_core_gain_ppm(tuner_core_cost_ns(before_ns, &state->running),
                                       tuner_core_cost_ns(proposal.predicted_step_ns, &proposal));
    state->best_step_ns = proposal.predicted_step_ns;
    if (state->mode == TUNER_OBSERVE) {
        tuner_core_dwell(core);
        state->phase = tuner_core_rest(state);
        solution_describe(&proposal, before_ns, gain, "would take", core->evidence->text, text,
                          sizeof(text));
        tuner_core_decide(core, TUNER_OBSERVED, "%s", text);
        core->out->predicted_step_ns = proposal.predicted_step_ns;
        return;
    }
    if (!tuner_core_is_pinned(state, &proposal) && (state->pin_hash != 0 || state->is_frozen)) {
        solution_keep(core, "a plan was found after the job was frozen or another one pinned");
    } else if (tuner_core_is_pinned(state, &proposal)) {
        solution_describe(&proposal, before_ns, gain, "is pinned, and predicted to take",
                          core->evidence->text, text, sizeof(text));
        solution_push(core, &proposal, before_ns, text);
    } else if (!state->running.is_exact && proposal.hash == state->running.hash) {
        solution_keep(core, "the best plan is the one that runs");
    } else if (gain < (int64_t)core->config->min_predicted_ppm) {
        solution_describe(&proposal, before_ns, gain, "is the best plan: predicted are",
                          core->evidence->text, text, sizeof(text));
        size_t n = strlen(text);
        (void)snprintf(text + n, sizeof(text) - n, ": not worth a switch");
        solution_keep(core, text);
    } else if (proposal.hash == state->failed_hash && !state->may_retry) {
        solution_keep(core, "the best plan is the one that was rolled back last");
    } else {
        solution_describe(&proposal, before_ns, gain, "is predicted to take", core->evidence->text,
                          text, sizeof(text));
        solution_push(core, &proposal, before_ns, text);
    }
}
