#include "wire_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"

#define MAX_INTEGER ((UINT64_C(1) << 53) - 1)

static uint64_t support_below(uint64_t *state, uint64_t bound) {
    return testing_random_below(state, bound);
}

static uint64_t support_integer(uint64_t *state) {
    return testing_random(state) & MAX_INTEGER;
}

static int64_t support_time(uint64_t *state) {
    return (int64_t)support_below(state, (uint64_t)DSCHED_MAX_TIME_NS + 1);
}

static double support_real(uint64_t *state) {
    switch (support_below(state, 4)) {
    case 0:
        return NAN;
    case 1:
        return 0.1 * (double)support_below(state, 100);
    case 2:
        return -(double)testing_random(state) / 3.0;
    default:
        return ldexp((double)testing_random(state), (int)support_below(state, 200) - 150);
    }
}

static void *support_array(size_t n, size_t size) {
    void *array = calloc(n > 0 ? n : 1, size);
    assert_non_null(array);
    return array;
}

void wire_support_text(uint64_t *state, char *out, size_t capacity_bytes) {
    static const char *const pieces[] = {"a", "Z", " ", "\"", "\\", "/", "\n", "ä", "€", "😀", "0"};
    size_t n = 0;
    size_t length = support_below(state, capacity_bytes);
    out[0] = '\0';
    for (;;) {
        const char *piece = pieces[support_below(state, sizeof(pieces) / sizeof(pieces[0]))];
        size_t bytes = strlen(piece);
        if (n + bytes > length || n + bytes >= capacity_bytes) {
            return;
        }
        memcpy(out + n, piece, bytes + 1);
        n += bytes;
    }
}

static void support_samples(uint64_t *state, uint32_t n, struct dsched_sample *out) {
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++) {
        bytes += 1 + support_below(state, 1u << 20);
        out[i].bytes = bytes;
        out[i].ns = 1 + (int64_t)bytes * 10;
    }
}

void wire_support_registration(uint64_t *state, struct wire_registration *out) {
    static const char *const modes[] = {"", "off", "observe", "auto"};
    static const char *const optimizers[] = {"", "unknown", "sgd", "adam", "adamw"};
    memset(out, 0, sizeof(*out));
    wire_support_text(state, out->key, sizeof(out->key) - 1);
    memcpy(out->key + strlen(out->key), "k", 2);
    wire_support_text(state, out->name, sizeof(out->name));
    wire_support_text(state, out->user, sizeof(out->user));
    memcpy(out->agent, "host-1", 7);
    wire_support_text(state, out->version, sizeof(out->version));
    (void)snprintf(out->mode, sizeof(out->mode), "%s", modes[support_below(state, 4)]);
    (void)snprintf(out->optimizer, sizeof(out->optimizer), "%s",
                   optimizers[support_below(state, 5)]);
    out->started_ns = testing_random(state);
    out->n_ranks = 1 + (uint32_t)support_below(state, 65536);
    out->restart_count = (uint32_t)testing_random(state);
    out->table_hash = testing_random(state);
    out->capabilities =
        (uint32_t)testing_random(state) & (WIRE_CAN_PREVIEW | WIRE_CAN_SKIP | WIRE_CAN_AVERAGE);
    out->max_pending_bytes = support_integer(state);
    out->momentum = support_real(state);
    out->learning_rate = support_real(state);
    out->batch_per_rank = support_integer(state);
    out->max_merge = (uint32_t)support_below(state, DSCHED_MAX_MERGE + 1);
    out->max_delay = (uint32_t)support_below(state, DSCHED_MAX_DELAY + 1);
    out->epsilon = (double)support_below(state, 1025) / 1024.0;
    out->n_local_ranks = (uint32_t)support_below(state, 9);
    out->local_ranks = support_array(out->n_local_ranks, sizeof(*out->local_ranks));
    for (uint32_t i = 0; i < out->n_local_ranks; i++) {
        out->local_ranks[i] = (uint32_t)support_below(state, out->n_ranks);
    }
    out->n_tensors = 1 + (uint32_t)support_below(state, 20);
    out->tensors = support_array(out->n_tensors, sizeof(*out->tensors));
    for (uint32_t i = 0; i < out->n_tensors; i++) {
        wire_support_text(state, out->tensors[i].name, sizeof(out->tensors[i].name));
        out->tensors[i].elements = 1 + support_below(state, DSCHED_MAX_ELEMENTS);
        out->tensors[i].dtype = (enum dsched_dtype)support_below(state, DSCHED_N_DTYPES);
    }
    out->n_links = (uint32_t)support_below(state, DSCHED_MAX_LINKS + 1);
    out->links = support_array(out->n_links, sizeof(*out->links));
    for (uint32_t i = 0; i < out->n_links; i++) {
        wire_support_text(state, out->links[i].name, sizeof(out->links[i].name));
        out->links[i].n_probes = (uint32_t)support_below(state, 17);
        out->links[i].probes = support_array(out->links[i].n_probes, sizeof(struct dsched_sample));
        support_samples(state, out->links[i].n_probes, out->links[i].probes);
    }
}

