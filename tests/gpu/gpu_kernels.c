/* The kernels' arithmetic, compiled for the host: against f64, and bit for bit against the host's
 * own passes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "link/device_kernels.h"
#include "runtime/kernels.h"
#include "standin.h"
#include "testing.h"

#define MAX_N 6000u
#define GUARD 16u

static const struct device_kernels_queue queue = {.device = 0};
static const double least_step[] = {/* of a rounding, relative: f32, f64, f16, bf16 */
                                    0x1p-23, 0x1p-52, 0x1p-10, 0x1p-7};

/* A buffer that begins anywhere in an access of 16 bytes, between guards. */
struct buffer {
    uint8_t *memory;
    uint8_t *at;
    size_t n_bytes;
};

static struct buffer make(uint64_t *random, enum dsched_dtype dtype, uint64_t n) {
    size_t width = dsched_dtype_bytes(dtype);
    struct buffer made = {.n_bytes = n * width};
    made.memory = aligned_alloc(64, (made.n_bytes + 4 * (size_t)GUARD + 63) / 64 * 64);
    assert_non_null(made.memory);
    memset(made.memory, 0x5a, made.n_bytes + 4 * (size_t)GUARD);
    made.at = made.memory + GUARD + testing_random_below(random, 16 / width) * width;
    for (uint64_t i = 0; i < n; i++) {
        elements_put(dtype, made.at, i,
                     (double)(testing_random(random) >> 11) / 9007199254740992.0 - 0.5);
    }
    return made;
}

static void check_guards(const struct buffer *buffer) {
    for (const uint8_t *p = buffer->memory;
         p < buffer->memory + buffer->n_bytes + 4 * (size_t)GUARD; p++) {
        if (p < buffer->at || p >= buffer->at + buffer->n_bytes) {
            assert_int_equal(*p, 0x5a);
        }
    }
}

static enum dsched_dtype random_type(uint64_t *random) {
    return (enum dsched_dtype)testing_random_below(random, 4);
}

static void check_close(double found, double expected, double tolerance) {
    if (!(fabs(found - expected) <= tolerance)) {
        fail_msg("%.17g, reference %.17g", found, expected);
    }
}

static void combine_is_f64_s_and_the_host_s(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    for (int round = 0; round < 400; round++) {
        enum dsched_dtype dtype = random_type(&random);
        uint64_t n = 1 + testing_random_below(&random, round % 4 == 0 ? 40 : MAX_N);
        int add = (int)testing_random_below(&random, 2);
        double factor = 1.0 / (double)(1 + testing_random_below(&random, 9));
        struct buffer from = make(&random, dtype, n);
        struct buffer into = make(&random, dtype, n);
        struct buffer host = make(&random, dtype, n);
        double sum = 3;
        double squares = 0;
        memcpy(host.at, into.at, into.n_bytes);
        for (uint64_t i = 0; i < n; i++) {
            double value = elements_get(dtype, from.at, i);
            squares += value * value;
        }
        assert_int_equal(deft_cuda_kernels()->combine(&queue, (int)dtype, into.at, from.at, n,
                                                      factor, add, &sum),
                         0);
        standin_finish();
        for (uint64_t i = 0; i < n; i++) {
            double before = add ? elements_get(dtype, host.at, i) : 0;
            double expected = before + elements_get(dtype, from.at, i) * factor;
            check_close(elements_get(dtype, into.at, i), expected,
                        least_step[dtype] * (fabs(before) + fabs(expected)) + 1e-7);
        }
        check_close(sum - 3, squares, 1e-6 * squares);
        if (add) {
            (void)kernels_add(dtype, host.at, from.at, n, factor);
        } else {
            (void)kernels_copy(dtype, host.at, from.at, n, factor);
        }
        assert_memory_equal(into.at, host.at, into.n_bytes);
        check_guards(&into);
        check_guards(&from);
        free(from.memory);
        free(into.memory);
        free(host.memory);
    }
}

static void norms_are_the_same_each_time(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    for (int round = 0; round < 100; round++) {
        enum dsched_dtype dtype = random_type(&random);
        uint64_t n = 1 + testing_random_below(&random, MAX_N);
        struct buffer x = make(&random, dtype, n);
        double squares = 0;
        double sums[2] = {0, 0};
        for (uint64_t i = 0; i < n; i++) {
            squares += elements_get(dtype, x.at, i) * elements_get(dtype, x.at, i);
        }
        for (int i = 0; i < 2; i++) {
            assert_int_equal(deft_cuda_kernels()->norm(&queue, (int)dtype, x.at, n, &sums[i]), 0);
        }
        standin_finish();
        check_close(sums[0], squares, 1e-6 * squares);
        assert_memory_equal(&sums[0], &sums[1], sizeof(sums[0]));
        elements_put(dtype, x.at, testing_random_below(&random, n), (double)NAN);
        assert_int_equal(deft_cuda_kernels()->norm(&queue, (int)dtype, x.at, n, &sums[0]), 0);
        standin_finish();
        assert_false(isfinite(sums[0]));
        free(x.memory);
    }
}

static void scale_is_the_host_s(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    for (int round = 0; round < 200; round++) {
        enum dsched_dtype dtype = random_type(&random);
        uint64_t n = 1 + testing_random_below(&random, MAX_N);
        struct buffer x = make(&random, dtype, n);
        struct buffer host = make(&random, dtype, n);
        memcpy(host.at, x.at, x.n_bytes);
        assert_int_equal(deft_cuda_kernels()->scale(&queue, (int)dtype, x.at, n, 1.5), 0);
        standin_finish();
        kernels_scale(dtype, host.at, n, 1.5);
        assert_memory_equal(x.at, host.at, x.n_bytes);
        check_guards(&x);
        free(x.memory);
        free(host.memory);
    }
}

static void casts_round_once(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    for (int pair = 0; pair < 16; pair++) {
        enum dsched_dtype from_type = (enum dsched_dtype)(pair / 4);
        enum dsched_dtype into_type = (enum dsched_dtype)(pair % 4);
        uint64_t n = 1 + testing_random_below(&random, MAX_N);
        struct buffer from = make(&random, from_type, n);
        struct buffer into = make(&random, into_type, n);
        assert_int_equal(deft_cuda_kernels()->cast(&queue, (int)into_type, into.at, (int)from_type,
                                                   from.at, n, 0.5),
                         0);
        standin_finish();
        for (uint64_t i = 0; i < n; i++) {
            double expected = 0.5 * elements_get(from_type, from.at, i);
            check_close(elements_get(into_type, into.at, i), expected,
                        least_step[into_type] / 2 * fabs(expected) + 3e-8);
        }
        check_guards(&into);
        free(from.memory);
        free(into.memory);
    }
}

static void unknown_types_are_refused(void **state) {
    (void)state;
    double x = 1;
    double sum = 0;
    assert_int_not_equal(deft_cuda_kernels()->norm(&queue, 4, &x, 1, &sum), 0);
    assert_int_not_equal(deft_cuda_kernels()->cast(&queue, 0, &x, -1, &x, 1, 1.0), 0);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(combine_is_f64_s_and_the_host_s),
    cmocka_unit_test(norms_are_the_same_each_time),
    cmocka_unit_test(scale_is_the_host_s),
    cmocka_unit_test(casts_round_once),
    cmocka_unit_test(unknown_types_are_refused),
};
TESTING_MAIN(cases)
