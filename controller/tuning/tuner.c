#include "tuning/tuner.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tuning/tuner_core.h"
#include "tuning/tuner_window.h"
#include "wire/utf8.h"

static const char *const tuner_kind_names[TUNER_N_KINDS] = {
    "nothing", "solve",   "observed", "push",    "commit", "rollback",
    "keep",    "refused", "halt",     "compare", "resume", "fused"};
const char *const tuner_phase_names[] = {"observing", "solving",   "switching", "canary",
                                         "committed", "returning", "halted",    "comparing",
                                         "resuming",  NULL};
const char *const tuner_mode_names[] = {"off", "observe", "auto", NULL};

const char *tuner_kind_name(enum tuner_kind kind) {
    return (unsigned)kind < TUNER_N_KINDS ? tuner_kind_names[kind] : "unknown";
}

const char *tuner_phase_name(enum tuner_phase phase) {
    return (unsigned)phase <= TUNER_RESUMING ? tuner_phase_names[phase] : "unknown";
}

const char *tuner_mode_name(enum tuner_mode mode) {
    return (unsigned)mode <= TUNER_AUTO ? tuner_mode_names[mode] : "unknown";
}

enum deft_status tuner_mode_parse(const char *name, enum tuner_mode *out) {
    for (int i = TUNER_OFF; i <= TUNER_AUTO; i++) {
        if (strcmp(name, tuner_mode_names[i]) == 0) {
            *out = (enum tuner_mode)i;
            return DEFT_OK;
        }
    }
    return DEFT_INVALID;
}

int tuner_pushes(const struct tuner_decision *decision) {
    switch (decision->kind) {
    case TUNER_PUSH:
    case TUNER_ROLL_BACK:
    case TUNER_COMPARE:
    case TUNER_RESUME:
        return 1;
    case TUNER_HALT:
        return decision->plan_seq != 0;
    default:
        return 0;
    }
}

void tuner_defaults(struct tuner_config *config) {
    *config = (struct tuner_config){
        .n_skip = 5,
        .n_warmup = 100,
        .n_observe = 30,
        .n_settle = 3,
        .n_window = 20,
        .n_dwell = 200,
        .n_switch_timeout = 300,
        .n_guard = 2000,
        .n_guard_most = 64000,
        .min_predicted_ppm = 30000,
        .min_measured_ppm = 10000,
        .refine_ppm = 20000,
        .drift_ppm = 150000,
    };
}

/* A rank under averaged or lookahead sees the loss at weights of its own, which lag behind the mean
 * of the ranks: the level rises once, by several percent in small jobs, without harm to the mean.
 * What rises further is no lag. */
#define TUNER_LEVEL_RISE 0.1

static void tuner_restart_drift(struct tuner *tuner) {
    struct dsched_drift_options options;
    dsched_drift_defaults(&options);
    options.epsilon_frac = TUNER_LEVEL_RISE;
    if (dsched_drift_init(&tuner->drift, &options, NULL) != DSCHED_OK) {
        memset(&tuner->drift, 0, sizeof(tuner->drift)); /* cannot be: the options are in range */
    }
}

void tuner_init(struct tuner *tuner, const struct tuner_config *config, enum tuner_mode mode,
                const struct quantify_job *job, const struct wire_limits *limits) {
    memset(tuner, 0, sizeof(*tuner));
    tuner->config = *config;
    tuner_state_init(&tuner->state, mode);
    quantify_init(&tuner->quantify, job, limits);
    tuner_restart_drift(tuner);
    tuner->before = tuner->drift;
    tuner_window_reset(tuner, config->n_skip);
}

void tuner_resume(struct tuner *tuner) {
    struct tuner_state *state = &tuner->state;
    if (state->phase == TUNER_COMMITTED) {
        state->is_committed = 1; /* a database of a controller that did not say so */
    }
    if (state->phase == TUNER_SOLVING) {
        state->phase = tuner_core_rest(state);
    }
    if (state->phase != TUNER_RESUMING) { /* there it says whether the triple is over */
        state->is_paired = 0;
    }
    tuner_restart_drift(tuner);
    tuner->before = tuner->drift;
    tuner_window_reset(tuner, tuner->config.n_settle);
}

/* --- the guard's windows ---------------------------------------------------------------------- */

