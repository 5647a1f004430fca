/* The figures of each step of one rank. */
#ifndef KINETO_MEASURE_H
#define KINETO_MEASURE_H

#include <deft/status.h>

#include "kineto.h"
#include "kineto_trace.h"

struct kineto_measured {
    uint32_t n_steps;
    struct kineto_step *steps;
    uint32_t n_left_out;
    uint32_t n_untyped; /* all-reduces whose dtype is not known */
    uint32_t n_foreign;
    struct kineto_foreign foreign[KINETO_MAX_NAMES];
};

/* Joins `trace` first. At least one step has a gradient all-reduce on success. */
DEFT_NODISCARD enum deft_status kineto_measure(struct kineto_trace *trace, uint32_t rank,
                                               struct kineto_measured *out,
                                               struct deft_error *error);
void kineto_measured_done(struct kineto_measured *measured);
/* Sums of times stay below DSCHED_MAX_TIME_NS, also of a hostile trace. */
int64_t kineto_measure_add(int64_t a_ns, int64_t b_ns);
void kineto_step_done(struct kineto_step *step);

#endif
