#include "layered.h"

#include "muldiv.h"
#include "refuse.h"
#include "spans.h"

#include <stdlib.h>
#include <string.h>

/* --- layers ----------------------------------------------------------------------------------- */

enum dsched_status layered_init(struct layered *layered, const struct dsched_profile *profile,
                                const struct layered_rule *rule, void *rule_state,
                                struct dsched_error *error) {
    struct layered made = {.profile = profile, .rule = rule, .rule_state = rule_state};
    made.layers = calloc(profile->n_tensors, sizeof(*made.layers));
    made.left_bytes = calloc(profile->n_tensors, sizeof(*made.left_bytes));
    if (made.layers == NULL || made.left_bytes == NULL) {
        layered_done(&made);
        return refuse_memory(error, "the layers of a simulation");
    }
    *layered = made;
    return DSCHED_OK;
}

void layered_done(struct layered *layered) {
    if (layered == NULL) {
        return;
    }
    free(layered->layers);
    free(layered->left_bytes);
    memset(layered, 0, sizeof(*layered));
}

static void share_update(struct layered *layered) {
    int64_t optimizer_ns = layered->profile->optimizer_ns;
    uint64_t all = 0;
    uint64_t seen = 0;
    int64_t done_ns = 0;
    for (uint32_t i = 0; i < layered->n_layers; i++) {
        all += layered->layers[i].elements;
    }
    for (uint32_t i = 0; i < layered->n_layers; i++) {
        struct layered_layer *layer = &layered->layers[i];
        int64_t until_ns;
        seen += layer->elements;
        until_ns = (int64_t)muldiv_down((uint64_t)optimizer_ns, seen, all, INT64_MAX);
        layer->update_ns = until_ns - done_ns;
        done_ns = until_ns;
    }
}

const uint64_t layered_fusions[LAYERED_N_FUSIONS] = {
    0,
    UINT64_C(64) << 10,
    UINT64_C(256) << 10,
    UINT64_C(1) << 20,
    UINT64_C(2) << 20,
    UINT64_C(4) << 20,
    UINT64_C(8) << 20,
    UINT64_C(16) << 20,
    UINT64_C(32) << 20,
    UINT64_C(64) << 20,
};

static void reverse(struct layered_layer *layers, uint32_t n) {
    for (uint32_t i = 0; i < n / 2; i++) {
        struct layered_layer swapped = layers[i];
        layers[i] = layers[n - 1 - i];
        layers[n - 1 - i] = swapped;
    }
}

/* Backward runs from the last tensor to the first. A tensor without elements delays the gradients
 * below it, and its forward comes after theirs: it belongs to the layer on its input side. */
void layered_fuse(struct layered *layered, uint64_t limit_bytes) {
    const struct dsched_profile *profile = layered->profile;
    struct layered_layer layer = {0};
    int64_t backward_ns = 0; /* of tensors without elements since the last with some */
    int64_t forward_ns = 0;
    uint32_t n = 0;
    layered->tail_ns = profile->backward_ns;
    layered->lead_ns = profile->forward_ns;
    layered->n_bytes = 0;
    for (uint32_t i = profile->n_tensors; i-- > 0;) {
        const struct dsched_tensor *tensor = &profile->tensors[i];
        uint64_t bytes = tensor->elements * dsched_dtype_bytes(tensor->dtype);
        backward_ns += tensor->backward_ns;
        forward_ns += tensor->forward_ns;
        if (bytes == 0) {
            continue;
        }
        if (layer.bytes > 0 && (layer.bytes >= limit_bytes || layer.dtype != tensor->dtype)) {
            layered->layers[n++] = layer;
            layer = (struct layered_layer){0};
        }
        layer.dtype = tensor->dtype;
        layer.elements += tensor->elements;
        layer.bytes += bytes;
        layer.backward_ns += backward_ns;
        layer.forward_ns += forward_ns;
        layered->n_bytes += bytes;
        layered->tail_ns -= backward_ns;
        layered->lead_ns -= forward_ns;
        backward_ns = 0;
        forward_ns = 0;
    }
    layered->layers[n++] = layer;
    layered->n_layers = n;
    reverse(layered->layers, n);
    share_update(layered);
}

