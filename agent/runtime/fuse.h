/* The fuse of a plan: limits on what all ranks together say of their training. The ranks watch them
 * themselves, so that a plan that does harm ends without agent or controller. Pure: equal calls
 * give equal answers on every rank (docs/update-rules.md, "The fuse"). */
#ifndef FUSE_H
#define FUSE_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/control.h"

/* Both > 0 and finite; NaN: not watched. */
struct fuse_limits {
    double max_loss;    /* mean of the losses in one set of figures */
    double max_grad_sq; /* mean of each rank's |g|^2 */
};

struct fuse {
    uint64_t since;      /* first iteration of the running plan */
    uint32_t n_above[2]; /* loss, gradients: figures in a row above the limit */
    int was_finite;      /* the last figures with losses had none that was not finite */
};

/* At least one limit is set. */
int fuse_is_set(const struct fuse_limits *limits);
/* Another plan runs from iteration `since` on. What the losses were before still counts. */
void fuse_start(struct fuse *fuse, uint64_t since);
/* Looks at figures of iterations [first, first + CONTROL_FIGURES_EVERY); those that begin before
 * the running plan tell nothing about it and change nothing. Returns 1, with one sentence in
 * `text`, when the plan must be left: a mean is above its limit for the second time in a row, or
 * above twice the limit, or losses are not finite that were before. */
int fuse_look(struct fuse *fuse, const struct fuse_limits *limits,
              const struct control_figures *figures, uint64_t first, char *text, size_t text_bytes);

#endif
