/* The property behind plan switches: whatever valid plans follow each other, at whatever moments
 * they reach the ranks, and however long links take, all ranks switch at the same boundary,
 * parameters are bit-equal on all ranks whenever nothing is in flight, the anchor always is, and
 * the gradients of exact and delayed plans are bit-equal to a reference sum in rank order. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "runtime/runtime.h"
#include "testing.h"
#include "world.h"

#define N_RANKS    4
#define N_TENSORS  6
#define N_ELEMENTS 236
#define MAX_STEPS  200000

static const uint64_t tensor_sizes[N_TENSORS] = {7, 64, 1, 130, 3, 31};
static const enum deft_dtype tensor_types[N_TENSORS] = {DEFT_F32, DEFT_F32, DEFT_F32,
                                                        DEFT_F64, DEFT_F64, DEFT_F32};

/* --- plans ------------------------------------------------------------------------------------ */

static struct dsched_table test_table(void) {
    static const uint8_t types[N_TENSORS] = {0, 0, 0, 1, 1, 0};
    return (struct dsched_table){.n_tensors = N_TENSORS, .elements = tensor_sizes, .dtypes = types};
}

/* Cuts the gradient space at random; `whole` cuts only between tensors. */
static uint32_t random_cuts(uint64_t *random, int whole, uint64_t *cuts) {
    uint64_t place = 0;
    uint32_t n = 0;
    for (uint32_t i = N_TENSORS; i-- > 0;) {
        uint64_t end = place + tensor_sizes[i];
        int must = i > 0 && tensor_types[i] != tensor_types[i - 1];
        for (uint64_t e = place + 1; e < end && !whole; e++) {
            if (testing_random_below(random, 40) == 0) {
                cuts[n++] = e;
            }
        }
        if (i == 0 || must || testing_random_below(random, 2) == 0) {
            cuts[n++] = end;
        }
        place = end;
    }
    return n;
}

static void random_ops(uint64_t *random, struct dsched_plan *plan, uint32_t n_links, int per_bucket,
                       uint32_t max_delay) {
    for (uint32_t g = 0; g < plan->n_generations; g++) {
        uint8_t shared = (uint8_t)testing_random_below(random, max_delay + 1);
        for (uint32_t b = 0; b < plan->n_buckets; b++) {
            struct dsched_op *op = &plan->ops[(size_t)g * plan->n_buckets + b];
            op->link = (uint8_t)testing_random_below(random, n_links);
            op->delay = per_bucket ? (uint8_t)testing_random_below(random, max_delay + 1) : shared;
        }
    }
}

/* A random plan that the validator accepts. */
static void random_plan(uint64_t *random, uint32_t n_links, struct dsched_plan *out) {
    struct dsched_table table = test_table();
    for (;;) {
        uint64_t cuts[N_ELEMENTS + 1];
        enum dsched_rule rule = (enum dsched_rule)testing_random_below(random, DSCHED_N_RULES);
        int merges = rule == DSCHED_DELAYED || rule == DSCHED_AVERAGED;
        int per_bucket = rule != DSCHED_EXACT && testing_random_below(random, 2) == 0;
        uint32_t n = random_cuts(random, per_bucket && rule != DSCHED_AVERAGED, cuts);
        uint32_t n_generations = merges ? 1 + (uint32_t)testing_random_below(random, 3) : 1;
        uint32_t max_delay = rule == DSCHED_EXACT ? 0 : rule == DSCHED_LOOKAHEAD ? 1 : 5;
        assert_int_equal(dsched_plan_init(out, n, n_generations), DSCHED_OK);
        out->rule = rule;
        out->n_links = n_links;
        for (uint32_t b = 0; b < n; b++) {
            out->buckets[b].begin = b == 0 ? 0 : cuts[b - 1];
            out->buckets[b].end = cuts[b];
        }
        for (uint32_t g = 0; g < n_generations; g++) {
            out->merge[g] = merges ? (uint16_t)(1 + testing_random_below(random, 4)) : 1;
        }
        random_ops(random, out, n_links, per_bucket, max_delay);
        if (dsched_plan_validate(out, &table, n_links, NULL) == DSCHED_OK) {
            return;
        }
        dsched_plan_done(out);
    }
}

/* --- one rank's training ---------------------------------------------------------------------- */

