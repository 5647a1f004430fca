/* What a tuner must know after a restart of the controller, as text for the database. */
#ifndef TUNER_STATE_H
#define TUNER_STATE_H

#include "tuning/tuner.h"

/* malloc'ed. */
DEFT_NODISCARD enum deft_status tuner_state_encode(const struct tuner *tuner, char **out,
                                                   struct deft_error *error);
/* `tuner` was initialised; text "" leaves it so. The mode is the job's, not the text's. */
DEFT_NODISCARD enum deft_status tuner_state_decode(const char *text, struct tuner *tuner,
                                                   struct deft_error *error);

#endif
