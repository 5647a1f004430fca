/* Plans: the rules they obey, their encoding, DDP's buckets. */
#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sched_support.h"
#include "testing.h"

/* Four tensors; gradient space: t3 (30 f32), t2 (20 f16), t1 (0), t0 (10 f16). */
static const uint64_t elements[] = {10, 0, 20, 30};
static const uint8_t dtypes[] = {DSCHED_F16, DSCHED_F32, DSCHED_F16, DSCHED_F32};
static const struct dsched_table table = {.n_tensors = 4, .elements = elements, .dtypes = dtypes};

static void expect(const struct dsched_plan *plan, enum dsched_status status, const char *text) {
    struct dsched_error error = {.text = ""};
    assert_int_equal(dsched_plan_validate(plan, &table, 2, &error), status);
    if (strstr(error.text, text) == NULL) {
        fail_msg("'%s' does not contain '%s'", error.text, text);
    }
    assert_int_equal(dsched_plan_validate(plan, &table, 2, NULL), status);
}

/* Three buckets, the last two of which share t2; two generations. */
static void make(enum dsched_rule rule, struct dsched_plan *out) {
    assert_int_equal(dsched_plan_init(out, 3, 2), DSCHED_OK);
    out->rule = rule;
    out->n_links = 2;
    out->buckets[0] = (struct dsched_bucket){0, 30};
    out->buckets[1] = (struct dsched_bucket){30, 40};
    out->buckets[2] = (struct dsched_bucket){40, 60};
    out->merge[0] = 1;
    out->merge[1] = 1;
    expect(out, DSCHED_OK, "");
}

static void broken_partitions_are_refused(void **unused) {
    struct dsched_plan plan;
    (void)unused;
    make(DSCHED_DELAYED, &plan);
    plan.buckets[0].begin = 1;
    expect(&plan, DSCHED_INVALID, "bucket 0");
    plan.buckets[0].begin = 0;
    plan.buckets[1].begin = 31;
    expect(&plan, DSCHED_INVALID, "bucket 1");
    plan.buckets[1].begin = 29;
    expect(&plan, DSCHED_INVALID, "bucket 1");
    plan.buckets[1] = (struct dsched_bucket){30, 30};
    expect(&plan, DSCHED_INVALID, "not be empty");
    plan.buckets[1].end = 40;
    plan.buckets[2].end = 59;
    expect(&plan, DSCHED_INVALID, "end at element 59");
    plan.buckets[2].end = 61;
    expect(&plan, DSCHED_INVALID, "has only 60");
    plan.buckets[2].end = UINT64_MAX;
    expect(&plan, DSCHED_INVALID, "has only 60");
    plan.buckets[2].end = 60;
    plan.buckets[0].end = 31;
    plan.buckets[1].begin = 31;
    expect(&plan, DSCHED_INVALID, "two dtypes");
    plan.buckets[0].end = 29;
    plan.buckets[1].begin = 29;
    expect(&plan, DSCHED_INVALID, "two dtypes");
    dsched_plan_done(&plan);
}

static void broken_numbers_are_refused(void **unused) {
    struct dsched_plan plan;
    (void)unused;
    make(DSCHED_AVERAGED, &plan);
    plan.rule = (enum dsched_rule)DSCHED_N_RULES;
    expect(&plan, DSCHED_INVALID, "rule is 4");
    plan.rule = DSCHED_AVERAGED;
    plan.n_links = 3;
    expect(&plan, DSCHED_INVALID, "3 links");
    plan.n_links = 0;
    expect(&plan, DSCHED_INVALID, "0 links");
    plan.n_links = 1;
    plan.ops[4].link = 1;
    expect(&plan, DSCHED_INVALID, "bucket 1 of generation 1");
    plan.n_links = 2;
    plan.merge[1] = 0;
    expect(&plan, DSCHED_INVALID, "generation 1 merges 0");
    plan.merge[1] = DSCHED_MAX_MERGE;
    expect(&plan, DSCHED_OK, "");
    plan.merge[1]++;
    expect(&plan, DSCHED_INVALID, "generation 1 merges 65");
    plan.merge[1] = 1;
    for (int i = 0; i < 6; i++) {
        plan.ops[i].delay = DSCHED_MAX_DELAY;
    }
    expect(&plan, DSCHED_OK, "");
    plan.ops[2].delay++;
    expect(&plan, DSCHED_INVALID, "delay 65");
    plan.n_buckets = DSCHED_MAX_BUCKETS + 1;
    expect(&plan, DSCHED_LIMIT, "16385 buckets");
    plan.n_buckets = 3;
    plan.n_generations = 0;
    expect(&plan, DSCHED_INVALID, "0 generations");
    plan.n_generations = 2;
    dsched_plan_done(&plan);
}

