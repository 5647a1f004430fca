/* US-Byte (Gao et al., TPDS 35(1), 2024): messages of unequal size. Under backward each message
 * fills the time until the next gradient is ready; afterwards what is left of each layer is one
 * message, in the order of forward. Priorities start as layer numbers and are adjusted. */
#include "../layered.h"
#include "../refuse.h"
#include "policies.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Elements of one unit, S_p. */
static const uint64_t units[] = {16384,  32768,   65536,   131072, 262144,
                                 524288, 1048576, 2097152, 4194304};
#define N_UNITS (sizeof(units) / sizeof(units[0]))
/* Settings whose priorities are adjusted. */
#define N_ADJUSTED 8u
/* Layers simulated while priorities are adjusted: bounds that to about a second. */
#define MAX_ADJUSTED_LAYERS 4000000u

struct setting {
    uint64_t fusion_bytes;
    uint64_t unit;
    struct dsched_report report;
};

/* What a simulation shows the adjustment of priorities. */
struct trace {
    int64_t *ready_ns; /* [layers] */
    int64_t *sent_ns;  /* [layers] end of the first message under backward; 0: none */
};

struct us_byte {
    struct layered layered;
    uint64_t unit;
    uint32_t *rank;   /* [layers] less is sent first */
    uint64_t *unsent; /* [layers] elements */
    uint32_t *heap;   /* [layers] ready layers with unsent elements, by rank */
    uint32_t n_heap;
    uint32_t next_ready; /* layers from this one on are ready */
    uint32_t front;      /* after backward: all before are sent */
    struct trace trace;
    struct trace kept_trace; /* of the priorities that were kept */
    uint32_t *kept_rank;
};

/* --- ready layers by rank --------------------------------------------------------------------- */

static int is_before(const struct us_byte *state, uint32_t a, uint32_t b) {
    return state->rank[state->heap[a]] < state->rank[state->heap[b]];
}

static void swap(struct us_byte *state, uint32_t a, uint32_t b) {
    uint32_t layer = state->heap[a];
    state->heap[a] = state->heap[b];
    state->heap[b] = layer;
}

static void push(struct us_byte *state, uint32_t layer) {
    uint32_t at = state->n_heap++;
    state->heap[at] = layer;
    while (at > 0 && is_before(state, at, (at - 1) / 2)) {
        swap(state, at, (at - 1) / 2);
        at = (at - 1) / 2;
    }
}

static void pop(struct us_byte *state) {
    uint32_t at = 0;
    state->heap[0] = state->heap[--state->n_heap];
    for (;;) {
        uint32_t least = at;
        for (uint32_t child = 2 * at + 1; child <= 2 * at + 2 && child < state->n_heap; child++) {
            least = is_before(state, child, least) ? child : least;
        }
        if (least == at) {
            return;
        }
        swap(state, at, least);
        at = least;
    }
}

/* --- the rule --------------------------------------------------------------------------------- */

static void begin(void *state_) {
    struct us_byte *state = state_;
    state->n_heap = 0;
    state->next_ready = state->layered.n_layers;
    state->front = 0;
    for (uint32_t i = 0; i < state->layered.n_layers; i++) {
        state->unsent[i] = state->layered.layers[i].elements;
        state->trace.sent_ns[i] = 0;
    }
}

static void ready(void *state_, uint32_t first) {
    struct us_byte *state = state_;
    while (state->next_ready > first) {
        push(state, --state->next_ready);
        state->trace.ready_ns[state->next_ready] = state->layered.timeline.now_ns;
    }
}

static int64_t cost_ns(const struct us_byte *state, uint32_t layer, uint64_t elements) {
    return dsched_link_ns(&state->layered.profile->links[0],
                          elements * dsched_dtype_bytes(state->layered.layers[layer].dtype));
}

/* The fewest units that keep the link busy until the next gradient: for alpha a and b per unit one
 * if the gap is below a, else (gap - a) / b rounded up. All that is left if that is too short. */
static uint64_t fill_gap(const struct us_byte *state, uint32_t layer, int64_t gap_ns) {
    uint64_t all = state->unsent[layer];
    uint64_t low = 0;
    uint64_t high = (all + state->unit - 1) / state->unit;
    if (cost_ns(state, layer, all) <= gap_ns) {
        return all;
    }
    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (cost_ns(state, layer, middle * state->unit) >= gap_ns) {
            high = middle;
        } else {
            low = middle;
        }
    }
    return high * state->unit < all ? high * state->unit : all;
}

