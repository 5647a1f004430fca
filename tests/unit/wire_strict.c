/* Hostile and wrong messages are refused with one sentence that names the field, and leave what the
 * caller passed untouched. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "wire/wire.h"
#include "wire_support.h"

struct strict_case {
    const char *text;
    const char *says; /* must be in the sentence */
};

static void refuse_report(const char *text, size_t n_bytes, const char *says) {
    struct wire_report out;
    struct wire_report before;
    struct deft_error error = {0};
    memset(&out, 0x5A, sizeof(out));
    before = out;
    enum deft_status status = wire_report_decode(text, n_bytes, &out, &error);
    if (status == DEFT_OK || strstr(error.text, says) == NULL) {
        print_error("%.200s\ngave \"%s\", expected \"%s\"\n", text, error.text, says);
    }
    assert_int_not_equal(status, DEFT_OK);
    assert_non_null(strstr(error.text, says));
    assert_memory_equal(&out, &before, sizeof(out));
}

static void malformed_json_is_refused(void **unused) {
    static const struct strict_case cases[] = {
        {"", "ends too early"},
        {"{", "a key was expected"},
        {"{\"agent\":\"a\",\"seq\":1}x", "follows the end"},
        {"{\"agent\":\"a\",\"seq\":1}{}", "follows the end"},
        {"{\"agent\":\"a\",\"seq\":01}", "begin with a zero"},
        {"{\"agent\":\"a\",\"seq\":+1}", "a value was expected"},
        {"{\"agent\":\"a\",\"seq\":1.}", "a digit was expected"},
        {"{\"agent\":\"a\",\"seq\":1e}", "a digit was expected"},
        {"{\"agent\":\"a\",\"seq\":NaN}", "a value was expected"},
        {"{\"agent\":\"a\",\"seq\":Infinity}", "a value was expected"},
        {"{\"agent\":\"a\",\"seq\":1,}", "a key was expected"},
        {"{\"agent\" \"a\"}", "a colon was expected"},
        {"{'agent':1}", "a key was expected"},
        {"[1,]", "a value was expected"},
        {"[1 2]", "a comma or a closing bracket"},
        {"{\"agent\":\"a\\u0000b\"}", "NUL"},
        {"{\"agent\":\"\\ud800\"}", "surrogate"},
        {"{\"agent\":\"\\udc00\"}", "surrogate"},
        {"{\"agent\":\"\\x\"}", "no such escape"},
        {"{\"agent\":\"\\u12g4\"}", "hexadecimal"},
        {"{\"agent\":\"a\nb\"}", "control character"},
        {"{\"agent\":\"\xff\"}", "not UTF-8"},
        {"{\"agent\":\"\xc0\x80\"}", "not UTF-8"},
        {"{\"agent\":\"\xed\xa0\x80\"}", "not UTF-8"},
        {"{\"agent\":\"abc", "no end"},
        {"tru", "a value was expected"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        refuse_report(cases[i].text, strlen(cases[i].text), cases[i].says);
    }
    refuse_report("{\"agent\":\"a\",\"seq\":1}\0", 22, "follows the end");
}

static void wrong_fields_are_named(void **unused) {
    static const struct strict_case cases[] = {
        {"[]", "an object was expected"},
        {"{\"seq\":1}", "agent: the field is missing"},
        {"{\"agent\":\"\",\"seq\":1}", "agent: the text is empty"},
        {"{\"agent\":7,\"seq\":1}", "agent: a string was expected"},
        {"{\"agent\":\"a\",\"agent\":\"b\",\"seq\":1}", "agent: the key appears twice"},
        {"{\"agent\":\"a\",\"seq\":1,\"x\":{\"y\":1,\"y\":1}}", "y: the key appears twice"},
        {"{\"agent\":\"a\",\"seq\":0}", "seq: 0 is outside 1.."},
        {"{\"agent\":\"a\",\"seq\":-1}", "seq: -1 is outside"},
        {"{\"agent\":\"a\",\"seq\":1.5}", "seq: an integer within 2^53"},
        {"{\"agent\":\"a\",\"seq\":9007199254740993}", "seq: an integer within 2^53"},
        {"{\"agent\":\"a\",\"seq\":1e400}", "seq: an integer within 2^53"},
        {"{\"agent\":\"a\",\"seq\":\"1\"}", "seq: an integer within 2^53"},
        {"{\"agent\":\"a\",\"seq\":1,\"iterations\":{}}", "iterations: an array was expected"},
        {"{\"agent\":\"a\",\"seq\":1,\"iterations\":[[0,0,0,0,0,0,0,0,0],[4294967296]]}",
         "iterations[1].rank: 4294967296 is outside"},
        {"{\"agent\":\"a\",\"seq\":1,\"iterations\":[[0,0,0,0,0,0,0,0]]}",
         "iterations[0].step_ns: the field is missing"},
        {"{\"agent\":\"a\",\"seq\":1,\"iterations\":[[0,0,0,0,0,0,0,0,0,0,\"x\"]]}",
         "iterations[0].loss: a finite number or null"},
        {"{\"agent\":\"a\",\"seq\":1,\"iterations\":[[0,0,0,0,0,0,0,0,0,0,1e999]]}",
         "iterations[0].loss: a finite number or null"},
        {"{\"agent\":\"a\",\"seq\":1,\"ops\":[[0,8,1,1,1,1,1]]}", "ops[0].link: 8 is outside 0..7"},
        {"{\"agent\":\"a\",\"seq\":1,\"events\":[{\"rank\":0,\"kind\":\"exploded\"}]}",
         "events[0].kind: 'exploded' is not a known value"},
        {"{\"agent\":\"a\",\"seq\":1,\"readiness\":[{\"rank\":0,\"iteration\":1,"
         "\"offsets_ns\":[1,-2]}]}",
         "readiness[0].offsets_ns[1]: -2 is outside"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        refuse_report(cases[i].text, strlen(cases[i].text), cases[i].says);
    }
}

/* The one that is wrong, however many are right before it. */
static void rows_are_numbered(void **unused) {
    static const size_t rows[] = {0, 9, 10, 99, 100, 1234};
    static char text[1 << 17];
    (void)unused;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char says[64];
        size_t n = (size_t)snprintf(text, sizeof(text), "{\"agent\":\"a\",\"seq\":1,\"ops\":[");
        for (size_t row = 0; row < rows[i]; row++) {
            n += (size_t)snprintf(text + n, sizeof(text) - n, "[0,0,64,1,1,1,1],");
        }
        n += (size_t)snprintf(text + n, sizeof(text) - n, "[0,0,64,1,1,1,-1]]}");
        (void)snprintf(says, sizeof(says), "ops[%zu].max_ns: -1 is outside", rows[i]);
        refuse_report(text, n, says);
    }
}

/* `n` zeros beside what a report must have: with those around them four values more. */
static char *report_of_zeros(size_t n) {
    static const char head[] = "{\"agent\":\"a\",\"seq\":1,\"zeros\":[";
    char *text = malloc(sizeof(head) + 2 * n + 2);
    assert_non_null(text);
    memcpy(text, head, sizeof(head) - 1);
    char *at = text + sizeof(head) - 1;
    for (size_t i = 0; i < n; i++) {
        *at++ = '0';
        *at++ = ',';
    }
    memcpy(at - 1, "]}", 3);
    return text;
}

static void few_bytes_do_not_become_many_values(void **unused) {
    struct wire_report report = {0};
    (void)unused;
    char *text = report_of_zeros(WIRE_MAX_VALUES - 4);
    assert_int_equal(wire_report_decode(text, strlen(text), &report, NULL), DEFT_OK);
    wire_report_done(&report);
    free(text);
    text = report_of_zeros(WIRE_MAX_VALUES - 3);
    refuse_report(text, strlen(text), "there are too many values");
    free(text);
}

static void limits_are_hit(void **unused) {
    char text[4096];
    size_t n = 0;
    (void)unused;
    /* One more level than allowed; one less is fine for the scanner. */
    memset(text, '[', WIRE_MAX_DEPTH + 1);
    memset(text + WIRE_MAX_DEPTH + 1, ']', WIRE_MAX_DEPTH + 1);
    refuse_report(text, (size_t)2 * (WIRE_MAX_DEPTH + 1), "the nesting is too deep");
    refuse_report(text + 1, (size_t)2 * WIRE_MAX_DEPTH, "an object was expected");

    n = (size_t)snprintf(text, sizeof(text), "{\"agent\":\"a\",\"seq\":1");
    for (int i = 0; i < 127; i++) {
        n += (size_t)snprintf(text + n, sizeof(text) - n, ",\"k%d\":0", i);
    }
    n += (size_t)snprintf(text + n, sizeof(text) - n, "}");
    refuse_report(text, n, "more than 128 keys");

    n = (size_t)snprintf(text, sizeof(text), "{\"seq\":1,\"agent\":\"%0128d\"}", 1);
    refuse_report(text, n, "agent: the string has 128 bytes, but at most 127 are allowed");

    char *large = malloc((size_t)WIRE_MAX_BODY_BYTES + 1);
    assert_non_null(large);
    memset(large, ' ', (size_t)WIRE_MAX_BODY_BYTES + 1);
    refuse_report(large, (size_t)WIRE_MAX_BODY_BYTES + 1, "at most 8388608 are allowed");
    free(large);
}

static void encoders_refuse_what_decoders_would(void **unused) {
    char *text = NULL;
    struct wire_report report = {.agent = "a", .seq = 0};
    struct wire_job job = {.id = "j", .state = "running", .mode = "auto", .iterations = UINT64_MAX};
    struct deft_error error = {0};
    (void)unused;
    assert_int_equal(wire_report_encode(&report, &text, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "'seq'"));
    assert_int_equal(wire_committed_encode(UINT64_C(1) << 53, &text, &error), DEFT_INVALID);
    assert_int_equal(wire_job_encode(&job, &text, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "'iterations'"));
    assert_null(text);
}

static void unknown_keys_and_absent_ones_are_fine(void **unused) {
    static const char text[] = " {\"later\":[{\"deep\":null}],\"agent\":\"a\",\"seq\":3,"
                               "\"iterations\":[[0,5,1,1,1,1,1,1,9,0,null,0.5,null,1,2,3,4,99]]}\n";
    struct wire_report out = {0};
    (void)unused;
    assert_int_equal(wire_report_decode(text, sizeof(text) - 1, &out, NULL), DEFT_OK);
    assert_int_equal(out.n_iterations, 1);
    assert_true(out.iterations[0].loss != out.iterations[0].loss);
    assert_true(out.iterations[0].grad_sq_local == 0.5);
    assert_int_equal(out.iterations[0].flags, 4);
    assert_int_equal(out.n_events, 0);
    wire_report_done(&out);
}

static void plans_with_a_wrong_hash_are_refused(void **unused) {
    uint64_t state = testing_seed();
    struct dsched_plan plan = {0};
    struct dsched_plan out = {0};
    struct deft_error error = {0};
    char *text = NULL;
    (void)unused;
    wire_support_plan(&state, &plan);
    assert_int_equal(wire_plan_encode(&plan, &text, NULL), DEFT_OK);
    char *hash = strstr(text, "\"hash\":\"");
    assert_non_null(hash);
    hash[8] = hash[8] == '0' ? '1' : '0';
    assert_int_equal(wire_plan_decode(text, strlen(text), &out, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "hash: "));
    free(text);
    dsched_plan_done(&plan);
}

/* {"seq":..,"max_loss":LIMIT,...}: what stands for the limit, and what is said about it. */
static void limits_of_a_fuse_are_positive_or_null(void **unused) {
    static const struct strict_case cases[] = {
        {"0", "max_loss: a positive number or null"},
        {"-0.5", "max_loss: a positive number or null"},
        {"1e999", "max_loss: a finite number or null"},
        {"\"2\"", "max_loss: a finite number or null"},
        {"null", NULL},
        {"1e-300", NULL},
    };
    uint64_t state = testing_seed();
    struct wire_plan_event event = {.seq = 1, .max_loss = (double)NAN, .max_grad_sq = 4};
    char *text = NULL;
    (void)unused;
    wire_support_plan(&state, &event.plan);
    assert_int_equal(wire_plan_event_encode(&event, &text, NULL), DEFT_OK);
    char *limit = strstr(text, "\"max_loss\":null,");
    assert_non_null(limit);
    size_t n_before = (size_t)(limit - text) + strlen("\"max_loss\":");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct wire_plan_event out = {0};
        struct deft_error error = {0};
        char *altered = malloc(strlen(text) + 16);
        assert_non_null(altered);
        (void)snprintf(altered, strlen(text) + 16, "%.*s%s%s", (int)n_before, text, cases[i].text,
                       text + n_before + strlen("null"));
        enum deft_status status = wire_plan_event_decode(altered, strlen(altered), &out, &error);
        assert_int_equal(status, cases[i].says == NULL ? DEFT_OK : DEFT_INVALID);
        assert_true(cases[i].says == NULL || strstr(error.text, cases[i].says) != NULL);
        assert_true(cases[i].says != NULL || out.max_grad_sq == 4);
        wire_plan_event_done(&out);
        free(altered);
    }
    free(text);
    text = NULL;
    event.max_grad_sq = (double)INFINITY;
    assert_int_equal(wire_plan_event_encode(&event, &text, NULL), DEFT_INVALID);
    event.max_grad_sq = 0;
    assert_int_equal(wire_plan_event_encode(&event, &text, NULL), DEFT_INVALID);
    assert_null(text);
    wire_plan_event_done(&event);
}

