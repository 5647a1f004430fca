/* The tuner against a made-up job whose step times are known: what is real is committed, what is
 * not is rolled back, and what may not be touched is not. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "tuner_job.h"
#include "tuning/tuner_state.h"

static void within_ppm(int64_t value, int64_t expected, int64_t ppm) {
    int64_t off = llabs(value - expected);
    if (off > expected / 1000000 * ppm) {
        fail_msg("%lld is not within %lld ppm of %lld", (long long)value, (long long)ppm,
                 (long long)expected);
    }
}

static void job_run_to_push(struct job *job) {
    int n_pushes = job->counts[TUNER_PUSH];
    for (int i = 0; i < 1000 && job->counts[TUNER_PUSH] == n_pushes; i++) {
        job_run(job, 1);
    }
    assert_int_equal(job->counts[TUNER_PUSH], n_pushes + 1);
}

static void a_real_gain_is_committed(void **unused) {
    (void)unused;
    for (uint32_t cycle = 1; cycle <= 8; cycle++) {
        struct job job;
        job_start(&job, TUNER_AUTO);
        job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, cycle, 11);
        job_run(&job, 300);
        assert_int_equal(job.counts[TUNER_PUSH], 1);
        assert_int_equal(job.counts[TUNER_COMMIT], 1);
        assert_int_equal(job.counts[TUNER_ROLL_BACK], 0);
        assert_int_equal(job.tuner.state.phase, TUNER_COMMITTED);
        within_ppm(job.tuner.state.exact_step_ns, EXACT_NS, 10000);
        within_ppm(job.tuner.state.step_ns, EXACT_NS / 2, 15000);
    }
}

/* A job may end before its plan is judged: people still see what the plan took. */
static void estimates_precede_measurements(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    assert_int_equal(tuner_estimate(&job.tuner), 0);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 4, 11);
    job_run(&job, 35 + 4 + 7 + 12);
    assert_int_equal(job.tuner.state.phase, TUNER_CANARY);
    assert_int_equal(job.tuner.state.step_ns, 0);
    assert_true(tuner_estimate(&job.tuner) > EXACT_NS / 3);
    assert_true(tuner_estimate(&job.tuner) < EXACT_NS * 2); /* with a checkpoint in it */
    job_run(&job, 100);
    assert_true(tuner_estimate(&job.tuner) == job.tuner.state.step_ns);
}

static void observation_comes_first(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job_run(&job, 5 + 29);
    assert_int_equal(job.counts[TUNER_SOLVE], 0);
    job_run(&job, 1);
    assert_int_equal(job.counts[TUNER_SOLVE], 1);
}

static void a_false_gain_is_rolled_back(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS, 3, 11);
    job_run(&job, 2000);
    assert_int_equal(job.counts[TUNER_PUSH], 2); /* it may have been a bad moment: once more */
    assert_int_equal(job.counts[TUNER_ROLL_BACK], 2);
    assert_int_equal(job.counts[TUNER_COMMIT], 0);
    assert_true(job.tuner.state.running.is_exact);
    assert_int_equal(job.running_seq, 4);
    assert_int_equal(job.tuner.state.n_rollbacks, 2);
    /* Each failed try waits twice as long: 2000 iterations see a handful, not dozens. */
    assert_true(job.counts[TUNER_KEEP] <= 4);
    /* Another plan is tried. */
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 2, 12);
    job_run(&job, 8000);
    assert_int_equal(job.counts[TUNER_COMMIT], 1);
}

/* A plan that met a bad moment of the machine gets its second chance. */
static void a_bad_moment_is_forgiven(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS, 3, 11);
    job_run_to_push(&job);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 3, 11);
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_PUSH], 2);
    assert_int_equal(job.counts[TUNER_ROLL_BACK], 1);
    assert_int_equal(job.counts[TUNER_COMMIT], 1);
}

static void observe_never_pushes(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_OBSERVE);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job_run(&job, 3000);
    assert_int_equal(job.counts[TUNER_PUSH] + job.counts[TUNER_ROLL_BACK], 0);
    assert_true(job.counts[TUNER_OBSERVED] >= 1);
    assert_true(job.tuner.state.best_step_ns == EXACT_NS / 2);
    assert_int_equal(job.tuner.state.running.seq, 0);
}

static void off_only_measures(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_OFF);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_NOTHING], 1000);
    within_ppm(job.tuner.state.exact_step_ns, EXACT_NS, 10000);
}

static void small_gains_are_left_alone(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 1000 * 985, EXACT_NS / 1000 * 985, 1, 11);
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_PUSH], 0);
    assert_true(job.counts[TUNER_KEEP] >= 1);
}

