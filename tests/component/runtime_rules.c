/* What each update rule does to the parameters, against a reference that keeps all ranks in one
 * place and follows the formulas of docs/update-rules.md; and what a non-finite gradient does. */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/runtime.h"
#include "testing.h"
#include "world.h"

#define N_RANKS   3
#define N         24 /* elements, in two tensors */
#define N_FIRST   9
#define MAX_STEPS 64
#define RATE      0.05
#define MOMENTUM  0.6

struct shared {
    struct dsched_plan plan;
    uint32_t n_steps;
    int nan_rank; /* -1: none */
    uint64_t nan_step;
    uint32_t nan_element;
    double w[N_RANKS][N];
    double v[N_RANKS][N];
    uint64_t skipped[N_RANKS];
    /* What each rank reports of the generations that land in an iteration. */
    double landed_sq[N_RANKS][MAX_STEPS];
    double change_sq[N_RANKS][MAX_STEPS];
};

static double gradient_of(int rank, uint64_t step, uint32_t i, double w) {
    uint64_t x = (uint64_t)rank * 7919 + step * 104729 + (uint64_t)i * 1299709 + 1;
    double noise = (double)(testing_random(&x) >> 11) / 9007199254740992.0 - 0.5;
    return 0.3 * (w - (double)rank) + noise;
}

/* --- the ranks -------------------------------------------------------------------------------- */

struct rank_state {
    struct world_rank *self;
    struct shared *shared;
    double *w;
    double *v;
    uint64_t step;
};

static void optimizer(struct rank_state *state, const struct deft_update *update) {
    for (uint32_t i = 0; i < N; i++) {
        uint32_t tensor = i < N_FIRST ? 0 : 1;
        const double *gradient = update->gradients[tensor];
        if (gradient == NULL) {
            continue;
        }
        double v = MOMENTUM * state->v[i] + gradient[tensor == 0 ? i : i - N_FIRST];
        if (update->action == DEFT_APPLY) {
            state->v[i] = v;
        }
        state->w[i] -= RATE * v;
    }
}

static void finish(struct rank_state *state,
                   enum deft_status (*next)(struct deft_runtime *, struct deft_update *,
                                            struct deft_error *)) {
    struct deft_error error = {.text = ""};
    struct deft_update update;
    do {
        WORLD_CHECK(state->self, next(state->self->rt, &update, &error) == DEFT_OK, "%s",
                    error.text);
        if (update.action != DEFT_DONE) {
            optimizer(state, &update);
        }
    } while (update.action != DEFT_DONE);
}

static void one_step(struct rank_state *state) {
    struct deft_runtime *rt = state->self->rt;
    double g[N];
    for (uint32_t i = 0; i < N; i++) {
        g[i] = gradient_of(state->self->rank, state->step, i, state->w[i]);
    }
    if (state->self->rank == state->shared->nan_rank && state->step == state->shared->nan_step) {
        g[state->shared->nan_element] = (double)NAN;
    }
    deft_forward_begin(rt);
    deft_backward_begin(rt);
    WORLD_CHECK(state->self, deft_grad_ready(rt, 1, g + N_FIRST) == DEFT_OK, "tensor 1");
    WORLD_CHECK(state->self, deft_grad_ready(rt, 0, g) == DEFT_OK, "tensor 0");
    finish(state, deft_step);
    state->shared->landed_sq[state->self->rank][state->step] = rt->finished.grad_sq_mean;
    state->shared->change_sq[state->self->rank][state->step] = rt->finished.change_sq_local;
    state->step++;
}

static void add_tensors(struct rank_state *state) {
    struct deft_error error = {.text = ""};
    uint32_t id;
    struct deft_tensor first = {
        .name = "a", .elements = N_FIRST, .dtype = DEFT_F64, .parameters = state->w};
    struct deft_tensor second = {
        .name = "b", .elements = N - N_FIRST, .dtype = DEFT_F64, .parameters = state->w + N_FIRST};
    WORLD_CHECK(state->self,
                deft_tensor_add(state->self->rt, &first, &id, &error) == DEFT_OK &&
                    deft_tensor_add(state->self->rt, &second, &id, &error) == DEFT_OK &&
                    deft_state_add(state->self->rt, state->v, N, DEFT_F64, &error) == DEFT_OK &&
                    deft_commit(state->self->rt, &error) == DEFT_OK,
                "%s", error.text);
}