static void limits_are_shares_or_absent(void **unused) {
    static const struct strict_case cases[] = {
        {"{\"max_merge\":2}", "max_delay: the field is missing"},
        {"{\"max_merge\":65,\"max_delay\":0}", "max_merge: 65 is outside 1..64"},
        {"{\"max_merge\":2,\"max_delay\":65}", "max_delay: 65 is outside 0..64"},
        {"{\"max_merge\":2,\"max_delay\":1,\"epsilon\":1.000001}", "epsilon: 0..1 was expected"},
        {"{\"max_merge\":2,\"max_delay\":1,\"epsilon\":-1e-9}", "epsilon: 0..1 was expected"},
        {"{\"max_merge\":2,\"max_delay\":1,\"epsilon\":true}", "epsilon: a finite number or null"},
        {"{\"max_merge\":2,\"max_delay\":1,\"min_progress\":2}", "min_progress: 0..1 was expected"},
        {"{\"max_merge\":2,\"max_delay\":1,\"loss_floor\":-1e999}",
         "loss_floor: a finite number or null"},
        {"{\"max_merge\":2,\"max_delay\":1,\"epsilon\":0,\"epsilon\":0}",
         "epsilon: the key appears twice"},
    };
    static const char *const whole[] = {
        "{\"max_merge\":2,\"max_delay\":1}",
        "{\"max_merge\":2,\"max_delay\":1,\"epsilon\":null,\"min_progress\":null,"
        "\"loss_floor\":null}",
    };
    char *text = NULL;
    struct deft_error error = {0};
    (void)unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct wire_limits out = {.max_merge = 77};
        assert_int_equal(wire_limits_decode(cases[i].text, strlen(cases[i].text), &out, &error),
                         DEFT_INVALID);
        if (strstr(error.text, cases[i].says) == NULL) {
            fail_msg("%s gave \"%s\"", cases[i].text, error.text);
        }
        assert_int_equal(out.max_merge, 77);
    }
    for (size_t i = 0; i < sizeof(whole) / sizeof(whole[0]); i++) {
        struct wire_limits out = {0};
        assert_int_equal(wire_limits_decode(whole[i], strlen(whole[i]), &out, NULL), DEFT_OK);
        assert_true(out.epsilon == 0.01 && out.min_progress == 0.5 && isnan(out.loss_floor));
    }
    static const char wish[] =
        "{\"key\":\"k\",\"agent\":\"a\",\"n_ranks\":1,\"table_hash\":\"0000000000000000\","
        "\"local_ranks\":[0],\"tensors\":[],\"links\":[],\"epsilon\":1.5}";
    struct wire_registration registration = {0};
    assert_int_equal(wire_registration_decode(wish, strlen(wish), &registration, &error),
                     DEFT_INVALID);
    assert_string_equal(error.text, "epsilon: 0..1 was expected");
    const struct wire_limits wide = {.max_merge = 1, .epsilon = 1.5};
    assert_int_equal(wire_limits_encode(&wide, &text, &error), DEFT_INVALID);
    assert_null(text);
}

