#include "kineto_verdict.h"

#include <stdlib.h>

#include <dsched/simulate.h>

/* A second link in the verdict is this many times slower than the first. */
#define KINETO_VERDICT_SECOND_SLOWDOWN 2
/* PyTorch DDP's limits of buckets. */
#define KINETO_VERDICT_FIRST_BYTES (UINT64_C(1) << 20)
#define KINETO_VERDICT_LATER_BYTES (UINT64_C(25) << 20)
#define KINETO_VERDICT_PPM         1000000

const char *kineto_bound_name(enum kineto_bound bound) {
    switch (bound) {
    case KINETO_BOUND_HOST:
        return "host";
    case KINETO_BOUND_COMMUNICATION:
        return "communication";
    default:
        return "compute";
    }
}

/* part / whole in parts per million; times are below 2^50, so doubles are exact enough. */
static uint32_t kineto_verdict_ratio(int64_t part, int64_t whole) {
    double ratio = whole > 0 ? (double)part * KINETO_VERDICT_PPM / (double)whole : 0;
    return ratio < (double)UINT32_MAX ? (uint32_t)ratio : UINT32_MAX;
}

static enum deft_status kineto_verdict_failed(enum dsched_status status,
                                              const struct dsched_error *why,
                                              struct deft_error *error) {
    switch (status) {
    case DSCHED_OK:
        return DEFT_OK;
    case DSCHED_NO_MEMORY:
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory to simulate the job");
    case DSCHED_LIMIT:
        return deft_fail(error, DEFT_LIMIT, 0, "%s", why->text);
    default:
        return deft_fail(error, DEFT_INVALID, 0, "%s", why->text);
    }
}

/* The buckets of `job` as an exact plan on one link, which is what DDP does. */
static enum deft_status kineto_verdict_replay(const struct kineto_job *job, struct dsched_plan *out,
                                              struct deft_error *error) {
    struct dsched_plan plan = {0};
    uint64_t at = 0;
    if (dsched_plan_init(&plan, job->n_buckets, 1) != DSCHED_OK) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a plan");
    }
    plan.rule = DSCHED_EXACT;
    plan.n_links = 1;
    plan.merge[0] = 1;
    for (uint32_t b = 0; b < job->n_buckets; b++) {
        plan.buckets[b].begin = at;
        at += job->buckets[b].elements;
        plan.buckets[b].end = at;
    }
    *out = plan;
    return DEFT_OK;
}

static int kineto_verdict_same_buckets(const struct dsched_plan *a, const struct dsched_plan *b) {
    if (a->n_buckets != b->n_buckets) {
        return 0;
    }
    for (uint32_t i = 0; i < a->n_buckets; i++) {
        if (a->buckets[i].begin != b->buckets[i].begin || a->buckets[i].end != b->buckets[i].end) {
            return 0;
        }
    }
    return 1;
}

static enum deft_status kineto_verdict_ddp(const struct dsched_profile *profile,
                                           const struct dsched_plan *replay, int *out,
                                           struct deft_error *error) {
    enum dsched_status status = DSCHED_NO_MEMORY;
    struct dsched_error why = {{0}};
    struct dsched_plan ddp = {0};
    uint64_t *elements = calloc(profile->n_tensors, sizeof(*elements));
    uint8_t *dtypes = calloc(profile->n_tensors, sizeof(*dtypes));
    if (elements != NULL && dtypes != NULL) {
        struct dsched_table table = {profile->n_tensors, elements, dtypes};
        for (uint32_t i = 0; i < profile->n_tensors; i++) {
            elements[i] = profile->tensors[i].elements;
            dtypes[i] = (uint8_t)profile->tensors[i].dtype;
        }
        status =
            dsched_plan_ddp(&table, KINETO_VERDICT_FIRST_BYTES, KINETO_VERDICT_LATER_BYTES, &ddp);
    }
    if (status == DSCHED_OK) {
        *out = kineto_verdict_same_buckets(&ddp, replay);
    }
    free(elements);
    free(dtypes);
    dsched_plan_done(&ddp);
    return kineto_verdict_failed(status, &why, error);
}

static enum deft_status kineto_verdict_simulate(const struct kineto_job *job,
                                                const struct dsched_profile *profile,
                                                struct kineto_verdict *verdict,
                                                struct deft_error *error) {
    struct dsched_plan replay = {0};
    struct dsched_report report = {0};
    struct dsched_error why = {{0}};
    enum deft_status status = kineto_verdict_replay(job, &replay, error);
    if (status == DEFT_OK) {
        status = kineto_verdict_ddp(profile, &replay, &verdict->follows_ddp, error);
    }
    if (status == DEFT_OK) {
        status = kineto_verdict_failed(
            dsched_simulate_plan(profile, &replay, 0, NULL, NULL, &report, &why), &why, error);
    }
    dsched_plan_done(&replay);
    if (status != DEFT_OK) {
        return status;
    }
    verdict->replay_step_ns = report.step_ns;
    verdict->replay_off_ppm = (int64_t)((double)(report.step_ns - job->median.step_ns) *
                                        KINETO_VERDICT_PPM / (double)job->median.step_ns);
    for (size_t i = 0; dsched_policies[i] != NULL; i++) {
        struct dsched_outcome outcome = {0};
        status = kineto_verdict_failed(
            dsched_policies[i]->simulate(profile, NULL, NULL, &outcome, &why), &why, error);
        if (status != DEFT_OK) {
            return status;
        }
        if (outcome.rule == DSCHED_EXACT &&
            (verdict->exact_policy == NULL || outcome.report.step_ns < verdict->exact_step_ns)) {
            verdict->exact_policy = dsched_policies[i]->name;
            verdict->exact_step_ns = outcome.report.step_ns;
        }
    }
    return DEFT_OK;
}

