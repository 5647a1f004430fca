#include "runtime/fuse.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

int fuse_is_set(const struct fuse_limits *limits) {
    return !isnan(limits->max_loss) || !isnan(limits->max_grad_sq);
}

void fuse_start(struct fuse *fuse, uint64_t since) {
    fuse->since = since;
    memset(fuse->n_above, 0, sizeof(fuse->n_above));
}

/* `mean` NaN: nothing was said, which neither continues a row nor ends it. */
static int fuse_is_passed(uint32_t *n_above, double mean, double limit, const char *what,
                          char *text, size_t text_bytes) {
    if (isnan(limit) || isnan(mean)) {
        return 0;
    }
    int far = mean > 2 * limit;
    *n_above = mean > limit ? *n_above + 1 : 0;
    if (*n_above < 2 && !far) {
        return 0;
    }
    (void)snprintf(text, text_bytes,
                   "the mean %s of %u iterations is %.4g, %s the %.4g that this plan may reach",
                   what, CONTROL_FIGURES_EVERY, mean, far ? "more than twice" : "above", limit);
    return 1;
}

int fuse_look(struct fuse *fuse, const struct fuse_limits *limits,
              const struct control_figures *figures, uint64_t first, char *text,
              size_t text_bytes) {
    if (first < fuse->since) {
        return 0;
    }
    int was_finite = fuse->was_finite;
    double n_given = figures->n_losses + figures->n_bad_losses;
    if (n_given > 0) {
        fuse->was_finite = figures->n_bad_losses == 0;
    }
    if (fuse_is_set(limits) && was_finite && figures->n_bad_losses > 0) {
        (void)snprintf(text, text_bytes,
                       "%.0f of the %.0f losses of %u iterations are not finite, all were before",
                       figures->n_bad_losses, n_given, CONTROL_FIGURES_EVERY);
        return 1;
    }
    double loss = figures->n_losses > 0 ? figures->loss / figures->n_losses : NAN;
    double grad_sq = figures->n_grads > 0 ? figures->grad_sq / figures->n_grads : NAN;
    return fuse_is_passed(&fuse->n_above[0], loss, limits->max_loss, "loss", text, text_bytes) ||
           fuse_is_passed(&fuse->n_above[1], grad_sq, limits->max_grad_sq,
                          "squared norm of the gradients", text, text_bytes);
}
