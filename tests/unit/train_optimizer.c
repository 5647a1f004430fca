/* Optimizers of the trainer: closed forms, previews, skipped tensors. */
#include "testing.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optimizer.h"

#define N_TENSORS 4u /* one hidden layer */

struct fixture {
    struct mlp mlp;
    struct optimizer optimizer;
    void *gradients[N_TENSORS];
};

static void setup(struct fixture *f, const struct optimizer_options *options, uint64_t seed) {
    struct mlp_shape shape = {
        .n_inputs = 7, .width = 19, .depth = 1, .n_classes = 3, .max_batch = 1};

    assert_int_equal(mlp_init(&f->mlp, &shape, NULL), DEFT_OK);
    assert_int_equal(f->mlp.n_tensors, N_TENSORS);
    mlp_randomise(&f->mlp, seed);
    assert_int_equal(optimizer_init(&f->optimizer, options, &f->mlp, NULL), DEFT_OK);
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        f->gradients[t] = f->mlp.tensors[t].gradients;
    }
}

static void teardown(struct fixture *f) {
    optimizer_done(&f->optimizer);
    mlp_done(&f->mlp);
}

static void random_gradients(struct fixture *f, uint64_t *random) {
    for (uint32_t t = 0; t < N_TENSORS; t++) {
        for (uint64_t i = 0; i < f->mlp.tensors[t].elements; i++) {
            f->mlp.tensors[t].gradients[i] =
                (float)((double)(testing_random(random) >> 11) * 0x1p-52 - 1.0);
        }
    }
}

static struct optimizer_options options_of(enum optimizer_kind kind, float decay) {
    struct optimizer_options options;
    optimizer_defaults(&options);
    options.kind = kind;
    options.weight_decay = decay;
    return options;
}

/* One parameter's path under a constant gradient, against its closed form. */
static void sgd_follows_closed_form(void **state) {
    const double rate = 0.05;
    const double momentum = 0.75; /* exact in binary */
    const double gradient = -0.5;
    struct optimizer_options options = options_of(OPTIMIZER_SGD, 0.0f);
    struct fixture f;
    (void)state;

    options.momentum = (float)momentum;
    setup(&f, &options, 1);
    for (uint64_t i = 0; i < f.mlp.n_parameters; i++) {
        f.mlp.gradients[i] = (float)gradient;
        f.mlp.parameters[i] = 1.0f;
    }
    for (int n = 1; n <= 40; n++) {
        /* sum over i = 1..n of (1 - m^i) / (1 - m) */
        double sum =
            (n - momentum * (1.0 - pow(momentum, n)) / (1.0 - momentum)) / (1.0 - momentum);
        optimizer_step(&f.optimizer, rate, f.gradients);
        for (uint32_t t = 0; t < N_TENSORS; t++) {
            double p = (double)f.mlp.tensors[t].parameters[0];
            assert_true(fabs(p - (1.0 - rate * gradient * sum)) < 1e-5);
        }
    }
    teardown(&f);
}

static void sgd_decay_shrinks_geometrically(void **state) {
    const double rate = 0.125;
    const double decay = 0.5;
    struct optimizer_options options = options_of(OPTIMIZER_SGD, (float)decay);
    struct fixture f;
    (void)state;

    options.momentum = 0.0f;
    setup(&f, &options, 1);
    f.mlp.parameters[0] = 3.0f;
    for (int n = 1; n <= 20; n++) {
        optimizer_step(&f.optimizer, rate, f.gradients); /* gradients are zero */
        assert_true(fabs((double)f.mlp.parameters[0] - 3.0 * pow(1.0 - rate * decay, n)) < 1e-6);
    }
    teardown(&f);
}

/* Under a constant gradient both corrected moments are exact, so each step moves by the rate. */
static void adamw_follows_closed_form(void **state) {
    const double rate = 0.01;
    const double decay = 0.1;
    const double shrink = 1.0 - rate * decay;
    struct optimizer_options options = options_of(OPTIMIZER_ADAMW, (float)decay);
    struct fixture f;
    (void)state;

    setup(&f, &options, 1);
    for (uint64_t i = 0; i < f.mlp.n_parameters; i++) {
        f.mlp.gradients[i] = i % 2 == 0 ? 0.3f : -20.0f;
        f.mlp.parameters[i] = 1.0f;
    }
    for (int n = 1; n <= 60; n++) {
        double moved = rate * (1.0 - pow(shrink, n)) / (1.0 - shrink);
        optimizer_step(&f.optimizer, rate, f.gradients);
        assert_true(fabs((double)f.mlp.parameters[0] - (pow(shrink, n) - moved)) < 1e-4);
        assert_true(fabs((double)f.mlp.parameters[1] - (pow(shrink, n) + moved)) < 1e-4);
    }
    teardown(&f);
}