static void train(struct world_rank *self) {
    struct shared *shared = self->world->shared;
    struct rank_state state = {.self = self, .shared = shared};
    struct deft_error error = {.text = ""};
    struct deft_stats stats;
    size_t n_bytes = dsched_plan_encode(&shared->plan, NULL, 0);
    uint8_t *bytes = malloc(n_bytes);
    state.w = shared->w[self->rank];
    state.v = shared->v[self->rank];
    add_tensors(&state);
    (void)dsched_plan_encode(&shared->plan, bytes, n_bytes);
    const struct ipc_plan head = {.seq = 1,
                                  .hash = dsched_plan_hash(&shared->plan),
                                  .max_loss = (double)NAN,
                                  .max_grad_sq = (double)NAN};
    WORLD_CHECK(self, admission_offer(self->rt, &head, bytes, n_bytes, &error) == DEFT_OK, "%s",
                error.text);
    free(bytes);
    do { /* exact steps until the plan runs */
        one_step(&state);
        deft_stats(self->rt, &stats);
    } while (stats.plan_seq != 1);
    WORLD_CHECK(self, state.step == CONTROL_LAG + 1, "switched after %llu steps",
                (unsigned long long)state.step);
    for (uint32_t s = 0; s < shared->n_steps; s++) {
        one_step(&state);
    }
    finish(&state, deft_drain);
    deft_stats(self->rt, &stats);
    shared->skipped[self->rank] = stats.skipped;
}

/* --- the reference ---------------------------------------------------------------------------- */

struct flight {
    int used;
    uint64_t due; /* boundary that applies it */
    double mean[N];
    double own[N_RANKS][N];
};

struct reference {
    double a[N];          /* anchor; under exact and delayed the parameters themselves */
    double w[N_RANKS][N]; /* working weights */
    double v[N_RANKS][N]; /* optimizer state; row 0 where it is common */
    double sum[N_RANKS][N];
    struct flight flights[MAX_STEPS];
    uint32_t n_flights;
    uint32_t generation, iteration; /* in the cycle, in the generation */
    uint64_t step;
    double landed_sq[MAX_STEPS];
    double change_sq[N_RANKS][MAX_STEPS];
};

static void common_step(struct reference *ref, const double *gradient) {
    for (uint32_t i = 0; i < N; i++) {
        ref->v[0][i] = MOMENTUM * ref->v[0][i] + gradient[i];
        ref->a[i] -= RATE * ref->v[0][i];
    }
}

static void launch(struct reference *ref, const struct dsched_plan *plan, uint32_t merged,
                   uint64_t due) {
    struct flight *flight = &ref->flights[ref->n_flights++];
    flight->used = 1;
    flight->due = due;
    for (uint32_t i = 0; i < N; i++) {
        flight->mean[i] = 0;
        for (int r = 0; r < N_RANKS; r++) {
            double own = ref->sum[r][i] / merged;
            if (plan->rule == DSCHED_AVERAGED) {
                own = ref->w[r][i] - ref->a[i];
                for (uint32_t f = 0; f + 1 < ref->n_flights; f++) {
                    own -= ref->flights[f].used ? ref->flights[f].own[r][i] : 0;
                }
            }
            flight->own[r][i] = own;
            flight->mean[i] += own / N_RANKS;
            ref->sum[r][i] = 0;
        }
    }
}

static void add_sq(double *figure, const double *values) {
    *figure = isnan(*figure) ? 0 : *figure;
    for (uint32_t i = 0; i < N; i++) {
        *figure += values[i] * values[i];
    }
}