static void support_iteration(uint64_t *state, struct wire_iteration *out) {
    out->rank = (uint32_t)testing_random(state);
    out->iteration = support_integer(state);
    out->plan_seq = support_integer(state);
    out->forward_ns = support_time(state);
    out->backward_ns = support_time(state);
    out->exposed_ns = support_time(state);
    out->optimizer_ns = support_time(state);
    out->runtime_ns = support_time(state);
    out->step_ns = support_time(state);
    out->bytes = support_integer(state);
    out->loss = support_real(state);
    out->grad_sq_local = support_real(state);
    out->grad_sq_mean = support_real(state);
    out->updates = (uint32_t)testing_random(state);
    out->skipped = (uint32_t)testing_random(state);
    out->merge = (uint32_t)testing_random(state);
    out->flags = (uint32_t)testing_random(state);
    out->change_sq_local = support_real(state);
    out->learning_rate = support_real(state);
}

void wire_support_report(uint64_t *state, struct wire_report *out) {
    static const char *const kinds[] = {"switched", "refused", "finished",
                                        "failed",   "dropped", "fused"};
    memset(out, 0, sizeof(*out));
    memcpy(out->agent, "host-1", 7);
    out->seq = 1 + support_below(state, MAX_INTEGER);
    out->n_iterations = (uint32_t)support_below(state, 40);
    out->iterations = support_array(out->n_iterations, sizeof(*out->iterations));
    for (uint32_t i = 0; i < out->n_iterations; i++) {
        support_iteration(state, &out->iterations[i]);
    }
    out->n_ops = (uint32_t)support_below(state, 10);
    out->ops = support_array(out->n_ops, sizeof(*out->ops));
    for (uint32_t i = 0; i < out->n_ops; i++) {
        out->ops[i] = (struct wire_op_summary){.rank = (uint32_t)testing_random(state),
                                               .link = (uint32_t)support_below(state, 8),
                                               .bytes = support_integer(state),
                                               .count = (uint32_t)testing_random(state),
                                               .min_ns = support_time(state),
                                               .median_ns = support_time(state),
                                               .max_ns = support_time(state)};
    }
    out->n_readiness = (uint32_t)support_below(state, 3);
    out->readiness = support_array(out->n_readiness, sizeof(*out->readiness));
    for (uint32_t i = 0; i < out->n_readiness; i++) {
        struct wire_readiness *row = &out->readiness[i];
        row->rank = (uint32_t)testing_random(state);
        row->iteration = support_integer(state);
        row->n_offsets = (uint32_t)support_below(state, 30);
        row->offsets_ns = support_array(row->n_offsets, sizeof(*row->offsets_ns));
        for (uint32_t o = 0; o < row->n_offsets; o++) {
            row->offsets_ns[o] = support_time(state);
        }
    }
    out->n_events = (uint32_t)support_below(state, 5);
    out->events = support_array(out->n_events, sizeof(*out->events));
    for (uint32_t i = 0; i < out->n_events; i++) {
        struct wire_event *event = &out->events[i];
        const char *kind = kinds[support_below(state, 6)];
        memcpy(event->kind, kind, strlen(kind) + 1);
        event->rank = (uint32_t)testing_random(state);
        event->plan_seq = support_integer(state);
        event->iteration = support_integer(state);
        event->count = support_integer(state);
        wire_support_text(state, event->text, sizeof(event->text));
    }
}

