/* Iterations become whole when their last rank has reported, however far ranks are apart. */
#include <math.h>
#include <string.h>

#include "testing.h"
#include "tuning/observe.h"

#define N_RANKS      4u
#define N_ITERATIONS 6000u
/* Far more than ranks that train together are apart, and less than what is waited for. */
#define MOST_APART 2000u

static int report(struct observe *observe, uint32_t rank, uint64_t iteration) {
    struct observed whole = {0};
    const struct wire_iteration row = {.rank = rank,
                                       .iteration = iteration,
                                       .forward_ns = 10,
                                       .backward_ns = 20,
                                       .step_ns = 100 + rank,
                                       .loss = 2,
                                       .grad_sq_local = (double)NAN,
                                       .grad_sq_mean = (double)NAN,
                                       .change_sq_local = (double)NAN,
                                       .learning_rate = (double)NAN};
    int is_whole = observe_iteration(observe, &row, &whole);
    if (is_whole) {
        assert_int_equal(whole.iteration, iteration);
        assert_int_equal(whole.step_ns, 100 + N_RANKS - 1); /* the slowest rank's */
        assert_true(whole.figures.loss == 2);
    }
    return is_whole;
}

/* Ranks report in any order, `apart` iterations apart at most; those for which `skips` says so are
 * left out. How often each became whole is in `counts`. */
static void report_all(uint64_t apart, int (*skips)(uint32_t rank, uint64_t iteration),
                       uint8_t counts[N_ITERATIONS]) {
    struct observe *observe = NULL;
    uint64_t next[N_RANKS] = {0};
    uint64_t random = testing_seed();
    uint64_t n_left = (uint64_t)N_RANKS * N_ITERATIONS;
    memset(counts, 0, N_ITERATIONS);
    assert_int_equal(observe_create(N_RANKS, 1, 1, &observe), DEFT_OK);
    while (n_left > 0) {
        uint32_t rank = (uint32_t)testing_random_below(&random, N_RANKS);
        uint64_t least = N_ITERATIONS;
        for (uint32_t i = 0; i < N_RANKS; i++) {
            least = next[i] < least ? next[i] : least;
        }
        uint64_t n = testing_random_below(&random, apart);
        for (; n > 0 && next[rank] < N_ITERATIONS && next[rank] < least + apart; n--) {
            if (!skips(rank, next[rank])) {
                counts[next[rank]] += (uint8_t)report(observe, rank, next[rank]);
            }
            next[rank]++;
            n_left--;
        }
    }
    observe_destroy(observe);
}

static int skips_none(uint32_t rank, uint64_t iteration) {
    (void)rank;
    (void)iteration;
    return 0;
}

static int skips_some(uint32_t rank, uint64_t iteration) {
    return rank == 1 && iteration % 7 == 3;
}

static void every_iteration_is_whole_once(void **unused) {
    static const uint64_t apart[] = {2, 40, MOST_APART};
    static uint8_t counts[N_ITERATIONS];
    (void)unused;
    for (size_t a = 0; a < sizeof(apart) / sizeof(apart[0]); a++) {
        report_all(apart[a], skips_none, counts);
        for (uint32_t i = 0; i < N_ITERATIONS; i++) {
            assert_int_equal(counts[i], 1);
        }
    }
}

static void what_a_rank_leaves_out_holds_nothing_up(void **unused) {
    static uint8_t counts[N_ITERATIONS];
    (void)unused;
    report_all(MOST_APART, skips_some, counts);
    for (uint32_t i = 0; i < N_ITERATIONS; i++) {
        assert_int_equal(counts[i], skips_some(1, i) ? 0 : 1);
    }
}

/* Beyond what is waited for, an iteration is given up; its last rank does not make it whole. */
static void what_is_far_too_late_is_left_out(void **unused) {
    struct observe *observe = NULL;
    (void)unused;
    assert_int_equal(observe_create(2, 1, 1, &observe), DEFT_OK);
    for (uint64_t i = 0; i < 2048 + 10; i++) {
        assert_int_equal(report(observe, 0, i), 0);
    }
    for (uint64_t i = 0; i < 10; i++) {
        assert_int_equal(report(observe, 1, i), 0);
    }
    observe_destroy(observe);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_iteration_is_whole_once),
    cmocka_unit_test(what_a_rank_leaves_out_holds_nothing_up),
    cmocka_unit_test(what_is_far_too_late_is_left_out),
};
TESTING_MAIN(cases)
