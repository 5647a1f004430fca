/* What is encoded comes back the same: a message that is decoded and encoded again gives the same
 * text, which names every member. Members themselves are compared where texts could hide a loss. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "wire/json_out.h"
#include "wire/wire.h"
#include "wire_support.h"

#define ROUNDS 300

static void same_real(double a, double b) {
    assert_true((isnan(a) && isnan(b)) || a == b);
}

static void registrations_round_trip(void **unused) {
    uint64_t state = testing_seed();
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        struct wire_registration in;
        struct wire_registration out;
        struct deft_error error = {0};
        char *text = NULL;
        char *again = NULL;
        wire_support_registration(&state, &in);
        assert_int_equal(wire_registration_encode(&in, &text, &error), DEFT_OK);
        assert_int_equal(wire_registration_decode(text, strlen(text), &out, &error), DEFT_OK);
        assert_string_equal(in.key, out.key);
        assert_string_equal(in.name, out.name);
        assert_true(in.started_ns == out.started_ns);
        assert_true(in.table_hash == out.table_hash);
        assert_int_equal(in.capabilities, out.capabilities);
        same_real(in.momentum, out.momentum);
        same_real(in.epsilon, out.epsilon);
        same_real(in.learning_rate, out.learning_rate);
        assert_int_equal(in.n_tensors, out.n_tensors);
        assert_memory_equal(in.tensors, out.tensors, in.n_tensors * sizeof(*in.tensors));
        assert_int_equal(in.n_local_ranks, out.n_local_ranks);
        assert_memory_equal(in.local_ranks, out.local_ranks, in.n_local_ranks * sizeof(uint32_t));
        assert_int_equal(wire_registration_encode(&out, &again, &error), DEFT_OK);
        assert_string_equal(text, again);
        free(text);
        free(again);
        wire_registration_done(&in);
        wire_registration_done(&out);
    }
}

static void reports_round_trip(void **unused) {
    uint64_t state = testing_seed();
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        struct wire_report in;
        struct wire_report out;
        struct deft_error error = {0};
        char *text = NULL;
        char *again = NULL;
        wire_support_report(&state, &in);
        assert_int_equal(wire_report_encode(&in, &text, &error), DEFT_OK);
        assert_int_equal(wire_report_decode(text, strlen(text), &out, &error), DEFT_OK);
        assert_int_equal(in.n_iterations, out.n_iterations);
        for (uint32_t r = 0; r < in.n_iterations; r++) {
            same_real(in.iterations[r].loss, out.iterations[r].loss);
            assert_true(in.iterations[r].bytes == out.iterations[r].bytes);
            assert_true(in.iterations[r].step_ns == out.iterations[r].step_ns);
            assert_int_equal(in.iterations[r].flags, out.iterations[r].flags);
            same_real(in.iterations[r].change_sq_local, out.iterations[r].change_sq_local);
            same_real(in.iterations[r].learning_rate, out.iterations[r].learning_rate);
        }
        assert_memory_equal(in.ops, out.ops, in.n_ops * sizeof(*in.ops));
        for (uint32_t r = 0; r < in.n_events; r++) {
            assert_string_equal(in.events[r].text, out.events[r].text);
        }
        assert_int_equal(wire_report_encode(&out, &again, &error), DEFT_OK);
        assert_string_equal(text, again);
        free(text);
        free(again);
        wire_report_done(&in);
        wire_report_done(&out);
    }
}

static double random_limit(uint64_t *state) {
    uint64_t mantissa = 1 + testing_random_below(state, 1u << 30);
    return testing_random_below(state, 3) == 0 ? (double)NAN : ldexp((double)mantissa, -12);
}

static void plans_round_trip(void **unused) {
    uint64_t state = testing_seed();
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        struct wire_plan_event in = {.seq = 1 + testing_random_below(&state, 1u << 30)};
        struct wire_plan_event out = {0};
        struct dsched_plan plan = {0};
        struct deft_error error = {0};
        char *text = NULL;
        in.max_loss = random_limit(&state);
        in.max_grad_sq = random_limit(&state);
        wire_support_plan(&state, &in.plan);
        assert_int_equal(wire_plan_encode(&in.plan, &text, &error), DEFT_OK);
        assert_int_equal(wire_plan_decode(text, strlen(text), &plan, &error), DEFT_OK);
        assert_true(dsched_plan_hash(&plan) == dsched_plan_hash(&in.plan));
        assert_memory_equal(&plan.forecast, &in.plan.forecast, sizeof(plan.forecast));
        free(text);
        assert_int_equal(wire_plan_event_encode(&in, &text, &error), DEFT_OK);
        assert_int_equal(wire_plan_event_decode(text, strlen(text), &out, &error), DEFT_OK);
        assert_true(out.seq == in.seq);
        same_real(in.max_loss, out.max_loss);
        same_real(in.max_grad_sq, out.max_grad_sq);
        assert_true(dsched_plan_hash(&out.plan) == dsched_plan_hash(&in.plan));
        free(text);
        dsched_plan_done(&plan);
        wire_plan_event_done(&in);
        wire_plan_event_done(&out);
    }
}

static void profiles_round_trip(void **unused) {
    uint64_t state = testing_seed();
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        struct dsched_profile in;
        struct dsched_profile out = {0};
        struct deft_error error = {0};
        char *text = NULL;
        wire_support_profile(&state, &in);
        assert_int_equal(wire_profile_encode(&in, &text, &error), DEFT_OK);
        assert_int_equal(wire_profile_decode(text, strlen(text), &out, &error), DEFT_OK);
        assert_string_equal(in.name, out.name);
        assert_memory_equal(in.tensors, out.tensors, in.n_tensors * sizeof(*in.tensors));
        assert_int_equal(in.n_links, out.n_links);
        for (uint32_t l = 0; l < in.n_links; l++) {
            assert_int_equal(in.links[l].contention_ppm, out.links[l].contention_ppm);
            assert_true(in.links[l].bytes_per_s == out.links[l].bytes_per_s);
            assert_memory_equal(in.links[l].samples, out.links[l].samples,
                                in.links[l].n_samples * sizeof(struct dsched_sample));
        }
        free(text);
        dsched_profile_done(&in);
        dsched_profile_done(&out);
    }
}

static void solves_round_trip(void **unused) {
    uint64_t state = testing_seed();
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        struct wire_solve in;
        struct wire_solve out;
        struct deft_error error = {0};
        char *text = NULL;
        char *again = NULL;
        wire_support_solve(&state, &in);
        assert_int_equal(wire_solve_encode(&in.profile, &in.options, &text, &error), DEFT_OK);
        assert_int_equal(wire_solve_decode(text, strlen(text), &out, &error), DEFT_OK);
        assert_int_equal(out.options.rules, in.options.rules);
        assert_int_equal(out.options.max_merge, in.options.max_merge);
        assert_int_equal(out.options.max_delay, in.options.max_delay);
        assert_true(out.options.max_pending_bytes == in.options.max_pending_bytes);
        assert_int_equal(out.options.jitter_ppm, in.options.jitter_ppm);
        assert_int_equal(out.options.tolerance_ppm, in.options.tolerance_ppm);
        assert_memory_equal(&out.progress, &in.progress, sizeof(in.progress));
        assert_ptr_equal(out.options.progress, in.options.progress == NULL ? NULL : &out.progress);
        assert_memory_equal(in.profile.tensors, out.profile.tensors,
                            in.profile.n_tensors * sizeof(*in.profile.tensors));
        assert_int_equal(wire_solve_encode(&out.profile, &out.options, &again, &error), DEFT_OK);
        assert_string_equal(text, again);
        free(text);
        free(again);
        wire_solve_done(&in);
        wire_solve_done(&out);
    }
}

static void limits_round_trip(void **unused) {
    uint64_t state = testing_seed();
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        struct wire_limits in;
        struct wire_limits out;
        struct deft_error error = {0};
        char *text = NULL;
        wire_support_limits(&state, &in);
        assert_int_equal(wire_limits_encode(&in, &text, &error), DEFT_OK);
        assert_int_equal(wire_limits_decode(text, strlen(text), &out, &error), DEFT_OK);
        assert_int_equal(in.max_merge, out.max_merge);
        assert_int_equal(in.max_delay, out.max_delay);
        same_real(in.epsilon, out.epsilon);
        same_real(in.min_progress, out.min_progress);
        same_real(in.loss_floor, out.loss_floor);
        free(text);
    }
}

static void what_is_held_round_trips(void **unused) {
    uint64_t state = testing_seed();
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        struct wire_pin pin[2] = {0};
        struct wire_keep keep[2] = {0};
        struct wire_freeze freeze[2] = {{.frozen = i % 2}, {0}};
        char *text = NULL;
        wire_support_text(&state, pin[0].plan, sizeof(pin[0].plan));
        wire_support_text(&state, keep[0].keep, sizeof(keep[0].keep));
        assert_int_equal(wire_pin_encode(&pin[0], &text, NULL), DEFT_OK);
        assert_int_equal(wire_pin_decode(text, strlen(text), &pin[1], NULL), DEFT_OK);
        assert_string_equal(pin[0].plan, pin[1].plan);
        free(text);
        assert_int_equal(wire_keep_encode(&keep[0], &text, NULL), DEFT_OK);
        assert_int_equal(wire_keep_decode(text, strlen(text), &keep[1], NULL), DEFT_OK);
        assert_string_equal(keep[0].keep, keep[1].keep);
        free(text);
        assert_int_equal(wire_freeze_encode(&freeze[0], &text, NULL), DEFT_OK);
        assert_int_equal(wire_freeze_decode(text, strlen(text), &freeze[1], NULL), DEFT_OK);
        assert_int_equal(freeze[1].frozen, i % 2);
        free(text);
    }
    struct wire_freeze freeze;
    assert_int_equal(wire_freeze_decode("{}", 2, &freeze, NULL), DEFT_INVALID);
}

static void jobs_round_trip(void **unused) {
    uint64_t state = testing_seed();
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        struct wire_job in[3];
        struct wire_jobs list = {.n_jobs = 3, .jobs = in, .total = 7};
        struct wire_jobs out = {0};
        struct deft_error error = {0};
        char *text = NULL;
        char *again = NULL;
        for (int j = 0; j < 3; j++) {
            wire_support_job(&state, &in[j]);
        }
        assert_int_equal(wire_jobs_encode(&list, &text, &error), DEFT_OK);
        assert_int_equal(wire_jobs_decode(text, strlen(text), &out, &error), DEFT_OK);
        assert_int_equal(out.n_jobs, 3);
        assert_string_equal(out.jobs[1].decision, in[1].decision);
        same_real(out.jobs[2].gain, in[2].gain);
        same_real(out.jobs[0].noise_samples, in[0].noise_samples);
        same_real(out.jobs[0].loss_floor, in[0].loss_floor);
        assert_string_equal(out.jobs[0].status, in[0].status);
        assert_int_equal(out.jobs[1].frozen, in[1].frozen);
        assert_string_equal(out.jobs[2].pin, in[2].pin);
        assert_int_equal(wire_jobs_encode(&out, &again, &error), DEFT_OK);
        assert_string_equal(text, again);
        free(text);
        free(again);
        wire_jobs_done(&out);
    }
}

static void problems_carry_their_detail(void **unused) {
    uint64_t state = testing_seed();
    (void)unused;
    for (int i = 0; i < ROUNDS; i++) {
        char detail[WIRE_TEXT_BYTES];
        char back[WIRE_TEXT_BYTES];
        char *text = NULL;
        wire_support_text(&state, detail, sizeof(detail));
        assert_int_equal(wire_problem_encode(409, "mismatch", detail, "n_ranks", &text), DEFT_OK);
        wire_problem_decode(text, strlen(text), back);
        assert_string_equal(detail, back);
        free(text);
    }
    char back[WIRE_TEXT_BYTES] = "old";
    wire_problem_decode("<html>", 6, back);
    assert_string_equal(back, "");
}

static void bytes_that_are_not_utf8_are_replaced(void **unused) {
    struct json_out out = {0};
    char *text = NULL;
    (void)unused;
    json_out_text(&out, NULL, "a\xFF\xC3z\x01");
    assert_int_equal(json_out_finish(&out, &text, NULL), DEFT_OK);
    assert_string_equal(text, "\"a\xEF\xBF\xBD\xEF\xBF\xBDz\\u0001\"");
    free(text);
}

/* A minute of eight ranks at 100 iterations/s must fit the limit of a body. */
static void largest_ordinary_report_fits(void **unused) {
    struct wire_report report = {.agent = "host-1", .seq = 1, .n_iterations = 8 * 60 * 100};
    char *text = NULL;
    (void)unused;
    report.iterations = calloc(report.n_iterations, sizeof(*report.iterations));
    assert_non_null(report.iterations);
    for (uint32_t i = 0; i < report.n_iterations; i++) {
        report.iterations[i] = (struct wire_iteration){.rank = i % 8,
                                                       .iteration = 1000000 + i / 8,
                                                       .plan_seq = 12,
                                                       .forward_ns = 3123456,
                                                       .backward_ns = 6123456,
                                                       .exposed_ns = 123456,
                                                       .optimizer_ns = 223456,
                                                       .runtime_ns = 12345,
                                                       .step_ns = 9912345,
                                                       .bytes = 44040192,
                                                       .loss = (double)0.123456789f,
                                                       .grad_sq_local = (double)1.23456789f,
                                                       .grad_sq_mean = (double)0.98765432f,
                                                       .updates = 1,
                                                       .merge = 2,
                                                       .flags = 1};
    }
    assert_int_equal(wire_report_encode(&report, &text, NULL), DEFT_OK);
    assert_true(strlen(text) <= WIRE_MAX_BODY_BYTES);
    free(text);
    wire_report_done(&report);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(registrations_round_trip),
    cmocka_unit_test(reports_round_trip),
    cmocka_unit_test(plans_round_trip),
    cmocka_unit_test(profiles_round_trip),
    cmocka_unit_test(solves_round_trip),
    cmocka_unit_test(limits_round_trip),
    cmocka_unit_test(what_is_held_round_trips),
    cmocka_unit_test(jobs_round_trip),
    cmocka_unit_test(problems_carry_their_detail),
    cmocka_unit_test(bytes_that_are_not_utf8_are_replaced),
    cmocka_unit_test(largest_ordinary_report_fits),
};
TESTING_MAIN(cases)
