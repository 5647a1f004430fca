/* The measurement of a running plan: step times of its newest iterations. */
#ifndef TUNER_WINDOW_H
#define TUNER_WINDOW_H

#include "tuning/tuner.h"

/* Iterations a measurement of a plan with this cycle takes. */
uint32_t tuner_window_rows(const struct tuner_config *config, uint32_t cycle);
void tuner_window_reset(struct tuner *tuner, uint32_t n_skip);
void tuner_window_add(struct tuner *tuner, uint64_t iteration, int64_t step_ns);

#endif