static void rules_limit_merge_and_delay(void **unused) {
    struct dsched_plan plan;
    (void)unused;
    make(DSCHED_EXACT, &plan);
    plan.merge[0] = 2;
    expect(&plan, DSCHED_INVALID, "rule exact allows 1..1");
    plan.rule = DSCHED_LOOKAHEAD;
    expect(&plan, DSCHED_INVALID, "rule lookahead allows 1..1");
    plan.rule = DSCHED_DELAYED;
    expect(&plan, DSCHED_OK, "");
    plan.merge[0] = 1;
    for (int i = 0; i < 6; i++) {
        plan.ops[i].delay = 1;
    }
    plan.rule = DSCHED_EXACT;
    expect(&plan, DSCHED_INVALID, "rule exact allows 0..0");
    plan.rule = DSCHED_LOOKAHEAD;
    expect(&plan, DSCHED_OK, "");
    for (int i = 0; i < 6; i++) {
        plan.ops[i].delay = 2;
    }
    expect(&plan, DSCHED_INVALID, "rule lookahead allows 0..1");
    plan.rule = DSCHED_AVERAGED;
    expect(&plan, DSCHED_OK, "");
    dsched_plan_done(&plan);
}

static void generations_apply_in_order(void **unused) {
    struct dsched_plan plan;
    (void)unused;
    make(DSCHED_AVERAGED, &plan);
    plan.ops[0].delay = 1; /* generation 0 of bucket 0 meets generation 1 at one boundary */
    expect(&plan, DSCHED_INVALID, "bucket 0 of generation 0");
    plan.merge[1] = 2;
    expect(&plan, DSCHED_OK, "");
    plan.ops[0].delay = 2;
    expect(&plan, DSCHED_INVALID, "bucket 0 of generation 0");
    plan.ops[0].delay = 0;
    plan.ops[5].delay = 1; /* the same across the end of the cycle */
    expect(&plan, DSCHED_INVALID, "bucket 2 of generation 1");
    plan.merge[0] = 2;
    expect(&plan, DSCHED_OK, "");
    dsched_plan_done(&plan);
}

static void sharers_of_a_tensor_are_applied_together(void **unused) {
    struct dsched_plan plan;
    (void)unused;
    make(DSCHED_DELAYED, &plan);
    plan.merge[0] = plan.merge[1] = 2;
    plan.ops[1].delay = 1;
    expect(&plan, DSCHED_INVALID, "share tensor 2");
    plan.rule = DSCHED_AVERAGED; /* adds to parameters element by element */
    expect(&plan, DSCHED_OK, "");
    plan.rule = DSCHED_DELAYED;
    plan.ops[2].delay = 1;
    expect(&plan, DSCHED_OK, "");
    plan.ops[0].delay = 0; /* bucket 0 ends with its tensor: free to differ */
    expect(&plan, DSCHED_OK, "");
    dsched_plan_done(&plan);
}

/* --- encoding --------------------------------------------------------------------------------- */

static void random_encoded(uint64_t *seed, struct dsched_plan *plan, uint8_t **bytes, size_t *n) {
    struct dsched_profile profile;
    struct support_table owned;
    support_random(seed, 100, &profile);
    support_table(&profile, &owned);
    support_random_plan(seed, &owned.table, (enum dsched_rule)testing_random_below(seed, 4),
                        1 + (uint32_t)testing_random_below(seed, DSCHED_MAX_LINKS), plan);
    plan->forecast.step_ns = (int64_t)testing_random(seed);
    plan->forecast.pending_bytes = testing_random(seed);
    assert_int_equal(dsched_plan_validate(plan, &owned.table, DSCHED_MAX_LINKS, NULL), DSCHED_OK);
    *n = dsched_plan_encode(plan, NULL, 0);
    *bytes = malloc(*n);
    assert_non_null(*bytes);
    assert_int_equal(dsched_plan_encode(plan, *bytes, *n), *n);
    support_table_done(&owned);
    dsched_profile_done(&profile);
}