static void refusals_end_the_try(void **unused) {
    struct job job;
    struct tuner_decision decision;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job.ignores_pushes = 1;
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job_run(&job, 40);
    assert_int_equal(job.counts[TUNER_PUSH], 1);
    tuner_refused(&job.tuner, 1, "needs 3 GiB of pending copies", &decision);
    job_decided(&job, &decision);
    tuner_refused(&job.tuner, 1, "needs 3 GiB of pending copies", &decision); /* the other rank */
    job_decided(&job, &decision);
    assert_int_equal(job.counts[TUNER_REFUSED], 1);
    assert_non_null(strstr(job.last.reason, "3 GiB"));
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_PUSH], 1);
    assert_int_equal(job.tuner.state.phase, TUNER_OBSERVING);
}

static void ranks_that_never_switch_end_the_try(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job.ignores_pushes = 1;
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job_run(&job, 400);
    assert_int_equal(job.counts[TUNER_REFUSED], 1);
    /* Late is better than never: the plan is judged when it runs after all. */
    job.running_seq = 1;
    job_run(&job, 60);
    assert_int_equal(job.counts[TUNER_COMMIT], 1);
}

static double not_finite(struct job *job) {
    (void)job;
    return (double)NAN;
}

static void loss_that_is_not_finite_rolls_back_at_once(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job_run(&job, 200);
    assert_int_equal(job.tuner.state.phase, TUNER_COMMITTED);
    job.loss = not_finite;
    job_run(&job, 1);
    assert_int_equal(job.counts[TUNER_HALT], 1);
    assert_int_equal(job.last.target_seq, 0);
    job_run(&job, 3000);
    assert_int_equal(job.counts[TUNER_PUSH], 1);
    assert_true(job.tuner.state.running.is_exact);
    assert_int_equal(job.tuner.state.phase, TUNER_HALTED);
}

static void a_job_that_diverged_by_itself_stays_exact(void **unused) {
    struct job job;
    char status[TUNER_STATUS_BYTES];
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job.loss = not_finite;
    job_run(&job, 300);
    assert_int_equal(job.counts[TUNER_HALT], 0);
    assert_int_equal(job.counts[TUNER_SOLVE], 0);
    tuner_status(&job.tuner, status);
    assert_non_null(strstr(status, "not finite"));
    job.loss = NULL; /* fp16 found its scale */
    job_run(&job, 600);
    assert_int_equal(job.counts[TUNER_COMMIT], 1);
}

static void drift_is_solved_again(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job_run(&job, 400);
    assert_int_equal(job.counts[TUNER_SOLVE], 1);
    job.step_ns[1] = EXACT_NS / 100 * 55; /* 10 % worse: within what is tolerated */
    job.tuner.state.refined = 1;
    job_run(&job, 400);
    assert_int_equal(job.counts[TUNER_SOLVE], 1);
    job.step_ns[1] = EXACT_NS / 100 * 65;
    job_offer(&job, EXACT_NS / 100 * 55, EXACT_NS / 100 * 55, 2, 12);
    job_run(&job, 400);
    assert_int_equal(job.counts[TUNER_SOLVE], 2);
    assert_int_equal(job.counts[TUNER_COMMIT], 2);
    assert_int_equal(job.tuner.state.running.hash, 12);
}

/* Another job has left the machine: the plan was made for slower times. */
static void shorter_steps_are_solved_again(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job_run(&job, 400);
    assert_int_equal(job.counts[TUNER_SOLVE], 1);
    job.step_ns[job.running_seq] = EXACT_NS / 100 * 40;
    job_offer(&job, EXACT_NS / 100 * 30, EXACT_NS / 100 * 30, 2, 12);
    job_run(&job, 800);
    assert_int_equal(job.counts[TUNER_SOLVE], 2);
    assert_int_equal(job.tuner.state.running.hash, 12);
    /* Where nothing better is found that is the new normal. */
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job_run(&job, 400);
    job.step_ns[job.running_seq] = EXACT_NS / 100 * 40;
    job_offer(&job, EXACT_NS / 100 * 40, EXACT_NS / 100 * 40, 1, 11);
    job_run(&job, 1500);
    assert_int_equal(job.counts[TUNER_SOLVE], 2);
    assert_int_equal(job.counts[TUNER_KEEP], 1);
    assert_int_equal(job.counts[TUNER_PUSH], 1);
}

