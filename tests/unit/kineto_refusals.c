/* Broken, hostile and insufficient traces: one sentence each, and no harm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kineto/kineto.h"
#include "kineto/kineto_number.h"
#include "kineto/kineto_reader.h"
#include "kineto/kineto_trace.h"
#include "kineto_synthetic.h"
#include "testing.h"

#define BLOCK_BYTES 65536u

/* Reads `text` as one trace of at most `max_records`; DEFT_OK leaves it in *out. */
static enum deft_status read_text(const char *text, size_t n_bytes, uint32_t max_records,
                                  struct kineto_trace **out, struct deft_error *error) {
    struct kineto_reader *reader = NULL;
    assert_int_equal(kineto_trace_create("t", max_records, out, error), DEFT_OK);
    assert_int_equal(kineto_reader_create(*out, &reader, error), DEFT_OK);
    enum deft_status status = DEFT_OK;
    for (size_t at = 0; at < n_bytes && status == DEFT_OK; at += BLOCK_BYTES) {
        size_t n = n_bytes - at < BLOCK_BYTES ? n_bytes - at : BLOCK_BYTES;
        status = kineto_reader_feed(reader, text + at, n, error);
    }
    if (status == DEFT_OK) {
        status = kineto_reader_finish(reader, error);
    }
    kineto_reader_destroy(reader);
    return status;
}

/* Reading and analysing `text` must end with `status` and a sentence that has `words` in it. */
static void refused(const char *text, size_t n_bytes, uint32_t max_records, enum deft_status wanted,
                    const char *words) {
    struct kineto_trace *trace = NULL;
    struct kineto_job job = {0};
    struct deft_error error = {0};
    enum deft_status status = read_text(text, n_bytes, max_records, &trace, &error);
    if (status == DEFT_OK) {
        status = kineto_job_init(&job, &trace, 1, &error);
    }
    if (status != wanted || strstr(error.text, words) == NULL) {
        fail_msg("%.200s: %s '%s', expected '%s'", text, deft_status_name(status), error.text,
                 words);
    }
    assert_int_equal(job.n_steps, 0);
    kineto_trace_destroy(trace);
}

static void refused_text(const char *text, const char *words) {
    refused(text, strlen(text), KINETO_MAX_RECORDS, DEFT_INVALID, words);
}

#define EVENTS(events)  "{\"traceEvents\": [" events "]}"
#define X(name, rest)   "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"" name "\"," rest "}"
#define AT(ts, dur)     "\"ts\":" ts ",\"dur\":" dur
#define STEP(number, t) X("ProfilerStep#" number, AT(t, "100"))
#define NODE(t)         X("autograd::engine::evaluate_function: A", AT(t, "50"))
#define GLOO(t, dims)   X("gloo:all_reduce", AT(t, "5") ",\"args\":{\"Input Dims\":" dims "}")

static void malformed_json(void **unused) {
    (void)unused;
    refused_text("", "is empty");
    refused_text(" ", "no JSON");
    refused_text("{", "cut off");
    refused_text("[", "cut off");
    refused_text("{\"traceEvents\": [{\"ph\":", "cut off");
    refused_text("nonsense", "no JSON");
    refused_text("{}", "no traceEvents");
    refused_text("17", "no traceEvents");
    refused_text("{\"traceEvents\": 3}", "no traceEvents");
    refused_text("{\"traceEvents\": {\"a\": []}}", "no traceEvents");
    refused_text("[]]", "no JSON");
    refused_text("[] []", "no JSON");
    refused_text("[{\"ts\": NaN}]", "no JSON");
    refused_text("[{\"ts\": Infinity}]", "no JSON");
    refused_text("\"\\ud800\"", "no traceEvents");
    refused_text("\x1f\x8b\x08", "no JSON");
}

static void broken_events(void **unused) {
    (void)unused;
    refused_text(EVENTS(X("ProfilerStep#1", AT("-1", "5"))), "ts is no number");
    refused_text(EVENTS(X("ProfilerStep#1", AT("1", "-5"))), "dur is no number");
    refused_text(EVENTS(X("ProfilerStep#1", AT("1e999", "5"))), "ts is no number");
    refused_text(EVENTS(X("ProfilerStep#1", AT("\"soon\"", "5"))), "ts is no number");
    refused_text(EVENTS(X("ProfilerStep#1", AT("null", "5"))), "ts is no number");
    refused_text(EVENTS(X("ProfilerStep#1", AT("1", "true"))), "dur is no number");
    refused_text(EVENTS(X("ProfilerStep#1", AT("99999999999999999999", "5"))), "ts is no number");
    refused_text(EVENTS(X("ProfilerStep#x", AT("1", "5"))), "expected a number");
    refused_text(EVENTS(X("ProfilerStep#", AT("1", "5"))), "expected a number");
    refused_text(EVENTS(X("ProfilerStep#-4", AT("1", "5"))), "expected a number");
    refused_text(EVENTS(X("ProfilerStep#99999999999999999999", AT("1", "5"))), "expected a number");
    refused_text(EVENTS(GLOO("1", "[[99999999999,99999999999]]")), "Input Dims");
    refused_text(EVENTS(GLOO("1", "[[-3]]")), "Input Dims");
    refused_text("{\"distributedInfo\":{\"rank\":-1}, \"traceEvents\": []}", "distributedInfo");
    /* What is not of interest may be broken. */
    refused_text(EVENTS("{\"ph\":\"X\",\"cat\":\"python_function\",\"ts\":-1}"), "no steps");
}

