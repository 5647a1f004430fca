/* Jobs on the stand-in: the order of everything that is queued, with and without mistakes; and that
 * the parameters come to what the host's do. */
#include <stdlib.h>
#include <string.h>

#include "gpu_job.h"
#include "testing.h"

static struct mem_fabric *fabric;
static char both_links[128];

static void begin(void) {
    standin_reset();
    assert_int_equal(mem_fabric_create(GPU_JOB_RANKS, NULL, &fabric, NULL), DEFT_OK);
    (void)snprintf(both_links, sizeof(both_links), "nccl,%s", mem_fabric_link(fabric));
}

static void end(struct gpu_job *job) {
    gpu_job_done(job);
    mem_fabric_destroy(fabric);
}

/* Five buckets, the f64 tensor in one of its own. `link` of each op by its bit in `links`. */
static void make_plan(enum dsched_rule rule, uint16_t merge, uint8_t delay, uint32_t links,
                      struct dsched_plan *out) {
    static const uint64_t ends[] = {129, 900, 2200, 3000};
    assert_int_equal(dsched_plan_init(out, 5, 1), DSCHED_OK);
    out->rule = rule;
    out->n_links = 2;
    out->merge[0] = merge;
    for (uint32_t b = 0; b < 5; b++) {
        out->buckets[b].begin = b == 0 ? 0 : ends[b - 1];
        out->buckets[b].end = b < 4 ? ends[b] : gpu_job_elements();
        out->ops[b].link = (uint8_t)(links >> b & 1u);
        out->ops[b].delay = delay;
    }
}

static void check_fine(const struct gpu_job *job) {
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        assert_string_equal(job->error[r].text, "");
        assert_int_equal(job->status[r], DEFT_OK);
        assert_string_equal(job->notice[r], "");
    }
    assert_string_equal(standin_violation(), "");
}

static void check_right(enum dsched_rule rule, uint16_t merge, uint8_t delay, uint32_t links,
                        struct gpu_job *job) {
    struct dsched_plan plan;
    begin();
    make_plan(rule, merge, delay, links, &plan);
    job->device = "cuda";
    job->links = both_links;
    job->plan = &plan;
    gpu_job_run(job);
    check_fine(job);
    gpu_job_check_against_host(job);
    assert_true(job->stats[0].updates > 0);
    assert_true(job->is_held || job->stats[0].grad_sq_mean > 0);
    end(job);
    dsched_plan_done(&plan);
}

/* --- right orders ----------------------------------------------------------------------------- */

static void exact_waits_for_nothing(void **state) {
    (void)state;
    struct gpu_job job = {.n_iterations = 6, .write_back = 1, .is_held = 1};
    check_right(DSCHED_EXACT, 1, 0, 0, &job);
}

static void exact_without_write_back(void **state) {
    (void)state;
    struct gpu_job job = {.n_iterations = 6, .is_held = 1};
    check_right(DSCHED_EXACT, 1, 0, 0, &job);
}

static void streams_may_change(void **state) {
    (void)state;
    struct gpu_job job = {.n_iterations = 6, .write_back = 1, .is_held = 1, .two_streams = 1};
    check_right(DSCHED_EXACT, 1, 0, 0, &job);
}

static void devices_may_be_many_iterations_behind(void **state) {
    (void)state;
    struct gpu_job job = {.n_iterations = 40, .write_back = 1, .is_held = 1};
    check_right(DSCHED_EXACT, 1, 0, 0, &job);
}

static void delayed_merges_on_the_device(void **state) {
    (void)state;
    struct gpu_job job = {.n_iterations = 11, .write_back = 1, .is_held = 1};
    check_right(DSCHED_DELAYED, 2, 1, 0, &job);
}

static void delayed_ends_a_part_of_a_generation(void **state) {
    (void)state;
    struct gpu_job job = {.n_iterations = 11, .drain_twice = 1};
    check_right(DSCHED_DELAYED, 3, 2, 0, &job);
}

static void lookahead_previews_on_the_device(void **state) {
    (void)state;
    struct gpu_job job = {.n_iterations = 9, .is_held = 1};
    check_right(DSCHED_LOOKAHEAD, 1, 1, 0, &job);
}

static void averaged_lands_on_the_device(void **state) {
    (void)state;
    for (uint16_t merge = 1; merge <= 3; merge++) {
        for (uint8_t delay = 0; delay <= 2; delay++) {
            struct gpu_job job = {.n_iterations = 11, .is_held = 1};
            check_right(DSCHED_AVERAGED, merge, delay, 0, &job);
            struct gpu_job twice = {.n_iterations = 11, .drain_twice = 1, .two_streams = 1};
            check_right(DSCHED_AVERAGED, merge, delay, 0, &twice);
        }
    }
}

