/* Jobs on the stand-in: the order of everything that is queued, with and without mistakes; and that
 * the parameters come to what the host's do. */
#include <math.h>
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
        for (uint8_t delay = merge == 1 ? 0 : 1; delay <= 2; delay++) {
            struct gpu_job job = {.n_iterations = 9, .is_held = 1};
            check_right(DSCHED_AVERAGED, merge, delay, 0, &job);
        }
    }
}

static void averaged_ends_a_part_of_a_generation(void **state) {
    (void)state;
    for (uint8_t delay = 0; delay <= 2; delay++) {
        struct gpu_job job = {.n_iterations = 9, .drain_twice = 1, .two_streams = 1};
        check_right(DSCHED_AVERAGED, 3, delay, 0, &job);
    }
}

static void averaged_shares_optimizer_state(void **state) {
    (void)state;
    struct gpu_job job = {.n_iterations = 11, .is_held = 1, .has_momentum = 1};
    check_right(DSCHED_AVERAGED, 2, 1, 0, &job);
    struct gpu_job twice = {.n_iterations = 9, .drain_twice = 1, .has_momentum = 1};
    check_right(DSCHED_AVERAGED, 3, 2, 0, &twice);
}

/* The rank makes no step, as far as the parameters can tell, and all drop the generation, each on
 * its device. */
static void averaged_drops_what_is_not_finite(void **state) {
    (void)state;
    for (uint16_t merge = 1; merge <= 3; merge++) {
        for (uint8_t delay = 1; delay <= 2; delay++) {
            int32_t rank = (merge + delay) % GPU_JOB_RANKS;
            struct gpu_job job = {
                .n_iterations = 11, .is_held = rank, .bad_at = 6, .bad_rank = rank};
            check_right(DSCHED_AVERAGED, merge, delay, 0, &job);
            for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
                assert_int_equal(job.stats[r].skipped, 1);
                assert_int_equal(job.n_told_skipped[r], 1);
            }
        }
    }
}

/* Its momentum decays once more than on the host, where the step is left out; but it goes on. */
static void a_bad_gradient_does_not_spoil_momentum(void **state) {
    (void)state;
    struct dsched_plan plan;
    begin();
    make_plan(DSCHED_AVERAGED, 2, 1, 0, &plan);
    struct gpu_job job = {.device = "cuda",
                          .links = both_links,
                          .plan = &plan,
                          .n_iterations = 9,
                          .has_momentum = 1,
                          .bad_at = 4};
    gpu_job_run(&job);
    check_fine(&job);
    assert_int_equal(job.stats[0].skipped, 1);
    assert_int_equal(job.stats[0].updates, 4);
    assert_memory_equal(job.parameters[0], job.parameters[1], gpu_job_bytes());
    assert_memory_equal(job.momentum[0], job.momentum[1], gpu_job_bytes());
    for (size_t i = 0; i < gpu_job_bytes() - 129 * sizeof(double); i += sizeof(float)) {
        float w;
        float v;
        memcpy(&w, job.parameters[0] + i, sizeof(w));
        memcpy(&v, job.momentum[0] + i, sizeof(v));
        assert_true(isfinite(w) && fabsf(w) < 100);
        assert_true(isfinite(v) && v != 0);
    }
    end(&job);
    dsched_plan_done(&plan);
}

static void exact_becomes_averaged_and_exact_again(void **state) {
    (void)state;
    struct dsched_plan averaged;
    struct dsched_plan exact;
    make_plan(DSCHED_AVERAGED, 2, 2, 0, &averaged);
    make_plan(DSCHED_EXACT, 1, 0, 0, &exact);
    struct gpu_job job = {.n_iterations = 22,
                          .write_back = 1,
                          .has_momentum = 1,
                          .next_plans = {&averaged, &exact},
                          .next_at = {2, 11}};
    check_right(DSCHED_EXACT, 1, 0, 0, &job);
    assert_int_equal(job.stats[0].switches, 2);
    assert_int_equal(job.stats[0].plan_seq, 2);
    dsched_plan_done(&averaged);
    dsched_plan_done(&exact);
}