static void a_plan_worse_than_exact_is_left(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job_run(&job, 400);
    job.step_ns[1] = EXACT_NS * 2;
    job.has_proposal = 0;
    job_run(&job, 400);
    assert_int_equal(job.counts[TUNER_ROLL_BACK], 1);
    assert_int_equal(job.last.kind == TUNER_ROLL_BACK ? job.last.target_seq : 0, 0);
    assert_true(job.tuner.state.running.is_exact);
}

/* A canary that takes other than predicted is solved for once more, by its own iterations, before
 * it is committed: longer or shorter, since in both cases another plan may be the best. */
static void a_canary_off_its_prediction_is_refined_once(void **unused) {
    (void)unused;
    for (int percent = 40; percent <= 70; percent += 30) {
        struct job job;
        job_start(&job, TUNER_AUTO);
        job_offer(&job, EXACT_NS / 2, EXACT_NS / 100 * percent, 1, 11);
        job_run_to_push(&job);
        job_offer(&job, EXACT_NS / 100 * 35, EXACT_NS / 100 * 36, 2, 12);
        job_run(&job, 1000);
        assert_int_equal(job.counts[TUNER_PUSH], 2);
        assert_int_equal(job.counts[TUNER_COMMIT], 1);
        assert_int_equal(job.counts[TUNER_SOLVE], 2);
        assert_int_equal(job.tuner.state.running.hash, 12);
        assert_int_equal(job.tuner.state.phase, TUNER_COMMITTED);
    }
}

static void a_refinement_may_find_nothing_better(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 10 * 7, 1, 11);
    job_run_to_push(&job);
    job_offer(&job, EXACT_NS / 10 * 7, EXACT_NS / 10 * 7, 1, 11);
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_PUSH], 1);
    assert_int_equal(job.counts[TUNER_SOLVE], 2);
    assert_int_equal(job.counts[TUNER_KEEP], 1);
    assert_int_equal(job.counts[TUNER_COMMIT], 1);
    assert_int_equal(job.last.kind, TUNER_COMMIT);
    within_ppm(job.last.before_step_ns, EXACT_NS, 15000); /* the gain is over exact */
    within_ppm(job.last.measured_step_ns, EXACT_NS / 10 * 7, 15000);
}

/* A profile that says too little of the plan that runs says too little of the next one, too: its
 * error is no gain. */
static void errors_of_a_profile_are_no_gains(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 10 * 7, 1, 11);
    job_run_to_push(&job);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 10 * 7, 2, 12);
    job.running_ns = EXACT_NS / 100 * 51;
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_PUSH], 1);
    assert_int_equal(job.counts[TUNER_COMMIT], 1);
    assert_int_equal(job.tuner.state.running.hash, 11);
    /* Where it foretells a gain over the plan that runs, that much is expected of what was seen. */
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 10 * 7, 1, 11);
    job_run_to_push(&job);
    job_offer(&job, EXACT_NS / 100 * 45, EXACT_NS / 100 * 63, 2, 12);
    job.running_ns = EXACT_NS / 2;
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_PUSH], 2);
    assert_int_equal(job.tuner.state.running.hash, 12);
    within_ppm(job.tuner.state.running.predicted_step_ns, EXACT_NS / 100 * 63, 20000);
}

/* It goes back to the canary before, not to exact, and that one is committed. */
static void a_refinement_that_is_none_is_undone(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 10 * 7, 1, 11);
    job_run_to_push(&job);
    job_offer(&job, EXACT_NS / 10 * 6, EXACT_NS / 10 * 8, 2, 12);
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_PUSH], 2);
    assert_int_equal(job.counts[TUNER_ROLL_BACK], 1);
    assert_int_equal(job.counts[TUNER_COMMIT], 1);
    assert_int_equal(job.tuner.state.running.hash, 11);
    assert_int_equal(job.tuner.state.phase, TUNER_COMMITTED);
    within_ppm(job.last.before_step_ns, EXACT_NS, 15000);
    within_ppm(job.last.measured_step_ns, EXACT_NS / 10 * 7, 15000);
    /* Ranks that refuse the refinement, or do not take it up, stay with the canary. */
    for (int refuses = 0; refuses <= 1; refuses++) {
        struct tuner_decision decision;
        job_start(&job, TUNER_AUTO);
        job_offer(&job, EXACT_NS / 2, EXACT_NS / 10 * 7, 1, 11);
        job_run_to_push(&job);
        job_offer(&job, EXACT_NS / 10 * 6, EXACT_NS / 10 * 6, 2, 12);
        job_run(&job, 12);
        job.ignores_pushes = 1;
        job_run_to_push(&job);
        if (refuses) {
            tuner_refused(&job.tuner, 2, "needs 3 GiB of pending copies", &decision);
            job_decided(&job, &decision);
        }
        job_run(&job, 600);
        assert_int_equal(job.counts[TUNER_REFUSED], 1);
        assert_int_equal(job.counts[TUNER_COMMIT], 1);
        assert_int_equal(job.tuner.state.running.hash, 11);
        assert_int_equal(job.tuner.state.phase, TUNER_COMMITTED);
        within_ppm(job.last.before_step_ns, EXACT_NS, 15000);
    }
}

