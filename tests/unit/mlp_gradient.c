/* The network's gradients against finite differences, and how they are handed out. */
#include "testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "mlp.h"

#define BATCH 12u

struct fixture {
    struct mlp mlp;
    float *inputs;
    uint8_t labels[BATCH];
    uint64_t random;
};

static float random_float(uint64_t *state) {
    return (float)((double)(testing_random(state) >> 11) * 0x1p-52 - 1.0);
}

static void setup(struct fixture *f, uint32_t width, uint32_t depth) {
    struct mlp_shape shape = {
        .n_inputs = 9, .width = width, .depth = depth, .n_classes = 5, .max_batch = BATCH};

    assert_int_equal(mlp_init(&f->mlp, &shape, NULL), DEFT_OK);
    mlp_randomise(&f->mlp, testing_random(&f->random));
    for (uint32_t t = 1; t < f->mlp.n_tensors; t += 2) {
        for (uint64_t i = 0; i < f->mlp.tensors[t].elements; i++) {
            f->mlp.tensors[t].parameters[i] = 0.1f * random_float(&f->random);
        }
    }
    f->inputs = calloc((size_t)BATCH * shape.n_inputs, sizeof(float));
    assert_non_null(f->inputs);
    for (uint32_t i = 0; i < BATCH * shape.n_inputs; i++) {
        f->inputs[i] = random_float(&f->random);
    }
    for (uint32_t i = 0; i < BATCH; i++) {
        f->labels[i] = (uint8_t)testing_random_below(&f->random, shape.n_classes);
    }
}

static void teardown(struct fixture *f) {
    free(f->inputs);
    mlp_done(&f->mlp);
}

static enum deft_status ignore(void *context, uint32_t tensor, const float *gradient) {
    (void)context;
    (void)tensor;
    (void)gradient;
    return DEFT_OK;
}

static double loss_of(struct fixture *f) {
    mlp_forward(&f->mlp, f->inputs, BATCH);
    return mlp_loss(&f->mlp, f->labels, BATCH);
}

/* d loss / d s of parameters + s * direction, by central differences. */
static double slope(struct fixture *f, uint32_t t, const float *direction) {
    struct mlp_tensor *tensor = &f->mlp.tensors[t];
    size_t n_bytes = (size_t)tensor->elements * sizeof(float);
    float *saved = malloc(n_bytes);
    double loss[2];
    const double step = 2e-3;

    assert_non_null(saved);
    memcpy(saved, tensor->parameters, n_bytes);
    for (int side = 0; side < 2; side++) {
        for (uint64_t i = 0; i < tensor->elements; i++) {
            tensor->parameters[i] =
                (float)((double)saved[i] + (side == 0 ? -step : step) * (double)direction[i]);
        }
        loss[side] = loss_of(f);
    }
    memcpy(tensor->parameters, saved, n_bytes);
    free(saved);
    return (loss[1] - loss[0]) / (2.0 * step);
}

/* Along the gradient, where the slope is its length, and along random unit vectors. */
static void check_tensor(struct fixture *f, uint32_t t) {
    const struct mlp_tensor *tensor = &f->mlp.tensors[t];
    float *direction = calloc((size_t)tensor->elements, sizeof(float));

    assert_non_null(direction);
    for (int trial = 0; trial < 4; trial++) {
        double square = 0.0;
        double expected = 0.0;
        double measured;
        for (uint64_t i = 0; i < tensor->elements; i++) {
            direction[i] = trial == 0 ? tensor->gradients[i] : random_float(&f->random);
            square += (double)direction[i] * (double)direction[i];
        }
        assert_true(square > 0.0);
        for (uint64_t i = 0; i < tensor->elements; i++) {
            direction[i] = (float)((double)direction[i] / sqrt(square));
            expected += (double)direction[i] * (double)tensor->gradients[i];
        }
        measured = slope(f, t, direction);
        if (fabs(measured - expected) > 1e-3 + 0.02 * fabs(expected)) {
            fail_msg("%s, trial %d: measured slope %g, the gradient says %g", tensor->name, trial,
                     measured, expected);
        }
    }
    free(direction);
}

static void gradients_match_finite_differences(void **state) {
    struct fixture f = {.random = testing_seed()};
    (void)state;
    for (uint32_t depth = 0; depth <= 3; depth++) {
        setup(&f, 6 + 5 * depth, depth);
        (void)loss_of(&f);
        assert_int_equal(mlp_backward(&f.mlp, f.inputs, BATCH, ignore, NULL), DEFT_OK);
        for (uint32_t t = 0; t < f.mlp.n_tensors; t++) {
            check_tensor(&f, t);
        }
        teardown(&f);
    }
}

