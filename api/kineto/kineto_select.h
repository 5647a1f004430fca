/* Which events are of interest, and as what they are kept. */
#ifndef KINETO_SELECT_H
#define KINETO_SELECT_H

#include <deft/status.h>

#include "kineto_event.h"
#include "kineto_trace.h"

/* Keeps the event, or not; refuses one of interest that is broken. */
DEFT_NODISCARD enum deft_status kineto_select(struct kineto_trace *trace,
                                              const struct kineto_event *event,
                                              struct deft_error *error);

#endif