/* A valid problem with one piece replaced. */
static void problems_to_solve_are_checked(void **unused) {
    static const char whole[] =
        "{\"schema\":\"deft.solve/1\",\"rules\":5,\"max_merge\":3,\"max_delay\":8,"
        "\"max_pending_bytes\":0,\"jitter_ppm\":150000,\"tolerance_ppm\":10000,"
        "\"progress\":[{\"rule\":\"averaged\",\"merge\":[1000000,990000],\"delay\":[1000000]}],"
        "\"profile\":{\"schema\":\"deft.profile/1\",\"compute\":{\"forward_ns\":10,"
        "\"backward_ns\":20},\"links\":[{\"name\":\"a\",\"alpha_ns\":1,\"bytes_per_s\":1000}],"
        "\"tensors\":[{\"name\":\"t\",\"elements\":5,\"forward_ns\":10,\"backward_ns\":20}]}}";
    static const struct {
        const char *piece;
        const char *instead;
        const char *says;
    } cases[] = {
        {"deft.solve/1", "deft.solve/2", "schema: 'deft.solve/1' was expected"},
        {"deft.profile/1", "deft.profile/2", "schema: 'deft.profile/1' was expected"},
        {"\"rules\":5", "\"rules\":16", "rules: 16 is outside 0..15"},
        {"\"max_merge\":3", "\"max_merge\":0", "max_merge: 0 is outside 1..64"},
        {"\"max_delay\":8,", "", "max_delay: the field is missing"},
        {"150000", "1000001", "jitter_ppm: 1000001 is outside"},
        {"\"averaged\"", "\"fast\"", "progress[0].rule: 'fast' is not a known value"},
        {"990000", "-1", "progress[0].merge[1]: -1 is outside"},
        {"990000", "0.5", "progress[0].merge[1]: an integer"},
        {"}],\"profile", "},{\"rule\":\"averaged\",\"merge\":[],\"delay\":[]}],\"profile",
         "progress[1].rule: 'averaged' was there before"},
        {"\"delay\":[1000000]", "\"x\":0", "progress[0].delay: the field is missing"},
        {"\"elements\":5", "\"elements\":0", ""},
        {"}]}}", "}]}", "a comma or a closing bracket"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        char text[1024];
        struct wire_solve out;
        struct wire_solve before;
        struct deft_error error = {0};
        const char *at = strstr(whole, cases[i].piece);
        assert_non_null(at);
        (void)snprintf(text, sizeof(text), "%.*s%s%s", (int)(at - whole), whole, cases[i].instead,
                       at + strlen(cases[i].piece));
        memset(&out, 0x5A, sizeof(out));
        before = out;
        assert_int_equal(wire_solve_decode(text, strlen(text), &out, &error), DEFT_INVALID);
        if (error.text[0] == '\0' || strstr(error.text, cases[i].says) == NULL) {
            fail_msg("%s\ngave \"%s\", not \"%s\"", text, error.text, cases[i].says);
        }
        assert_memory_equal(&out, &before, sizeof(out));
    }
    struct wire_solve out;
    assert_int_equal(wire_solve_decode(whole, sizeof(whole) - 1, &out, NULL), DEFT_OK);
    assert_int_equal(out.progress.merge_ppm[DSCHED_AVERAGED][2], 990000);
    assert_int_equal(out.progress.merge_ppm[DSCHED_AVERAGED][3], 0);
    assert_int_equal(out.progress.delay_ppm[DSCHED_AVERAGED][0], 1000000);
    wire_solve_done(&out);
    wire_solve_done(&out); /* zeroed by then */
}

/* Any byte of a valid message replaced, removed or doubled: never a crash, never a half-read
 * message. What the sanitizers watch here is the point. */
static void damaged_messages_are_survived(void **unused) {
    uint64_t state = testing_seed();
    (void)unused;
    for (int i = 0; i < 2000; i++) {
        struct wire_report in;
        struct wire_report out = {0};
        struct deft_error error = {0};
        char *text = NULL;
        wire_support_report(&state, &in);
        assert_int_equal(wire_report_encode(&in, &text, NULL), DEFT_OK);
        size_t n = strlen(text);
        size_t at = testing_random_below(&state, n);
        text[at] = (char)testing_random(&state);
        n -= testing_random_below(&state, 3) == 0 ? testing_random_below(&state, n) : 0;
        if (wire_report_decode(text, n, &out, &error) == DEFT_OK) {
            wire_report_done(&out);
        } else {
            assert_true(error.text[0] != '\0');
        }
        free(text);
        wire_report_done(&in);
    }
}

/* Every workload of the design reads, and its own printing reads to the same. */
static void workloads_are_read(void **unused) {
    static const char *const names[] = {"gpt2-124m_cr060_l1", "resnet101_cr160_l2",
                                        "vgg19_cr300_l2"};
    const char *shared = testing_shared_dir();
    (void)unused;
    if (shared == NULL) {
        testing_skip("DEFT_SHARED_DIR names no folder with workloads");
    }
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        static char buffer[1 << 18];
        char path[512];
        struct dsched_profile profile = {0};
        struct deft_error error = {0};
        (void)snprintf(path, sizeof(path), "%s/workloads/%s.json", shared, names[i]);
        FILE *file = fopen(path, "re");
        assert_non_null(file);
        size_t n = fread(buffer, 1, sizeof(buffer), file);
        (void)fclose(file);
        assert_int_equal(wire_profile_decode(buffer, n, &profile, &error), DEFT_OK);
        assert_true(profile.n_tensors > 10);
        dsched_profile_done(&profile);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(malformed_json_is_refused),
    cmocka_unit_test(wrong_fields_are_named),
    cmocka_unit_test(rows_are_numbered),
    cmocka_unit_test(few_bytes_do_not_become_many_values),
    cmocka_unit_test(limits_are_hit),
    cmocka_unit_test(encoders_refuse_what_decoders_would),
    cmocka_unit_test(unknown_keys_and_absent_ones_are_fine),
    cmocka_unit_test(plans_with_a_wrong_hash_are_refused),
    cmocka_unit_test(limits_of_a_fuse_are_positive_or_null),
    cmocka_unit_test(limits_are_shares_or_absent),
    cmocka_unit_test(problems_to_solve_are_checked),
    cmocka_unit_test(damaged_messages_are_survived),
    cmocka_unit_test(workloads_are_read),
};
TESTING_MAIN(cases)
