/* What a profile may hold, and what a link costs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "sched_support.h"
#include "testing.h"

static void expect(const struct dsched_profile *profile, enum dsched_status status,
                   const char *text) {
    struct dsched_error error = {.text = ""};
    assert_int_equal(dsched_profile_check(profile, &error), status);
    assert_non_null(strstr(error.text, text));
    assert_int_equal(dsched_profile_check(profile, NULL), status);
}

static void small_profile(struct dsched_profile *out) {
    support_even(4, 3000000, 1000000, out);
}

static void refuses_bad_stages(void **state) {
    struct dsched_profile profile;
    (void)state;
    small_profile(&profile);
    expect(&profile, DSCHED_OK, "");
    profile.optimizer_ns = DSCHED_MAX_TIME_NS;
    expect(&profile, DSCHED_OK, "");
    profile.optimizer_ns++;
    expect(&profile, DSCHED_INVALID, "optimizer_ns");
    profile.optimizer_ns = -1;
    expect(&profile, DSCHED_INVALID, "optimizer_ns");
    profile.optimizer_ns = 0;
    profile.forward_ns--;
    expect(&profile, DSCHED_INVALID, "own times sum");
    profile.forward_ns++;
    profile.world_size = 0;
    expect(&profile, DSCHED_INVALID, "world_size");
    profile.world_size = 1;
    memset(profile.name, 'x', sizeof(profile.name));
    expect(&profile, DSCHED_INVALID, "name");
    dsched_profile_done(&profile);
    dsched_profile_done(&profile);
    dsched_profile_done(NULL);
}

static void refuses_bad_tensors(void **state) {
    struct dsched_profile profile;
    (void)state;
    small_profile(&profile);
    profile.tensors[2].elements = DSCHED_MAX_ELEMENTS;
    expect(&profile, DSCHED_LIMIT, "tensor 2");
    profile.tensors[2].elements = 5;
    profile.tensors[1].dtype = (enum dsched_dtype)DSCHED_N_DTYPES;
    expect(&profile, DSCHED_INVALID, "tensor 1");
    profile.tensors[1].dtype = DSCHED_F32;
    profile.tensors[3].backward_ns = -1;
    expect(&profile, DSCHED_INVALID, "tensor 3");
    profile.tensors[3].backward_ns = 0;
    memset(profile.tensors[0].name, 'x', DSCHED_NAME_BYTES);
    expect(&profile, DSCHED_INVALID, "tensor 0");
    profile.tensors[0].name[DSCHED_NAME_BYTES - 1] = '\0';
    expect(&profile, DSCHED_OK, "");
    for (uint32_t i = 0; i < profile.n_tensors; i++) {
        profile.tensors[i].elements = 0;
    }
    expect(&profile, DSCHED_INVALID, "no tensor with elements");
    profile.n_tensors = DSCHED_MAX_TENSORS + 1;
    expect(&profile, DSCHED_LIMIT, "65537 tensors");
    profile.n_tensors = 4;
    dsched_profile_done(&profile);
}

static void accepts_most_tensors(void **state) {
    struct dsched_profile profile;
    (void)state;
    support_profile(&profile, DSCHED_MAX_TENSORS, 1);
    for (uint32_t i = 0; i < profile.n_tensors; i++) {
        profile.tensors[i].elements = DSCHED_MAX_ELEMENTS / DSCHED_MAX_TENSORS;
        profile.tensors[i].backward_ns = 1;
    }
    support_sum(&profile);
    expect(&profile, DSCHED_OK, "");
    dsched_profile_done(&profile);
}

static void refuses_bad_links(void **state) {
    struct dsched_profile profile;
    struct dsched_sample *samples = calloc(DSCHED_MAX_LINK_SAMPLES + 1, sizeof(*samples));
    (void)state;
    small_profile(&profile);
    profile.n_links = 0;
    expect(&profile, DSCHED_INVALID, "no link");
    profile.n_links = DSCHED_MAX_LINKS + 1;
    expect(&profile, DSCHED_LIMIT, "9 links");
    profile.n_links = 1;
    profile.links[0].bytes_per_s = 0;
    expect(&profile, DSCHED_INVALID, "bytes_per_s");
    profile.links[0].bytes_per_s = 1;
    profile.links[0].contention_ppm = 999999;
    expect(&profile, DSCHED_INVALID, "contention_ppm");
    profile.links[0].contention_ppm = 1000000;
    assert_non_null(samples);
    for (uint32_t i = 0; i <= DSCHED_MAX_LINK_SAMPLES; i++) {
        samples[i] = (struct dsched_sample){.bytes = i + 1, .ns = 100};
    }
    profile.links[0].samples = samples;
    profile.links[0].n_samples = DSCHED_MAX_LINK_SAMPLES;
    expect(&profile, DSCHED_OK, "");
    profile.links[0].n_samples++;
    expect(&profile, DSCHED_LIMIT, "257 samples");
    profile.links[0].n_samples = 3;
    samples[2].bytes = samples[1].bytes;
    expect(&profile, DSCHED_INVALID, "sample 2");
    samples[2].bytes = 9;
    samples[1].ns = -1;
    expect(&profile, DSCHED_INVALID, "sample 1");
    dsched_profile_done(&profile);
}

static void affine_cost_rounds_up(void **state) {
    struct dsched_link link = {.alpha_ns = 7, .bytes_per_s = 3000000000};
    (void)state;
    assert_int_equal(dsched_link_ns(&link, 0), 0);
    assert_int_equal(dsched_link_ns(&link, 1), 8);
    assert_int_equal(dsched_link_ns(&link, 3), 8);
    assert_int_equal(dsched_link_ns(&link, 4), 9);
    /* No overflow at the largest sizes, and no time beyond the largest. */
    link.bytes_per_s = 1;
    assert_int_equal(dsched_link_ns(&link, DSCHED_MAX_ELEMENTS * 8), DSCHED_MAX_TIME_NS);
}