static void what_is_missing_is_named(void **unused) {
    (void)unused;
    refused_text(EVENTS(""), "no steps: give the profiler a schedule");
    refused_text(EVENTS(STEP("1", "0")), "activities=");
    refused_text(EVENTS(STEP("1", "0") "," NODE("20")), "no backward of 't' all-reduces gradients");
    refused_text(EVENTS(STEP("1", "0") "," NODE("20") "," GLOO("30", "[]")), "record_shapes=True");
    refused_text(EVENTS(STEP("1", "0") "," NODE("20") "," GLOO("30", "[[0]]")),
                 "record_shapes=True");
    refused_text(EVENTS(STEP("1", "0") "," NODE("20") "," X("nccl:all_reduce", AT("30", "5"))),
                 "no kernels: give the profiler");
    refused_text(EVENTS(STEP("1", "0") "," NODE("20") "," X("gloo:reduce_scatter", AT("30", "5"))),
                 "such as reduce_scatter");
    refused_text(EVENTS(STEP("1", "0") "," STEP("1", "100") "," NODE("20")), "expected each once");
    refused_text(EVENTS(STEP("2", "0") "," STEP("1", "100") "," NODE("20")), "expected each once");
    refused_text(EVENTS(STEP("1", "0") "," STEP("2", "0") "," NODE("20")), "takes no time");
    refused_text(EVENTS(STEP("1", "0") "," NODE("20") ",{\"ph\":\"X\",\"cat\":\"kernel\",\"name\":"
                                                      "\"k\",\"ts\":1,\"dur\":1,\"args\":{"
                                                      "\"correlation\":3}}"),
                 "kernels but no launches");
}

/* One bucket, the smallest trace that works, and the profile of it. */
static void the_least_that_suffices(void **unused) {
    (void)unused;
    const char *text = EVENTS(STEP("1", "0") "," NODE("20") "," GLOO("30", "[[7]]"));
    struct kineto_trace *trace = NULL;
    struct kineto_job job = {0};
    struct dsched_profile profile = {0};
    struct deft_error error = {0};
    assert_int_equal(read_text(text, strlen(text), 100, &trace, &error), DEFT_OK);
    assert_int_equal(kineto_job_init(&job, &trace, 1, &error), DEFT_OK);
    assert_int_equal(job.n_buckets, 1);
    assert_int_equal(job.buckets[0].elements, 7);
    assert_int_equal(job.buckets[0].ready_ns, 30000);
    assert_int_equal(kineto_profile(&job, "one", 0, &profile, &error), DEFT_OK);
    assert_int_equal(profile.n_tensors, 1);
    assert_int_equal(profile.forward_ns, 20000);
    assert_int_equal(profile.backward_ns, 10000);
    assert_int_equal(dsched_link_ns(&profile.links[0], 28), 5000);
    dsched_profile_done(&profile);
    kineto_job_done(&job);
    kineto_trace_destroy(trace);
}

static void limits_are_told(void **unused) {
    (void)unused;
    size_t n_bytes = (size_t)KINETO_MAX_TOKEN_BYTES * 3;
    char *text = malloc(n_bytes + 1);
    assert_non_null(text);
    memset(text, '[', 100000);
    refused(text, 100000, KINETO_MAX_RECORDS, DEFT_LIMIT, "nests deeper");
    memset(text, 'x', n_bytes);
    text[0] = '"';
    refused(text, n_bytes, KINETO_MAX_RECORDS, DEFT_LIMIT, "a single value or blank");
    memset(text, '7', n_bytes);
    refused(text, n_bytes, KINETO_MAX_RECORDS, DEFT_LIMIT, "a single value or blank");
    free(text);
    const char *three = EVENTS(NODE("1") "," NODE("2") "," NODE("3"));
    refused(three, strlen(three), 2, DEFT_LIMIT, "more than 2 events of interest");
}

