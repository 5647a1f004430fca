/* The knapsack against brute force. */
#include <stdlib.h>
#include <string.h>

#include <dsched/planner.h>

#include "testing.h"

#define MAX_ITEMS 15u

static int64_t brute_force(const struct dsched_item *items, uint32_t n, int64_t capacity) {
    int64_t best = 0;
    for (uint32_t set = 0; set < 1u << n; set++) {
        int64_t weight = 0;
        int64_t value = 0;
        for (uint32_t i = 0; i < n; i++) {
            if (set >> i & 1u) {
                weight += items[i].weight;
                value += items[i].value;
            }
        }
        best = weight <= capacity && value > best ? value : best;
    }
    return best;
}

/* The set is what it says: fits, and is worth what was returned. */
static void check_set(const struct dsched_item *items, uint32_t n, int64_t capacity,
                      const uint8_t *taken, int64_t value) {
    int64_t weight_sum = 0;
    int64_t value_sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        assert_true(taken[i] <= 1);
        weight_sum += taken[i] ? items[i].weight : 0;
        value_sum += taken[i] ? items[i].value : 0;
    }
    assert_true(weight_sum <= capacity);
    assert_int_equal(value_sum, value);
}

static uint32_t random_items(uint64_t *seed, struct dsched_item *items) {
    uint32_t n = 1 + (uint32_t)testing_random_below(seed, MAX_ITEMS);
    uint64_t range = testing_random_below(seed, 3) == 0 ? 4 : 1000000000;
    int is_subset_sum = testing_random_below(seed, 3) == 0;
    for (uint32_t i = 0; i < n; i++) {
        items[i].weight = (int64_t)testing_random_below(seed, range);
        items[i].value =
            is_subset_sum ? items[i].weight : (int64_t)testing_random_below(seed, range);
    }
    return n;
}

static void equals_brute_force(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int round = 0; round < 400; round++) {
        struct dsched_item items[MAX_ITEMS];
        uint8_t taken[MAX_ITEMS];
        uint32_t n = random_items(&seed, items);
        int64_t total = 0;
        int64_t capacity;
        int64_t value = -1;
        uint32_t gap_ppm = 1;
        for (uint32_t i = 0; i < n; i++) {
            total += items[i].weight;
        }
        capacity = (int64_t)testing_random_below(&seed, (uint64_t)total + 2);
        assert_int_equal(dsched_knapsack(items, n, capacity, UINT64_MAX, taken, &value, &gap_ppm),
                         DSCHED_OK);
        assert_int_equal(value, brute_force(items, n, capacity));
        assert_int_equal(gap_ppm, 0);
        check_set(items, n, capacity, taken, value);
    }
}

/* A search that is cut short says how far from the optimum it may be, and is right. */
static void gap_is_honest_under_a_node_limit(void **unused) {
    uint64_t seed = testing_seed();
    uint32_t n_open = 0;
    (void)unused;
    for (int round = 0; round < 400; round++) {
        struct dsched_item items[MAX_ITEMS];
        uint8_t taken[MAX_ITEMS];
        uint32_t n = random_items(&seed, items);
        int64_t capacity = 1 + (int64_t)testing_random_below(&seed, 3000000000);
        int64_t best = brute_force(items, n, capacity);
        int64_t value = -1;
        uint32_t gap_ppm = 0;
        assert_int_equal(dsched_knapsack(items, n, capacity, 1 + testing_random_below(&seed, 20),
                                         taken, &value, &gap_ppm),
                         DSCHED_OK);
        check_set(items, n, capacity, taken, value);
        assert_true(gap_ppm <= 1000000);
        /* optimum <= upper bound = value / (1 - gap), compared without division */
        assert_true(best == value || (double)value >= (double)best * (1 - gap_ppm * 1e-6) - 1);
        n_open += gap_ppm > 0;
    }
    assert_true(n_open > 0);
}

static void ties_prefer_the_lower_number(void **unused) {
    const struct dsched_item items[] = {{5, 7}, {5, 7}, {5, 7}, {0, 3}, {0, 0}};
    uint8_t taken[5];
    int64_t value;
    uint32_t gap_ppm;
    (void)unused;
    assert_int_equal(dsched_knapsack(items, 5, 11, 1000, taken, &value, &gap_ppm), DSCHED_OK);
    assert_memory_equal(taken, ((uint8_t[]){1, 1, 0, 1, 0}), 5);
    assert_int_equal(value, 17);
}

/* Equal items would be exponential for a search that does not see that they are. */
static void many_equal_items_are_quick(void **unused) {
    struct dsched_item items[200];
    uint8_t taken[200];
    int64_t value;
    uint32_t gap_ppm;
    (void)unused;
    for (uint32_t i = 0; i < 200; i++) {
        items[i] = (struct dsched_item){.weight = 10, .value = 11};
    }
    assert_int_equal(dsched_knapsack(items, 200, 1005, 100000, taken, &value, &gap_ppm), DSCHED_OK);
    assert_int_equal(value, 1100);
    assert_int_equal(gap_ppm, 0);
}

static void arguments_are_checked(void **unused) {
    struct dsched_item *items = calloc(DSCHED_MAX_BUCKETS + 1, sizeof(*items));
    uint8_t *taken = calloc(DSCHED_MAX_BUCKETS + 1, 1);
    int64_t value = 5;
    uint32_t gap_ppm = 6;
    (void)unused;
    assert_non_null(items);
    assert_non_null(taken);
    assert_int_equal(dsched_knapsack(items, 0, 1, 1, taken, &value, &gap_ppm), DSCHED_INVALID);
    assert_int_equal(dsched_knapsack(items, 1, -1, 1, taken, &value, &gap_ppm), DSCHED_INVALID);
    assert_int_equal(dsched_knapsack(items, DSCHED_MAX_BUCKETS + 1, 1, 1, taken, &value, &gap_ppm),
                     DSCHED_LIMIT);
    items[0].weight = -1;
    assert_int_equal(dsched_knapsack(items, 1, 1, 1, taken, &value, &gap_ppm), DSCHED_INVALID);
    items[0] = (struct dsched_item){.weight = 1, .value = INT64_MAX};
    items[1] = (struct dsched_item){.weight = 1, .value = 1};
    assert_int_equal(dsched_knapsack(items, 2, 1, 1, taken, &value, &gap_ppm), DSCHED_LIMIT);
    assert_int_equal(value, 5);
    assert_int_equal(gap_ppm, 6);
    items[0].value = 1;
    assert_int_equal(dsched_knapsack(items, DSCHED_MAX_BUCKETS, 1, 1, taken, &value, &gap_ppm),
                     DSCHED_OK);
    free(items);
    free(taken);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(equals_brute_force),
    cmocka_unit_test(gap_is_honest_under_a_node_limit),
    cmocka_unit_test(ties_prefer_the_lower_number),
    cmocka_unit_test(many_equal_items_are_quick),
    cmocka_unit_test(arguments_are_checked),
};
TESTING_MAIN(cases)
