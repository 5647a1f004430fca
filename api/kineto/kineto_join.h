/* Which call of the host started which work of the device, and which collective it is. */
#ifndef KINETO_JOIN_H
#define KINETO_JOIN_H

#include <deft/status.h>

#include "kineto_trace.h"

/* Fills launched_ns and collective of all kernels and sorts them by launch. In a trace without a
 * device the collectives of the host become the kernels. Sorts the other arrays by begin. */
DEFT_NODISCARD enum deft_status kineto_join(struct kineto_trace *trace, struct deft_error *error);

#endif
