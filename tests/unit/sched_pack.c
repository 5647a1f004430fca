/* Buckets on links: against brute force, and the gap against it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/planner.h>

#include "testing.h"

#define MAX_BUCKETS 10u
#define MAX_LINKS   3u

struct instance {
    struct dsched_packing packing;
    int64_t ready_ns[MAX_BUCKETS];
    int64_t costs_ns[MAX_LINKS * MAX_BUCKETS];
    int64_t values[MAX_BUCKETS];
};

/* What a choice of links comes to: the landing time, or the late value; -1 when it breaks the
 * limit. */
static int64_t evaluate(const struct dsched_packing *packing, const uint8_t *links) {
    int64_t free_ns[MAX_LINKS] = {0};
    int64_t last_ns = 0;
    int64_t late = 0;
    for (uint32_t b = 0; b < packing->n_buckets; b++) {
        int64_t *at_ns = &free_ns[links[b]];
        int64_t ready_ns = packing->ready_ns == NULL ? 0 : packing->ready_ns[b];
        *at_ns = (*at_ns > ready_ns ? *at_ns : ready_ns) +
                 packing->costs_ns[links[b] * packing->n_buckets + b];
        last_ns = *at_ns > last_ns ? *at_ns : last_ns;
        if (packing->values != NULL && *at_ns > packing->deadline_ns) {
            late += packing->values[b];
        }
    }
    if (packing->values == NULL) {
        return last_ns;
    }
    return last_ns > packing->limit_ns ? -1 : late;
}

static int64_t brute_force(const struct dsched_packing *packing) {
    uint8_t links[MAX_BUCKETS] = {0};
    int64_t best = -1;
    uint32_t b;
    do {
        int64_t result = evaluate(packing, links);
        best = result >= 0 && (best < 0 || result < best) ? result : best;
        for (b = 0; b < packing->n_buckets && ++links[b] == packing->n_links; b++) {
            links[b] = 0;
        }
    } while (b < packing->n_buckets);
    return best;
}

/* Some with readiness, some with a deadline; costs of unrelated links, or of links that differ by a
 * factor, or with few different values. */
static void random_instance(uint64_t *seed, uint32_t max_buckets, struct instance *out) {
    uint32_t n = 1 + (uint32_t)testing_random_below(seed, max_buckets);
    uint32_t n_links = 2 + (uint32_t)testing_random_below(seed, MAX_LINKS - 1);
    uint64_t range = testing_random_below(seed, 4) == 0 ? 5 : 1000000;
    int is_related = testing_random_below(seed, 2) == 0;
    int64_t ready_ns = 0;
    int64_t all_ns = 0;
    memset(out, 0, sizeof(*out));
    out->packing = (struct dsched_packing){
        .n_buckets = n, .n_links = n_links, .costs_ns = out->costs_ns, .n_labels = 4096};
    for (uint32_t b = 0; b < n; b++) {
        ready_ns += (int64_t)testing_random_below(seed, range);
        out->ready_ns[b] = ready_ns;
        out->values[b] = (int64_t)testing_random_below(seed, range);
        for (uint32_t l = 0; l < n_links; l++) {
            int64_t ns = (int64_t)testing_random_below(seed, range);
            out->costs_ns[l * n + b] = is_related && l > 0 ? out->costs_ns[b] * (l + 2) / 2 : ns;
        }
        all_ns += out->costs_ns[b];
    }
    if (testing_random_below(seed, 2) == 0) {
        out->packing.ready_ns = out->ready_ns;
        all_ns += ready_ns;
    }
    if (testing_random_below(seed, 2) == 0) {
        out->packing.values = out->values;
        out->packing.deadline_ns = (int64_t)testing_random_below(seed, (uint64_t)all_ns + 1);
        out->packing.limit_ns =
            out->packing.deadline_ns + (int64_t)testing_random_below(seed, (uint64_t)all_ns + 1);
    }
}

static void equals_brute_force(void **unused) {
    uint64_t seed = testing_seed();
    uint32_t n_infeasible = 0;
    uint32_t n_late = 0;
    (void)unused;
    for (int round = 0; round < 300; round++) {
        struct instance instance;
        uint8_t links[MAX_BUCKETS];
        int64_t result = -5;
        uint32_t gap_ppm = 7;
        int64_t best;
        enum dsched_status status;
        random_instance(&seed, round % 10 == 0 ? MAX_BUCKETS : 7, &instance);
        best = brute_force(&instance.packing);
        status = dsched_pack(&instance.packing, links, &result, &gap_ppm);
        if (best < 0) {
            assert_int_equal(status, DSCHED_INFEASIBLE);
            assert_int_equal(result, -5);
            n_infeasible++;
            continue;
        }
        assert_int_equal(status, DSCHED_OK);
        assert_int_equal(result, best);
        assert_int_equal(gap_ppm, 0);
        assert_int_equal(evaluate(&instance.packing, links), result);
        n_late += instance.packing.values != NULL && result > 0;
    }
    assert_true(n_infeasible > 0);
    assert_true(n_late > 0);
}

