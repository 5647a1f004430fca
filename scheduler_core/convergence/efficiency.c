/* Progress per sample under a merge and a delay. */
#include <dsched/convergence.h>

#include "refuse.h"

#include <math.h>

static int efficiency_is_known(double value) {
    return isfinite(value) && value >= 0 && value <= DSCHED_MAX_MEASURED;
}

double dsched_efficiency_merge(double noise_samples, double batch_samples, uint32_t merge) {
    double k = merge == 0 ? 1 : merge;
    if (!efficiency_is_known(noise_samples) || !efficiency_is_known(batch_samples) ||
        batch_samples == 0) {
        return 2 / (1 + k);
    }
    double noise = noise_samples / batch_samples;
    return isfinite(noise) ? (noise + 1) / (noise + k) : 1;
}

/* An edge is found by bisection: what is this near to it is not below it. */
static int efficiency_is_below(double s, double edge) {
    return s < edge * (1 - 1e-6);
}

static double efficiency_margin(const struct dsched_efficiency_inputs *in) {
    double exact = dsched_stability_edge(DSCHED_EXACT, in->momentum, 1, 0);
    double edge = dsched_stability_edge(in->rule, in->momentum, in->merge, in->delay);
    double s = efficiency_is_known(in->rate_curvature) ? in->rate_curvature
                                                       : DSCHED_PRIOR_EDGE_FRAC * exact;
    if (!efficiency_is_below(s, edge) || !efficiency_is_below(s, exact)) {
        return 0;
    }
    return fmin((1 - s / edge) / (1 - s / exact), 1);
}

static void efficiency_delayed(const struct dsched_efficiency_inputs *in,
                               struct dsched_efficiency *out) {
    out->merge_frac = dsched_efficiency_merge(in->noise_samples, in->batch_samples, in->merge);
    out->is_prior =
        in->merge > 1 && (!efficiency_is_known(in->noise_samples) ||
                          !efficiency_is_known(in->batch_samples) || in->batch_samples == 0);
    if (in->delay == 0) {
        return;
    }
    if (in->optimizer == DSCHED_OPTIMIZER_SGD) {
        out->delay_frac = efficiency_margin(in);
        out->is_prior |= !efficiency_is_known(in->rate_curvature);
    } else {
        out->delay_frac = in->delay == 1 ? DSCHED_PRIOR_ADAM_FRAC : 0;
        out->is_prior = 1;
    }
}

/* Whether ranks would drift apart. Momentum lifts exact's edge and not lookahead's, so of that rule
 * an unknown curvature is taken to be where rates that were tuned for exact put it. */
static int efficiency_is_unstable(const struct dsched_efficiency_inputs *in) {
    double edge = dsched_stability_edge(in->rule, in->momentum, in->merge, in->delay);
    if (in->optimizer != DSCHED_OPTIMIZER_SGD) {
        return 0;
    }
    if (efficiency_is_known(in->rate_curvature)) {
        return !efficiency_is_below(in->rate_curvature, edge);
    }
    double exact = dsched_stability_edge(DSCHED_EXACT, in->momentum, 1, 0);
    return in->rule == DSCHED_LOOKAHEAD &&
           efficiency_is_below(edge, DSCHED_PRIOR_EDGE_FRAC * exact);
}

static void efficiency_alone(const struct dsched_efficiency_inputs *in,
                             struct dsched_efficiency *out) {
    uint32_t n_alone = in->merge - 1 + in->delay;
    double n_priced = n_alone;
    if (in->rule == DSCHED_LOOKAHEAD && in->optimizer == DSCHED_OPTIMIZER_SGD && in->delay > 0) {
        /* The one rule whose edge does not rise with momentum. */
        n_priced += dsched_stability_edge(DSCHED_EXACT, in->momentum, 1, 0) - 1;
    }
    out->delay_frac = 1 / (1 + DSCHED_PRIOR_ALONE_FRAC * n_priced);
    out->is_prior = n_alone > 0;
    if (efficiency_is_unstable(in)) {
        out->delay_frac = 0;
        out->is_prior = !efficiency_is_known(in->rate_curvature);
    }
}

enum dsched_status dsched_efficiency_predict(const struct dsched_efficiency_inputs *inputs,
                                             struct dsched_efficiency *out,
                                             struct dsched_error *error) {
    struct dsched_efficiency result = {.merge_frac = 1, .delay_frac = 1};
    if (dsched_rule_name(inputs->rule) == NULL || inputs->merge < 1 ||
        inputs->merge > DSCHED_MAX_MERGE || inputs->delay > DSCHED_MAX_DELAY) {
        return refuse(error, DSCHED_INVALID,
                      "an efficiency needs a rule, a merge of 1..%u and a delay of 0..%u, not rule "
                      "%d, merge %u, delay %u",
                      DSCHED_MAX_MERGE, DSCHED_MAX_DELAY, (int)inputs->rule, inputs->merge,
                      inputs->delay);
    }
    if (!(inputs->momentum >= 0 && inputs->momentum < 1)) {
        return refuse(error, DSCHED_INVALID,
                      "an efficiency needs a momentum of at least 0 and below 1, not %g",
                      inputs->momentum);
    }
    if (inputs->rule != DSCHED_EXACT && efficiency_is_known(inputs->measured_frac)) {
        result.delay_frac = fmin(inputs->measured_frac, DSCHED_MAX_MEASURED_FRAC);
    } else if (inputs->rule == DSCHED_DELAYED) {
        efficiency_delayed(inputs, &result);
    } else if (inputs->rule != DSCHED_EXACT) {
        efficiency_alone(inputs, &result);
    }
    result.progress_frac = result.merge_frac * result.delay_frac;
    *out = result;
    return DSCHED_OK;
}