/* What data-parallel training rests on. */
static void mean_of_halves_is_whole(void **state) {
    struct fixture f = {.random = testing_seed()};
    uint32_t half = BATCH / 2;
    double *mean;
    (void)state;

    setup(&f, 16, 2);
    mean = calloc((size_t)f.mlp.n_parameters, sizeof(*mean));
    assert_non_null(mean);
    for (uint32_t h = 0; h < 2; h++) {
        const float *inputs = f.inputs + (size_t)h * half * f.mlp.shape.n_inputs;
        mlp_forward(&f.mlp, inputs, half);
        (void)mlp_loss(&f.mlp, f.labels + (size_t)h * half, half);
        assert_int_equal(mlp_backward(&f.mlp, inputs, half, ignore, NULL), DEFT_OK);
        for (uint64_t i = 0; i < f.mlp.n_parameters; i++) {
            mean[i] += 0.5 * (double)f.mlp.gradients[i];
        }
    }
    (void)loss_of(&f);
    assert_int_equal(mlp_backward(&f.mlp, f.inputs, BATCH, ignore, NULL), DEFT_OK);
    for (uint64_t i = 0; i < f.mlp.n_parameters; i++) {
        assert_true(fabs(mean[i] - (double)f.mlp.gradients[i]) < 1e-6);
    }
    free(mean);
    teardown(&f);
}

struct order {
    const struct mlp *mlp;
    uint32_t next; /* tensor expected next, plus one */
    uint32_t refuse_at;
};

static enum deft_status expect_reverse(void *context, uint32_t tensor, const float *gradient) {
    struct order *order = context;
    assert_int_equal(tensor + 1, order->next);
    assert_ptr_equal(gradient, order->mlp->tensors[tensor].gradients);
    order->next--;
    return tensor == order->refuse_at ? DEFT_PEER_LOST : DEFT_OK;
}

static void gradients_come_from_last_to_first(void **state) {
    struct fixture f = {.random = testing_seed()};
    struct order order = {.mlp = &f.mlp, .refuse_at = UINT32_MAX};
    (void)state;

    setup(&f, 8, 3);
    (void)loss_of(&f);
    order.next = f.mlp.n_tensors;
    assert_int_equal(mlp_backward(&f.mlp, f.inputs, BATCH, expect_reverse, &order), DEFT_OK);
    assert_int_equal(order.next, 0);

    for (uint32_t t = 0; t < f.mlp.n_tensors; t++) {
        (void)loss_of(&f);
        order.next = f.mlp.n_tensors;
        order.refuse_at = t;
        assert_int_equal(mlp_backward(&f.mlp, f.inputs, BATCH, expect_reverse, &order),
                         DEFT_PEER_LOST);
        assert_int_equal(order.next, t);
    }
    teardown(&f);
}

static void nan_reaches_loss(void **state) {
    struct fixture f = {.random = testing_seed()};
    (void)state;
    for (uint32_t t = 0; t < 8; t++) {
        setup(&f, 8, 3);
        assert_true(isfinite(loss_of(&f)));
        for (uint64_t i = 0; i < f.mlp.tensors[t].elements; i++) {
            f.mlp.tensors[t].parameters[i] = NAN;
        }
        assert_true(isnan(loss_of(&f)));
        teardown(&f);
    }
}

static void shapes_outside_limits_are_refused(void **state) {
    const struct mlp_shape good = {
        .n_inputs = 9, .width = 8, .depth = 1, .n_classes = 5, .max_batch = 4};
    struct mlp_shape bad[9];
    struct mlp mlp = {.n_layers = 77};
    struct deft_error error = {0};
    (void)state;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        bad[i] = good;
    }
    bad[0].n_inputs = 0;
    bad[1].n_inputs = MLP_MAX_WIDTH + 1;
    bad[2].width = 0;
    bad[3].width = MLP_MAX_WIDTH + 1;
    bad[4].depth = MLP_MAX_DEPTH + 1;
    bad[5].n_classes = 257;
    bad[6].max_batch = 0;
    bad[7].max_batch = MLP_MAX_BATCH + 1;
    bad[8].width = MLP_MAX_WIDTH; /* 16 layers of 2^28 parameters, and the rest */
    bad[8].depth = 17;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        error.text[0] = '\0';
        assert_int_not_equal(mlp_init(&mlp, &bad[i], &error), DEFT_OK);
        assert_int_not_equal(error.text[0], '\0');
        assert_int_equal(mlp.n_layers, 77);
    }
    mlp_done(NULL);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(gradients_match_finite_differences), cmocka_unit_test(mean_of_halves_is_whole),
    cmocka_unit_test(gradients_come_from_last_to_first),  cmocka_unit_test(nan_reaches_loss),
    cmocka_unit_test(shapes_outside_limits_are_refused),
};
TESTING_MAIN(cases)
