/* ByteScheduler (Peng et al., SOSP 2019): tensors in parts, the input side first, and a credit that
 * limits how much is handed to the network ahead of what may still become more urgent. */
#include "../layered.h"
#include "../refuse.h"
#include "policies.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Elements. Both axes hold what the authors ship (1e6 and 4e6) and advise for all-reduce (8e6 and
 * 16e6). A credit of 1 commits one part at a time, which is as close as parts come to preemption.
 */
static const uint64_t partitions[] = {250000,  500000,  1000000,  2000000,
                                      4000000, 8000000, 16000000, 32000000};
static const int64_t credits[] = {1,       1000000,  2000000,  4000000,
                                  8000000, 16000000, 32000000, 64000000};
#define N_PARTITIONS (sizeof(partitions) / sizeof(partitions[0]))
#define N_CREDITS    (sizeof(credits) / sizeof(credits[0]))
/* The coarsest partition of the largest profile stays below; finer ones only cost latency there. */
#define MAX_PARTS 131072u

struct setting {
    uint64_t fusion_bytes;
    uint64_t partition;
    int64_t credit;
    struct dsched_report report;
};

struct bytescheduler {
    struct layered layered;
    uint64_t partition;
    int64_t credit;
    int64_t credit_left;
    uint64_t *uncommitted; /* [layers] elements */
    uint64_t *committed;   /* [layers] elements in the queue */
    uint32_t *ready;       /* [layers] stack of layers with uncommitted parts: since gradients come
                              from the output side, the newest is the most urgent */
    uint32_t n_ready;
    uint32_t next_ready; /* layers from this one on have become ready */
    uint32_t *queue;     /* [parts] layers */
    uint32_t n_queued;
    uint32_t n_sent;
};

static uint64_t part_of(const struct bytescheduler *state, uint64_t elements) {
    return elements < state->partition ? elements : state->partition;
}

static void commit(struct bytescheduler *state) {
    while (state->credit_left > 0 && state->n_ready > 0) {
        uint32_t layer = state->ready[state->n_ready - 1];
        uint64_t part = part_of(state, state->uncommitted[layer]);
        state->uncommitted[layer] -= part;
        state->committed[layer] += part;
        state->credit_left -= (int64_t)part;
        state->queue[state->n_queued++] = layer;
        state->n_ready -= state->uncommitted[layer] == 0;
    }
}

static void begin(void *state_) {
    struct bytescheduler *state = state_;
    state->credit_left = state->credit;
    state->n_ready = 0;
    state->next_ready = state->layered.n_layers;
    state->n_queued = 0;
    state->n_sent = 0;
    for (uint32_t i = 0; i < state->layered.n_layers; i++) {
        state->uncommitted[i] = state->layered.layers[i].elements;
        state->committed[i] = 0;
    }
}

static void ready(void *state_, uint32_t first) {
    struct bytescheduler *state = state_;
    while (state->next_ready > first) {
        state->ready[state->n_ready++] = --state->next_ready;
    }
    commit(state);
}

static int next(void *state_, struct layered_message *out) {
    struct bytescheduler *state = state_;
    const struct layered_layer *layer;
    uint32_t i;
    uint64_t part;
    commit(state);
    if (state->n_sent == state->n_queued) {
        return 0;
    }
    i = state->queue[state->n_sent++];
    layer = &state->layered.layers[i];
    part = part_of(state, state->committed[i]);
    state->committed[i] -= part;
    out->layer = i;
    out->bytes = part * dsched_dtype_bytes(layer->dtype);
    out->landed_bytes = out->bytes;
    out->ns = dsched_link_ns(&state->layered.profile->links[0], out->bytes);
    return 1;
}

/* What the credit allows now is committed when the link asks: a gradient that is ready at the same
 * moment comes before. */
static void landed(void *state_, const struct layered_message *message) {
    struct bytescheduler *state = state_;
    uint32_t element_bytes = dsched_dtype_bytes(state->layered.layers[message->layer].dtype);
    state->credit_left += (int64_t)(message->landed_bytes / element_bytes);
}

static const struct layered_rule rule = {
    .begin = begin, .ready = ready, .next = next, .landed = landed};

/* --- tuning ----------------------------------------------------------------------------------- */