static void tuner_feed_drift(struct tuner *tuner, enum dsched_drift_label label, uint64_t iteration,
                             double loss, double norm) {
    uint64_t before = tuner->drift.n_triples;
    (void)dsched_drift_add(&tuner->drift, label, iteration, loss, norm);
    tuner->n_triples += tuner->drift.n_triples - before;
}

/* The exact window before a canary is what was seen last: its losses are all there. */
static void tuner_feed_before(struct tuner *tuner) {
    const struct dsched_loss *loss = &tuner->quantify.loss;
    uint32_t n = tuner->drift.options.window_losses + tuner->drift.options.settle_losses;
    n = n < loss->n_window ? n : loss->n_window;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t row = (loss->at + DSCHED_LOSS_WINDOW - n + i) % DSCHED_LOSS_WINDOW;
        tuner_feed_drift(tuner, DSCHED_DRIFT_EXACT, loss->window[row].iteration,
                         loss->window[row].loss, DSCHED_UNKNOWN);
    }
}

static void tuner_guard_sample(struct tuner *tuner, const struct tuner_sample *sample) {
    const struct tuner_state *state = &tuner->state;
    const struct quantify_sample *figures = &sample->figures;
    enum dsched_drift_label label =
        state->running.is_exact ? DSCHED_DRIFT_EXACT : DSCHED_DRIFT_PLAN;
    int is_watched = state->phase == TUNER_CANARY || state->phase == TUNER_COMMITTED ||
                     (state->phase == TUNER_COMPARING && state->running.seq == state->pushed.seq);
    if (!state->is_paired || !is_watched || figures->is_switch ||
        figures->loss_given != DSCHED_LOSS_GIVEN ||
        (!isfinite(figures->loss) && quantify_breaks_by_itself(&tuner->quantify)) ||
        dsched_drift_wants(&tuner->drift) != label) {
        return;
    }
    if (tuner->n_settling > 0) {
        tuner->n_settling--;
        return;
    }
    double norm = figures->grad_sq_local >= 0 ? sqrt(figures->grad_sq_local) : DSCHED_UNKNOWN;
    tuner_feed_drift(tuner, label, figures->iteration, figures->loss,
                     isfinite(norm) ? norm : DSCHED_UNKNOWN);
}

/* --- samples ---------------------------------------------------------------------------------- */

/* Another plan runs: what was measured is of the one before. */
static void tuner_start_plan(struct tuner *tuner) {
    const struct tuner_plan *plan = &tuner->state.running;
    /* The pipeline is full once the first generation has been applied. */
    uint32_t settle = plan->merge + plan->delay + 1;
    settle = settle > tuner->config.n_settle ? settle : tuner->config.n_settle;
    tuner_window_reset(tuner, settle);
    /* Until then each rank goes on from its own gradients, and its losses rise for as long: by a
     * fifth in jobs whose noise is of their batches (tests/e2e/closed_loop). */
    tuner->n_settling = plan->is_exact ? 0 : settle;
    quantify_mark(&tuner->quantify);
    if (tuner->state.phase != TUNER_CANARY) {
        return;
    }
    if (tuner->state.previous.is_exact) {
        tuner_restart_drift(tuner);
        tuner_feed_before(tuner);
        tuner->before = tuner->drift;
    } else if (tuner->state.previous_on_trial) {
        tuner->drift = tuner->before;
    }
}

static int64_t tuner_complete(struct tuner *tuner) {
    const struct tuner_plan *plan = &tuner->state.running;
    uint32_t rows = tuner_window_rows(&tuner->config, plan->cycle);
    if (plan->is_exact && rows < tuner->config.n_observe) {
        rows = tuner->config.n_observe;
    }
    if (tuner->n_window < rows || tuner->n_since < rows) {
        return 0;
    }
    tuner->n_since = 0;
    return tuner_measure(tuner, plan->cycle);
}

static int tuner_loss_sign(const struct tuner *tuner, const struct quantify_sample *figures) {
    if (figures->loss_given != DSCHED_LOSS_GIVEN) {
        return 0;
    }
    if (isfinite(figures->loss)) {
        return 1;
    }
    return !figures->is_exact && quantify_breaks_by_itself(&tuner->quantify) ? 0 : -1;
}

