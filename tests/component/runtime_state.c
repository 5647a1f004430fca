/* Optimizer state that is larger than a piece of its all-reduce is averaged whole, and nothing
 * beside it. */
#include <stdlib.h>

#include "runtime/runtime.h"
#include "testing.h"
#include "world.h"

#define N_RANKS    2
#define N_WEIGHTS  8u
#define N_STATE    (2u * (1u << 20) + 5u) /* two pieces of 4 MiB and a rest */
#define UNTOUCHED  (-7.0f)
#define PLAN_BYTES 512u

struct shared {
    uint8_t plan[PLAN_BYTES];
    size_t plan_bytes;
};

static void make_plan(struct shared *shared) {
    struct dsched_plan plan;
    assert_int_equal(dsched_plan_init(&plan, 1, 1), DSCHED_OK);
    plan.rule = DSCHED_AVERAGED;
    plan.n_links = 1;
    plan.merge[0] = 1;
    plan.buckets[0].end = N_WEIGHTS;
    shared->plan_bytes = dsched_plan_encode(&plan, shared->plan, PLAN_BYTES);
    dsched_plan_done(&plan);
}

static void tune(const struct world_rank *self, struct deft_options *options) {
    const struct shared *shared = self->world->shared;
    options->capabilities = DEFT_CAN_AVERAGE;
    options->first_plan = shared->plan;
    options->first_plan_bytes = shared->plan_bytes;
}

static void fill(float *values, int32_t rank) {
    for (uint32_t i = 0; i < N_STATE; i++) {
        values[i] = (float)(i % 1000 + 2 * (uint32_t)rank);
    }
    values[N_STATE] = UNTOUCHED;
}

static void train(struct world_rank *self) {
    struct deft_error error = {.text = ""};
    struct deft_update update = {.action = DEFT_DONE};
    float weights[N_WEIGHTS] = {0};
    float gradient[N_WEIGHTS] = {0};
    uint32_t id = 0;
    float *values = malloc((N_STATE + 1) * sizeof(*values));
    WORLD_CHECK(self, values != NULL, "no memory");
    fill(values, self->rank);
    struct deft_tensor tensor = {
        .name = "weight", .elements = N_WEIGHTS, .dtype = DEFT_F32, .parameters = weights};
    WORLD_CHECK(self,
                deft_tensor_add(self->rt, &tensor, &id, &error) == DEFT_OK &&
                    deft_state_add(self->rt, values, N_STATE, DEFT_F32, &error) == DEFT_OK &&
                    deft_commit(self->rt, &error) == DEFT_OK,
                "%s", error.text);
    for (int round = 0; round < 2; round++) { /* its ops are posted again */
        deft_forward_begin(self->rt);
        deft_backward_begin(self->rt);
        WORLD_CHECK(self, deft_grad_ready(self->rt, id, gradient) == DEFT_OK, "gradient refused");
        do {
            WORLD_CHECK(self, deft_step(self->rt, &update, &error) == DEFT_OK, "%s", error.text);
        } while (update.action != DEFT_DONE);
        fill(values, self->rank);
        do {
            WORLD_CHECK(self, deft_drain(self->rt, &update, &error) == DEFT_OK, "%s", error.text);
        } while (update.action != DEFT_DONE);
        for (uint32_t i = 0; i < N_STATE; i++) {
            WORLD_CHECK(self, values[i] == (float)(i % 1000 + 1), "element %u is %f", i,
                        (double)values[i]);
        }
        WORLD_CHECK(self, values[N_STATE] == UNTOUCHED, "written behind its end");
    }
    free(values);
}

static void large_state_is_averaged_whole(void **state) {
    struct shared shared = {.plan_bytes = 0};
    (void)state;
    make_plan(&shared);
    world_run_tuned(N_RANKS, NULL, 1, NULL, tune, &shared, train);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(large_state_is_averaged_whole),
};

TESTING_MAIN(cases)