static uint64_t count_parts(const struct layered *layered, uint64_t partition) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < layered->n_layers; i++) {
        n += (layered->layers[i].elements + partition - 1) / partition;
    }
    return n;
}

/* Keeps the setting when it is faster than the best so far. */
static enum dsched_status try_setting(struct bytescheduler *state, struct setting setting,
                                      struct setting *best, struct dsched_error *error) {
    enum dsched_status status;
    layered_fuse(&state->layered, setting.fusion_bytes);
    if (count_parts(&state->layered, setting.partition) > MAX_PARTS) {
        return DSCHED_OK;
    }
    state->partition = setting.partition;
    state->credit = setting.credit;
    status = layered_measure(&state->layered, &setting.report, error);
    if (status == DSCHED_OK &&
        (best->partition == 0 || setting.report.step_ns < best->report.step_ns)) {
        *best = setting;
    }
    return status;
}

/* All partitions of all fusions with one part in flight, then all credits for the best. */
static enum dsched_status tune(struct bytescheduler *state, struct setting *best,
                               struct dsched_error *error) {
    enum dsched_status status = DSCHED_OK;
    for (uint32_t f = 0; f < LAYERED_N_FUSIONS; f++) {
        for (uint32_t p = 0; status == DSCHED_OK && p < N_PARTITIONS; p++) {
            struct setting setting = {.fusion_bytes = layered_fusions[f],
                                      .partition = partitions[p],
                                      .credit = credits[0]};
            status = try_setting(state, setting, best, error);
        }
    }
    for (uint32_t c = 1; status == DSCHED_OK && c < N_CREDITS; c++) {
        struct setting setting = *best;
        setting.credit = credits[c];
        status = try_setting(state, setting, best, error);
    }
    return status;
}

static enum dsched_status allocate(struct bytescheduler *state, struct dsched_error *error) {
    uint32_t n = state->layered.profile->n_tensors;
    uint64_t n_parts;
    layered_fuse(&state->layered, 0);
    n_parts = count_parts(&state->layered, partitions[0]);
    n_parts = n_parts < MAX_PARTS ? n_parts : MAX_PARTS;
    state->uncommitted = calloc(n, sizeof(*state->uncommitted));
    state->committed = calloc(n, sizeof(*state->committed));
    state->ready = calloc(n, sizeof(*state->ready));
    state->queue = calloc(n_parts + 1, sizeof(*state->queue));
    if (state->uncommitted == NULL || state->committed == NULL || state->ready == NULL ||
        state->queue == NULL) {
        return refuse_memory(error, "ByteScheduler's queues");
    }
    return DSCHED_OK;
}

static enum dsched_status bytescheduler_simulate(const struct dsched_profile *profile,
                                                 dsched_span_fn on_span, void *context,
                                                 struct dsched_outcome *out,
                                                 struct dsched_error *error) {
    struct bytescheduler state = {0};
    struct setting best = {0};
    enum dsched_status status = dsched_profile_check(profile, error);
    if (status == DSCHED_OK) {
        status = layered_init(&state.layered, profile, &rule, &state, error);
    }
    if (status != DSCHED_OK) {
        return status;
    }
    status = allocate(&state, error);
    if (status == DSCHED_OK) {
        status = tune(&state, &best, error);
    }
    if (status == DSCHED_OK && on_span != NULL) {
        layered_fuse(&state.layered, best.fusion_bytes);
        state.partition = best.partition;
        state.credit = best.credit;
        status = layered_show(&state.layered, on_span, context, error);
    }
    if (status == DSCHED_OK) {
        struct dsched_outcome outcome = {.report = best.report, .rule = DSCHED_EXACT};
        (void)snprintf(outcome.note, sizeof(outcome.note),
                       "fusion %.2f MiB, partition %.2fe6, credit %" PRId64 " elements",
                       (double)best.fusion_bytes / 1048576.0, (double)best.partition / 1e6,
                       best.credit);
        *out = outcome;
    }
    free(state.uncommitted);
    free(state.committed);
    free(state.ready);
    free(state.queue);
    layered_done(&state.layered);
    return status;
}

const struct dsched_policy policy_bytescheduler = {
    .name = "bytescheduler",
    .summary = "ByteScheduler: parts by priority and credit, layer by layer, tuned",
    .simulate = bytescheduler_simulate,
};