static void leaving_auto_goes_back_to_exact(void **unused) {
    struct job job;
    struct tuner_decision decision;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 1, 11);
    job_run(&job, 200);
    tuner_set_mode(&job.tuner, TUNER_OBSERVE, &decision);
    job_decided(&job, &decision);
    job_run(&job, 1000);
    assert_int_equal(job.counts[TUNER_ROLL_BACK], 1);
    assert_true(job.tuner.state.running.is_exact);
    assert_int_equal(job.counts[TUNER_PUSH], 1);
    tuner_set_mode(&job.tuner, TUNER_AUTO, &decision);
    job_decided(&job, &decision);
    job_run(&job, 300);
    assert_int_equal(job.counts[TUNER_PUSH], 2);
}

static void a_plan_nobody_knows_is_left(void **unused) {
    struct job job;
    (void)unused;
    job_start(&job, TUNER_AUTO);
    job.running_seq = 7;
    job_run(&job, 20);
    assert_int_equal(job.counts[TUNER_ROLL_BACK], 1);
    assert_int_equal(job.last.plan_seq, 8); /* above what the ranks have seen */
    assert_true(job.tuner.state.running.is_exact);
}

/* A restart between any two iterations changes neither plan nor number; the job ends up the same.
 */
static void restarts_are_no_events(void **unused) {
    (void)unused;
    for (int at = 1; at < 200; at += 7) {
        struct job job;
        struct tuner_config config;
        struct wire_limits limits;
        struct tuner restored;
        char *text = NULL;
        job_start(&job, TUNER_AUTO);
        job_offer(&job, EXACT_NS / 2, EXACT_NS / 2, 2, 11);
        job_run(&job, at);
        assert_int_equal(tuner_state_encode(&job.tuner, &text, NULL), DEFT_OK);
        job_config(&config);
        quantify_default_limits(&limits);
        tuner_init(&restored, &config, TUNER_AUTO, &job.tuner.quantify.job, &limits);
        assert_int_equal(tuner_state_decode(text, &restored, NULL), DEFT_OK);
        free(text);
        tuner_resume(&restored);
        assert_int_equal(restored.state.running.seq, job.tuner.state.running.seq);
        assert_int_equal(restored.state.next_seq, job.tuner.state.next_seq);
        job.tuner = restored;
        job_run(&job, 400);
        assert_int_equal(job.counts[TUNER_COMMIT], 1);
        assert_int_equal(job.counts[TUNER_PUSH], 1);
        assert_int_equal(job.counts[TUNER_ROLL_BACK], 0);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_real_gain_is_committed),
    cmocka_unit_test(estimates_precede_measurements),
    cmocka_unit_test(observation_comes_first),
    cmocka_unit_test(a_false_gain_is_rolled_back),
    cmocka_unit_test(a_bad_moment_is_forgiven),
    cmocka_unit_test(observe_never_pushes),
    cmocka_unit_test(off_only_measures),
    cmocka_unit_test(small_gains_are_left_alone),
    cmocka_unit_test(refusals_end_the_try),
    cmocka_unit_test(ranks_that_never_switch_end_the_try),
    cmocka_unit_test(loss_that_is_not_finite_rolls_back_at_once),
    cmocka_unit_test(a_job_that_diverged_by_itself_stays_exact),
    cmocka_unit_test(drift_is_solved_again),
    cmocka_unit_test(shorter_steps_are_solved_again),
    cmocka_unit_test(a_plan_worse_than_exact_is_left),
    cmocka_unit_test(a_canary_off_its_prediction_is_refined_once),
    cmocka_unit_test(a_refinement_may_find_nothing_better),
    cmocka_unit_test(errors_of_a_profile_are_no_gains),
    cmocka_unit_test(a_refinement_that_is_none_is_undone),
    cmocka_unit_test(leaving_auto_goes_back_to_exact),
    cmocka_unit_test(a_plan_nobody_knows_is_left),
    cmocka_unit_test(restarts_are_no_events),
};
TESTING_MAIN(cases)
