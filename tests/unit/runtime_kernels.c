/* The passes over gradients and parameters, against plain loops. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "runtime/kernels.h"
#include "testing.h"

#define MAX_N 2500

static double random_value(uint64_t *random) {
    return (double)(testing_random(random) >> 11) / 9007199254740992.0 - 0.5;
}

static double tolerance(enum dsched_dtype dtype) {
    static const double epsilons[] = {1e-6, 1e-14, 2e-3, 2e-2};
    return epsilons[dtype];
}

static void fill(uint64_t *random, enum dsched_dtype dtype, void *x, uint64_t n) {
    for (uint64_t i = 0; i < n; i++) {
        elements_put(dtype, x, i, random_value(random));
    }
}

static void copies_and_adds_with_norms(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    double from[MAX_N], into[MAX_N], before[MAX_N];
    for (int round = 0; round < 200; round++) {
        enum dsched_dtype dtype = (enum dsched_dtype)testing_random_below(&random, 4);
        uint64_t n = 1 + testing_random_below(&random, MAX_N - 1);
        double factor = round % 3 == 0 ? 0.25 : random_value(&random);
        double squares = 0;
        fill(&random, dtype, from, n);
        fill(&random, dtype, into, n);
        memcpy(before, into, sizeof(into));
        for (uint64_t i = 0; i < n; i++) {
            squares += elements_get(dtype, from, i) * elements_get(dtype, from, i);
        }
        double norm = round % 2 == 0 ? kernels_copy(dtype, into, from, n, factor)
                                     : kernels_add(dtype, into, from, n, factor);
        assert_true(fabs(norm - squares) <= 1e-5 * (squares + 1));
        assert_true(fabs(kernels_norm(dtype, from, n) - norm) <= 1e-12 * (norm + 1));
        for (uint64_t i = 0; i < n; i++) {
            double expected = elements_get(dtype, from, i) * factor +
                              (round % 2 == 0 ? 0 : elements_get(dtype, before, i));
            assert_true(fabs(elements_get(dtype, into, i) - expected) <= tolerance(dtype));
        }
    }
}

/* DDP divides by multiplying with the reciprocal in the tensor's own type: so do we, to the bit. */
static void copy_scales_like_ddp(void **state) {
    (void)state;
    float from[777], into[777];
    uint64_t random = testing_seed();
    fill(&random, DSCHED_F32, from, 777);
    (void)kernels_copy(DSCHED_F32, into, from, 777, 1.0 / 3.0);
    for (int i = 0; i < 777; i++) {
        float expected = from[i] * (float)(1.0 / 3.0);
        assert_memory_equal(&into[i], &expected, sizeof(expected));
    }
}

static void missing_gradients_count_as_zeros(void **state) {
    (void)state;
    float into[5] = {1, 2, 3, 4, 5};
    assert_true(kernels_add(DSCHED_F32, into, NULL, 5, 1.0) == 0.0);
    assert_true(into[4] == 5.0f);
    assert_true(kernels_copy(DSCHED_F32, into, NULL, 5, 1.0) == 0.0);
    assert_true(into[0] == 0.0f && into[4] == 0.0f);
}

static void any_bad_element_shows_in_the_norm(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    double x[MAX_N], y[MAX_N];
    const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int round = 0; round < 200; round++) {
        enum dsched_dtype dtype = (enum dsched_dtype)testing_random_below(&random, 4);
        uint64_t n = 1 + testing_random_below(&random, MAX_N - 1);
        fill(&random, dtype, x, n);
        assert_true(isfinite(kernels_norm(dtype, x, n)));
        elements_put(dtype, x, testing_random_below(&random, n), bad[round % 3]);
        assert_false(isfinite(kernels_norm(dtype, x, n)));
        assert_false(isfinite(kernels_copy(dtype, y, x, n, 0.5)));
        fill(&random, dtype, x, n);
        assert_false(kernels_is_poisoned(dtype, x));
        kernels_poison(dtype, x);
        assert_true(kernels_is_poisoned(dtype, x));
        assert_false(isfinite(kernels_norm(dtype, x, n)));
    }
}

/* Landing and capturing at once, in place, against the formulas; and in steps, to the same bits. */
static void averaging_follows_its_formulas(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    for (int round = 0; round < 100; round++) {
        enum dsched_dtype dtype = round % 2 == 0 ? DSCHED_F32 : DSCHED_F64;
        uint64_t n = 1 + testing_random_below(&random, MAX_N - 1);
        int beside = round % 3 == 0;
        double w[2][MAX_N], a[2][MAX_N], own[2][MAX_N], sum[2][MAX_N], older[MAX_N],
            before[4][MAX_N];
        double *parts[4] = {w[0], a[0], own[0], sum[0]};
        double *copies[4] = {w[1], a[1], own[1], sum[1]};
        struct kernels_norms norms = {0, 0};
        for (int i = 0; i < 4; i++) {
            fill(&random, dtype, parts[i], n);
            memcpy(copies[i], parts[i], sizeof(w[0]));
            memcpy(before[i], parts[i], sizeof(w[0]));
        }
        fill(&random, dtype, older, n);
        struct kernels_averaged both = {.w = w[0],
                                        .a = a[0],
                                        .landed = sum[0],
                                        .landed_own = own[0],
                                        .older = beside ? older : NULL,
                                        .own = own[0],
                                        .sum = sum[0],
                                        .factor = 0.25};
        struct kernels_averaged land = {
            .w = w[1], .a = a[1], .landed = sum[1], .landed_own = own[1]};
        struct kernels_averaged capture = {.w = w[1],
                                           .a = a[1],
                                           .older = beside ? older : NULL,
                                           .own = own[1],
                                           .sum = sum[1],
                                           .factor = 0.25};
        kernels_average(dtype, &both, n, &norms);
        double landed_sq = 0;
        double own_sq = 0;
        for (uint64_t i = 0; i < n; i++) {
            double m = elements_get(dtype, before[3], i);
            double anchor = elements_get(dtype, before[1], i) + m;
            double weight =
                elements_get(dtype, before[0], i) + (m - elements_get(dtype, before[2], i));
            double change = weight - anchor - (beside ? elements_get(dtype, older, i) : 0);
            landed_sq += m * m;
            own_sq += change * change;
            assert_true(fabs(elements_get(dtype, a[0], i) - anchor) <= 4 * tolerance(dtype));
            assert_true(fabs(elements_get(dtype, w[0], i) - weight) <= 4 * tolerance(dtype));
            assert_true(fabs(elements_get(dtype, own[0], i) - change) <= 4 * tolerance(dtype));
            assert_true(fabs(elements_get(dtype, sum[0], i) - change / 4) <= 4 * tolerance(dtype));
        }
        assert_true(fabs(norms.landed_sq - landed_sq) <= 1e-5 * (landed_sq + 1));
        assert_true(fabs(norms.own_sq - own_sq) <= 1e-5 * (own_sq + 1));
        kernels_average(dtype, &land, n, &norms);
        kernels_average(dtype, &capture, n, &norms);
        for (int i = 0; i < 4; i++) {
            assert_memory_equal(parts[i], copies[i], n * dsched_dtype_bytes(dtype));
        }
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(copies_and_adds_with_norms),
    cmocka_unit_test(copy_scales_like_ddp),
    cmocka_unit_test(missing_gradients_count_as_zeros),
    cmocka_unit_test(any_bad_element_shows_in_the_norm),
    cmocka_unit_test(averaging_follows_its_formulas),
};
TESTING_MAIN(cases)