/* --- the compute stream ----------------------------------------------------------------------- */

/* Stages of a cycle, n layers: backward of n - 1 .. 0; tail; lead; then update and forward of each
 * layer. Forward belongs to the next iteration. */
enum { STAGES_BETWEEN = 2 };

/* What happens when a segment passes, and what its gate is. */
enum mark {
    MARK_NONE,
    MARK_READY, /* layers of backward are ready up to the one before `stage` */
    MARK_LAYER, /* + layer whose messages it waits for */
};

static void begin(struct layered *layered) {
    for (uint32_t i = 0; i < layered->n_layers; i++) {
        layered->left_bytes[i] = layered->layers[i].bytes;
    }
    layered->rule->begin(layered->rule_state);
}

static struct timeline_segment backward(struct layered *layered) {
    uint32_t n = layered->n_layers;
    struct timeline_segment out = {.lane = DSCHED_LANE_BACKWARD,
                                   .iteration = layered->iteration,
                                   .work_ns = layered->layers[n - 1 - layered->stage].backward_ns,
                                   .mark = MARK_READY};
    /* What takes no time is ready together: a rule must not choose before it has seen all. */
    layered->stage++;
    while (layered->stage < n && layered->layers[n - 1 - layered->stage].backward_ns == 0) {
        layered->stage++;
    }
    return out;
}

static struct timeline_segment layer_segment(struct layered *layered) {
    uint32_t stage = layered->stage - layered->n_layers - STAGES_BETWEEN;
    const struct layered_layer *layer = &layered->layers[stage / 2];
    int is_forward = stage % 2 != 0;
    if (!is_forward && (layered->is_first || layer->update_ns == 0)) {
        is_forward = 1;
        layered->stage++;
    }
    layered->stage++;
    return (struct timeline_segment){
        .lane = is_forward ? DSCHED_LANE_FORWARD : DSCHED_LANE_OPTIMIZER,
        .iteration = is_forward ? layered->iteration : layered->iteration - 1,
        .work_ns = is_forward ? layer->forward_ns : layer->update_ns,
        .mark = MARK_LAYER + stage / 2};
}

static int next_segment(void *state, struct timeline_segment *out) {
    struct layered *layered = state;
    uint32_t n = layered->n_layers;
    if (layered->stage == n + STAGES_BETWEEN + 2 * n) {
        layered->stage = 0;
        layered->n_ready = 0;
        layered->is_first = 0;
        return 0;
    }
    if (layered->stage == 0) {
        begin(layered);
    }
    if (layered->stage < n) {
        *out = backward(layered);
    } else if (layered->stage == n) {
        *out = (struct timeline_segment){.lane = DSCHED_LANE_BACKWARD,
                                         .iteration = layered->iteration++,
                                         .work_ns = layered->tail_ns};
        layered->stage++;
    } else if (layered->stage == n + 1) {
        *out = (struct timeline_segment){.lane = DSCHED_LANE_FORWARD,
                                         .iteration = layered->iteration,
                                         .work_ns = layered->lead_ns};
        layered->stage++;
    } else {
        *out = layer_segment(layered);
    }
    return 1;
}

static int is_open(void *state, const struct timeline_segment *segment) {
    const struct layered *layered = state;
    return segment->mark < MARK_LAYER || layered->left_bytes[segment->mark - MARK_LAYER] == 0;
}

static void passed(void *state, const struct timeline_segment *segment) {
    struct layered *layered = state;
    if (segment->mark == MARK_READY) {
        layered->n_ready = layered->stage;
        layered->rule->ready(layered->rule_state, layered->n_layers - layered->n_ready);
    }
}

/* --- the link --------------------------------------------------------------------------------- */

static int next_op(void *state, uint32_t link, int64_t now_ns, struct timeline_op *out) {
    struct layered *layered = state;
    struct layered_message message;
    uint64_t iteration = layered->iteration - (layered->stage > layered->n_layers ? 1 : 0);
    (void)now_ns;
    /* A gradient that is ready at this very moment is waited for: it may come first. */
    if (link != 0 || layered->n_ready == 0 || layered_gap_ns(layered) == 0 ||
        !layered->rule->next(layered->rule_state, &message)) {
        return 0;
    }
    *out = (struct timeline_op){.ns = message.ns,
                                .iteration = iteration,
                                .generation = iteration,
                                .bucket = message.layer,
                                .bytes = message.bytes,
                                .mark = message.landed_bytes};
    return 1;
}