static void tuner_gather(struct tuner *tuner, const struct tuner_sample *sample,
                         struct tuner_evidence *out) {
    const struct dsched_loss_estimate *loss = quantify_loss(&tuner->quantify);
    *out = (struct tuner_evidence){
        .event = TUNER_ITERATION,
        .iteration = sample->figures.iteration,
        .plan_seq = sample->plan_seq,
        .loss = tuner_loss_sign(tuner, &sample->figures),
        .loss_state = loss->state,
        .loss_breaks = quantify_breaks_by_itself(&tuner->quantify),
        .rate_rises = quantify_rate_rises(&tuner->quantify),
        .loss_rises = quantify_loss_rises(&tuner->quantify),
        .drift = tuner->drift.result,
        .wants = dsched_drift_wants(&tuner->drift),
        .n_triples = tuner->n_triples,
        .drift_z = tuner->drift.last_z,
    };
    (void)snprintf(out->text, sizeof(out->text), "%s", loss->text);
}

static void tuner_run_core(struct tuner *tuner, const struct tuner_evidence *evidence,
                           struct tuner_decision *out) {
    uint32_t n_step_backs = tuner->state.n_step_backs;
    if (tuner_core(&tuner->config, &tuner->state, evidence, out)) {
        tuner_start_plan(tuner);
    }
    if (tuner->state.n_step_backs != n_step_backs) {
        /* Losses of a plan that did harm are no measure for the next one. */
        dsched_loss_forget(&tuner->quantify.loss);
    }
}

void tuner_sample(struct tuner *tuner, const struct tuner_sample *sample,
                  struct tuner_decision *out) {
    struct tuner_evidence evidence;
    struct tuner_sample own = *sample;
    int is_running = sample->plan_seq == tuner->state.running.seq;
    int64_t step_ns = 0;
    own.figures.is_exact = is_running && tuner->state.running.is_exact;
    if (is_running) {
        tuner_guard_sample(tuner, &own);
        if (sample->step_ns > 0) {
            tuner_window_add(tuner, own.figures.iteration, sample->step_ns);
            step_ns = tuner_complete(tuner);
        }
    }
    quantify_add(&tuner->quantify, &own.figures);
    tuner_gather(tuner, &own, &evidence);
    evidence.step_ns = step_ns;
    tuner_run_core(tuner, &evidence, out);
}

/* Foreign sentences, as they come back from a database: whole characters of UTF-8 only, '?' for the
 * rest. The decision that quotes them can be replayed to the letter then. */
static void tuner_quote(struct tuner_evidence *evidence, const char *text) {
    size_t n_left = strlen(text);
    size_t n = 0;
    while (n_left > 0) {
        size_t length = utf8_sequence_bytes(text, n_left);
        size_t n_taken = length > 0 ? length : 1;
        if (n + n_taken >= sizeof(evidence->text)) {
            break;
        }
        memcpy(evidence->text + n, length > 0 ? text : "?", n_taken);
        n += n_taken;
        text += n_taken;
        n_left -= n_taken;
    }
    evidence->text[n] = '\0';
}

void tuner_solved(struct tuner *tuner, const struct tuner_plan *proposal, int64_t running_ns,
                  const char *text, struct tuner_decision *out) {
    struct tuner_evidence evidence = {.event = TUNER_SOLUTION,
                                      .iteration = tuner->state.iteration,
                                      .has_proposal = proposal != NULL,
                                      .running_ns = running_ns};
    if (proposal != NULL) {
        evidence.proposal = *proposal;
    }
    tuner_quote(&evidence, text);
    tuner_run_core(tuner, &evidence, out);
}

void tuner_refused(struct tuner *tuner, uint64_t seq, const char *why, struct tuner_decision *out) {
    struct tuner_evidence evidence = {
        .event = TUNER_REFUSAL, .iteration = tuner->state.iteration, .plan_seq = seq};
    tuner_quote(&evidence, why);
    tuner_run_core(tuner, &evidence, out);
}

void tuner_fused(struct tuner *tuner, uint64_t seq, uint64_t iteration, const char *why,
                 struct tuner_decision *out) {
    struct tuner_evidence evidence = {.event = TUNER_FUSE, .iteration = iteration, .plan_seq = seq};
    tuner_quote(&evidence, why);
    tuner_run_core(tuner, &evidence, out);
}

void tuner_set_mode(struct tuner *tuner, enum tuner_mode mode, struct tuner_decision *out) {
    const struct tuner_evidence evidence = {
        .event = TUNER_MODE, .iteration = tuner->state.iteration, .mode = mode};
    tuner_run_core(tuner, &evidence, out);
}