struct shared {
    uint32_t n_switches;
    int sums_in_rank_order; /* else only equality between ranks can be asked for */
    uint64_t seed;
    struct dsched_plan *plans;      /* [n_switches] */
    uint64_t *switched_at[N_RANKS]; /* iteration of each switch */
    uint64_t *parameters[N_RANKS];  /* hash of the parameters at each switch */
    uint64_t *anchors[N_RANKS];     /* hash of the anchor after each iteration */
    uint64_t n_iterations[N_RANKS];
    uint64_t n_checked[N_RANKS]; /* gradients compared with the reference */
};

struct pending {
    double values[N_ELEMENTS];
    uint64_t end;
    uint32_t merged;
};

struct rank_state {
    struct world_rank *self;
    struct shared *shared;
    uint64_t random;
    double *w[N_TENSORS]; /* storage of f64; f32 tensors use it as float */
    double *gradient[N_TENSORS];
    double *velocity[N_TENSORS];
    uint64_t iteration;
};

static double load(uint32_t tensor, const void *data, uint64_t i) {
    return tensor_types[tensor] == DEFT_F32 ? (double)((const float *)data)[i]
                                            : ((const double *)data)[i];
}

static void store(uint32_t tensor, void *data, uint64_t i, double value) {
    if (tensor_types[tensor] == DEFT_F32) {
        ((float *)data)[i] = (float)value;
    } else {
        ((double *)data)[i] = value;
    }
}

/* Each rank pulls towards a point of its own, with noise: ranks disagree, averages do not. */
static double gradient_of(int32_t rank, uint64_t iteration, uint32_t tensor, uint64_t i, double w) {
    uint64_t x =
        (uint64_t)rank * 7919 + iteration * 104729 + (uint64_t)tensor * 1299709 + i * 31 + 1;
    double noise = (double)(testing_random(&x) >> 40) / 16777216.0 - 0.5;
    return 0.2 * (w - (double)rank) + noise;
}

static void compute(struct rank_state *state) {
    struct deft_runtime *rt = state->self->rt;
    deft_forward_begin(rt);
    deft_loss(rt, 1.0);
    deft_backward_begin(rt);
    for (uint32_t n = 0; n < N_TENSORS; n++) {
        uint32_t t = N_TENSORS - 1 - n;
        if (state->iteration % 5 == 3) { /* readiness order need not be the registration's */
            t = n;
        }
        for (uint64_t i = 0; i < tensor_sizes[t]; i++) {
            store(t, state->gradient[t], i,
                  gradient_of(state->self->rank, state->iteration, t, i, load(t, state->w[t], i)));
        }
        WORLD_CHECK(state->self, deft_grad_ready(rt, t, state->gradient[t]) == DEFT_OK,
                    "gradient %u was not taken", t);
    }
}

static int same_bits(double a, double b) {
    uint64_t x, y;
    memcpy(&x, &a, sizeof(x));
    memcpy(&y, &b, sizeof(y));
    return x == y;
}

/* Parameters are equal on all ranks under exact, so the reference can be computed by each. */
static void check_exact(struct rank_state *state, const struct deft_update *update) {
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        WORLD_CHECK(state->self, update->gradients[t] != NULL, "exact without tensor %u", t);
        for (uint64_t i = 0; i < tensor_sizes[t]; i++) {
            double w = load(t, state->w[t], i);
            double expected = 0;
            for (int32_t r = 0; r < N_RANKS; r++) {
                double g = gradient_of(r, state->iteration, t, i, w);
                if (tensor_types[t] == DEFT_F32) {
                    float part = (float)g * 0.25f;
                    expected = r == 0 ? (double)part : (double)((float)expected + part);
                } else {
                    expected = r == 0 ? g * 0.25 : expected + g * 0.25;
                }
            }
            double got = load(t, update->gradients[t], i);
            WORLD_CHECK(state->self, same_bits(got, expected),
                        "iteration %llu tensor %u element %llu: %.17g, reference %.17g",
                        (unsigned long long)state->iteration, t, (unsigned long long)i, got,
                        expected);
        }
    }
    state->shared->n_checked[state->self->rank]++;
}

static void optimizer(struct rank_state *state, const struct deft_update *update, int preview) {
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        if (update->gradients[t] == NULL) {
            continue;
        }
        for (uint64_t i = 0; i < tensor_sizes[t]; i++) {
            double v = 0.5 * state->velocity[t][i] + load(t, update->gradients[t], i);
            if (!preview) {
                state->velocity[t][i] = v;
            }
            store(t, state->w[t], i, load(t, state->w[t], i) - 0.05 * v);
        }
    }
}

