/* What the parts of tuner_core share: decisions, and the pushing of plans. */
#ifndef TUNER_CORE_H
#define TUNER_CORE_H

#include "tuning/tuner.h"

/* A second plan that hurts the loss is one too many. */
#define TUNER_MAX_STEP_BACKS 2u

/* One call of tuner_core. */
struct tuner_call {
    const struct tuner_config *config;
    struct tuner_state *state;
    const struct tuner_evidence *evidence;
    struct tuner_decision *out;
    int is_other; /* another plan runs now */
};

/* The exact plan that is built into the runtime. */
extern const struct tuner_plan tuner_core_builtin;

/* Fills the decision in with the figures of the state. */
void tuner_core_decide(struct tuner_call *core, enum tuner_kind kind, const char *format, ...)
    DEFT_PRINTF(3, 4);
/* Behind a decision: pushes the plan under the next number. */
void tuner_core_go(struct tuner_call *core, const struct tuner_plan *plan, enum tuner_phase phase);
/* Likewise, as a way back. */
void tuner_core_go_back(struct tuner_call *core, const struct tuner_plan *target);
/* The plan is not tried again, unless another one fails after it or an operator pins it. This is
 * for what its loss has shown: from now on plans merge less. */
void tuner_core_forbid_merge(struct tuner_state *state, const struct tuner_plan *plan);
/* No new try for a while, longer each time. */
void tuner_core_dwell(struct tuner_call *core);

/* The phase in which nothing is under way. */
enum tuner_phase tuner_core_rest(const struct tuner_state *state);

/* An operator wants this plan, and the mode lets it run. */
int tuner_core_is_pinned(const struct tuner_state *state, const struct tuner_plan *plan);

double tuner_core_ms(int64_t ns);
/* Time per iteration of exact's progress. */
double tuner_core_cost_ns(int64_t step_ns, const struct tuner_plan *plan);
/* How much faster `after` is than `before`, in ppm; negative when slower. */
int64_t tuner_core_gain_ppm(double before_ns, double after_ns);

#endif