static void send(struct us_byte *state, uint32_t layer, uint64_t elements,
                 struct layered_message *out) {
    uint64_t bytes = elements * dsched_dtype_bytes(state->layered.layers[layer].dtype);
    state->unsent[layer] -= elements;
    *out = (struct layered_message){.layer = layer,
                                    .bytes = bytes,
                                    .landed_bytes = bytes,
                                    .ns = cost_ns(state, layer, elements)};
}

static int next(void *state_, struct layered_message *out) {
    struct us_byte *state = state_;
    uint32_t n = state->layered.n_layers;
    int64_t gap_ns = layered_gap_ns(&state->layered);
    uint32_t layer;
    if (gap_ns == INT64_MAX) {
        while (state->front < n && state->unsent[state->front] == 0) {
            state->front++;
        }
        if (state->front == n) {
            return 0;
        }
        send(state, state->front, state->unsent[state->front], out);
        return 1;
    }
    if (state->n_heap == 0) {
        return 0;
    }
    layer = state->heap[0];
    send(state, layer, fill_gap(state, layer, gap_ns), out);
    if (state->unsent[layer] == 0) {
        pop(state);
    }
    if (state->trace.sent_ns[layer] == 0) {
        state->trace.sent_ns[layer] = state->layered.timeline.now_ns + out->ns;
    }
    return 1;
}

static void landed(void *state, const struct layered_message *message) {
    (void)state;
    (void)message;
}

static const struct layered_rule rule = {
    .begin = begin, .ready = ready, .next = next, .landed = landed};

/* --- tuning ----------------------------------------------------------------------------------- */

static void use(struct us_byte *state, const struct setting *setting) {
    layered_fuse(&state->layered, setting->fusion_bytes);
    state->unit = setting->unit;
    for (uint32_t i = 0; i < state->layered.n_layers; i++) {
        state->rank[i] = i;
    }
}

static void keep(struct us_byte *state) {
    uint32_t n = state->layered.n_layers;
    memcpy(state->kept_rank, state->rank, n * sizeof(*state->rank));
    memcpy(state->kept_trace.ready_ns, state->trace.ready_ns, n * sizeof(*state->trace.ready_ns));
    memcpy(state->kept_trace.sent_ns, state->trace.sent_ns, n * sizeof(*state->trace.sent_ns));
}

/* Layer `l` before those that become ready while its first message is sent. Returns 0 when it comes
 * before them already, or sends nothing under backward. */
static int promote(struct us_byte *state, uint32_t l) {
    const struct trace *trace = &state->kept_trace;
    uint32_t k = l;
    uint32_t to;
    uint32_t from = state->kept_rank[l];
    while (k > 0 && trace->ready_ns[k - 1] < trace->sent_ns[l]) {
        k--;
    }
    to = state->kept_rank[k];
    if (k == l || to >= from) {
        return 0;
    }
    for (uint32_t i = 0; i < state->layered.n_layers; i++) {
        uint32_t r = state->kept_rank[i];
        state->rank[i] = r >= to && r < from ? r + 1 : r;
    }
    state->rank[l] = to;
    return 1;
}

/* From the output side on, keeps each promotion that shortens the step. Afterwards `rank` is what
 * was kept. */
static enum dsched_status adjust(struct us_byte *state, struct setting *setting,
                                 struct dsched_error *error) {
    uint32_t n;
    uint32_t n_tries;
    enum dsched_status status;
    use(state, setting);
    n = state->layered.n_layers;
    n_tries = MAX_ADJUSTED_LAYERS / N_ADJUSTED / n;
    status = layered_measure(&state->layered, &setting->report, error);
    keep(state);
    for (uint32_t l = n - 1; status == DSCHED_OK && l > 0 && n_tries > 0; l--) {
        struct dsched_report report;
        if (!promote(state, l)) {
            continue;
        }
        n_tries--;
        status = layered_measure(&state->layered, &report, error);
        if (status == DSCHED_OK && report.step_ns < setting->report.step_ns) {
            setting->report = report;
            keep(state);
        }
    }
    memcpy(state->rank, state->kept_rank, n * sizeof(*state->rank));
    return status;
}

