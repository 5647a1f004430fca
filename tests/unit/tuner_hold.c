/* What operators hold: frozen jobs and pinned plans. */
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "tuner_job.h"
#include "tuning/tuner_state.h"

#define HASH 11

static void a_frozen_job_looks_for_nothing(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 2, HASH);
    tuner_set_hold(&job.tuner, 0, 1);
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_SOLVE], 0);
    assert_int_equal(job.running_seq, 0);
    tuner_set_hold(&job.tuner, 0, 0);
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_COMMIT], 1);
}

/* Worse than it was is left alone; worse than exact is not. */
static void a_frozen_plan_stays_unless_exact_is_better(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 2, HASH);
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_COMMIT], 1);
    int n_solves = job.counts[TUNER_SOLVE];
    uint64_t seq = job.running_seq;
    tuner_set_hold(&job.tuner, 0, 1);
    job.step_ns[seq] = EXACT_NS / 10 * 8;
    job_run(&job, 2000);
    assert_int_equal(job.counts[TUNER_SOLVE], n_solves);
    assert_int_equal(job.running_seq, seq);
    job.step_ns[seq] = EXACT_NS / 10 * 13;
    job_run(&job, 2000);
    assert_int_equal(job.counts[TUNER_ROLL_BACK], 1);
    assert_int_equal(job.counts[TUNER_SOLVE], n_solves);
    assert_true(job.tuner.state.running.is_exact);
}

static void a_pinned_plan_runs_whatever_it_brings(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS * 2, EXACT_NS * 3, 2, HASH);
    tuner_set_hold(&job.tuner, HASH, 0);
    job_run(&job, 3000);
    assert_int_equal(job.counts[TUNER_SOLVE], 1);
    assert_int_equal(job.counts[TUNER_COMMIT], 1);
    assert_int_equal(job.counts[TUNER_ROLL_BACK], 0);
    assert_true(job.tuner.state.running.hash == HASH);
    assert_non_null(strstr(job.last.reason, "ms instead of"));
    /* Taken back, it is a plan as any other, and worse than exact. */
    tuner_set_hold(&job.tuner, 0, 0);
    job_run(&job, 2000);
    assert_int_equal(job.counts[TUNER_ROLL_BACK], 1);
}

/* From a plan to the pinned one, without exact in between. */
static void a_pin_replaces_the_plan_that_runs(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 2, HASH);
    job_run(&job, 1000);
    assert_true(job.tuner.state.running.hash == HASH);
    job_offer(&job, EXACT_NS / 4 * 3, EXACT_NS / 4 * 3, 1, HASH + 1);
    tuner_set_hold(&job.tuner, HASH + 1, 1); /* also in a frozen job */
    job_run(&job, 1000);
    assert_true(job.tuner.state.running.hash == HASH + 1);
    assert_int_equal(job.counts[TUNER_PUSH], 2);
    assert_int_equal(job.counts[TUNER_COMMIT], 2);
}

static void a_pinned_plan_that_was_left_waits_to_be_pinned_anew(void **unused) {
    struct job job;
    struct tuner_decision decision;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 2, HASH);
    tuner_set_hold(&job.tuner, HASH, 0);
    job_run(&job, 1000);
    tuner_fused(&job.tuner, job.running_seq, job.iteration, "too hot", &decision);
    assert_int_equal(decision.kind, TUNER_FUSED);
    job.is_exact[job.running_seq] = 1;
    job.step_ns[job.running_seq] = EXACT_NS;
    int n_solves = job.counts[TUNER_SOLVE];
    job_run(&job, 3000);
    assert_int_equal(job.counts[TUNER_SOLVE], n_solves);
    tuner_set_hold(&job.tuner, 0, 0);
    tuner_set_hold(&job.tuner, HASH, 0);
    job_run(&job, 3000);
    assert_int_equal(job.counts[TUNER_SOLVE], n_solves + 1);
    assert_true(job.tuner.state.running.hash == HASH);
}

/* What a solver that was at work before finds is not what the operator wants. */
static void a_plan_that_comes_after_the_hold_is_kept_out(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    tuner_set_hold(&job.tuner, HASH, 0);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 2, HASH + 1);
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_PUSH], 0);
    assert_true(job.counts[TUNER_KEEP] > 0);
    assert_non_null(strstr(job.last.reason, "pinned"));
}

static void observe_says_what_it_likes(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_OBSERVE);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 2, HASH);
    tuner_set_hold(&job.tuner, HASH + 5, 1);
    job_run(&job, 1000);
    assert_true(job.counts[TUNER_OBSERVED] > 0);
    assert_int_equal(job.counts[TUNER_PUSH], 0);
}

