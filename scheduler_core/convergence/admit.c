/* The largest merge whose price in progress a job admits. */
#include <dsched/convergence.h>

#include "refuse.h"

#include <math.h>
#include <stdio.h>

static enum dsched_status admit_try(const struct dsched_admission_inputs *inputs, uint32_t merge,
                                    struct dsched_efficiency *out_efficiency, double *out_ratio,
                                    struct dsched_error *error) {
    struct dsched_efficiency_inputs in = inputs->efficiency;
    struct dsched_efficiency efficiency;
    in.merge = merge;
    enum dsched_status status = dsched_efficiency_predict(&in, &efficiency, error);
    if (status != DSCHED_OK) {
        return status;
    }
    /* The walk knows what merging does by itself, so only the delay is put in; and not the prior of
     * rules that lose nothing where the theory reaches, which only orders them in ties. */
    int is_tie_break = efficiency.is_prior && efficiency.delay_frac > 0 &&
                       (in.rule == DSCHED_LOOKAHEAD || in.rule == DSCHED_AVERAGED);
    double delay_frac = is_tie_break ? 1 : fmin(efficiency.delay_frac, 1);
    status = dsched_walk_ratio(&inputs->walk, merge, delay_frac, out_ratio, error);
    if (status == DSCHED_OK) {
        *out_efficiency = efficiency;
    }
    return status;
}

static void admit_explain(struct dsched_admission *a) {
    const char *name = dsched_rule_name(a->inputs.efficiency.rule);
    uint32_t next = a->merge + 1;
    switch (a->reason) {
    case DSCHED_ADMIT_ALL:
        (void)snprintf(
            a->text, sizeof(a->text),
            "merge %u under %s is admitted: excess loss %.4g times exact's, progress %.4g "
            "per sample",
            a->merge, name, a->walk_ratio, a->efficiency.progress_frac);
        return;
    case DSCHED_ADMIT_WALK:
        (void)snprintf(a->text, sizeof(a->text),
                       "merge %u under %s is refused: its excess loss is %.4g times exact's, at "
                       "most %.4g is allowed",
                       next, name, a->refused_ratio, 1 + a->inputs.epsilon_frac);
        return;
    case DSCHED_ADMIT_PROGRESS:
        (void)snprintf(a->text, sizeof(a->text),
                       "merge %u under %s is refused: its progress per sample is %.4g, at least "
                       "%.4g is wanted",
                       next, name, a->refused_frac, a->inputs.floor_frac);
        return;
    case DSCHED_ADMIT_UNSTABLE:
        (void)snprintf(
            a->text, sizeof(a->text),
            "merge %u under %s is refused: delay %u is at or beyond the edge of stability", next,
            name, a->inputs.efficiency.delay);
        return;
    }
}

enum dsched_status dsched_admit_merge(const struct dsched_admission_inputs *inputs,
                                      struct dsched_admission *out, struct dsched_error *error) {
    struct dsched_admission a = {.inputs = *inputs,
                                 .reason = DSCHED_ADMIT_ALL,
                                 .refused_ratio = DSCHED_UNKNOWN,
                                 .refused_frac = DSCHED_UNKNOWN};
    if (inputs->max_merge < 1 || inputs->max_merge > DSCHED_MAX_MERGE ||
        !(inputs->epsilon_frac >= 0 && inputs->epsilon_frac <= 1) ||
        !(inputs->floor_frac >= 0 && inputs->floor_frac <= 1)) {
        return refuse(
            error, DSCHED_INVALID,
            "an admission needs a largest merge of 1..%u, an epsilon and a floor of 0..1, "
            "not %u, %g and %g",
            DSCHED_MAX_MERGE, inputs->max_merge, inputs->epsilon_frac, inputs->floor_frac);
    }
    for (uint32_t merge = 1; merge <= inputs->max_merge; merge++) {
        struct dsched_efficiency efficiency;
        double ratio;
        enum dsched_status status = admit_try(inputs, merge, &efficiency, &ratio, error);
        if (status != DSCHED_OK) {
            return status;
        }
        if (efficiency.progress_frac <= 0) {
            a.reason = DSCHED_ADMIT_UNSTABLE;
        } else if (efficiency.progress_frac < inputs->floor_frac) {
            a.reason = DSCHED_ADMIT_PROGRESS;
        } else if (ratio > 1 + inputs->epsilon_frac) {
            a.reason = DSCHED_ADMIT_WALK;
        } else {
            a.merge = merge;
        }
        if (a.merge == merge || merge == 1) {
            a.efficiency = efficiency;
            a.walk_ratio = ratio;
        }
        if (a.merge != merge) {
            a.refused_ratio = ratio;
            a.refused_frac = efficiency.progress_frac;
            break;
        }
    }
    admit_explain(&a);
    *out = a;
    return DSCHED_OK;
}