void wire_support_plan(uint64_t *state, struct dsched_plan *out) {
    uint32_t n_buckets = 1 + (uint32_t)support_below(state, 20);
    uint32_t n_generations = 1 + (uint32_t)support_below(state, 8);
    uint64_t end = 0;
    assert_int_equal(dsched_plan_init(out, n_buckets, n_generations), DSCHED_OK);
    out->rule = (enum dsched_rule)support_below(state, DSCHED_N_RULES);
    out->n_links = 1 + (uint32_t)support_below(state, DSCHED_MAX_LINKS);
    for (uint32_t b = 0; b < n_buckets; b++) {
        out->buckets[b].begin = end;
        end += 1 + support_below(state, UINT64_C(1) << 30);
        out->buckets[b].end = end;
    }
    for (uint32_t g = 0; g < n_generations; g++) {
        out->merge[g] = (uint16_t)(1 + support_below(state, DSCHED_MAX_MERGE));
        for (uint32_t b = 0; b < n_buckets; b++) {
            struct dsched_op *op = &out->ops[(size_t)g * n_buckets + b];
            op->link = (uint8_t)support_below(state, out->n_links);
            op->delay = (uint8_t)support_below(state, DSCHED_MAX_DELAY + 1);
        }
    }
    out->forecast =
        (struct dsched_forecast){.step_ns = (int64_t)support_integer(state),
                                 .exposed_ns = (int64_t)support_integer(state),
                                 .compute_ns = (int64_t)support_integer(state),
                                 .updates_per_step_ppm = (uint32_t)support_below(state, 1000001),
                                 .mean_delay_milli = (uint32_t)support_below(state, 64001),
                                 .max_delay = (uint32_t)support_below(state, 65),
                                 .pending_bytes = support_integer(state)};
}

void wire_support_profile(uint64_t *state, struct dsched_profile *out) {
    memset(out, 0, sizeof(*out));
    wire_support_text(state, out->name, sizeof(out->name));
    out->world_size = 1 + (uint32_t)support_below(state, 1000);
    out->n_tensors = 1 + (uint32_t)support_below(state, 30);
    out->tensors = support_array(out->n_tensors, sizeof(*out->tensors));
    for (uint32_t i = 0; i < out->n_tensors; i++) {
        struct dsched_tensor *tensor = &out->tensors[i];
        wire_support_text(state, tensor->name, sizeof(tensor->name));
        tensor->elements = (i == 0 ? 1 : 0) + support_below(state, 1u << 20);
        tensor->dtype = (enum dsched_dtype)support_below(state, DSCHED_N_DTYPES);
        tensor->forward_ns = (int64_t)support_below(state, 1000000);
        tensor->backward_ns = (int64_t)support_below(state, 1000000);
        out->forward_ns += tensor->forward_ns;
        out->backward_ns += tensor->backward_ns;
    }
    out->optimizer_ns = (int64_t)support_below(state, 1000000);
    out->n_links = 1 + (uint32_t)support_below(state, DSCHED_MAX_LINKS);
    out->links = support_array(out->n_links, sizeof(*out->links));
    for (uint32_t i = 0; i < out->n_links; i++) {
        struct dsched_link *link = &out->links[i];
        wire_support_text(state, link->name, sizeof(link->name));
        link->alpha_ns = (int64_t)support_below(state, 1000000);
        link->bytes_per_s = 1 + (int64_t)support_below(state, UINT64_C(1) << 40);
        link->contention_ppm = 1000000 + (uint32_t)support_below(state, 1000000);
        link->n_samples = (uint32_t)support_below(state, 20);
        link->samples = support_array(link->n_samples, sizeof(*link->samples));
        support_samples(state, link->n_samples, link->samples);
    }
}