/* The best settings, best first; `out` has N_ADJUSTED. */
static enum dsched_status search(struct us_byte *state, struct setting *out,
                                 struct dsched_error *error) {
    uint32_t n = 0;
    for (uint32_t f = 0; f < LAYERED_N_FUSIONS; f++) {
        for (uint32_t u = 0; u < N_UNITS; u++) {
            struct setting setting = {.fusion_bytes = layered_fusions[f], .unit = units[u]};
            uint32_t at;
            enum dsched_status status;
            use(state, &setting);
            status = layered_measure(&state->layered, &setting.report, error);
            if (status != DSCHED_OK) {
                return status;
            }
            at = n < N_ADJUSTED ? n++ : N_ADJUSTED;
            for (; at > 0 && out[at - 1].report.step_ns > setting.report.step_ns; at--) {
                if (at < N_ADJUSTED) {
                    out[at] = out[at - 1];
                }
            }
            if (at < N_ADJUSTED) {
                out[at] = setting;
            }
        }
    }
    return DSCHED_OK;
}

static enum dsched_status tune(struct us_byte *state, struct setting *best,
                               struct dsched_error *error) {
    struct setting settings[N_ADJUSTED];
    enum dsched_status status = search(state, settings, error);
    for (uint32_t i = 0; status == DSCHED_OK && i < N_ADJUSTED; i++) {
        status = adjust(state, &settings[i], error);
        if (i == 0 || settings[i].report.step_ns < best->report.step_ns) {
            *best = settings[i];
        }
    }
    return status;
}

static enum dsched_status allocate(struct us_byte *state, struct dsched_error *error) {
    uint32_t n = state->layered.profile->n_tensors;
    state->rank = calloc(n, sizeof(*state->rank));
    state->kept_rank = calloc(n, sizeof(*state->kept_rank));
    state->unsent = calloc(n, sizeof(*state->unsent));
    state->heap = calloc(n, sizeof(*state->heap));
    state->trace.ready_ns = calloc(n, sizeof(int64_t));
    state->trace.sent_ns = calloc(n, sizeof(int64_t));
    state->kept_trace.ready_ns = calloc(n, sizeof(int64_t));
    state->kept_trace.sent_ns = calloc(n, sizeof(int64_t));
    if (state->rank == NULL || state->kept_rank == NULL || state->unsent == NULL ||
        state->heap == NULL || state->trace.ready_ns == NULL || state->trace.sent_ns == NULL ||
        state->kept_trace.ready_ns == NULL || state->kept_trace.sent_ns == NULL) {
        return refuse_memory(error, "US-Byte's priorities");
    }
    return DSCHED_OK;
}

static void release(struct us_byte *state) {
    free(state->rank);
    free(state->kept_rank);
    free(state->unsent);
    free(state->heap);
    free(state->trace.ready_ns);
    free(state->trace.sent_ns);
    free(state->kept_trace.ready_ns);
    free(state->kept_trace.sent_ns);
    layered_done(&state->layered);
}

static enum dsched_status us_byte_simulate(const struct dsched_profile *profile,
                                           dsched_span_fn on_span, void *context,
                                           struct dsched_outcome *out, struct dsched_error *error) {
    struct us_byte state = {0};
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
        status = adjust(&state, &best, error); /* once more, for its priorities */
    }
    if (status == DSCHED_OK && on_span != NULL) {
        status = layered_show(&state.layered, on_span, context, error);
    }
    if (status == DSCHED_OK) {
        struct dsched_outcome outcome = {.report = best.report, .rule = DSCHED_EXACT};
        (void)snprintf(outcome.note, sizeof(outcome.note), "fusion %.2f MiB, unit %.3fe6 elements",
                       (double)best.fusion_bytes / 1048576.0, (double)best.unit / 1e6);
        *out = outcome;
    }
    release(&state);
    return status;
}

const struct dsched_policy policy_us_byte = {
    .name = "us-byte",
    .summary = "US-Byte: messages that fill the gaps of backward, then forward order, tuned",
    .simulate = us_byte_simulate,
};
