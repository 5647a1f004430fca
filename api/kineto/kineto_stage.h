/* One step of one rank: its stages, its all-reduces, and what overlaps what. */
#ifndef KINETO_STAGE_H
#define KINETO_STAGE_H

#include <deft/status.h>

#include "kineto.h"
#include "kineto_gradient.h"
#include "kineto_steps.h"
#include "kineto_trace.h"

struct kineto_stage {
    const struct kineto_trace *trace; /* joined */
    const struct kineto_window *window;
    const struct kineto_gradient_census *census;
    uint32_t first; /* of the kernels that were launched in the window */
    uint32_t n;
    int64_t begin_ns; /* of the step, where it runs */
    int64_t end_ns;
};

/* A step without gradient all-reduces, or one that is cut, comes out with n_reduces 0. The caller
 * releases it with kineto_step_done, also after a failure. */
DEFT_NODISCARD enum deft_status kineto_stage_measure(const struct kineto_stage *stage,
                                                     struct kineto_step *out,
                                                     struct deft_error *error);

#endif
