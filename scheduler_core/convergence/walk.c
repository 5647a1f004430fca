#include <dsched/convergence.h>

#include "refuse.h"

#include <math.h>

static int walk_is_known(double value) {
    return isfinite(value) && value >= 0 && value <= DSCHED_MAX_MEASURED;
}

double dsched_walk_mean(double excess, double drift, double deviation) {
    const double sqrt_2_over_pi = 0.79788456080286535588;
    const double sqrt_half = 0.70710678118654752440;
    double m = excess - drift;
    double t = deviation > 0 ? m / deviation : INFINITY;
    if (!isfinite(t)) {
        return fabs(m);
    }
    /* 1 - 2 Phi(-t) is erf(t / sqrt 2), without cancellation. */
    return deviation * sqrt_2_over_pi * exp(-t * t / 2) + m * erf(t * sqrt_half);
}

/* One update of `k` iterations, from an exact iteration's drift and deviation. */
static double walk_update(const struct dsched_walk *walk, double x, uint32_t k, double delay_frac) {
    double drift = walk->drift * delay_frac;
    double deviation = walk->deviation;
    double root = sqrt(k);
    switch (walk->scaling) {
    case DSCHED_WALK_MEAN:
        deviation /= root;
        break;
    case DSCHED_WALK_SUM:
        drift *= k;
        deviation *= root;
        break;
    case DSCHED_WALK_SQRT:
        drift *= root;
        break;
    }
    return dsched_walk_mean(x, drift, deviation);
}

static double walk_end(const struct dsched_walk *walk, uint32_t merge, double delay_frac) {
    double x = walk->excess;
    for (uint32_t i = 0; i < walk->n_iterations; i += merge) {
        uint32_t left = walk->n_iterations - i;
        double next = walk_update(walk, x, left < merge ? left : merge, delay_frac);
        /* At the fixed point every full update gives the same again: only the last may differ. */
        if (next == x && left > merge) {
            i += (left / merge - 1) * merge;
        }
        x = next;
    }
    return x;
}

enum dsched_status dsched_walk_ratio(const struct dsched_walk *walk, uint32_t merge,
                                     double delay_frac, double *out_ratio,
                                     struct dsched_error *error) {
    if (!walk_is_known(walk->excess) || !walk_is_known(walk->drift) ||
        !walk_is_known(walk->deviation)) {
        return refuse(error, DSCHED_INVALID,
                      "a walk needs excess, drift and deviation of 0..%g, not %g, %g and %g",
                      DSCHED_MAX_MEASURED, walk->excess, walk->drift, walk->deviation);
    }
    if (walk->n_iterations < 1 || walk->n_iterations > DSCHED_MAX_WALK_ITERATIONS) {
        return refuse(error, DSCHED_LIMIT, "a walk takes 1..%u iterations, not %u",
                      DSCHED_MAX_WALK_ITERATIONS, walk->n_iterations);
    }
    if (merge < 1 || merge > DSCHED_MAX_MERGE || !(delay_frac >= 0 && delay_frac <= 1) ||
        (unsigned)walk->scaling > DSCHED_WALK_SQRT) {
        return refuse(
            error, DSCHED_INVALID,
            "a walk needs a merge of 1..%u, a delay efficiency of 0..1 and a scaling, not "
            "%u, %g and %d",
            DSCHED_MAX_MERGE, merge, delay_frac, (int)walk->scaling);
    }
    double exact = walk_end(walk, 1, 1);
    double plan = walk_end(walk, merge, delay_frac);
    if (exact > 0) {
        *out_ratio = fmin(plan / exact, DSCHED_MAX_MEASURED);
    } else {
        *out_ratio = plan > 0 ? DSCHED_MAX_MEASURED : 1;
    }
    return DSCHED_OK;
}