static enum deft_status kineto_verdict_solve(const struct dsched_profile *profile,
                                             int64_t replay_step_ns, struct kineto_offer *out,
                                             struct deft_error *error) {
    struct dsched_planner_options options;
    struct dsched_solution solution = {0};
    struct dsched_error why = {{0}};
    dsched_planner_defaults(&options);
    enum deft_status status =
        kineto_verdict_failed(dsched_solve(profile, &options, &solution, &why), &why, error);
    if (status != DEFT_OK) {
        return status;
    }
    const struct dsched_report *report = &solution.report;
    out->rule = solution.plan.rule;
    out->max_merge = dsched_plan_max_merge(&solution.plan);
    out->max_delay = report->max_delay;
    out->mean_delay_milli = report->mean_delay_milli;
    out->updates_per_step_ppm = report->updates_per_step_ppm;
    out->step_ns = report->step_ns;
    out->gain_ppm = kineto_verdict_ratio(replay_step_ns, report->step_ns);
    dsched_solution_done(&solution);
    return DEFT_OK;
}

static enum deft_status kineto_verdict_second(const struct dsched_profile *profile,
                                              struct kineto_verdict *verdict,
                                              struct deft_error *error) {
    struct dsched_profile wider = *profile;
    struct dsched_link links[2] = {profile->links[0], profile->links[0]};
    struct dsched_sample *samples = calloc(links[0].n_samples, sizeof(*samples));
    if (samples == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a second link");
    }
    for (uint32_t i = 0; i < links[0].n_samples; i++) {
        int64_t ns = links[0].samples[i].ns;
        samples[i].bytes = links[0].samples[i].bytes;
        samples[i].ns = ns > DSCHED_MAX_TIME_NS / KINETO_VERDICT_SECOND_SLOWDOWN
                            ? DSCHED_MAX_TIME_NS
                            : ns * KINETO_VERDICT_SECOND_SLOWDOWN;
    }
    links[1].samples = samples;
    wider.links = links;
    wider.n_links = 2;
    enum deft_status status =
        kineto_verdict_solve(&wider, verdict->replay_step_ns, &verdict->second, error);
    free(samples);
    return status;
}

/* Merges that bring `coverage_ppm` down to 1 or less. */
static uint32_t kineto_verdict_merge(uint64_t coverage_ppm) {
    uint64_t merge = (coverage_ppm + KINETO_VERDICT_PPM - 1) / KINETO_VERDICT_PPM;
    return merge < 1 ? 1 : (uint32_t)merge;
}

enum deft_status kineto_verdict(const struct kineto_job *job, const struct dsched_profile *profile,
                                struct kineto_verdict *out, struct deft_error *error) {
    const struct kineto_step *median = &job->median;
    struct kineto_verdict verdict = {0};
    verdict.busy_ppm =
        kineto_verdict_ratio(median->compute_busy_ns + median->exposed_ns, median->step_ns);
    verdict.exposed_ppm = kineto_verdict_ratio(median->exposed_ns, median->step_ns);
    verdict.coverage_ppm = kineto_verdict_ratio(median->communication_ns, median->compute_busy_ns);
    verdict.ceiling_ppm = kineto_verdict_ratio(median->step_ns, median->compute_busy_ns);
    verdict.merge = kineto_verdict_merge(verdict.coverage_ppm);
    /* Two links share the bytes by their speeds, so that together they take 1 / (1 + 1/2). */
    verdict.second_merge =
        kineto_verdict_merge((uint64_t)verdict.coverage_ppm * KINETO_VERDICT_SECOND_SLOWDOWN /
                             (KINETO_VERDICT_SECOND_SLOWDOWN + 1));
    if (job->has_device && verdict.busy_ppm < KINETO_HOST_BOUND_PPM) {
        verdict.bound = KINETO_BOUND_HOST;
    } else {
        verdict.bound = verdict.exposed_ppm >= KINETO_EXPOSED_PPM ? KINETO_BOUND_COMMUNICATION
                                                                  : KINETO_BOUND_COMPUTE;
    }
    enum deft_status status = kineto_verdict_simulate(job, profile, &verdict, error);
    if (status == DEFT_OK) {
        status = kineto_verdict_solve(profile, verdict.replay_step_ns, &verdict.best, error);
    }
    if (status == DEFT_OK) {
        status = kineto_verdict_second(profile, &verdict, error);
    }
    if (status == DEFT_OK) {
        *out = verdict;
    }
    return status;
}
