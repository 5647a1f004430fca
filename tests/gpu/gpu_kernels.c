/* The kernels' arithmetic, compiled for the host: against f64, and bit for bit against the host's
 * own passes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "elements.h"
#include "link/device_kernels.h"
#include "runtime/device_host.h"
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

/* At `offset` in an access; SIZE_MAX: any. */
static struct buffer make_at(uint64_t *random, enum dsched_dtype dtype, uint64_t n, size_t offset) {
    size_t width = dsched_dtype_bytes(dtype);
    struct buffer made = {.n_bytes = n * width};
    made.memory = aligned_alloc(64, (made.n_bytes + 4 * (size_t)GUARD + 63) / 64 * 64);
    assert_non_null(made.memory);
    memset(made.memory, 0x5a, made.n_bytes + 4 * (size_t)GUARD);
    size_t any = testing_random_below(random, 16 / width) * width;
    made.at = made.memory + GUARD + (offset == SIZE_MAX ? any : offset);
    for (uint64_t i = 0; i < n; i++) {
        elements_put(dtype, made.at, i,
                     (double)(testing_random(random) >> 11) / 9007199254740992.0 - 0.5);
    }
    return made;
}

static struct buffer make(uint64_t *random, enum dsched_dtype dtype, uint64_t n) {
    return make_at(random, dtype, n, SIZE_MAX);
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

/* --- averaged --------------------------------------------------------------------------------- */

enum part { W, A, LANDED, LANDED_OWN, OWN, SUM, OLDER, N_PARTS = OLDER + 3 };

/* What one pass works on, in an arrangement that the runtime has: what is landed may be the place
 * of what is captured; poisoned where it must not be read. */
struct averaging {
    enum dsched_dtype dtype;
    uint64_t n;
    int lands, captures, in_place;
    uint32_t n_older;
    struct buffer parts[N_PARTS];
};

static struct averaging arrange(uint64_t *random, uint64_t n) {
    struct averaging made = {.dtype = testing_random_below(random, 2) ? DSCHED_F64 : DSCHED_F32,
                             .n = n,
                             .lands = (int)testing_random_below(random, 2),
                             .in_place = (int)testing_random_below(random, 2),
                             .n_older = (uint32_t)testing_random_below(random, 4)};
    made.captures = !made.lands || testing_random_below(random, 3) > 0;
    size_t offset = testing_random_below(random, 16 / dsched_dtype_bytes(made.dtype)) *
                    dsched_dtype_bytes(made.dtype);
    for (int p = 0; p < N_PARTS; p++) {
        made.parts[p] = make_at(random, made.dtype, n, p == W ? SIZE_MAX : offset);
    }
    for (uint64_t i = 0; i < n; i++) {
        elements_put(made.dtype, made.parts[OWN].at, i, (double)NAN);
        elements_put(made.dtype, made.parts[SUM].at, i, (double)NAN);
    }
    return made;
}

static struct averaging copy(const struct averaging *from) {
    struct averaging made = *from;
    for (int p = 0; p < N_PARTS; p++) {
        struct buffer *buffer = &made.parts[p];
        size_t room = buffer->n_bytes + 4 * (size_t)GUARD;
        buffer->memory = aligned_alloc(64, (room + 63) / 64 * 64);
        assert_non_null(buffer->memory);
        memcpy(buffer->memory, from->parts[p].memory, room);
        buffer->at = buffer->memory + (from->parts[p].at - from->parts[p].memory);
    }
    return made;
}

static void destroy(struct averaging *made) {
    for (int p = 0; p < N_PARTS; p++) {
        check_guards(&made->parts[p]);
        free(made->parts[p].memory);
    }
}

static struct device_averaged describe(const struct averaging *of, int is_dropped) {
    int in_place = of->lands && of->in_place;
    struct device_averaged at = {.w = of->parts[W].at,
                                 .a = of->parts[A].at,
                                 .n_older = of->n_older,
                                 .is_dropped = is_dropped,
                                 .factor = 1.0 / 3};
    for (uint32_t o = 0; o < of->n_older; o++) {
        at.older[o] = of->parts[OLDER + o].at;
    }
    if (of->lands) {
        at.landed = of->parts[LANDED].at;
        at.landed_own = of->parts[LANDED_OWN].at;
    }
    if (of->captures) {
        at.own = of->parts[in_place ? LANDED_OWN : OWN].at;
        at.sum = of->parts[in_place ? LANDED : SUM].at;
    }
    return at;
}

static double of(const struct averaging *all, enum part part, uint64_t i) {
    return elements_get(all->dtype, all->parts[part].at, i);
}

static void check_one_change(const struct averaging *before, const struct averaging *after,
                             int is_dropped, uint64_t i) {
    double tolerance = 8 * least_step[before->dtype];
    double w = of(before, W, i);
    double a = of(before, A, i);
    double change;
    if (before->lands && is_dropped) {
        w = a;
    } else if (before->lands) {
        a += of(before, LANDED, i);
        w += of(before, LANDED, i) - of(before, LANDED_OWN, i);
    }
    change = w - a;
    check_close(of(after, W, i), w, tolerance);
    check_close(of(after, A, i), a, tolerance);
    for (uint32_t o = 0; o < before->n_older; o++) {
        enum part older = (enum part)(OLDER + (int)o);
        int is_zero = before->lands && is_dropped;
        check_close(of(after, older, i), is_zero ? 0 : of(before, older, i), 0);
        change -= is_zero ? 0 : of(before, older, i);
    }
    if (before->captures) {
        int in_place = before->lands && before->in_place;
        check_close(of(after, in_place ? LANDED_OWN : OWN, i), change, tolerance);
        check_close(of(after, in_place ? LANDED : SUM, i), change / 3, tolerance);
    }
}

/* On the device, for which the mean is judged by itself. */
static void run_average(const struct averaging *on, int is_dropped, double *sums,
                        struct device_kernels_notes *notes) {
    const struct device_averaged at = describe(on, 0);
    const double mark = is_dropped ? (double)NAN : 1.0;
    assert_int_equal(deft_cuda_kernels()->judge(&queue, DSCHED_F64, &mark, 1, notes), 0);
    assert_int_equal(deft_cuda_kernels()->average(&queue, (int)on->dtype, &at, on->n, sums, notes),
                     0);
    standin_finish();
    assert_int_equal(notes->n_landed, 1);
    assert_int_equal(notes->n_dropped, is_dropped);
}

static void average_is_f64_s_and_the_host_s(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    struct device host = {.ops = &device_host};
    for (int round = 0; round < 400; round++) {
        uint64_t n = 1 + testing_random_below(&random, round % 4 == 0 ? 40 : MAX_N);
        struct averaging before = arrange(&random, n);
        struct averaging mine = copy(&before);
        struct averaging the_host = copy(&before);
        int is_dropped = before.lands && testing_random_below(&random, 3) == 0;
        double sums[2] = {3, 5};
        struct device_kernels_notes notes = {0};
        run_average(&mine, is_dropped, sums, &notes);
        double landed_sq = 0;
        double share_sq = 0;
        for (uint64_t i = 0; i < n; i++) {
            int counts = before.lands && !is_dropped;
            landed_sq += counts ? of(&before, LANDED, i) * of(&before, LANDED, i) : 0;
            share_sq += counts ? of(&before, LANDED_OWN, i) * of(&before, LANDED_OWN, i) : 0;
            check_one_change(&before, &mine, is_dropped, i);
        }
        check_close(sums[0] - 3, landed_sq, 1e-6 * landed_sq);
        check_close(sums[1] - 5, share_sq, 1e-6 * share_sq);
        assert_int_equal(notes.is_bad, 0);
        struct device_averaged_sums on_host = {0, 0};
        const struct device_averaged at = describe(&the_host, is_dropped);
        device_host.average(&host, (enum deft_dtype)before.dtype, &at, n, &on_host);
        check_close(on_host.landed_sq, landed_sq, 1e-5 * landed_sq);
        for (int p = 0; p < N_PARTS; p++) {
            assert_memory_equal(mine.parts[p].at, the_host.parts[p].at, mine.parts[p].n_bytes);
        }
        destroy(&before);
        destroy(&mine);
        destroy(&the_host);
    }
}

static int is_marked(const struct buffer *buffer, enum dsched_dtype dtype) {
    return isnan(elements_get(dtype, buffer->at, 0));
}

static void what_is_bad_marks_its_bucket(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    const double bad[] = {(double)NAN, (double)INFINITY, -(double)INFINITY};
    for (int round = 0; round < 200; round++) {
        uint64_t n = 1 + testing_random_below(&random, MAX_N);
        struct averaging one = arrange(&random, n);
        struct device_kernels_notes notes = {.generation_is_bad = round % 4 == 0};
        double sums[2] = {0, 0};
        int is_bad = round % 2;
        one.lands = 0;
        one.captures = 1;
        if (is_bad) {
            elements_put(one.dtype, one.parts[W].at, testing_random_below(&random, n),
                         bad[round % 3]);
        }
        run_average(&one, 0, sums, &notes);
        assert_int_equal(notes.is_bad, is_bad);
        assert_int_equal(
            deft_cuda_kernels()->seal(&queue, (int)one.dtype, one.parts[SUM].at, &notes), 0);
        standin_finish();
        assert_int_equal(notes.is_bad, 0);
        /* Without a mark element 0 may still be what was put there. */
        int is_first = is_bad && !isfinite(elements_get(one.dtype, one.parts[W].at, 0));
        if (!is_first) {
            assert_int_equal(is_marked(&one.parts[SUM], one.dtype), is_bad || round % 4 == 0);
        }
        destroy(&one);
    }
}

static void guards_zero_what_is_not_finite(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    for (int round = 0; round < 100; round++) {
        struct buffer buffers[DEVICE_AVERAGED_MAX_GRADIENTS];
        struct device_averaged_gradient gradients[DEVICE_AVERAGED_MAX_GRADIENTS];
        uint32_t n = (uint32_t)testing_random_below(&random, DEVICE_AVERAGED_MAX_GRADIENTS + 1);
        double norm = round % 3 == 0 ? (double)NAN : round % 3 == 1 ? (double)INFINITY : 4.0;
        uint32_t was_bad = round % 5 == 0;
        uint32_t noted = was_bad;
        int begins = (int)testing_random_below(&random, 2);
        for (uint32_t g = 0; g < n; g++) {
            buffers[g] = make(&random, random_type(&random), 1 + testing_random_below(&random, 99));
            gradients[g] = (struct device_averaged_gradient){.memory = buffers[g].at,
                                                             .n_bytes = buffers[g].n_bytes};
        }
        int keeps = (int)testing_random_below(&random, 2);
        assert_int_equal(
            deft_cuda_kernels()->guard(&queue, gradients, n, begins, &norm, keeps ? &noted : NULL),
            0);
        standin_finish();
        assert_int_equal(noted, keeps ? !isfinite(norm) || (was_bad && !begins) : (int)was_bad);
        for (uint32_t g = 0; g < n; g++) {
            int is_zero = 1;
            for (size_t i = 0; i < buffers[g].n_bytes; i++) {
                is_zero &= buffers[g].at[i] == 0;
            }
            assert_int_equal(is_zero, !isfinite(norm));
            check_guards(&buffers[g]);
            free(buffers[g].memory);
        }
    }
}

static void unknown_types_are_refused(void **state) {
    (void)state;
    double x = 1;
    double sum = 0;
    assert_int_not_equal(deft_cuda_kernels()->norm(&queue, 4, &x, 1, &sum), 0);
    assert_int_not_equal(deft_cuda_kernels()->cast(&queue, 0, &x, -1, &x, 1, 1.0), 0);
    struct device_kernels_notes notes = {0};
    const struct device_averaged at = {.w = &x, .a = &x};
    assert_int_not_equal(deft_cuda_kernels()->average(&queue, DEFT_F16, &at, 1, &sum, &notes), 0);
    assert_int_not_equal(deft_cuda_kernels()->judge(&queue, DEFT_BF16, &x, 1, &notes), 0);
    assert_int_not_equal(deft_cuda_kernels()->seal(&queue, DEFT_F16, &x, &notes), 0);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(combine_is_f64_s_and_the_host_s),
    cmocka_unit_test(norms_are_the_same_each_time),
    cmocka_unit_test(scale_is_the_host_s),
    cmocka_unit_test(casts_round_once),
    cmocka_unit_test(average_is_f64_s_and_the_host_s),
    cmocka_unit_test(what_is_bad_marks_its_bucket),
    cmocka_unit_test(guards_zero_what_is_not_finite),
    cmocka_unit_test(unknown_types_are_refused),
};
TESTING_MAIN(cases)
