/* Recorded traces against figures that were measured in them by hand. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/simulate.h>

#include "kineto/kineto.h"
#include "kineto/kineto_verdict.h"
#include "testing.h"

#define MAX_STARTS 16u

struct golden {
    struct kineto_job job;
    struct dsched_profile profile;
    struct kineto_verdict verdict;
    char text[KINETO_VERDICT_BYTES];
};

static void import(struct golden *golden, const char *folder, const char *const *names,
                   uint32_t n) {
    struct kineto_trace *traces[2] = {NULL};
    struct deft_error error = {0};
    enum deft_status status = DEFT_OK;
    *golden = (struct golden){0};
    for (uint32_t i = 0; i < n && status == DEFT_OK; i++) {
        char path[512];
        (void)snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
        status = kineto_read(path, KINETO_MAX_RECORDS, NULL, NULL, &traces[i], &error);
    }
    if (status == DEFT_OK) {
        status = kineto_job_init(&golden->job, traces, n, &error);
    }
    if (status == DEFT_OK) {
        status = kineto_profile(&golden->job, "golden", 0, &golden->profile, &error);
    }
    if (status == DEFT_OK) {
        status = kineto_verdict(&golden->job, &golden->profile, &golden->verdict, &error);
    }
    for (uint32_t i = 0; i < n; i++) {
        kineto_trace_destroy(traces[i]);
    }
    if (status != DEFT_OK || golden->job.steps == NULL) {
        fail_msg("%s", error.text);
        abort(); /* never reached, which not everyone knows */
    }
    kineto_verdict_text(&golden->job, &golden->verdict, golden->text, sizeof(golden->text));
}

static void done(struct golden *golden) {
    dsched_profile_done(&golden->profile);
    kineto_job_done(&golden->job);
}

/* The traces are public, but not part of the repository. */
static void import_shared(struct golden *golden, const char *name) {
    const char *shared = testing_shared_dir();
    char folder[400];
    char path[512];
    if (shared == NULL) {
        testing_skip("there is no shared folder with traces beside the checkout");
    }
    (void)snprintf(folder, sizeof(folder), "%s/traces", shared);
    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        testing_skip("the shared folder has no traces");
    }
    (void)fclose(file);
    import(golden, folder, &name, 1);
}

static void within(const char *what, double got, double wanted, double tolerance) {
    if (got < wanted * (1 - tolerance) || got > wanted * (1 + tolerance)) {
        fail_msg("%s is %.1f, expected %.1f within %.1f %%", what, got, wanted, tolerance * 100);
    }
}

static void assert_text(const struct golden *golden, const char *words) {
    if (strstr(golden->text, words) == NULL) {
        fail_msg("'%s' is not in the verdict:\n%s", words, golden->text);
    }
}

struct starts {
    uint32_t n;
    int64_t step_ns; /* begin of the iteration that is looked at */
    int64_t begin_ns[MAX_STARTS];
};

/* The second iteration: the first one starts with idle links. */
static void on_span(void *context, const struct dsched_span *span) {
    struct starts *starts = context;
    if (span->iteration != 1) {
        return;
    }
    if (span->lane == DSCHED_LANE_FORWARD && starts->step_ns < 0) {
        starts->step_ns = span->begin_ns;
    } else if (span->lane == DSCHED_LANE_LINK && starts->n < MAX_STARTS) {
        starts->begin_ns[starts->n++] = span->begin_ns;
    }
}