void tuner_leave(struct tuner *tuner, const char *why, struct tuner_decision *out) {
    struct tuner_evidence evidence = {
        .event = TUNER_MODE, .iteration = tuner->state.iteration, .mode = TUNER_OFF};
    tuner_quote(&evidence, why);
    tuner_run_core(tuner, &evidence, out);
}

void tuner_set_hold(struct tuner *tuner, uint64_t pin_hash, int is_frozen) {
    struct tuner_decision none;
    const struct tuner_evidence evidence = {.event = TUNER_HOLD,
                                            .iteration = tuner->state.iteration,
                                            .pin_hash = pin_hash,
                                            .is_frozen = is_frozen};
    tuner_run_core(tuner, &evidence, &none);
}

/* --- for people ------------------------------------------------------------------------------- */

static void tuner_status_observing(const struct tuner *tuner, char out[TUNER_STATUS_BYTES]) {
    const struct tuner_state *state = &tuner->state;
    const struct dsched_loss_estimate *loss = quantify_loss(&tuner->quantify);
    if (state->n_iterations < tuner->config.n_warmup) {
        (void)snprintf(out, TUNER_STATUS_BYTES, "warming up, %" PRIu64 " of %u iterations",
                       state->n_iterations, tuner->config.n_warmup);
    } else if (quantify_rate_rises(&tuner->quantify)) {
        (void)snprintf(out, TUNER_STATUS_BYTES, "exact while the learning rate rises");
    } else if (loss->state == DSCHED_LOSS_UNSETTLED || loss->state == DSCHED_LOSS_BROKEN) {
        (void)snprintf(out, TUNER_STATUS_BYTES, "exact: %.200s", loss->text);
    } else if (state->mode == TUNER_AUTO && state->pin_hash != 0 &&
               state->pin_hash == state->failed_hash) {
        (void)snprintf(out, TUNER_STATUS_BYTES,
                       "exact: the pinned plan was left, and no other is tried");
    } else if (state->mode == TUNER_AUTO && state->is_frozen && state->pin_hash == 0) {
        (void)snprintf(out, TUNER_STATUS_BYTES, "frozen: no plan is looked for");
    } else if (state->iteration < state->wait_until) {
        (void)snprintf(out, TUNER_STATUS_BYTES,
                       "nothing to gain at present, next look at iteration %" PRIu64,
                       state->wait_until);
    } else {
        (void)snprintf(out, TUNER_STATUS_BYTES, "measuring exact, %u of %u iterations",
                       tuner->n_since < tuner->config.n_observe ? tuner->n_since
                                                                : tuner->config.n_observe,
                       tuner->config.n_observe);
    }
}

void tuner_status(const struct tuner *tuner, char out[TUNER_STATUS_BYTES]) {
    const struct tuner_state *state = &tuner->state;
    if (state->mode == TUNER_OFF) {
        (void)snprintf(out, TUNER_STATUS_BYTES, "off: history only");
        return;
    }
    switch (state->phase) {
    case TUNER_OBSERVING:
        tuner_status_observing(tuner, out);
        return;
    case TUNER_SOLVING:
        (void)snprintf(out, TUNER_STATUS_BYTES, "solving");
        return;
    case TUNER_CANARY:
        (void)snprintf(out, TUNER_STATUS_BYTES, "plan %" PRIu64 " on trial: %s", state->running.seq,
                       state->is_real ? "it is faster, its losses are compared with exact's"
                                      : "its step is being measured");
        return;
    case TUNER_COMMITTED:
        (void)snprintf(out, TUNER_STATUS_BYTES,
                       "plan %" PRIu64 " committed, next compared with exact at iteration %" PRIu64,
                       state->running.seq, state->guard_at);
        return;
    case TUNER_COMPARING:
        (void)snprintf(out, TUNER_STATUS_BYTES,
                       "exact for a window, to compare the loss under plan %" PRIu64,
                       state->guarded.seq);
        return;
    case TUNER_SWITCHING:
    case TUNER_RETURNING:
    case TUNER_RESUMING:
        (void)snprintf(out, TUNER_STATUS_BYTES, "waiting for the ranks to take up plan %" PRIu64,
                       state->pushed.seq);
        return;
    case TUNER_HALTED:
        (void)snprintf(out, TUNER_STATUS_BYTES,
                       "halted: this start of the job stays exact after what happened");
        return;
    }
}
