#include "tuning/tuner.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "tuning/tuner_window.h"

/* Backing off further than 2^5 dwells would outlast most jobs. */
#define TUNER_MAX_BACKOFF 5u
/* Drift must be seen in this many measurements in a row. */
#define TUNER_DRIFT_LOOKS 2u

static const char *const tuner_kind_names[] = {"nothing",  "solve", "observed", "push", "commit",
                                               "rollback", "keep",  "refused",  "halt"};
static const char *const tuner_phase_names[] = {"observing", "solving",   "switching", "canary",
                                                "committed", "returning", "halted"};
static const char *const tuner_mode_names[] = {"off", "observe", "auto"};

const char *tuner_kind_name(enum tuner_kind kind) {
    return (unsigned)kind <= TUNER_HALT ? tuner_kind_names[kind] : "unknown";
}

const char *tuner_phase_name(enum tuner_phase phase) {
    return (unsigned)phase <= TUNER_HALTED ? tuner_phase_names[phase] : "unknown";
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

void tuner_defaults(struct tuner_config *config) {
    *config = (struct tuner_config){
        .n_skip = 5,
        .n_observe = 30,
        .n_settle = 3,
        .n_window = 20,
        .n_dwell = 200,
        .n_switch_timeout = 300,
        .min_predicted_ppm = 30000,
        .min_measured_ppm = 10000,
        .refine_ppm = 50000,
        .drift_ppm = 150000,
    };
}

static const struct tuner_plan tuner_builtin = {
    .rule = DSCHED_EXACT, .cycle = 1, .merge = 1, .updates_ppm = 1000000, .is_exact = 1};

void tuner_init(struct tuner *tuner, const struct tuner_config *config, enum tuner_mode mode) {
    memset(tuner, 0, sizeof(*tuner));
    tuner->config = *config;
    tuner->mode = mode;
    tuner->next_seq = 1;
    tuner->running = tuner->previous = tuner->pushed = tuner_builtin;
    tuner_window_reset(tuner, config->n_skip);
}

void tuner_resume(struct tuner *tuner) {
    if (tuner->phase == TUNER_SOLVING) {
        tuner->phase = tuner->running.is_exact ? TUNER_OBSERVING : TUNER_COMMITTED;
    }
    tuner_window_reset(tuner, tuner->config.n_settle);
}

/* --- decisions -------------------------------------------------------------------------------- */

static void tuner_decide(struct tuner *tuner, struct tuner_decision *out, enum tuner_kind kind,
                         const char *format, ...) DEFT_PRINTF(4, 5);
static void tuner_decide(struct tuner *tuner, struct tuner_decision *out, enum tuner_kind kind,
                         const char *format, ...) {
    va_list arguments;
    out->kind = kind;
    out->iteration = tuner->iteration;
    out->plan_seq = tuner->running.seq;
    out->exact_step_ns = tuner->exact_step_ns;
    out->before_step_ns = tuner->before_step_ns;
    out->predicted_step_ns = tuner->running.predicted_step_ns;
    out->measured_step_ns = tuner->step_ns;
    va_start(arguments, format);
    (void)vsnprintf(out->reason, sizeof(out->reason), format, arguments);
    va_end(arguments);
}

static double tuner_ms(int64_t ns) {
    return (double)ns / 1e6;
}

/* How much faster `after` is than `before`, in ppm; negative when slower. */
static int64_t tuner_gain_ppm(int64_t before_ns, int64_t after_ns) {
    return after_ns > 0 ? (int64_t)((double)before_ns / (double)after_ns * 1e6 + 0.5) - 1000000 : 0;
}

static int64_t tuner_stretch(int64_t ns, uint32_t ppm) {
    return ns + (int64_t)((double)ns * ppm / 1e6);
}

static enum tuner_phase tuner_rest(const struct tuner *tuner) {
    return tuner->running.is_exact ? TUNER_OBSERVING : TUNER_COMMITTED;
}

static void tuner_dwell(struct tuner *tuner) {
    tuner->wait_until = tuner->iteration + ((uint64_t)tuner->config.n_dwell << tuner->backoff);
    if (tuner->backoff < TUNER_MAX_BACKOFF) {
        tuner->backoff++;
    }
}

static void tuner_go(struct tuner *tuner, const struct tuner_plan *plan, enum tuner_phase phase,
                     struct tuner_decision *out) {
    tuner->pushed = *plan;
    tuner->pushed.seq = tuner->next_seq++;
    tuner->pushed_iteration = tuner->iteration;
    tuner->phase = phase;
    out->plan_seq = tuner->pushed.seq;
    out->predicted_step_ns = plan->predicted_step_ns;
}

static void tuner_go_back(struct tuner *tuner, const struct tuner_plan *target,
                          struct tuner_decision *out) {
    out->target_seq = target->is_exact ? 0 : target->seq;
    tuner->n_rollbacks++;
    tuner_go(tuner, target->is_exact ? &tuner_builtin : target, TUNER_RETURNING, out);
}

/* --- iterations ------------------------------------------------------------------------------- */

static void tuner_switched(struct tuner *tuner) {
    const struct tuner_plan *plan = &tuner->pushed;
    int returning = tuner->phase == TUNER_RETURNING;
    /* The pipeline is full once the first generation has been applied. */
    uint32_t settle = plan->merge + plan->delay + 1;
    if (!returning) {
        tuner->previous = tuner->running;
    }
    tuner->running = *plan;
    tuner->n_switches++;
    tuner->step_ns = 0;
    tuner->reference_step_ns = 0;
    tuner_window_reset(tuner, settle > tuner->config.n_settle ? settle : tuner->config.n_settle);
    if (tuner->phase != TUNER_HALTED) {
        tuner->phase = returning ? tuner_rest(tuner) : TUNER_CANARY;
    }
}

/* The ranks run what this controller has no record of, e.g. after its database was lost. */
static void tuner_meet_unknown(struct tuner *tuner, uint64_t seq, struct tuner_decision *out) {
    tuner->running = (struct tuner_plan){.seq = seq, .cycle = 1, .merge = 1};
    tuner_window_reset(tuner, tuner->config.n_settle);
    if (tuner->mode == TUNER_AUTO && tuner->phase != TUNER_HALTED) {
        tuner_decide(tuner, out, TUNER_ROLL_BACK,
                     "the ranks run plan %" PRIu64 ", of which there is no record: back to exact",
                     seq);
        tuner_go_back(tuner, &tuner_builtin, out);
    }
}

static void tuner_judge(struct tuner *tuner, struct tuner_decision *out) {
    int64_t gain = tuner_gain_ppm(tuner->before_step_ns, tuner->step_ns);
    if (gain >= (int64_t)tuner->config.min_measured_ppm) {
        tuner->phase = TUNER_COMMITTED;
        tuner->backoff = 0;
        tuner->wait_until = tuner->iteration + tuner->config.n_dwell;
        tuner->reference_step_ns = tuner->step_ns > tuner->running.predicted_step_ns
                                       ? tuner->step_ns
                                       : tuner->running.predicted_step_ns;
        tuner_decide(tuner, out, TUNER_COMMIT,
                     "the step takes %.3f ms instead of %.3f ms (%+.1f %%), predicted were %.3f ms",
                     tuner_ms(tuner->step_ns), tuner_ms(tuner->before_step_ns), (double)gain / 1e4,
                     tuner_ms(tuner->running.predicted_step_ns));
        return;
    }
    tuner->failed_hash = tuner->running.hash;
    tuner_dwell(tuner);
    tuner_decide(tuner, out, TUNER_ROLL_BACK,
                 "the step takes %.3f ms instead of %.3f ms (%+.1f %%) although %.3f ms were "
                 "predicted: the gain is not real",
                 tuner_ms(tuner->step_ns), tuner_ms(tuner->before_step_ns), (double)gain / 1e4,
                 tuner_ms(tuner->running.predicted_step_ns));
    tuner_go_back(tuner, &tuner->previous, out);
}

static void tuner_ask(struct tuner *tuner, struct tuner_decision *out) {
    tuner->before_step_ns = tuner->step_ns;
    tuner->phase = TUNER_SOLVING;
    tuner_decide(tuner, out, TUNER_SOLVE, "solve");
}

static void tuner_watch(struct tuner *tuner, struct tuner_decision *out) {
    const struct tuner_config *config = &tuner->config;
    if (tuner->reference_step_ns == 0) {
        tuner->reference_step_ns = tuner->step_ns; /* after a return or a restart */
        return;
    }
    int worse = tuner->step_ns > tuner_stretch(tuner->reference_step_ns, config->drift_ppm);
    int lost = tuner->exact_step_ns > 0 && tuner->step_ns > tuner->exact_step_ns;
    tuner->n_drift = worse || lost ? tuner->n_drift + 1 : 0;
    if (tuner->n_drift >= TUNER_DRIFT_LOOKS && tuner->iteration >= tuner->wait_until) {
        tuner->n_drift = 0;
        if (lost) {
            /* Whether exact has become slower as well cannot be known without running it. */
            tuner_dwell(tuner);
            tuner_decide(tuner, out, TUNER_ROLL_BACK,
                         "the step takes %.3f ms by now, longer than the %.3f ms of the exact "
                         "plan: back to exact to measure anew",
                         tuner_ms(tuner->step_ns), tuner_ms(tuner->exact_step_ns));
            tuner_go_back(tuner, &tuner_builtin, out);
            return;
        }
        tuner_ask(tuner, out);
        return;
    }
    if (!tuner->refined && tuner->running.predicted_step_ns > 0 &&
        tuner->step_ns > tuner_stretch(tuner->running.predicted_step_ns, config->refine_ppm)) {
        tuner->refined = 1;
        tuner_ask(tuner, out);
    }
}

/* A measurement is complete. */
static void tuner_look(struct tuner *tuner, struct tuner_decision *out) {
    uint32_t rows = tuner_window_rows(&tuner->config, tuner->running.cycle);
    if (tuner->running.is_exact && rows < tuner->config.n_observe) {
        rows = tuner->config.n_observe;
    }
    if (tuner->n_window < rows || tuner->n_since < rows) {
        return;
    }
    tuner->n_since = 0;
    tuner->step_ns = tuner_measure(tuner, tuner->running.cycle);
    if (tuner->running.is_exact) {
        tuner->exact_step_ns = tuner->step_ns;
    }
    if (tuner->mode == TUNER_OFF) {
        return;
    }
    switch (tuner->phase) {
    case TUNER_OBSERVING:
        if (tuner->running.is_exact && tuner->iteration >= tuner->wait_until) {
            tuner_ask(tuner, out);
        }
        break;
    case TUNER_CANARY:
        tuner_judge(tuner, out);
        break;
    case TUNER_COMMITTED:
        tuner_watch(tuner, out);
        break;
    default:
        break;
    }
}

static void tuner_not_finite(struct tuner *tuner, struct tuner_decision *out) {
    tuner->failed_hash = tuner->running.hash;
    tuner_decide(tuner, out, TUNER_HALT,
                 "the loss is not finite under plan %" PRIu64
                 " and was finite before: back to exact, and this start is left alone",
                 tuner->running.seq);
    tuner_go_back(tuner, &tuner_builtin, out);
    tuner->phase = TUNER_HALTED;
}

void tuner_sample(struct tuner *tuner, const struct tuner_sample *sample,
                  struct tuner_decision *out) {
    memset(out, 0, sizeof(*out));
    tuner->iteration = sample->iteration;
    if (sample->plan_seq < tuner->running.seq) {
        return;
    }
    if (sample->plan_seq >= tuner->next_seq) {
        tuner->next_seq = sample->plan_seq + 1; /* ranks take up larger numbers only */
    }
    if (sample->plan_seq != tuner->running.seq) {
        if (sample->plan_seq == tuner->pushed.seq) {
            tuner_switched(tuner);
        } else {
            tuner_meet_unknown(tuner, sample->plan_seq, out);
        }
        return;
    }
    if (sample->loss < 0 && !tuner->running.is_exact && tuner->finite_loss &&
        tuner->phase != TUNER_RETURNING && tuner->phase != TUNER_HALTED) {
        tuner_not_finite(tuner, out);
        return;
    }
    if (tuner->running.is_exact && sample->loss != 0) {
        tuner->finite_loss = sample->loss > 0;
    }
    if (sample->step_ns > 0) {
        tuner_window_add(tuner, sample->iteration, sample->step_ns);
        tuner_look(tuner, out);
    }
    if (out->kind == TUNER_NOTHING && tuner->phase == TUNER_SWITCHING &&
        tuner->iteration > tuner->pushed_iteration + tuner->config.n_switch_timeout) {
        tuner_dwell(tuner);
        tuner->phase = tuner_rest(tuner);
        tuner_decide(tuner, out, TUNER_REFUSED,
                     "the ranks have not taken up plan %" PRIu64 " within %u iterations",
                     tuner->pushed.seq, tuner->config.n_switch_timeout);
        out->plan_seq = tuner->pushed.seq;
    }
}

/* --- solutions, refusals, modes --------------------------------------------------------------- */

static void tuner_keep(struct tuner *tuner, const char *why, struct tuner_decision *out) {
    tuner_dwell(tuner);
    tuner->phase = tuner_rest(tuner);
    if (!tuner->running.is_exact) {
        tuner->reference_step_ns = tuner->step_ns; /* the new normal: do not ask again at once */
    }
    tuner_decide(tuner, out, TUNER_KEEP, "%s", why);
    out->predicted_step_ns = tuner->best_step_ns;
}

void tuner_solved(struct tuner *tuner, const struct tuner_plan *proposal, const char *why,
                  struct tuner_decision *out) {
    char text[256];
    memset(out, 0, sizeof(*out));
    if (tuner->phase != TUNER_SOLVING) {
        return; /* overtaken by a mode change or an unknown plan */
    }
    if (proposal == NULL) {
        (void)snprintf(text, sizeof(text), "no plan was found: %s", why);
        tuner_keep(tuner, text, out);
        return;
    }
    int64_t predicted = proposal->predicted_step_ns;
    int64_t gain = tuner_gain_ppm(tuner->before_step_ns, predicted);
    tuner->best_step_ns = predicted;
    if (tuner->mode == TUNER_OBSERVE) {
        tuner_dwell(tuner);
        tuner->phase = tuner_rest(tuner);
        tuner_decide(tuner, out, TUNER_OBSERVED,
                     "rule %s, merge %u, delay %u would take %.3f ms instead of %.3f ms (%+.1f %%)",
                     dsched_rule_name((enum dsched_rule)proposal->rule), proposal->merge,
                     proposal->delay, tuner_ms(predicted), tuner_ms(tuner->before_step_ns),
                     (double)gain / 1e4);
        out->predicted_step_ns = predicted;
        return;
    }
    if (gain < (int64_t)tuner->config.min_predicted_ppm) {
        (void)snprintf(text, sizeof(text),
                       "the best plan is predicted to take %.3f ms instead of %.3f ms (%+.1f %%), "
                       "which is not worth a switch",
                       tuner_ms(predicted), tuner_ms(tuner->before_step_ns), (double)gain / 1e4);
        tuner_keep(tuner, text, out);
    } else if (proposal->hash == tuner->failed_hash) {
        tuner_keep(tuner, "the best plan is the one that was rolled back last", out);
    } else if (!tuner->running.is_exact && proposal->hash == tuner->running.hash) {
        tuner_keep(tuner, "the best plan is the one that runs", out);
    } else {
        tuner_decide(tuner, out, TUNER_PUSH,
                     "rule %s, merge %u, delay %u is predicted to take %.3f ms instead of %.3f ms "
                     "(%+.1f %%)",
                     dsched_rule_name((enum dsched_rule)proposal->rule), proposal->merge,
                     proposal->delay, tuner_ms(predicted), tuner_ms(tuner->before_step_ns),
                     (double)gain / 1e4);
        tuner_go(tuner, proposal, TUNER_SWITCHING, out);
    }
}

void tuner_refused(struct tuner *tuner, uint64_t seq, const char *why, struct tuner_decision *out) {
    memset(out, 0, sizeof(*out));
    if (seq != tuner->pushed.seq ||
        (tuner->phase != TUNER_SWITCHING && tuner->phase != TUNER_RETURNING)) {
        return; /* every rank says so: the first word counts */
    }
    tuner->failed_hash = tuner->pushed.hash;
    tuner_dwell(tuner);
    tuner->phase = tuner_rest(tuner);
    tuner_decide(tuner, out, TUNER_REFUSED, "a rank refused plan %" PRIu64 ": %.200s", seq, why);
    out->plan_seq = seq;
}

void tuner_set_mode(struct tuner *tuner, enum tuner_mode mode, struct tuner_decision *out) {
    enum tuner_mode old = tuner->mode;
    memset(out, 0, sizeof(*out));
    tuner->mode = mode;
    if (mode == old || tuner->phase == TUNER_HALTED) {
        return;
    }
    if (old == TUNER_AUTO && (!tuner->running.is_exact || tuner->phase == TUNER_SWITCHING)) {
        tuner_decide(tuner, out, TUNER_ROLL_BACK, "the mode is %s now: back to exact",
                     tuner_mode_name(mode));
        tuner_go_back(tuner, &tuner_builtin, out);
    } else if (tuner->phase == TUNER_SOLVING || mode == TUNER_AUTO) {
        if (tuner->phase == TUNER_SOLVING) {
            tuner->phase = tuner_rest(tuner);
        }
        tuner->wait_until = 0;
        tuner->backoff = 0;
    }
}