/* Some tensors take part, some do not, in random steps. A twin that never previews must end with
 * the same bits, and a preview must land where the step then lands. */
static void check_previews(enum optimizer_kind kind) {
    struct optimizer_options options = options_of(kind, 0.01f);
    uint64_t random = testing_seed();
    struct fixture f;
    struct fixture twin;
    size_t n_bytes;
    float *before;

    setup(&f, &options, 5);
    setup(&twin, &options, 5);
    n_bytes = (size_t)f.mlp.n_parameters * sizeof(float);
    before = malloc(n_bytes);
    assert_non_null(before);
    for (int n = 0; n < 50; n++) {
        double rate = 0.001 * (double)(1 + testing_random_below(&random, 100));
        float *previewed = NULL;
        random_gradients(&f, &random);
        memcpy(twin.mlp.gradients, f.mlp.gradients, n_bytes);
        for (uint32_t t = 0; t < N_TENSORS; t++) {
            int takes_part = testing_random_below(&random, 3) != 0;
            f.gradients[t] = takes_part ? f.mlp.tensors[t].gradients : NULL;
            twin.gradients[t] = takes_part ? twin.mlp.tensors[t].gradients : NULL;
        }
        memcpy(before, f.mlp.parameters, n_bytes);
        optimizer_preview(&f.optimizer, rate, f.gradients);
        previewed = malloc(n_bytes);
        assert_non_null(previewed);
        memcpy(previewed, f.mlp.parameters, n_bytes);
        memcpy(f.mlp.parameters, before, n_bytes);

        optimizer_step(&f.optimizer, rate, f.gradients);
        optimizer_step(&twin.optimizer, rate, twin.gradients);
        assert_memory_equal(previewed, f.mlp.parameters, n_bytes);
        assert_memory_equal(twin.mlp.parameters, f.mlp.parameters, n_bytes);
        assert_memory_equal(twin.optimizer.first, f.optimizer.first, n_bytes);
        if (kind == OPTIMIZER_ADAMW) {
            assert_memory_equal(twin.optimizer.second, f.optimizer.second, n_bytes);
        }
        free(previewed);
    }
    free(before);
    teardown(&f);
    teardown(&twin);
}

static void sgd_preview_is_the_step_without_its_memory(void **state) {
    (void)state;
    check_previews(OPTIMIZER_SGD);
}

static void adamw_preview_is_the_step_without_its_memory(void **state) {
    (void)state;
    check_previews(OPTIMIZER_ADAMW);
}

static void check_skipping(enum optimizer_kind kind) {
    struct optimizer_options options = options_of(kind, 0.1f);
    uint64_t random = testing_seed();
    struct fixture f;

    setup(&f, &options, 9);
    for (uint32_t skipped = 0; skipped < N_TENSORS; skipped++) {
        struct mlp_tensor *tensor = &f.mlp.tensors[skipped];
        size_t n_bytes = (size_t)tensor->elements * sizeof(float);
        float *before = malloc(n_bytes);
        uint64_t steps = f.optimizer.steps[skipped];

        assert_non_null(before);
        memcpy(before, tensor->parameters, n_bytes);
        random_gradients(&f, &random);
        f.gradients[skipped] = NULL;
        optimizer_step(&f.optimizer, 0.1, f.gradients);
        optimizer_preview(&f.optimizer, 0.1, f.gradients);
        assert_memory_equal(before, tensor->parameters, n_bytes);
        assert_int_equal(f.optimizer.steps[skipped], steps);
        f.gradients[skipped] = tensor->gradients;
        optimizer_step(&f.optimizer, 0.1, f.gradients);
        assert_memory_not_equal(before, tensor->parameters, n_bytes);
        free(before);
    }
    teardown(&f);
}

static void tensors_without_gradient_stay(void **state) {
    (void)state;
    check_skipping(OPTIMIZER_SGD);
    check_skipping(OPTIMIZER_ADAMW);
    optimizer_done(NULL);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(sgd_follows_closed_form),
    cmocka_unit_test(sgd_decay_shrinks_geometrically),
    cmocka_unit_test(adamw_follows_closed_form),
    cmocka_unit_test(sgd_preview_is_the_step_without_its_memory),
    cmocka_unit_test(adamw_preview_is_the_step_without_its_memory),
    cmocka_unit_test(tensors_without_gradient_stay),
};
TESTING_MAIN(cases)