static void samples_interpolate(void **state) {
    struct dsched_sample samples[] = {{100, 1000}, {200, 1500}, {400, 1400}, {800, 2000}};
    struct dsched_link link = {.alpha_ns = 1, .bytes_per_s = 1, .n_samples = 4, .samples = samples};
    (void)state;
    assert_int_equal(dsched_link_ns(&link, 1), 1000);
    assert_int_equal(dsched_link_ns(&link, 100), 1000);
    assert_int_equal(dsched_link_ns(&link, 101), 1005);
    assert_int_equal(dsched_link_ns(&link, 200), 1500);
    assert_int_equal(dsched_link_ns(&link, 300), 1450);
    assert_int_equal(dsched_link_ns(&link, 400), 1400);
    assert_int_equal(dsched_link_ns(&link, 600), 1700);
    assert_int_equal(dsched_link_ns(&link, 1600), 3200);
    link.n_samples = 3; /* a falling end is not extrapolated */
    assert_int_equal(dsched_link_ns(&link, 4000), 1400);
    link.n_samples = 1; /* one sample fixes the speed above it */
    assert_int_equal(dsched_link_ns(&link, 250), 2500);
}

static void table_hash_sees_everything(void **state) {
    uint64_t elements[] = {3, 5};
    uint8_t dtypes[] = {DSCHED_F32, DSCHED_F16};
    struct dsched_table table = {.n_tensors = 2, .elements = elements, .dtypes = dtypes};
    uint64_t hash = dsched_table_hash(&table);
    (void)state;
    assert_int_equal(dsched_table_elements(&table), 8);
    assert_int_equal(dsched_table_bytes(&table), 22);
    elements[0] = 4;
    assert_true(dsched_table_hash(&table) != hash);
    elements[0] = 3;
    dtypes[1] = DSCHED_BF16;
    assert_true(dsched_table_hash(&table) != hash);
    dtypes[1] = DSCHED_F16;
    table.n_tensors = 1;
    assert_true(dsched_table_hash(&table) != hash);
    table.n_tensors = 2;
    assert_true(dsched_table_hash(&table) == hash);
}

static void names_round_trip(void **state) {
    enum dsched_rule rule = DSCHED_AVERAGED;
    (void)state;
    for (uint32_t i = 0; i < DSCHED_N_DTYPES; i++) {
        assert_non_null(dsched_dtype_name((enum dsched_dtype)i));
    }
    for (uint32_t i = 0; i < DSCHED_N_RULES; i++) {
        assert_int_equal(dsched_rule_parse(dsched_rule_name((enum dsched_rule)i), &rule),
                         DSCHED_OK);
        assert_int_equal(rule, i);
    }
    assert_null(dsched_dtype_name((enum dsched_dtype)DSCHED_N_DTYPES));
    assert_null(dsched_rule_name((enum dsched_rule)DSCHED_N_RULES));
    assert_int_equal(dsched_dtype_bytes((enum dsched_dtype)DSCHED_N_DTYPES), 0);
    assert_int_equal(dsched_rule_parse("", &rule), DSCHED_INVALID);
    assert_int_equal(rule, DSCHED_N_RULES - 1);
    assert_string_equal(dsched_status_name(DSCHED_INFEASIBLE), "INFEASIBLE");
    assert_string_equal(dsched_status_name((enum dsched_status)99), "UNKNOWN");
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(refuses_bad_stages),         cmocka_unit_test(refuses_bad_tensors),
    cmocka_unit_test(accepts_most_tensors),       cmocka_unit_test(refuses_bad_links),
    cmocka_unit_test(affine_cost_rounds_up),      cmocka_unit_test(samples_interpolate),
    cmocka_unit_test(table_hash_sees_everything), cmocka_unit_test(names_round_trip),
};
TESTING_MAIN(cases)
