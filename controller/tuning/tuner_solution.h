/* The part of tuner_core that takes a solution in: whether it is worth a switch. */
#ifndef TUNER_SOLUTION_H
#define TUNER_SOLUTION_H

#include "tuning/tuner_core.h"

/* Phase SOLVING ends, with a push or a reason why not; in other phases the solution comes too late
 * and nothing happens. */
void tuner_solution_take(struct tuner_call *core);

#endif