static void encoding_round_trips(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 200; i++) {
        struct dsched_plan plan;
        struct dsched_plan copy;
        struct dsched_plan decoded;
        uint8_t *bytes;
        uint8_t *again;
        size_t n;
        random_encoded(&seed, &plan, &bytes, &n);
        assert_int_equal(dsched_plan_decode(bytes, n, &decoded, NULL), DSCHED_OK);
        assert_int_equal(dsched_plan_copy(&decoded, &copy), DSCHED_OK);
        again = calloc(1, n);
        assert_non_null(again);
        assert_int_equal(dsched_plan_encode(&copy, again, n - 1), n);
        assert_int_equal(again[0], 0); /* nothing is written where not all fits */
        assert_int_equal(dsched_plan_encode(&copy, again, n), n);
        assert_memory_equal(bytes, again, n);
        assert_true(dsched_plan_hash(&plan) == dsched_plan_hash(&copy));
        copy.forecast.step_ns++;
        assert_true(dsched_plan_hash(&plan) == dsched_plan_hash(&copy));
        copy.ops[0].delay++;
        assert_true(dsched_plan_hash(&plan) != dsched_plan_hash(&copy));
        dsched_plan_done(&plan);
        dsched_plan_done(&copy);
        dsched_plan_done(&decoded);
        free(bytes);
        free(again);
    }
}

/* A changed byte is refused, or decodes to a plan that encodes to the changed bytes and differs. */
static void changed_bytes_never_pass_as_the_same(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 100; i++) {
        struct dsched_plan plan;
        uint8_t *bytes;
        size_t n;
        random_encoded(&seed, &plan, &bytes, &n);
        for (int j = 0; j < 50; j++) {
            struct dsched_plan decoded;
            struct dsched_error error = {.text = ""};
            size_t at = testing_random_below(&seed, n);
            uint8_t flip = (uint8_t)(1u << testing_random_below(&seed, 8));
            bytes[at] ^= flip;
            if (dsched_plan_decode(bytes, n, &decoded, &error) == DSCHED_OK) {
                uint8_t *again = malloc(n);
                assert_non_null(again);
                assert_int_equal(dsched_plan_encode(&decoded, again, n), n);
                assert_memory_equal(bytes, again, n);
                free(again);
                dsched_plan_done(&decoded);
            } else {
                assert_true(strlen(error.text) > 0);
            }
            bytes[at] ^= flip;
        }
        for (size_t length = 0; length < n; length += 1 + n / 40) {
            struct dsched_plan decoded;
            assert_int_not_equal(dsched_plan_decode(bytes, length, &decoded, NULL), DSCHED_OK);
        }
        dsched_plan_done(&plan);
        free(bytes);
    }
}

static void hostile_headers_are_refused(void **unused) {
    struct dsched_plan plan;
    struct dsched_plan decoded;
    uint8_t bytes[512];
    size_t n;
    /* offset of a 32-bit field, value, expected status */
    const struct {
        size_t at;
        uint32_t value;
        enum dsched_status status;
    } changes[] = {{0, 0, DSCHED_INVALID},
                   {4, 2, DSCHED_INVALID},
                   {8, DSCHED_N_RULES, DSCHED_INVALID},
                   {12, 0, DSCHED_INVALID},
                   {12, DSCHED_MAX_LINKS + 1, DSCHED_LIMIT},
                   {16, 0, DSCHED_INVALID},
                   {16, DSCHED_MAX_BUCKETS + 1, DSCHED_LIMIT},
                   {16, DSCHED_MAX_BUCKETS, DSCHED_INVALID},
                   {20, 0, DSCHED_INVALID},
                   {20, DSCHED_MAX_GENERATIONS + 1, DSCHED_LIMIT},
                   {20, DSCHED_MAX_GENERATIONS, DSCHED_INVALID}};
    (void)unused;
    make(DSCHED_EXACT, &plan);
    n = dsched_plan_encode(&plan, bytes, sizeof(bytes));
    assert_true(n <= sizeof(bytes));
    for (size_t i = 0; i < sizeof(changes) / sizeof(changes[0]); i++) {
        uint8_t changed[512];
        memcpy(changed, bytes, n);
        for (unsigned k = 0; k < 4; k++) {
            changed[changes[i].at + k] = (uint8_t)(changes[i].value >> (8 * k));
        }
        assert_int_equal(dsched_plan_decode(changed, n, &decoded, NULL), changes[i].status);
    }
    assert_int_equal(dsched_plan_init(&decoded, DSCHED_MAX_BUCKETS + 1, 1), DSCHED_LIMIT);
    assert_int_equal(dsched_plan_init(&decoded, 1, DSCHED_MAX_GENERATIONS + 1), DSCHED_LIMIT);
    assert_int_equal(dsched_plan_init(&decoded, 0, 1), DSCHED_INVALID);
    dsched_plan_done(&plan);
    dsched_plan_done(NULL);
}