static void step(struct rank_state *state) {
    struct deft_runtime *rt = state->self->rt;
    struct deft_error error = {.text = ""};
    struct deft_update update;
    enum dsched_rule rule = rt->engine->plan.rule;
    compute(state);
    do {
        WORLD_CHECK(state->self, deft_step(rt, &update, &error) == DEFT_OK, "%s", error.text);
        if (update.action == DEFT_APPLY && rule == DSCHED_EXACT &&
            state->shared->sums_in_rank_order) {
            check_exact(state, &update);
        }
        if (update.action != DEFT_DONE) {
            optimizer(state, &update, update.action == DEFT_PREVIEW);
        }
    } while (update.action != DEFT_DONE);
    state->shared->anchors[state->self->rank][state->iteration] = deft_anchor_hash(rt);
    state->iteration++;
    WORLD_CHECK(state->self, state->iteration < MAX_STEPS, "the ranks never agree");
}

static uint64_t hash_parameters(const struct rank_state *state) {
    uint64_t hash = 1469598103934665603u;
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        size_t n_bytes = tensor_sizes[t] * (tensor_types[t] == DEFT_F32 ? 4 : 8);
        for (size_t k = 0; k < n_bytes; k++) {
            hash = (hash ^ ((const uint8_t *)state->w[t])[k]) * 1099511628211u;
        }
    }
    return hash;
}

static void offer(struct rank_state *state, uint32_t number) {
    struct deft_error error = {.text = ""};
    const struct dsched_plan *plan = &state->shared->plans[number];
    size_t n_bytes = dsched_plan_encode(plan, NULL, 0);
    uint8_t *bytes = malloc(n_bytes);
    WORLD_CHECK(state->self, bytes != NULL, "no memory");
    (void)dsched_plan_encode(plan, bytes, n_bytes);
    const struct ipc_plan head = {.seq = number + 1,
                                  .hash = dsched_plan_hash(plan),
                                  .max_loss = (double)NAN,
                                  .max_grad_sq = (double)NAN};
    WORLD_CHECK(state->self,
                admission_offer(state->self->rt, &head, bytes, n_bytes, &error) == DEFT_OK, "%s",
                error.text);
    free(bytes);
}

static void set_up(struct rank_state *state) {
    struct deft_error error = {.text = ""};
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        char name[16];
        uint32_t id;
        state->w[t] = calloc(tensor_sizes[t], sizeof(double));
        state->gradient[t] = calloc(tensor_sizes[t], sizeof(double));
        state->velocity[t] = calloc(tensor_sizes[t], sizeof(double));
        for (uint64_t i = 0; i < tensor_sizes[t]; i++) { /* rank 0's must win */
            store(t, state->w[t], i, (double)state->self->rank + (double)i / 10);
        }
        (void)snprintf(name, sizeof(name), "t%u", t);
        struct deft_tensor tensor = {.name = name,
                                     .elements = tensor_sizes[t],
                                     .dtype = tensor_types[t],
                                     .parameters = state->w[t]};
        WORLD_CHECK(state->self, deft_tensor_add(state->self->rt, &tensor, &id, &error) == DEFT_OK,
                    "%s", error.text);
        WORLD_CHECK(state->self,
                    deft_state_add(state->self->rt, state->velocity[t], tensor_sizes[t], DEFT_F64,
                                   &error) == DEFT_OK,
                    "%s", error.text);
    }
    WORLD_CHECK(state->self, deft_commit(state->self->rt, &error) == DEFT_OK, "%s", error.text);
}

static void drain(struct rank_state *state) {
    struct deft_error error = {.text = ""};
    struct deft_update update;
    do {
        WORLD_CHECK(state->self, deft_drain(state->self->rt, &update, &error) == DEFT_OK, "%s",
                    error.text);
        if (update.action == DEFT_APPLY) {
            optimizer(state, &update, 0);
        }
    } while (update.action != DEFT_DONE);
}