static void averaged_is_staged_on_a_second_link(void **state) {
    (void)state;
    struct gpu_job job = {.n_iterations = 8, .bad_at = 3};
    check_right(DSCHED_AVERAGED, 1, 1, 0x0a, &job);
    struct gpu_job all = {.n_iterations = 8, .drain_twice = 1, .has_momentum = 1};
    check_right(DSCHED_AVERAGED, 2, 1, 0x1f, &all);
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

/* What a boundary waits for is told by the device's clock, under every rule, and not by that of a
 * thread, which waits for nothing but the votes. */
static void waits_have_times_of_the_device(void **state) {
    (void)state;
    static const enum dsched_rule rules[] = {DSCHED_EXACT, DSCHED_DELAYED, DSCHED_LOOKAHEAD,
                                             DSCHED_AVERAGED};
    for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
        struct gpu_job job = {.n_iterations = 40};
        check_right(rules[i], 1, rules[i] != DSCHED_EXACT, 0, &job);
        for (int32_t r = 0; r < GPU_JOB_RANKS; r++) {
            assert_true(job.stats[r].exposed_ns > 0);
            assert_true(job.stats[r].exposed_ns != job.stats[r].control_ns);
        }
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

static void keep_error(struct gpu_job *job, uint64_t iteration) {
    plant(job, iteration, STANDIN_KEPT_ERROR);
}

static void check_caught(enum dsched_rule rule, void (*meddle)(struct gpu_job *, uint64_t),
                         const char *expected) {
    struct dsched_plan plan;
    begin();
    make_plan(rule, 1, rule == DSCHED_AVERAGED, 0, &plan);
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
    check_caught(DSCHED_EXACT, leave_out_producer, "unordered: stream");
    check_caught(DSCHED_AVERAGED, leave_out_producer, "unordered: stream");
}

static void planted_no_wait_for_result_is_caught(void **state) {
    (void)state;
    check_caught(DSCHED_EXACT, leave_out_result, "unordered: stream");
    check_caught(DSCHED_AVERAGED, leave_out_result, "unordered: stream");
}

static void planted_swapped_order_is_caught(void **state) {
    (void)state;
    check_caught(DSCHED_EXACT, swap, "elements on rank");
    check_caught(DSCHED_AVERAGED, swap, "elements on rank");
}

static void planted_host_wait_is_caught(void **state) {
    (void)state;
    check_caught(DSCHED_EXACT, wait_on_host, "the host waits in a step");
    check_caught(DSCHED_AVERAGED, wait_on_host, "the host waits in a step");
}

static void planted_kept_error_is_caught(void **state) {
    (void)state;
    check_caught(DSCHED_EXACT, keep_error, "the program finds an error that is not its own");
    check_caught(DSCHED_AVERAGED, keep_error, "the program finds an error that is not its own");
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
    cmocka_unit_test(averaged_ends_a_part_of_a_generation),
    cmocka_unit_test(averaged_shares_optimizer_state),
    cmocka_unit_test(averaged_drops_what_is_not_finite),
    cmocka_unit_test(a_bad_gradient_does_not_spoil_momentum),
    cmocka_unit_test(exact_becomes_averaged_and_exact_again),
    cmocka_unit_test(averaged_is_staged_on_a_second_link),
    cmocka_unit_test(a_second_link_is_staged),
    cmocka_unit_test(without_nccl_all_is_staged),
    cmocka_unit_test(gradients_have_times_of_the_device),
    cmocka_unit_test(waits_have_times_of_the_device),
    cmocka_unit_test(planted_no_wait_for_producer_is_caught),
    cmocka_unit_test(planted_no_wait_for_result_is_caught),
    cmocka_unit_test(planted_swapped_order_is_caught),
    cmocka_unit_test(planted_host_wait_is_caught),
    cmocka_unit_test(planted_kept_error_is_caught),
};
TESTING_MAIN(cases)
