/* Which collectives are all-reduces of gradients. */
#ifndef KINETO_GRADIENT_H
#define KINETO_GRADIENT_H

#include "kineto.h"
#include "kineto_steps.h"
#include "kineto_trace.h"

/* What was seen while looking for them, to say what is missing. */
struct kineto_gradient_census {
    uint32_t n_gradients;
    uint32_t n_unsized;   /* all-reduces in a backward, of which the size is unknown */
    uint32_t n_untyped;   /* gradients whose dtype is unknown, taken for f32 */
    uint32_t n_elsewhere; /* other collectives */
    uint8_t group;        /* the process group that most bytes of gradients belong to */
    uint8_t elsewhere;    /* name of the last of the others */
};

/* Kernels of a joined trace are looked at; windows are in order. */
void kineto_gradient_count(const struct kineto_trace *trace, const struct kineto_window *windows,
                           uint32_t n_windows, struct kineto_gradient_census *out);

/* 1 and what is known of the all-reduce, if the kernel is one of gradients: launched in the
 * window's backward, of a known size, of the census's group. */
int kineto_gradient_is(const struct kineto_trace *trace, const struct kineto_kernel *kernel,
                       const struct kineto_window *window,
                       const struct kineto_gradient_census *census, struct kineto_reduce *out);

#endif