/* --- memory ----------------------------------------------------------------------------------- */

/* Slots against a count over a long run. */
static void slots_match_a_count(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int i = 0; i < 300; i++) {
        enum dsched_rule rule = (enum dsched_rule)testing_random_below(&seed, 4);
        struct dsched_plan plan;
        uint32_t alive[2048] = {0};
        uint32_t most = 0;
        uint32_t begin = 0;
        support_random_plan(&seed, &table, rule, 2, &plan);
        for (uint32_t g = 0; begin < 1024; g++) {
            uint32_t in_cycle = g % plan.n_generations;
            uint32_t end = begin + plan.merge[in_cycle]; /* one behind its last iteration */
            uint32_t delay = 0;
            for (uint32_t b = 0; b < plan.n_buckets; b++) {
                uint32_t d = dsched_plan_op(&plan, in_cycle, b)->delay;
                delay = d > delay ? d : delay;
            }
            if (rule == DSCHED_AVERAGED) { /* from its end, at least for its own boundary */
                for (uint32_t t = end; t < end + (delay > 0 ? delay : 1); t++) {
                    alive[t]++;
                }
            } else {
                for (uint32_t t = begin; t < end + delay; t++) {
                    alive[t]++;
                }
            }
            begin = end;
        }
        for (uint32_t t = 256; t < 1024; t++) {
            most = alive[t] > most ? alive[t] : most;
        }
        assert_int_equal(dsched_plan_slots(&plan), most);
        dsched_plan_done(&plan);
    }
}

static void pending_bytes_follow_the_rule(void **unused) {
    struct dsched_plan plan;
    uint64_t size = dsched_table_bytes(&table);
    (void)unused;
    make(DSCHED_EXACT, &plan);
    assert_int_equal(dsched_plan_pending_bytes(&plan, &table), size);
    for (int i = 0; i < 6; i++) {
        plan.ops[i].delay = 1;
    }
    plan.rule = DSCHED_DELAYED;
    assert_int_equal(dsched_plan_pending_bytes(&plan, &table), 2 * size);
    plan.rule = DSCHED_LOOKAHEAD;
    assert_int_equal(dsched_plan_pending_bytes(&plan, &table), 3 * size);
    plan.rule = DSCHED_AVERAGED; /* anchor, and own copy and reduced copy of one in flight */
    assert_int_equal(dsched_plan_pending_bytes(&plan, &table), 3 * size);
    assert_int_equal(dsched_plan_cycle(&plan), 2);
    assert_int_equal(dsched_plan_max_delay(&plan), 1);
    assert_int_equal(dsched_plan_max_merge(&plan), 1);
    plan.merge[0] = 3;
    assert_int_equal(dsched_plan_max_merge(&plan), 3);
    plan.merge[1] = 5;
    assert_int_equal(dsched_plan_max_merge(&plan), 5);
    dsched_plan_done(&plan);
}

/* --- DDP's buckets ---------------------------------------------------------------------------- */

#define MIB (UINT64_C(1) << 20)

static void ddp_closes_at_limit_and_dtype(void **unused) {
    const uint64_t sizes[] = {7, 100, 0, 300000, 5, 300000};
    const uint8_t types[] = {DSCHED_F16, DSCHED_F32, DSCHED_F64,
                             DSCHED_F32, DSCHED_F32, DSCHED_F32};
    const struct dsched_table small = {.n_tensors = 6, .elements = sizes, .dtypes = types};
    const uint64_t expected[] = {300000, 300105, 7};
    struct dsched_plan plan;
    (void)unused;
    assert_int_equal(dsched_plan_ddp(&small, MIB, 25 * MIB, &plan), DSCHED_OK);
    assert_int_equal(plan.n_buckets, 3);
    for (uint32_t b = 0; b < 3; b++) {
        assert_int_equal(plan.buckets[b].end - plan.buckets[b].begin, expected[b]);
    }
    assert_int_equal(dsched_plan_validate(&plan, &small, 1, NULL), DSCHED_OK);
    dsched_plan_done(&plan);
}