/* With few labels the optimum is not below what the gap admits. */
static void gap_is_honest_under_a_label_limit(void **unused) {
    uint64_t seed = testing_seed();
    uint32_t n_open = 0;
    uint32_t n_missed = 0;
    (void)unused;
    for (int round = 0; round < 1000; round++) {
        struct instance instance;
        uint8_t links[MAX_BUCKETS];
        int64_t result = -1;
        uint32_t gap_ppm = 0;
        int64_t best;
        random_instance(&seed, round % 10 == 0 ? MAX_BUCKETS : 7, &instance);
        instance.packing.n_labels = 1 + (uint32_t)testing_random_below(&seed, 3);
        best = brute_force(&instance.packing);
        if (dsched_pack(&instance.packing, links, &result, &gap_ppm) == DSCHED_INFEASIBLE) {
            continue;
        }
        assert_int_equal(evaluate(&instance.packing, links), result);
        assert_true(best >= 0 && result >= best);
        assert_true(gap_ppm <= 1000000);
        assert_true((double)best >= (double)result * (1 - gap_ppm * 1e-6) - 1);
        n_open += gap_ppm > 0;
        n_missed += result > best;
    }
    assert_true(n_open > 0);
    assert_true(n_missed > 0);
}

/* Many buckets: the gap is small although the sets of labels are cut. */
static void many_buckets_are_nearly_balanced(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (uint32_t n_links = 2; n_links <= 4; n_links++) {
        enum { N = 200 };
        static int64_t costs_ns[4 * N];
        uint8_t links[N];
        int64_t result;
        uint32_t gap_ppm;
        struct dsched_packing packing = {
            .n_buckets = N, .n_links = n_links, .costs_ns = costs_ns, .n_labels = 16};
        for (uint32_t b = 0; b < N; b++) {
            int64_t ns = 1000 + (int64_t)testing_random_below(&seed, 1000000);
            for (uint32_t l = 0; l < n_links; l++) {
                costs_ns[l * N + b] = 50000 + ns * (2 + l) / 2;
            }
        }
        assert_int_equal(dsched_pack(&packing, links, &result, &gap_ppm), DSCHED_OK);
        if (gap_ppm > 10000) {
            fail_msg("%u links: a gap of %u ppm", n_links, gap_ppm);
        }
    }
}

static void arguments_are_checked(void **unused) {
    int64_t ready_ns[2] = {0, 5};
    int64_t costs_ns[2] = {1, 2};
    int64_t values[2] = {1, 1};
    uint8_t links[2] = {9, 9};
    int64_t result = 5;
    uint32_t gap_ppm = 6;
    const struct dsched_packing good = {.n_buckets = 2,
                                        .n_links = 1,
                                        .ready_ns = ready_ns,
                                        .costs_ns = costs_ns,
                                        .values = values,
                                        .deadline_ns = 3,
                                        .limit_ns = 9,
                                        .n_labels = 1};
    struct dsched_packing bad[6];
    (void)unused;
    for (int i = 0; i < 6; i++) {
        bad[i] = good;
    }
    bad[0].n_buckets = 0;
    bad[1].n_links = 0;
    bad[2].n_links = DSCHED_MAX_LINKS + 1;
    bad[3].n_labels = 0;
    bad[4].n_labels = DSCHED_MAX_LABELS + 1;
    bad[5].ready_ns = (const int64_t[]){5, 4};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(dsched_pack(&bad[i], links, &result, &gap_ppm), DSCHED_INVALID);
    }
    bad[0] = good;
    bad[0].n_buckets = DSCHED_MAX_BUCKETS + 1;
    assert_int_equal(dsched_pack(&bad[0], links, &result, &gap_ppm), DSCHED_LIMIT);
    bad[0] = good;
    bad[0].costs_ns = (const int64_t[]){INT64_MAX / 5, INT64_MAX / 5};
    assert_int_equal(dsched_pack(&bad[0], links, &result, &gap_ppm), DSCHED_LIMIT);
    bad[0] = good;
    bad[0].values = (const int64_t[]){1, -1};
    assert_int_equal(dsched_pack(&bad[0], links, &result, &gap_ppm), DSCHED_INVALID);
    bad[0] = good;
    bad[0].limit_ns = 6;
    assert_int_equal(dsched_pack(&bad[0], links, &result, &gap_ppm), DSCHED_INFEASIBLE);
    assert_int_equal(result, 5);
    assert_int_equal(links[0], 9);
    assert_int_equal(dsched_pack(&good, links, &result, &gap_ppm), DSCHED_OK);
    assert_int_equal(result, 1);
    assert_int_equal(links[0], 0);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(equals_brute_force),
    cmocka_unit_test(gap_is_honest_under_a_label_limit),
    cmocka_unit_test(many_buckets_are_nearly_balanced),
    cmocka_unit_test(arguments_are_checked),
};
TESTING_MAIN(cases)