static void train(struct world_rank *self) {
    struct shared *shared = self->world->shared;
    struct rank_state state = {.self = self, .shared = shared};
    uint64_t together = shared->seed; /* the same on all ranks */
    state.random = shared->seed + (uint64_t)self->rank + 1;
    set_up(&state);
    for (uint32_t s = 0; s < shared->n_switches; s++) {
        uint64_t skew = testing_random_below(&state.random, 4);
        struct deft_stats stats = {.plan_seq = s};
        for (uint64_t n = 0; stats.plan_seq != s + 1; n++) {
            if (n == skew) {
                offer(&state, s);
            }
            step(&state);
            deft_stats(self->rt, &stats);
        }
        shared->switched_at[self->rank][s] = state.iteration;
        shared->parameters[self->rank][s] = hash_parameters(&state);
        uint64_t more = testing_random_below(&together, 6);
        for (uint64_t n = 0; n < more; n++) {
            step(&state);
        }
        if (testing_random_below(&together, 4) == 0) {
            drain(&state);
        }
    }
    drain(&state);
    shared->parameters[self->rank][shared->n_switches] = hash_parameters(&state);
    shared->n_iterations[self->rank] = state.iteration;
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        free(state.w[t]);
        free(state.gradient[t]);
        free(state.velocity[t]);
    }
}

/* --- the cases -------------------------------------------------------------------------------- */

static int64_t random_delay(void *context, int32_t rank, uint32_t channel, uint64_t op) {
    uint64_t x =
        *(const uint64_t *)context + (uint64_t)rank * 131 + (uint64_t)channel * 7 + op * 1009 + 1;
    return testing_random_below(&x, 8) == 0 ? (int64_t)testing_random_below(&x, 300000) : 0;
}

static void run_switches(uint32_t n_switches, const char *links, uint32_t n_links, int delays) {
    struct shared shared = {
        .n_switches = n_switches, .sums_in_rank_order = links == NULL, .seed = testing_seed()};
    struct mem_faults faults = {.delay_ns = random_delay, .context = &shared.seed};
    uint64_t random = shared.seed;
    shared.plans = calloc(n_switches, sizeof(*shared.plans));
    assert_non_null(shared.plans);
    for (uint32_t s = 0; s < n_switches; s++) {
        random_plan(&random, n_links, &shared.plans[s]);
    }
    for (int r = 0; r < N_RANKS; r++) {
        shared.switched_at[r] = calloc(n_switches, sizeof(uint64_t));
        shared.parameters[r] = calloc((size_t)n_switches + 1, sizeof(uint64_t));
        shared.anchors[r] = calloc(MAX_STEPS, sizeof(uint64_t));
    }
    world_run(N_RANKS, links, n_links, delays ? &faults : NULL,
              DEFT_CAN_PREVIEW | DEFT_CAN_SKIP | DEFT_CAN_AVERAGE, &shared, train);
    for (int r = 0; r < N_RANKS; r++) {
        assert_int_equal(shared.n_iterations[r], shared.n_iterations[0]);
        assert_true(shared.n_checked[r] > 0 || links != NULL);
        assert_memory_equal(shared.switched_at[r], shared.switched_at[0], (size_t)n_switches * 8);
        assert_memory_equal(shared.parameters[r], shared.parameters[0],
                            ((size_t)n_switches + 1) * 8);
        assert_memory_equal(shared.anchors[r], shared.anchors[0], shared.n_iterations[0] * 8);
    }
    for (int r = 0; r < N_RANKS; r++) {
        free(shared.switched_at[r]);
        free(shared.parameters[r]);
        free(shared.anchors[r]);
    }
    for (uint32_t s = 0; s < n_switches; s++) {
        dsched_plan_done(&shared.plans[s]);
    }
    free(shared.plans);
}

static void thousand_switches_on_one_link(void **state) {
    (void)state;
    run_switches(1000, NULL, 1, 1);
}

static void switches_on_three_links(void **state) {
    (void)state;
    run_switches(200, NULL, 3, 1);
}

static void switches_without_delays(void **state) {
    (void)state;
    run_switches(200, NULL, 1, 0);
}

static void switches_over_gloo(void **state) {
    (void)state;
#ifdef DEFT_WITH_GLOO
    run_switches(20, "gloo:lo,gloo:127.0.0.1", 2, 0);
#else
    testing_skip("this build has no Gloo links");
#endif
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(thousand_switches_on_one_link),
    cmocka_unit_test(switches_on_three_links),
    cmocka_unit_test(switches_without_delays),
    cmocka_unit_test(switches_over_gloo),
};
TESTING_MAIN(cases)