static void too_many_steps(void **unused) {
    (void)unused;
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    assert_non_null(file);
    (void)fputs("[", file);
    for (unsigned i = 0; i <= KINETO_MAX_STEPS; i++) {
        (void)fprintf(file, "%s{\"ph\":\"X\",\"name\":\"ProfilerStep#%u\",\"ts\":%u,\"dur\":1}",
                      i == 0 ? "" : ",", i, i);
    }
    (void)fputs("]", file);
    assert_int_equal(fclose(file), 0);
    refused(text, n_bytes, KINETO_MAX_RECORDS, DEFT_LIMIT, "more than 4096 steps");
    free(text);
}

static void ranks_must_fit(void **unused) {
    (void)unused;
    struct kineto_trace *traces[2] = {NULL};
    struct kineto_job job = {0};
    struct deft_error error = {0};
    struct synthetic made;
    uint64_t state = testing_seed();
    do {
        synthetic_init(&made, testing_random(&state) | 1);
    } while (made.n_buckets < 2);
    for (int i = 0; i < 2; i++) {
        size_t n_bytes = 0;
        char *text = synthetic_write(&made, 0, &n_bytes);
        assert_int_equal(read_text(text, n_bytes, 10000, &traces[i], &error), DEFT_OK);
        free(text);
    }
    assert_int_equal(kineto_job_init(&job, traces, 2, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "both of rank 0"));
    traces[1]->rank = 1;
    struct kineto_collective *items = traces[1]->collectives.items;
    for (uint32_t i = 0; i < traces[1]->collectives.n; i++) {
        items[i].elements += items[i].elements == made.bucket_elements[0];
    }
    assert_int_equal(kineto_job_init(&job, traces, 2, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "not of one job"));
    kineto_trace_destroy(traces[0]);
    kineto_trace_destroy(traces[1]);
}

/* A trace that is cut anywhere, or has a byte changed, is taken or refused with a sentence. */
static void damage_is_survived(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int i = 0; i < 150; i++) {
        struct synthetic made;
        struct kineto_trace *trace = NULL;
        struct kineto_job job = {0};
        struct deft_error error = {0};
        size_t n_bytes = 0;
        synthetic_init(&made, testing_random(&state) | 1);
        char *text = synthetic_write(&made, 0, &n_bytes);
        size_t n_cut = n_bytes;
        for (int change = 0; change < 3; change++) {
            text[testing_random_below(&state, n_bytes)] =
                (char)(' ' + testing_random_below(&state, 95));
        }
        if (testing_random_below(&state, 2) == 0) {
            n_cut = testing_random_below(&state, n_bytes);
        }
        enum deft_status status = read_text(text, n_cut, 10000, &trace, &error);
        assert_true(status == DEFT_OK || error.text[0] != '\0');
        assert_true(status != DEFT_OK || n_cut + 8 > n_bytes);
        if (status == DEFT_OK && kineto_job_init(&job, &trace, 1, &error) != DEFT_OK) {
            assert_true(error.text[0] != '\0');
        }
        kineto_job_done(&job);
        kineto_trace_destroy(trace);
        free(text);
    }
}

static void numbers_keep_all_digits(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    int64_t value = 0;
    for (int i = 0; i < 2000; i++) {
        char text[64];
        int64_t ns = (int64_t)testing_random_below(&state, UINT64_C(4000000000000000000));
        (void)snprintf(text, sizeof(text), "%s%lld.%03lld", i % 2 ? "-" : "",
                       (long long)(ns / 1000), (long long)(ns % 1000));
        assert_true(kineto_number(text, strlen(text), 3, &value));
        assert_int_equal(value, i % 2 ? -ns : ns);
        (void)snprintf(text, sizeof(text), "%llde-3", (long long)ns);
        assert_true(kineto_number(text, strlen(text), 3, &value));
        assert_int_equal(value, ns);
    }
    assert_true(kineto_number("9223372036854775807", 19, 0, &value) && value == INT64_MAX);
    assert_false(kineto_number("9223372036854775808", 19, 0, &value));
    assert_false(kineto_number("1e19", 4, 0, &value));
    assert_true(kineto_number("0e99999999999", 13, 3, &value) && value == 0);
    assert_true(kineto_number("1e-99999999999", 14, 3, &value) && value == 0);
    assert_true(kineto_number("1.2345678901234567890123", 24, 3, &value) && value == 1234);
    assert_true(kineto_number("1.5E+3", 6, 0, &value) && value == 1500);
    assert_false(kineto_number("123456789012345678901234567890e-20", 34, 0, &value));
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(malformed_json),           cmocka_unit_test(broken_events),
    cmocka_unit_test(what_is_missing_is_named), cmocka_unit_test(the_least_that_suffices),
    cmocka_unit_test(limits_are_told),          cmocka_unit_test(too_many_steps),
    cmocka_unit_test(ranks_must_fit),           cmocka_unit_test(damage_is_survived),
    cmocka_unit_test(numbers_keep_all_digits),
};
TESTING_MAIN(cases)