static void land(struct reference *ref, const struct dsched_plan *plan, struct flight *flight) {
    flight->used = 0;
    add_sq(&ref->landed_sq[ref->step], flight->mean);
    for (int r = 0; r < N_RANKS && plan->rule == DSCHED_AVERAGED; r++) {
        add_sq(&ref->change_sq[r][ref->step], flight->own[r]);
    }
    if (plan->rule != DSCHED_AVERAGED) {
        common_step(ref, flight->mean);
        return;
    }
    for (uint32_t i = 0; i < N; i++) {
        ref->a[i] += flight->mean[i];
        for (int r = 0; r < N_RANKS; r++) {
            ref->w[r][i] += flight->mean[i] - flight->own[r][i];
        }
    }
}

static void land_due(struct reference *ref, const struct dsched_plan *plan, int all) {
    for (uint32_t f = 0; f < ref->n_flights; f++) {
        if (ref->flights[f].used && (all || ref->flights[f].due <= ref->step)) {
            land(ref, plan, &ref->flights[f]);
        }
    }
}

static void gradients(struct reference *ref, const struct dsched_plan *plan, double g[N_RANKS][N]) {
    for (int r = 0; r < N_RANKS; r++) {
        for (uint32_t i = 0; i < N; i++) {
            double w = plan->rule == DSCHED_EXACT || plan->rule == DSCHED_DELAYED ? ref->a[i]
                                                                                  : ref->w[r][i];
            g[r][i] = gradient_of(r, ref->step, i, w);
            ref->sum[r][i] += g[r][i];
        }
    }
}

static void reference_step(struct reference *ref, const struct dsched_plan *plan) {
    double g[N_RANKS][N];
    gradients(ref, plan, g);
    for (int r = 0; r < N_RANKS && plan->rule == DSCHED_AVERAGED; r++) {
        for (uint32_t i = 0; i < N; i++) {
            ref->v[r][i] = MOMENTUM * ref->v[r][i] + g[r][i];
            ref->w[r][i] -= RATE * ref->v[r][i];
        }
    }
    if (++ref->iteration == plan->merge[ref->generation]) {
        uint8_t delay = dsched_plan_op(plan, ref->generation, 0)->delay;
        launch(ref, plan, ref->iteration, ref->step + delay);
        ref->iteration = 0;
        ref->generation = (ref->generation + 1) % plan->n_generations;
    }
    land_due(ref, plan, 0);
    for (int r = 0; r < N_RANKS && plan->rule == DSCHED_LOOKAHEAD; r++) {
        for (uint32_t i = 0; i < N; i++) {
            int late = ref->flights[ref->n_flights - 1].used;
            ref->w[r][i] = ref->a[i] - (late ? RATE * (MOMENTUM * ref->v[0][i] + g[r][i]) : 0);
        }
    }
    ref->step++;
}

static void reference_drain(struct reference *ref, const struct dsched_plan *plan) {
    if (ref->iteration > 0) {
        launch(ref, plan, ref->iteration, ref->step);
    }
    land_due(ref, plan, 1);
    ref->iteration = 0;
    ref->generation = 0;
}

/* `reported` of one rank against the reference; NaN where nothing landed. */
static void check_figures(const struct shared *shared, const double *reported,
                          const double *expected) {
    for (uint32_t s = 0; s < CONTROL_LAG + 1 + shared->n_steps; s++) {
        double tolerance = 1e-12 * (1 + expected[s]);
        if (isnan(reported[s]) != isnan(expected[s]) ||
            fabs(reported[s] - expected[s]) > tolerance) {
            fail_msg("iteration %u: %.15g, reference %.15g", s, reported[s], expected[s]);
        }
    }
}

