/* Where steps begin and end on the host, and their stages. */
#ifndef KINETO_STEPS_H
#define KINETO_STEPS_H

#include <deft/status.h>

#include "kineto_trace.h"

/* Instants of one step on the host. */
struct kineto_window {
    uint64_t number;
    int64_t begin_ns;
    int64_t end_ns;       /* where the next one begins, if there is one */
    int64_t backward_ns;  /* the autograd engine's first node */
    int64_t optimizer_ns; /* the optimizer's mark, else the end of the last node */
    int complete;         /* has a backward */
};

/* The windows of a joined trace, from the profiler's steps or else from the optimizer's. The caller
 * frees *out. Refuses a trace that has neither, or no backward in any. */
DEFT_NODISCARD enum deft_status kineto_steps_find(const struct kineto_trace *trace,
                                                  struct kineto_window **out, uint32_t *out_n,
                                                  struct deft_error *error);

/* Index of the first span that begins at or after `at_ns`; spans are sorted. */
uint32_t kineto_steps_first(const struct kineto_array *spans, int64_t at_ns);

#endif
