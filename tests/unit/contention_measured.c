/* A simulated job whose computing is slowed down by a known factor while its link is busy: what is
 * measured of its iterations is that factor. */
#include <math.h>
#include <stdint.h>

#include "testing.h"
#include "tuning/contention.h"

#define N_ITERATIONS 48u

struct job {
    double forward_ns;
    double other_ns; /* backward, optimizer, loading */
    double factor;
    double work_ns; /* of a generation's all-reduces */
    uint64_t n_bytes;
    double now_ns;
    double busy_until_ns;
};

static void compute(struct job *job, double left_ns) {
    double beside_ns = fmax(job->busy_until_ns - job->now_ns, 0);
    if (beside_ns >= left_ns * job->factor) {
        job->now_ns += left_ns * job->factor;
    } else {
        job->now_ns += beside_ns + left_ns - beside_ns / job->factor;
    }
}

static int64_t noisy(double ns, uint64_t *state) {
    double noise = (double)testing_random_below(state, 2001) / 1000 - 1;
    return (int64_t)(ns * (1 + 0.02 * noise));
}

static void add(struct contention *contention, const struct contention_plan *plan,
                uint32_t iteration, int64_t forward_ns, int64_t step_ns, uint64_t n_bytes) {
    const struct contention_row row = {
        .iteration = iteration, .forward_ns = forward_ns, .step_ns = step_ns, .bytes = n_bytes};
    contention_add(contention, plan, &row);
}

static void train_exact(struct contention *contention, const struct job *job, uint64_t *state) {
    const struct contention_plan plan = {.is_exact = 1, .cycle = 1, .n_merged = 1};
    for (uint32_t i = 0; i < N_ITERATIONS; i++) {
        add(contention, &plan, i, noisy(job->forward_ns, state),
            noisy(job->forward_ns + job->other_ns + job->work_ns, state), job->n_bytes);
    }
}

/* All-reduces of a generation begin where it ends, or with the last backward of it. */
static void train(struct contention *contention, struct job *job, uint32_t merge, int at_boundary,
                  uint64_t *state) {
    const struct contention_plan plan = {
        .seq = 1, .at_boundary = at_boundary, .cycle = merge, .n_merged = merge};
    for (uint32_t i = 0; i < N_ITERATIONS; i++) {
        int ends = i % merge == merge - 1;
        double begin_ns = job->now_ns;
        compute(job, job->forward_ns);
        int64_t forward_ns = noisy(job->now_ns - begin_ns, state);
        if (ends && !at_boundary) {
            job->busy_until_ns = fmax(job->busy_until_ns, job->now_ns) + job->work_ns;
        }
        compute(job, job->other_ns);
        if (ends && at_boundary) {
            job->busy_until_ns = fmax(job->busy_until_ns, job->now_ns) + job->work_ns;
        }
        if (i % 17 == 7) {
            forward_ns *= 20; /* a page fault storm */
        }
        add(contention, &plan, i, forward_ns, noisy(job->now_ns - begin_ns, state),
            ends ? job->n_bytes : 0);
    }
}

static void the_factor_is_found(void **unused) {
    uint64_t state = testing_seed();
    uint32_t n_found = 0;
    (void)unused;
    for (int i = 0; i < 400; i++) {
        struct contention contention = {.n_idle = 0};
        uint32_t merge = 1 + (uint32_t)testing_random_below(&state, 4);
        int at_boundary = merge > 1 || testing_random_below(&state, 2) == 0;
        double share = 0.3 + (double)testing_random_below(&state, 600) / 1000;
        struct job job = {.forward_ns = 5e7 + (double)testing_random_below(&state, 50000000),
                          .other_ns = 1e8 + (double)testing_random_below(&state, 100000000),
                          .factor = 1 + (double)testing_random_below(&state, 801) / 1000,
                          .n_bytes = 40000000};
        job.work_ns = share * merge * (job.forward_ns + job.other_ns);
        train_exact(&contention, &job, &state);
        train(&contention, &job, merge, at_boundary, &state);
        double found = contention_factor(&contention, job.work_ns / (double)job.n_bytes);
        if (found == 0) {
            continue; /* the links are idle for most of forward */
        }
        n_found++;
        if (fabs(found - job.factor) > 0.05 + 0.15 * (job.factor - 1)) {
            fail_msg("found %.3f, it is %.3f: merge %u, %s, busy %.2f", found, job.factor, merge,
                     at_boundary ? "at the boundary" : "in backward", share);
        }
    }
    assert_true(n_found >= 200);
}

static void too_little_is_unknown(void **unused) {
    uint64_t state = testing_seed();
    struct contention contention = {.n_idle = 0};
    struct job job = {
        .forward_ns = 6e7, .other_ns = 1e8, .factor = 1.4, .work_ns = 1e8, .n_bytes = 1000000};
    (void)unused;
    assert_true(contention_factor(&contention, 100) == 0);
    train_exact(&contention, &job, &state);
    assert_true(contention_factor(&contention, 100) == 0);
    train(&contention, &job, 1, 1, &state);
    assert_true(contention_factor(&contention, 100) > 1.3);
    assert_true(contention_factor(&contention, 0) == 0);  /* links of unknown speed */
    assert_true(contention_factor(&contention, 10) == 0); /* hardly busy */
    const struct contention_plan next = {.seq = 2, .at_boundary = 1, .cycle = 1, .n_merged = 1};
    for (uint32_t i = 0; i < CONTENTION_MIN_ROWS; i++) { /* another plan: anew, once it is full */
        add(&contention, &next, i, 60000000, 160000000, 1000000);
        assert_true(contention_factor(&contention, 100) == 0);
    }
    add(&contention, &next, CONTENTION_MIN_ROWS, 60000000, 160000000, 1000000);
    assert_true(contention_factor(&contention, 100) > 0);
}

static void what_is_not_the_links_doing_is_bounded(void **unused) {
    uint64_t state = testing_seed();
    struct contention contention = {.n_idle = 0};
    struct job job = {
        .forward_ns = 6e7, .other_ns = 1e8, .factor = 1, .work_ns = 1e8, .n_bytes = 1000000};
    (void)unused;
    train_exact(&contention, &job, &state);
    job.forward_ns *= 2.5; /* longer sequences from here on */
    train(&contention, &job, 1, 1, &state);
    assert_true(contention_factor(&contention, 100) > CONTENTION_MOST - 0.01);
    job.forward_ns /= 5;
    train(&contention, &job, 1, 1, &state);
    train(&contention, &job, 1, 1, &state);
    assert_true(contention_factor(&contention, 100) < 1.01);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(the_factor_is_found),
    cmocka_unit_test(too_little_is_unknown),
    cmocka_unit_test(what_is_not_the_links_doing_is_bounded),
};

TESTING_MAIN(cases)
