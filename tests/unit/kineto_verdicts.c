/* The verdict as a function of figures. */
#include <string.h>

#include "kineto/kineto_verdict.h"
#include "testing.h"

#define MS INT64_C(1000000)

/* Two buckets of 1,000,000 f32; a step of 100 ms of which `busy_ms` compute and `exposed_ms` wait
 * for all-reduces of `reduce_ms` each. */
struct figures {
    struct kineto_bucket buckets[2];
    struct dsched_tensor tensors[2];
    struct dsched_sample samples[2];
    struct dsched_link link;
    struct kineto_job job;
    struct dsched_profile profile;
};

static void make(struct figures *figures, int64_t busy_ms, int64_t reduce_ms, int64_t exposed_ms) {
    *figures = (struct figures){0};
    struct kineto_step *median = &figures->job.median;
    for (uint32_t b = 0; b < 2; b++) {
        figures->buckets[b] = (struct kineto_bucket){
            .elements = 1000000, .dtype = DSCHED_F32, .transfer_ns = reduce_ms * MS};
        figures->tensors[b] = (struct dsched_tensor){
            .elements = 1000000, .forward_ns = busy_ms * MS / 6, .backward_ns = busy_ms * MS / 3};
        figures->samples[b] = (struct dsched_sample){.bytes = UINT64_C(4000000) * (b + 1),
                                                     .ns = reduce_ms * (b + 1) * MS};
    }
    figures->link = (struct dsched_link){
        .name = "nccl", .contention_ppm = 1000000, .n_samples = 2, .samples = figures->samples};
    figures->job = (struct kineto_job){.world_size = 2,
                                       .n_ranks = 1,
                                       .has_device = 1,
                                       .n_buckets = 2,
                                       .buckets = figures->buckets};
    median->step_ns = 100 * MS;
    median->compute_busy_ns = busy_ms * MS;
    median->communication_ns = 2 * reduce_ms * MS;
    median->exposed_ns = exposed_ms * MS;
    figures->profile = (struct dsched_profile){.name = "figures",
                                               .world_size = 2,
                                               .forward_ns = busy_ms * MS / 3,
                                               .backward_ns = busy_ms * MS * 2 / 3,
                                               .n_tensors = 2,
                                               .tensors = figures->tensors,
                                               .n_links = 1,
                                               .links = &figures->link};
}

static struct kineto_verdict judge(int64_t busy_ms, int64_t reduce_ms, int64_t exposed_ms,
                                   const char *words) {
    struct figures figures;
    struct kineto_verdict verdict = {0};
    struct deft_error error = {0};
    char text[KINETO_VERDICT_BYTES];
    make(&figures, busy_ms, reduce_ms, exposed_ms);
    if (kineto_verdict(&figures.job, &figures.profile, &verdict, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    kineto_verdict_text(&figures.job, &verdict, text, sizeof(text));
    if (strstr(text, words) == NULL) {
        fail_msg("'%s' is not in:\n%s", words, text);
    }
    return verdict;
}

static void thresholds_are_those_of_the_header(void **unused) {
    (void)unused;
    assert_int_equal(judge(49, 1, 0, "host-bound").bound, KINETO_BOUND_HOST);
    assert_int_equal(judge(45, 10, 4, "host-bound").bound, KINETO_BOUND_HOST);
    assert_int_equal(judge(50, 1, 0, "compute-bound").bound, KINETO_BOUND_COMPUTE);
    assert_int_equal(judge(90, 10, 4, "compute-bound").bound, KINETO_BOUND_COMPUTE);
    assert_int_equal(judge(90, 10, 5, "communication-bound").bound, KINETO_BOUND_COMMUNICATION);
    assert_int_equal(judge(20, 60, 60, "communication-bound").bound, KINETO_BOUND_COMMUNICATION);
}

/* Without a device the host computes: it cannot be late for itself. */
static void a_host_that_computes_is_not_late(void **unused) {
    (void)unused;
    struct figures figures;
    struct kineto_verdict verdict = {0};
    make(&figures, 30, 1, 0);
    figures.job.has_device = 0;
    assert_int_equal(kineto_verdict(&figures.job, &figures.profile, &verdict, NULL), DEFT_OK);
    assert_int_equal(verdict.bound, KINETO_BOUND_COMPUTE);
}

static void coverage_asks_for_a_merge(void **unused) {
    (void)unused;
    struct kineto_verdict verdict = judge(30, 37, 60, "With k = 3 iterations per all-reduce");
    assert_int_equal(verdict.coverage_ppm, 2466666);
    assert_int_equal(verdict.merge, 3);
    assert_int_equal(verdict.second_merge, 2); /* 2.47 / (1 + 1/2) = 1.64 */
    assert_int_equal(verdict.ceiling_ppm, 3333333);
    assert_int_equal(verdict.best.rule, DSCHED_AVERAGED);
    assert_int_equal(verdict.best.max_merge, 3);
    assert_int_equal(verdict.best.step_ns, 30 * MS);
    assert_true(verdict.second.updates_per_step_ppm >= verdict.best.updates_per_step_ppm);
    /* Bucket 0 is ready at 10 + 10 ms; then two all-reduces of 37 ms. */
    assert_int_equal(verdict.replay_step_ns, 94 * MS);
    assert_int_equal(verdict.replay_off_ppm, -60000);
    assert_int_equal(verdict.best.gain_ppm, 3133333);
    assert_true(verdict.exact_step_ns <= verdict.replay_step_ns);
    verdict = judge(60, 20, 40, "fits beside the compute");
    assert_int_equal(verdict.merge, 1);
    verdict = judge(60, 30, 40, "fits beside the compute");
    assert_int_equal(verdict.merge, 1); /* exactly 1 is enough */
}

static void a_replay_that_is_far_off_is_told(void **unused) {
    (void)unused;
    (void)judge(50, 10, 30, "far off what was measured");
}

static void texts_end_in_their_buffer(void **unused) {
    (void)unused;
    struct figures figures;
    struct kineto_verdict verdict = {0};
    char whole[KINETO_VERDICT_BYTES];
    make(&figures, 30, 37, 60);
    assert_int_equal(kineto_verdict(&figures.job, &figures.profile, &verdict, NULL), DEFT_OK);
    kineto_verdict_text(&figures.job, &verdict, whole, sizeof(whole));
    for (size_t capacity = 0; capacity < 600; capacity++) {
        char text[600];
        memset(text, '#', sizeof(text));
        kineto_verdict_text(&figures.job, &verdict, text, capacity);
        for (size_t i = capacity; i < sizeof(text); i++) {
            assert_int_equal(text[i], '#');
        }
        assert_true(capacity == 0 || strlen(text) < capacity);
        assert_true(capacity == 0 || memcmp(text, whole, strlen(text)) == 0);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(thresholds_are_those_of_the_header),
    cmocka_unit_test(a_host_that_computes_is_not_late),
    cmocka_unit_test(coverage_asks_for_a_merge),
    cmocka_unit_test(a_replay_that_is_far_off_is_told),
    cmocka_unit_test(texts_end_in_their_buffer),
};
TESTING_MAIN(cases)