static void ddp_hits_the_limit_of_buckets(void **unused) {
    uint32_t n = DSCHED_MAX_BUCKETS + 1;
    uint64_t *sizes = calloc(n, sizeof(*sizes));
    uint8_t *types = calloc(n, sizeof(*types));
    struct dsched_table many = {.n_tensors = n, .elements = sizes, .dtypes = types};
    struct dsched_plan plan = {0};
    (void)unused;
    assert_non_null(sizes);
    assert_non_null(types);
    for (uint32_t i = 0; i < n; i++) {
        sizes[i] = 1;
    }
    assert_int_equal(dsched_plan_ddp(&many, 1, 1, &plan), DSCHED_LIMIT);
    assert_null(plan.buckets);
    many.n_tensors--;
    assert_int_equal(dsched_plan_ddp(&many, 1, 1, &plan), DSCHED_OK);
    assert_int_equal(plan.n_buckets, DSCHED_MAX_BUCKETS);
    dsched_plan_done(&plan);
    free(sizes);
    free(types);
}

/* Sizes that PyTorch itself reports, for the tensors of a workload file. */
static void check_golden(const char *file, const uint64_t *expected, uint32_t n_expected) {
    static char text[1 << 20];
    char path[1024];
    const char *dir = testing_shared_dir();
    uint32_t n = 0;
    uint64_t *sizes;
    uint8_t *types;
    FILE *stream;
    cJSON *root;
    cJSON *tensor;
    struct dsched_plan plan;
    if (dir == NULL) {
        testing_skip("the folder shared/ is not there");
    }
    (void)snprintf(path, sizeof(path), "%s/workloads/%s", dir, file);
    stream = fopen(path, "rb");
    assert_non_null(stream);
    text[fread(text, 1, sizeof(text) - 1, stream)] = '\0';
    (void)fclose(stream);
    root = cJSON_Parse(text);
    assert_non_null(root);
    sizes = calloc(DSCHED_MAX_TENSORS, sizeof(*sizes));
    types = calloc(DSCHED_MAX_TENSORS, sizeof(*types));
    assert_non_null(sizes);
    assert_non_null(types);
    cJSON_ArrayForEach(tensor, cJSON_GetObjectItem(root, "tensors")) {
        sizes[n++] = (uint64_t)cJSON_GetObjectItem(tensor, "elements")->valuedouble;
    }
    const struct dsched_table real = {.n_tensors = n, .elements = sizes, .dtypes = types};
    assert_int_equal(dsched_plan_ddp(&real, MIB, 25 * MIB, &plan), DSCHED_OK);
    assert_int_equal(plan.n_buckets, n_expected);
    for (uint32_t b = 0; b < n_expected; b++) {
        assert_int_equal(plan.buckets[b].end - plan.buckets[b].begin, expected[b]);
    }
    dsched_plan_done(&plan);
    cJSON_Delete(root);
    free(sizes);
    free(types);
}

static void ddp_buckets_of_resnet101_are_pytorchs(void **unused) {
    const uint64_t expected[] = {2049000, 7875584, 6563840, 6965760,
                                 6703104, 6703104, 6590464, 1098304};
    (void)unused;
    check_golden("resnet101_cr100_l1.json", expected, 8);
}

static void ddp_buckets_of_vgg19_are_pytorchs(void **unused) {
    const uint64_t expected[] = {4097000, 16781312, 102764544, 7079424, 7079424, 5865536};
    (void)unused;
    check_golden("vgg19_cr100_l1.json", expected, 6);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(broken_partitions_are_refused),
    cmocka_unit_test(broken_numbers_are_refused),
    cmocka_unit_test(rules_limit_merge_and_delay),
    cmocka_unit_test(generations_apply_in_order),
    cmocka_unit_test(sharers_of_a_tensor_are_applied_together),
    cmocka_unit_test(encoding_round_trips),
    cmocka_unit_test(changed_bytes_never_pass_as_the_same),
    cmocka_unit_test(hostile_headers_are_refused),
    cmocka_unit_test(slots_match_a_count),
    cmocka_unit_test(pending_bytes_follow_the_rule),
    cmocka_unit_test(ddp_closes_at_limit_and_dtype),
    cmocka_unit_test(ddp_hits_the_limit_of_buckets),
    cmocka_unit_test(ddp_buckets_of_resnet101_are_pytorchs),
    cmocka_unit_test(ddp_buckets_of_vgg19_are_pytorchs),
};
TESTING_MAIN(cases)