/* Also checks the figures of the ranks. */
static void run_reference(const struct shared *shared, double *out) {
    struct reference *ref = calloc(1, sizeof(*ref));
    struct dsched_plan exact = shared->plan;
    uint16_t one = 1;
    struct dsched_op zero = {0};
    assert_non_null(ref);
    for (uint32_t s = 0; s < MAX_STEPS; s++) {
        ref->landed_sq[s] = (double)NAN;
        for (int r = 0; r < N_RANKS; r++) {
            ref->change_sq[r][s] = (double)NAN;
        }
    }
    exact.rule = DSCHED_EXACT;
    exact.n_generations = 1;
    exact.merge = &one;
    exact.ops = &zero;
    for (uint32_t s = 0; s < CONTROL_LAG + 1; s++) {
        reference_step(ref, &exact);
    }
    reference_drain(ref, &exact);
    for (int r = 0; r < N_RANKS; r++) {
        memcpy(ref->w[r], ref->a, sizeof(ref->a));
        memcpy(ref->v[r], ref->v[0], sizeof(ref->v[0]));
    }
    for (uint32_t s = 0; s < shared->n_steps; s++) {
        reference_step(ref, &shared->plan);
    }
    for (int r = 0; r < N_RANKS; r++) {
        check_figures(shared, shared->landed_sq[r], ref->landed_sq);
        check_figures(shared, shared->change_sq[r], ref->change_sq[r]);
    }
    reference_drain(ref, &shared->plan);
    memcpy(out, ref->a, sizeof(ref->a));
    free(ref);
}

/* --- the cases -------------------------------------------------------------------------------- */

/* Two buckets that cut tensor b; one delay for a whole generation. Where the rule allows it every
 * fourth plan, by `number`, keeps several generations in flight. */
static int make_plan(uint64_t *random, enum dsched_rule rule, int number, struct dsched_plan *out) {
    static const uint64_t sizes[2] = {N_FIRST, N - N_FIRST};
    static const uint8_t types[2] = {DSCHED_F64, DSCHED_F64};
    struct dsched_table table = {.n_tensors = 2, .elements = sizes, .dtypes = types};
    int merges = rule == DSCHED_DELAYED || rule == DSCHED_AVERAGED;
    int is_deep = merges && number % 4 == 0;
    uint32_t n_generations = merges && !is_deep ? 1 + (uint32_t)testing_random_below(random, 3) : 1;
    assert_int_equal(dsched_plan_init(out, 2, n_generations), DSCHED_OK);
    out->rule = rule;
    out->n_links = 1;
    out->buckets[0] = (struct dsched_bucket){0, 7};
    out->buckets[1] = (struct dsched_bucket){7, N};
    for (uint32_t g = 0; g < n_generations; g++) {
        uint8_t delay = rule == DSCHED_LOOKAHEAD ? 1 : (uint8_t)testing_random_below(random, 5);
        delay = is_deep ? 3 + delay % 2 : delay;
        out->merge[g] = merges && !is_deep ? (uint16_t)(1 + testing_random_below(random, 3)) : 1;
        out->ops[2 * (size_t)g].delay = out->ops[2 * (size_t)g + 1].delay =
            rule == DSCHED_EXACT ? 0 : delay;
    }
    return dsched_plan_validate(out, &table, 1, NULL) == DSCHED_OK;
}

static void check_rule(enum dsched_rule rule) {
    uint64_t random = testing_seed();
    for (int n = 0; n < 12;) {
        struct shared *shared = calloc(1, sizeof(*shared));
        double expected[N];
        shared->nan_rank = -1;
        shared->n_steps = 3 + (uint32_t)testing_random_below(&random, 20);
        if (make_plan(&random, rule, n, &shared->plan)) {
            n++;
            world_run(N_RANKS, NULL, 1, NULL, DEFT_CAN_PREVIEW | DEFT_CAN_SKIP | DEFT_CAN_AVERAGE,
                      shared, train);
            run_reference(shared, expected);
            for (uint32_t i = 0; i < N; i++) {
                for (int r = 1; r < N_RANKS; r++) {
                    assert_memory_equal(&shared->w[r][i], &shared->w[0][i], sizeof(double));
                    assert_memory_equal(&shared->v[r][i], &shared->v[0][i], sizeof(double));
                }
                if (fabs(shared->w[0][i] - expected[i]) > 1e-12) {
                    fail_msg("plan %d element %u: %.15g, reference %.15g", n, i, shared->w[0][i],
                             expected[i]);
                }
            }
        }
        dsched_plan_done(&shared->plan);
        free(shared);
    }
}