static void compare_replay(const struct golden *golden) {
    const struct kineto_job *job = &golden->job;
    struct starts starts = {.step_ns = -1};
    struct dsched_outcome outcome;
    struct dsched_error error;
    if (dsched_policy_find("wfbp")->simulate(&golden->profile, on_span, &starts, &outcome,
                                             &error) != DSCHED_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(starts.n, job->n_buckets);
    for (uint32_t b = 0; b < job->n_buckets; b++) {
        int64_t off_ns = starts.begin_ns[b] - starts.step_ns - job->buckets[b].begin_ns;
        assert_true(llabs(off_ns) * 100 <= 3 * job->median.step_ns);
    }
    assert_int_equal(outcome.report.step_ns, golden->verdict.replay_step_ns);
}

static void resnet50_on_a100(void **unused) {
    (void)unused;
    static const uint64_t elements[] = {2049000, 7875584, 6563840, 6637568, 2431040};
    static const double starts_us[] = {107928, 117724, 123911, 149647, 190087.5};
    static const double durations_us[] = {3307, 2424, 2369, 2161, 1690};
    static const double sums_ms[] = {11.95, 12.26, 22.55};
    struct golden golden;
    import_shared(&golden, "resnet50_ddp_2xa100_rank0.json.gz");
    const struct kineto_step *step = &golden.job.steps[0];
    assert_int_equal(golden.job.n_steps, 3);
    assert_int_equal(golden.job.n_buckets, 5);
    assert_int_equal(golden.job.world_size, 2);
    assert_int_equal(step->number, 4);
    within("step 4", (double)step->step_ns / 1e3, 222442, 0.01);
    within("forward busy", (double)step->forward_busy_ns / 1e3, 12669, 0.01);
    within("backward busy", (double)step->backward_busy_ns / 1e3, 25144, 0.01);
    within("backward begin", (double)step->backward_begin_ns / 1e3, 105988, 0.01);
    within("backward end", (double)step->backward_end_ns / 1e3, 190086, 0.01);
    within("optimizer busy", (double)step->optimizer_busy_ns / 1e3, 693, 0.01);
    for (uint32_t b = 0; b < 5; b++) {
        const struct kineto_reduce *reduce = &step->reduces[b];
        assert_int_equal(golden.job.buckets[b].elements, elements[b]);
        assert_int_equal(golden.job.buckets[b].dtype, DSCHED_F32);
        within("all-reduce begin", (double)reduce->begin_ns / 1e3, starts_us[b], 0.01);
        within("all-reduce duration", (double)(reduce->end_ns - reduce->begin_ns) / 1e3,
               durations_us[b], 0.01);
    }
    for (uint32_t s = 0; s < 3; s++) {
        within("sum of all-reduces", (double)golden.job.steps[s].communication_ns / 1e6, sums_ms[s],
               0.01);
    }
    within("step 5's backward end", (double)golden.job.steps[1].backward_end_ns / 1e3, 187839,
           0.01);
    within("step 6's backward end", (double)golden.job.steps[2].backward_end_ns / 1e3, 192978,
           0.01);
    /* The last bucket starts when the backward ends: the dependency that plans are about. */
    assert_in_range(step->reduces[4].begin_ns - step->backward_end_ns, 1000, 5000);
    compare_replay(&golden);
    assert_true(golden.verdict.follows_ddp);
    assert_int_equal(golden.job.foreign[0].count, 6);
    assert_string_equal(golden.job.foreign[0].name, "broadcast");
    assert_int_equal(golden.verdict.bound, KINETO_BOUND_HOST);
    assert_text(&golden, "host-bound: kernels run 38.5 ms of a step of 222.5 ms");
    assert_text(&golden, "Communication scheduling cannot help here");
    done(&golden);
}

static void resnet18_on_mi300x(void **unused) {
    (void)unused;
    struct golden golden;
    import_shared(&golden, "resnet18_ddp_8xmi300x_rank0.json.gz");
    const struct kineto_step *median = &golden.job.median;
    assert_int_equal(golden.job.n_buckets, 2);
    assert_int_equal(golden.job.buckets[0].elements, 2873320);
    assert_int_equal(golden.job.buckets[1].elements, 8816192);
    assert_int_equal(golden.job.buckets[0].dtype, DSCHED_BF16);
    assert_int_equal(golden.job.n_parameters, 62);
    assert_int_equal(golden.job.world_size, 8);
    within("step", (double)median->step_ns / 1e6, 18.98, 0.01);
    within("compute busy", (double)median->compute_busy_ns / 1e6, 6.4, 0.01);
    within("communication", (double)median->communication_ns / 1e6, 15.9, 0.01);
    within("exposed", (double)median->exposed_ns / 1e6, 11.9, 0.01);
    within("coverage rate", golden.verdict.coverage_ppm / 1e6, 2.5, 0.02);
    within("wfbp's step", (double)golden.verdict.replay_step_ns, (double)median->step_ns, 0.10);
    within("ceiling", golden.verdict.ceiling_ppm / 1e6, 2.9, 0.02);
    compare_replay(&golden);
    assert_true(golden.verdict.follows_ddp);
    assert_int_equal(golden.verdict.bound, KINETO_BOUND_COMMUNICATION);
    assert_int_equal(golden.verdict.merge, 3);
    assert_int_equal(golden.verdict.second_merge, 2);
    assert_int_equal(golden.verdict.best.max_merge, 3);
    assert_int_equal(golden.verdict.second.max_merge, 2);
    assert_text(&golden, "With k = 3 iterations per all-reduce the step is bounded by compute");
    assert_text(&golden, "with a second link at half the speed k = 2 suffices");
    done(&golden);
}

static void two_ranks_over_gloo(void **unused) {
    (void)unused;
    static const char *const names[] = {"ddp_gloo_rank0.json.gz", "ddp_gloo_rank1.json.gz"};
    struct golden golden;
    int64_t wait_ns = 0;
    import(&golden, DEFT_GOLDEN "/traces", names, 2);
    const struct kineto_job *job = &golden.job;
    assert_false(job->has_device);
    assert_int_equal(job->n_steps, 10);
    assert_int_equal(job->n_buckets, 2);
    assert_int_equal(job->buckets[0].elements, 416650);
    assert_int_equal(job->buckets[1].elements, 453120);
    assert_int_equal(job->n_parameters, 10);
    assert_int_equal(job->n_foreign, 1);
    assert_string_equal(job->foreign[0].name, "broadcast");
    assert_int_equal(job->foreign[0].count, 20);
    assert_int_equal(golden.profile.world_size, 2);
    assert_int_equal(golden.profile.n_tensors, 10);
    assert_int_equal(golden.profile.tensors[0].elements, 64 * 640);
    assert_int_equal(golden.profile.tensors[9].elements, 10);
    /* Per all-reduce one of the two ranks does not wait, and waits are inside the durations. */
    for (uint32_t s = 0; s < 5; s++) {
        for (uint32_t b = 0; b < 2; b++) {
            const struct kineto_reduce *first = &job->steps[s].reduces[b];
            const struct kineto_reduce *other = &job->steps[s + 5].reduces[b];
            assert_int_equal(job->steps[s].number, job->steps[s + 5].number);
            assert_true(first->wait_ns == 0 || other->wait_ns == 0);
            assert_in_range(first->wait_ns, 0, first->end_ns - first->begin_ns);
            wait_ns += first->wait_ns + other->wait_ns;
        }
    }
    assert_true(wait_ns > 0);
    within("wfbp's step", (double)golden.verdict.replay_step_ns, (double)job->median.step_ns, 0.10);
    done(&golden);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(resnet50_on_a100),
    cmocka_unit_test(resnet18_on_mi300x),
    cmocka_unit_test(two_ranks_over_gloo),
};
TESTING_MAIN(cases)