/* Decided again from what is stored with it, each decision is the same. */
static void check_replay(struct job *job, const struct tuner_decision *decision) {
    struct tuner_inputs inputs;
    struct tuner_decision again;
    char *text = NULL;
    assert_int_equal(tuner_inputs_encode(&job->tuner.config, decision, &text, NULL), DEFT_OK);
    assert_int_equal(tuner_inputs_decode(text, strlen(text), &inputs, NULL), DEFT_OK);
    (void)tuner_core(&inputs.config, &inputs.before, &inputs.evidence, &again);
    assert_int_equal(again.kind, decision->kind);
    assert_true(again.plan_seq == decision->plan_seq);
    assert_string_equal(again.reason, decision->reason);
    free(text);
}

/* Whatever operators do, in any order: while a plan is pinned no other is pushed, while a job is
 * frozen and nothing pinned none is, and all of it can be replayed. */
static void no_order_of_holds_breaks_them(void **unused) {
    uint64_t random = testing_seed();
    (void)unused;
    for (int round = 0; round < 60; round++) {
        struct job job;
        struct tuner_decision decision;
        job_start(&job, TUNER_AUTO);
        job.watch = check_replay;
        for (int i = 0; i < 20 && job.pushed_seq + 40 < JOB_PLANS; i++) {
            uint64_t pin =
                testing_random_below(&random, 3) == 0 ? HASH + testing_random_below(&random, 3) : 0;
            int is_frozen = (int)testing_random_below(&random, 2);
            uint64_t found = pin != 0 ? pin : HASH + testing_random_below(&random, 3);
            int64_t real = EXACT_NS / 4 * (int64_t)(1 + testing_random_below(&random, 6));
            tuner_set_hold(&job.tuner, pin, is_frozen);
            job_offer(&job, EXACT_NS / 2, real, 1 + (uint32_t)(found - HASH), found);
            if (testing_random_below(&random, 6) == 0) {
                tuner_set_mode(&job.tuner,
                               job.tuner.state.mode == TUNER_AUTO ? TUNER_OBSERVE : TUNER_AUTO,
                               &decision);
                job_decided(&job, &decision);
            }
            int n_pushes = job.counts[TUNER_PUSH];
            job_run(&job, 400);
            if (pin == 0 && is_frozen) {
                assert_int_equal(job.counts[TUNER_PUSH], n_pushes);
            }
            if (pin != 0 && job.counts[TUNER_PUSH] > n_pushes) {
                assert_true(job.proposal.hash == pin);
            }
        }
    }
}

/* Ranks agree on a plan some iterations before they run it: by then it may have been overtaken, and
 * nothing more needs to be pushed. */
static void overtaken_plans_are_let_pass(void **unused) {
    struct job job;
    struct tuner_decision decision;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 2, HASH);
    while (job.pushed_seq == 0) {
        job_run(&job, 1);
    }
    uint64_t overtaken = job.pushed_seq;
    tuner_set_mode(&job.tuner, TUNER_OBSERVE, &decision);
    job_decided(&job, &decision);
    uint64_t exact = job.pushed_seq;
    assert_int_equal(exact, overtaken + 1);
    tuner_set_mode(&job.tuner, TUNER_AUTO, &decision);
    job_decided(&job, &decision);
    for (int i = 0; i < 8; i++) {
        job.running_seq = i < 4 ? overtaken : exact;
        job.switch_in = 0;
        job_run(&job, 1);
        assert_int_equal(job.pushed_seq, exact);
    }
    assert_true(job.tuner.state.running.is_exact && job.tuner.state.running.seq == exact);
    job_run(&job, 2000);
    assert_int_equal(job.counts[TUNER_COMMIT], 1);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_frozen_job_looks_for_nothing),
    cmocka_unit_test(a_frozen_plan_stays_unless_exact_is_better),
    cmocka_unit_test(a_pinned_plan_runs_whatever_it_brings),
    cmocka_unit_test(a_pin_replaces_the_plan_that_runs),
    cmocka_unit_test(a_pinned_plan_that_was_left_waits_to_be_pinned_anew),
    cmocka_unit_test(a_plan_that_comes_after_the_hold_is_kept_out),
    cmocka_unit_test(observe_says_what_it_likes),
    cmocka_unit_test(no_order_of_holds_breaks_them),
    cmocka_unit_test(overtaken_plans_are_let_pass),
};
TESTING_MAIN(cases)
