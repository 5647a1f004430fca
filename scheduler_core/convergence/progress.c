/* The same for every merge and delay at once: what the planner is given. */
#include <dsched/convergence.h>

#include "refuse.h"

/* One rule's table is made of points at which progress was predicted. */
struct progress_rule {
    struct dsched_efficiency_inputs inputs;
    uint32_t max_merge;
    uint32_t max_delay;
    struct dsched_error *error;
    enum dsched_status status; /* of the first prediction that failed */
};

static double progress_at(struct progress_rule *rule, uint32_t merge, uint32_t delay) {
    struct dsched_efficiency efficiency = {0};
    rule->inputs.merge = merge;
    rule->inputs.delay = delay;
    if (rule->status == DSCHED_OK) {
        rule->status = dsched_efficiency_predict(&rule->inputs, &efficiency, rule->error);
    }
    return rule->status == DSCHED_OK ? efficiency.progress_frac : 0;
}

static int progress_has_merge(struct progress_rule *rule, uint32_t merge, uint32_t most_delay) {
    for (uint32_t delay = 0; delay <= most_delay; delay++) {
        if (progress_at(rule, merge, delay) <= 0) {
            return 0;
        }
    }
    return 1;
}

static int progress_has_delay(struct progress_rule *rule, uint32_t delay, uint32_t most_merge) {
    for (uint32_t merge = 1; merge <= most_merge; merge++) {
        if (progress_at(rule, merge, delay) <= 0) {
            return 0;
        }
    }
    return 1;
}

/* Ranks that go on alone have an edge of stability that no product of two factors follows. So the
 * limits are cut to merges and delays that make progress in every combination. A plan of merge k
 * has delays of about k, so both grow together for as long as they can; then merges grow, which may
 * wait for what is late, then delays. */
static void progress_cut(struct progress_rule *rule) {
    uint32_t n = 0;
    uint32_t merge = 1;
    uint32_t delay = 0;
    while (n < rule->max_merge && n < rule->max_delay && progress_has_merge(rule, n + 1, n) &&
           progress_has_delay(rule, n + 1, n + 1)) {
        n++;
        merge = n;
        delay = n;
    }
    while (merge < rule->max_merge && progress_has_merge(rule, merge + 1, delay)) {
        merge++;
    }
    while (delay < rule->max_delay && progress_has_delay(rule, delay + 1, merge)) {
        delay++;
    }
    rule->max_merge = merge;
    rule->max_delay = delay;
}

static uint32_t progress_ppm(double frac) {
    return (uint32_t)(frac * 1e6 + 0.5);
}

/* Fills in one rule. What merges cost is told at the delay that plans of the rule have at least:
 * those under lookahead and averaged are always late. */
static void progress_fill(struct progress_rule *rule, uint32_t *merge_ppm, uint32_t *delay_ppm) {
    uint32_t usual = 0;
    if (progress_at(rule, 1, 0) <= 0) {
        return; /* exact itself is not stable */
    }
    if (rule->inputs.rule == DSCHED_LOOKAHEAD || rule->inputs.rule == DSCHED_AVERAGED) {
        progress_cut(rule);
        usual = rule->max_delay > 0 ? 1 : 0;
    }
    double one = progress_at(rule, 1, usual);
    for (uint32_t merge = 1; merge <= rule->max_merge; merge++) {
        merge_ppm[merge] = progress_ppm(progress_at(rule, merge, usual) / one);
    }
    for (uint32_t delay = 0; delay <= rule->max_delay; delay++) {
        delay_ppm[delay] = progress_ppm(progress_at(rule, 1, delay));
    }
}

enum dsched_status dsched_progress_predict(const struct dsched_efficiency_inputs *inputs,
                                           uint32_t max_merge, uint32_t max_delay,
                                           struct dsched_progress *out,
                                           struct dsched_error *error) {
    struct dsched_progress table = {0};
    if (max_merge < 1 || max_merge > DSCHED_MAX_MERGE || max_delay > DSCHED_MAX_DELAY) {
        return refuse(error, DSCHED_INVALID,
                      "a table of progress needs a largest merge of 1..%u and a largest delay of "
                      "0..%u, not %u and %u",
                      DSCHED_MAX_MERGE, DSCHED_MAX_DELAY, max_merge, max_delay);
    }
    if (inputs->measured_frac >= 0) {
        return refuse(error, DSCHED_INVALID,
                      "a table of progress is predicted, but one measurement of %g is given for "
                      "all merges and delays",
                      inputs->measured_frac);
    }
    for (uint32_t r = 0; r < DSCHED_N_RULES; r++) {
        struct progress_rule rule = {
            .inputs = *inputs, .max_merge = max_merge, .max_delay = max_delay, .error = error};
        rule.inputs.rule = (enum dsched_rule)r;
        progress_fill(&rule, table.merge_ppm[r], table.delay_ppm[r]);
        if (rule.status != DSCHED_OK) {
            return rule.status;
        }
    }
    *out = table;
    return DSCHED_OK;
}