/* Mostly plausible, now and then as large as it can be; with zeros between. */
static uint32_t support_ppm(uint64_t *state) {
    switch (support_below(state, 4)) {
    case 0:
        return 0;
    case 1:
        return (uint32_t)testing_random(state);
    default:
        return (uint32_t)support_below(state, 1000001);
    }
}

void wire_support_solve(uint64_t *state, struct wire_solve *out) {
    memset(out, 0, sizeof(*out));
    out->options.rules = (uint32_t)support_below(state, DSCHED_RULE_BIT(DSCHED_N_RULES));
    out->options.max_merge = 1 + (uint32_t)support_below(state, DSCHED_MAX_MERGE);
    out->options.max_delay = (uint32_t)support_below(state, DSCHED_MAX_DELAY + 1);
    out->options.max_pending_bytes = support_integer(state);
    out->options.jitter_ppm = (uint32_t)support_below(state, 1000001);
    out->options.tolerance_ppm = (uint32_t)support_below(state, 1000001);
    wire_support_profile(state, &out->profile);
    if (support_below(state, 4) == 0) {
        return; /* no table */
    }
    out->options.progress = &out->progress;
    for (uint32_t r = 0; r < DSCHED_N_RULES; r++) {
        uint64_t n_merges = support_below(state, DSCHED_MAX_MERGE + 1);
        uint64_t n_delays = support_below(state, DSCHED_MAX_DELAY + 2);
        for (uint64_t k = 1; k <= n_merges; k++) {
            out->progress.merge_ppm[r][k] = support_ppm(state);
        }
        for (uint64_t d = 0; d < n_delays; d++) {
            out->progress.delay_ppm[r][d] = support_ppm(state);
        }
    }
}

static double support_share(uint64_t *state) {
    return (double)support_below(state, 1000001) / 1e6;
}

void wire_support_limits(uint64_t *state, struct wire_limits *out) {
    *out = (struct wire_limits){.max_merge = 1 + (uint32_t)support_below(state, DSCHED_MAX_MERGE),
                                .max_delay = (uint32_t)support_below(state, DSCHED_MAX_DELAY + 1),
                                .epsilon = support_share(state),
                                .min_progress = support_share(state),
                                .loss_floor = support_real(state)};
}

void wire_support_job(uint64_t *state, struct wire_job *out) {
    memset(out, 0, sizeof(*out));
    wire_support_text(state, out->id, sizeof(out->id));
    wire_support_text(state, out->name, sizeof(out->name));
    memcpy(out->state, "running", 8);
    memcpy(out->mode, "auto", 5);
    out->n_ranks = (uint32_t)testing_random(state);
    out->iterations = support_integer(state);
    out->plan_seq = support_integer(state);
    out->exact_step_ns = support_time(state);
    out->step_ns = support_time(state);
    out->gain = support_real(state);
    out->predicted_gain = support_real(state);
    out->coverage = support_real(state);
    out->updates_per_step = support_real(state);
    out->max_merge = (uint32_t)support_below(state, DSCHED_MAX_MERGE + 1);
    out->epsilon = support_real(state);
    out->min_progress = support_real(state);
    out->loss_floor = support_real(state);
    out->frozen = (int)support_below(state, 2);
    wire_support_text(state, out->pin, sizeof(out->pin));
    out->progress = support_real(state);
    out->noise_samples = support_real(state);
    out->disagreement = support_real(state);
    out->loss = support_real(state);
    wire_support_text(state, out->loss_state, sizeof(out->loss_state));
    wire_support_text(state, out->status, sizeof(out->status));
    wire_support_text(state, out->decision, sizeof(out->decision));
}