static void a_second_link_is_staged(void **state) {
    (void)state;
    struct gpu_job job = {.n_iterations = 8};
    check_right(DSCHED_DELAYED, 2, 1, 0x0a, &job);
    struct gpu_job ahead = {.n_iterations = 8, .drain_twice = 1};
    check_right(DSCHED_LOOKAHEAD, 1, 1, 0x1f, &ahead);
}

static void without_nccl_all_is_staged(void **state) {
    (void)state;
    begin();
    struct gpu_job job = {.device = "cuda", .n_iterations = 6, .links = mem_fabric_link(fabric)};
    gpu_job_run(&job);
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        assert_string_equal(job.error[r].text, "");
    }
    gpu_job_check_against_host(&job);
    assert_int_equal(standin_calls("ncclAllReduce"), 0);
    end(&job);
}

/* By the device's clock, which on the stand-in counts what it was given: the later a gradient, the
 * later its time. */
static void gradients_have_times_of_the_device(void **state) {
    (void)state;
    struct gpu_job job = {.n_iterations = 90, .write_back = 1};
    check_right(DSCHED_EXACT, 1, 0, 0, &job);
    for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
        assert_true(job.n_readiness[r] >= 16);
        for (uint32_t t = 0; t + 1 < GPU_JOB_TENSORS; t++) {
            assert_true(job.readiness_ns[r][t] > job.readiness_ns[r][t + 1]);
        }
        assert_true(job.readiness_ns[r][GPU_JOB_TENSORS - 1] > 0);
    }
}

/* --- mistakes --------------------------------------------------------------------------------- */

static void plant(struct gpu_job *job, uint64_t iteration, enum standin_mistake mistake) {
    (void)job;
    if (iteration == 2) {
        standin_plant(mistake);
    }
}

static void leave_out_producer(struct gpu_job *job, uint64_t iteration) {
    plant(job, iteration, STANDIN_NO_WAIT_FOR_PRODUCER);
}

static void leave_out_result(struct gpu_job *job, uint64_t iteration) {
    plant(job, iteration, STANDIN_NO_WAIT_FOR_RESULT);
}

static void swap(struct gpu_job *job, uint64_t iteration) {
    plant(job, iteration, STANDIN_SWAPPED);
}

static void wait_on_host(struct gpu_job *job, uint64_t iteration) {
    plant(job, iteration, STANDIN_HOST_WAIT);
}

static void check_caught(void (*meddle)(struct gpu_job *, uint64_t), const char *expected) {
    struct dsched_plan plan;
    begin();
    make_plan(DSCHED_EXACT, 1, 0, 0, &plan);
    struct gpu_job job = {.device = "cuda",
                          .links = both_links,
                          .plan = &plan,
                          .n_iterations = 5,
                          .write_back = 1,
                          .is_held = 1,
                          .meddle = meddle};
    gpu_job_run(&job);
    if (strstr(standin_violation(), expected) == NULL) {
        fail_msg("found '%s', expected '%s'", standin_violation(), expected);
    }
    end(&job);
    dsched_plan_done(&plan);
}

static void planted_no_wait_for_producer_is_caught(void **state) {
    (void)state;
    check_caught(leave_out_producer, "unordered: stream");
}

static void planted_no_wait_for_result_is_caught(void **state) {
    (void)state;
    check_caught(leave_out_result, "unordered: stream");
}

static void planted_swapped_order_is_caught(void **state) {
    (void)state;
    check_caught(swap, "elements on rank");
}

static void planted_host_wait_is_caught(void **state) {
    (void)state;
    check_caught(wait_on_host, "the host waits in a step");
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(exact_waits_for_nothing),
    cmocka_unit_test(exact_without_write_back),
    cmocka_unit_test(streams_may_change),
    cmocka_unit_test(devices_may_be_many_iterations_behind),
    cmocka_unit_test(delayed_merges_on_the_device),
    cmocka_unit_test(delayed_ends_a_part_of_a_generation),
    cmocka_unit_test(lookahead_previews_on_the_device),
    cmocka_unit_test(averaged_lands_on_the_device),
    cmocka_unit_test(a_second_link_is_staged),
    cmocka_unit_test(without_nccl_all_is_staged),
    cmocka_unit_test(gradients_have_times_of_the_device),
    cmocka_unit_test(planted_no_wait_for_producer_is_caught),
    cmocka_unit_test(planted_no_wait_for_result_is_caught),
    cmocka_unit_test(planted_swapped_order_is_caught),
    cmocka_unit_test(planted_host_wait_is_caught),
};
TESTING_MAIN(cases)