static void exact_follows_its_formula(void **state) {
    (void)state;
    check_rule(DSCHED_EXACT);
}
static void delayed_follows_its_formula(void **state) {
    (void)state;
    check_rule(DSCHED_DELAYED);
}
static void lookahead_follows_its_formula(void **state) {
    (void)state;
    check_rule(DSCHED_LOOKAHEAD);
}
static void averaged_follows_its_formula(void **state) {
    (void)state;
    check_rule(DSCHED_AVERAGED);
}

/* One rank's NaN: all ranks skip that generation, stay alike, stay finite and go on. */
static void nan_on_one_rank_is_skipped_by_all(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    for (int n = 0; n < 24;) {
        struct shared *shared = calloc(1, sizeof(*shared));
        shared->nan_rank = n % N_RANKS;
        shared->nan_element = n % 8 < 4 ? N_FIRST : N - 1; /* in the first bucket, in the second */
        shared->n_steps = 16;
        shared->nan_step = CONTROL_LAG + 1 + testing_random_below(&random, 12);
        if (make_plan(&random, (enum dsched_rule)(n % 4), n / 4, &shared->plan)) {
            n++;
            world_run(N_RANKS, NULL, 1, NULL, DEFT_CAN_PREVIEW | DEFT_CAN_SKIP | DEFT_CAN_AVERAGE,
                      shared, train);
            for (int r = 0; r < N_RANKS; r++) {
                assert_true(shared->skipped[r] >= 1);
                assert_int_equal(shared->skipped[r], shared->skipped[0]);
                assert_true(shared->plan.rule != DSCHED_EXACT ||
                            isnan(shared->landed_sq[r][shared->nan_step]));
                assert_memory_equal(shared->w[r], shared->w[0], sizeof(shared->w[0]));
                for (uint32_t i = 0; i < N; i++) {
                    assert_true(isfinite(shared->w[r][i]) && isfinite(shared->v[r][i]));
                }
            }
        }
        dsched_plan_done(&shared->plan);
        free(shared);
    }
}

/* --- failure ---------------------------------------------------------------------------------- */

static int cut_off(void *context, int32_t rank, uint32_t channel, uint64_t op) {
    (void)context;
    return rank == 1 && channel == 0 && op == 60;
}

/* deft_step tells, with the link's sentence; giving gradients never fails for it. */
static void train_until_it_breaks(struct world_rank *self) {
    struct shared *shared = self->world->shared;
    struct rank_state state = {
        .self = self, .shared = shared, .w = shared->w[self->rank], .v = shared->v[self->rank]};
    struct deft_error error = {.text = ""};
    struct deft_update update;
    enum deft_status status = DEFT_OK;
    double g[N] = {0};
    add_tensors(&state);
    for (int step = 0; step < 200 && status == DEFT_OK; step++) {
        WORLD_CHECK(self, deft_grad_ready(self->rt, 1, g + N_FIRST) == DEFT_OK, "tensor 1");
        WORLD_CHECK(self, deft_grad_ready(self->rt, 0, g) == DEFT_OK, "tensor 0");
        do {
            status = deft_step(self->rt, &update, &error);
        } while (status == DEFT_OK && update.action != DEFT_DONE);
    }
    WORLD_CHECK(self, status == DEFT_PEER_LOST && strstr(error.text, "rank 1 was cut off") != NULL,
                "status %s: %s", deft_status_name(status), error.text);
    WORLD_CHECK(self,
                deft_step(self->rt, &update, &error) == DEFT_PEER_LOST &&
                    deft_drain(self->rt, &update, &error) == DEFT_PEER_LOST,
                "a dead runtime goes on");
}

static void a_broken_link_is_told_by_step(void **state) {
    (void)state;
    struct shared *shared = calloc(1, sizeof(*shared));
    struct mem_faults faults = {.fail = cut_off};
    world_run(N_RANKS, NULL, 1, &faults, 0, shared, train_until_it_breaks);
    free(shared);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(exact_follows_its_formula),
    cmocka_unit_test(delayed_follows_its_formula),
    cmocka_unit_test(lookahead_follows_its_formula),
    cmocka_unit_test(averaged_follows_its_formula),
    cmocka_unit_test(nan_on_one_rank_is_skipped_by_all),
    cmocka_unit_test(a_broken_link_is_told_by_step),
};
TESTING_MAIN(cases)
