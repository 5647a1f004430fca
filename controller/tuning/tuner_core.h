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
/* No new try for a while, longer each time. */
void tuner_core_dwell(struct tuner_call *core);

double tuner_core_ms(int64_t ns);
/* How much faster `after` is than `before`, in ppm; negative when slower. */
int64_t tuner_core_gain_ppm(double before_ns, double after_ns);

#endif