static void landed(void *state, uint32_t link, const struct timeline_op *op, int64_t now_ns) {
    struct layered *layered = state;
    struct layered_message message = {
        .layer = op->bucket, .bytes = op->bytes, .landed_bytes = op->mark, .ns = op->ns};
    (void)link;
    (void)now_ns;
    layered->left_bytes[op->bucket] -= op->mark;
    layered->rule->landed(layered->rule_state, &message);
}

static uint32_t snapshot(const void *state, int64_t *out) {
    (void)state;
    (void)out;
    return 0;
}

static const struct timeline_program layered_ops = {
    .segment = next_segment,
    .is_open = is_open,
    .passed = passed,
    .op = next_op,
    .landed = landed,
    .snapshot = snapshot,
};

int64_t layered_gap_ns(const struct layered *layered) {
    const struct timeline *timeline = &layered->timeline;
    int64_t gap_ns;
    if (timeline->has_segment && timeline->segment.mark == MARK_READY) {
        gap_ns = timeline->remaining_ns;
    } else if (layered->stage < layered->n_layers) {
        gap_ns = layered->layers[layered->n_layers - 1 - layered->stage].backward_ns;
    } else {
        return INT64_MAX;
    }
    return (int64_t)muldiv_up((uint64_t)gap_ns, layered->profile->links[0].contention_ppm,
                              MULDIV_PPM, INT64_MAX / 2);
}

/* --- runs ------------------------------------------------------------------------------------- */

/* At the first forward, which nothing waits for. */
static void rewind_first(struct layered *layered) {
    layered->iteration = 0;
    layered->stage = layered->n_layers + 1;
    layered->n_ready = 0;
    layered->is_first = 1;
    memset(layered->left_bytes, 0, layered->n_layers * sizeof(*layered->left_bytes));
    timeline_init(&layered->timeline, layered->profile, &layered_ops, layered, 0);
}

static enum dsched_status run(struct layered *layered, uint32_t n_cycles,
                              struct dsched_error *error) {
    enum dsched_status status = DSCHED_OK;
    for (uint32_t i = 0; status == DSCHED_OK && i < n_cycles; i++) {
        status = timeline_run(&layered->timeline, error);
    }
    return status;
}

enum dsched_status layered_measure(struct layered *layered, struct dsched_report *out,
                                   struct dsched_error *error) {
    const struct timeline *timeline = &layered->timeline;
    struct dsched_report report = {.updates_per_step_ppm = MULDIV_PPM,
                                   .pending_bytes = layered->n_bytes};
    int64_t begin_ns;
    enum dsched_status status;
    rewind_first(layered);
    status = run(layered, 1, error);
    begin_ns = timeline->now_ns;
    if (status == DSCHED_OK) {
        status = run(layered, 1, error);
    }
    if (status != DSCHED_OK) {
        return status;
    }
    report.step_ns = timeline->now_ns - begin_ns;
    /* Updates wait too, on their layer's behalf: there is no boundary. */
    report.exposed_forward_ns = timeline->exposed_forward_ns + timeline->exposed_boundary_ns;
    report.exposed_ns = report.exposed_forward_ns;
    report.link_busy_ppm[0] = (uint32_t)muldiv_down(
        (uint64_t)timeline->links[0].busy_ns, MULDIV_PPM, (uint64_t)report.step_ns, MULDIV_PPM);
    report.ops_per_step_milli = (uint32_t)(timeline->n_ops * 1000);
    *out = report;
    return DSCHED_OK;
}

enum dsched_status layered_show(struct layered *layered, dsched_span_fn on_span, void *context,
                                struct dsched_error *error) {
    struct spans spans;
    enum dsched_status status;
    spans_init(&spans);
    rewind_first(layered);
    layered->timeline.on_span = spans_add;
    layered->timeline.context = &spans;
    status = run(layered, 3, error);
    if (status == DSCHED_OK) {
        status = spans_emit(&spans, on_span, context, error);
    }
    spans_done(&spans);
    return status;
}
