/* DeAR (Zhang et al., ICDCS 2023): the all-reduce in halves. The reduce-scatters of fused groups
 * run under backward; when all are done, the all-gathers run under forward in its order. */
#include "../layered.h"
#include "policies.h"

#include <stdio.h>

/* The authors' fusion is 25 MB unless tuned. */
static const uint64_t fusions_mb[] = {25, 1, 2, 4, 8, 16, 32, 64, 128, 256};
#define N_FUSIONS (sizeof(fusions_mb) / sizeof(fusions_mb[0]))
#define MB        UINT64_C(1000000)

struct dear {
    struct layered layered;
    uint32_t ready;     /* groups from this one on are ready */
    uint32_t scattered; /* groups from this one on have been reduce-scattered, or are being */
    uint32_t n_gathered;
};

static void begin(void *state_) {
    struct dear *state = state_;
    state->ready = state->layered.n_layers;
    state->scattered = state->layered.n_layers;
    state->n_gathered = 0;
}

static void ready(void *state_, uint32_t first) {
    struct dear *state = state_;
    state->ready = first;
}

/* The link is free, so with the last reduce-scatter started all have landed. */
static int next(void *state_, struct layered_message *out) {
    struct dear *state = state_;
    const struct layered *layered = &state->layered;
    int is_gather = state->scattered == 0;
    uint32_t group;
    uint64_t bytes;
    int64_t ns;
    if (is_gather ? state->n_gathered == layered->n_layers : state->scattered == state->ready) {
        return 0;
    }
    group = is_gather ? state->n_gathered++ : --state->scattered;
    bytes = layered->layers[group].bytes;
    ns = dsched_link_ns(&layered->profile->links[0], bytes);
    *out = (struct layered_message){.layer = group,
                                    .bytes = bytes,
                                    .landed_bytes = is_gather ? bytes : 0,
                                    .ns = is_gather ? ns / 2 : ns - ns / 2};
    return 1;
}

static void landed(void *state, const struct layered_message *message) {
    (void)state;
    (void)message;
}

static const struct layered_rule rule = {
    .begin = begin, .ready = ready, .next = next, .landed = landed};

static enum dsched_status tune(struct dear *state, uint64_t *out_fusion_mb,
                               struct dsched_report *out, struct dsched_error *error) {
    for (uint32_t f = 0; f < N_FUSIONS; f++) {
        struct dsched_report report;
        enum dsched_status status;
        layered_fuse(&state->layered, fusions_mb[f] * MB);
        status = layered_measure(&state->layered, &report, error);
        if (status != DSCHED_OK) {
            return status;
        }
        if (f == 0 || report.step_ns < out->step_ns) {
            *out = report;
            *out_fusion_mb = fusions_mb[f];
        }
    }
    return DSCHED_OK;
}

static enum dsched_status dear_simulate(const struct dsched_profile *profile,
                                        dsched_span_fn on_span, void *context,
                                        struct dsched_outcome *out, struct dsched_error *error) {
    struct dear state = {0};
    struct dsched_outcome outcome = {.rule = DSCHED_EXACT};
    uint64_t fusion_mb = 0;
    enum dsched_status status = dsched_profile_check(profile, error);
    if (status == DSCHED_OK) {
        status = layered_init(&state.layered, profile, &rule, &state, error);
    }
    if (status != DSCHED_OK) {
        return status;
    }
    status = tune(&state, &fusion_mb, &outcome.report, error);
    if (status == DSCHED_OK && on_span != NULL) {
        layered_fuse(&state.layered, fusion_mb * MB);
        status = layered_show(&state.layered, on_span, context, error);
    }
    if (status == DSCHED_OK) {
        (void)snprintf(outcome.note, sizeof(outcome.note), "fusion %u MB", (unsigned)fusion_mb);
        *out = outcome;
    }
    layered_done(&state.layered);
    return status;
}

const struct dsched_policy policy_dear = {
    .name = "dear",
    .summary = "DeAR: reduce-scatter under backward, all-gather under forward, tuned fusion",
    .simulate = dear_simulate,
};
