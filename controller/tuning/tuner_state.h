/* Tuners as text for the database: what a restart of the controller must keep, and what a decision
 * was made of. */
#ifndef TUNER_STATE_H
#define TUNER_STATE_H

#include "tuning/tuner.h"

/* malloc'ed. */
DEFT_NODISCARD enum deft_status tuner_state_encode(const struct tuner *tuner, char **out,
                                                   struct deft_error *error);
/* `tuner` was initialised; text "" leaves it so. The mode and what
 * is held are the job's, not the text's. */
DEFT_NODISCARD enum deft_status tuner_state_decode(const char *text, struct tuner *tuner,
                                                   struct deft_error *error);

/* What tuner_core was given for a decision: {"config":{..},"before":{..},"evidence":{..}}. */
struct tuner_inputs {
    struct tuner_config config;
    struct tuner_state before;
    struct tuner_evidence evidence;
};
/* malloc'ed. */
DEFT_NODISCARD enum deft_status tuner_inputs_encode(const struct tuner_config *config,
                                                    const struct tuner_decision *decision,
                                                    char **out, struct deft_error *error);
DEFT_NODISCARD enum deft_status tuner_inputs_decode(const char *text, size_t n_bytes,
                                                    struct tuner_inputs *out,
                                                    struct deft_error *error);

#endif
