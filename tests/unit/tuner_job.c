#include "tuner_job.h"

#include <math.h>
#include <string.h>

#include "testing.h"

void job_config(struct tuner_config *out) {
    tuner_defaults(out);
    out->n_warmup = 0;
}

void job_start(struct job *job, enum tuner_mode mode) {
    const struct quantify_job described = {.n_ranks = 2,
                                           .optimizer = DSCHED_OPTIMIZER_SGD,
                                           .momentum = 0.9,
                                           .learning_rate = 0.05,
                                           .batch_samples = 1024};
    struct wire_limits limits;
    struct tuner_config config;
    memset(job, 0, sizeof(*job));
    job_config(&config);
    quantify_default_limits(&limits);
    tuner_init(&job->tuner, &config, mode, &described, &limits);
    job->random = testing_seed();
    job->gives_loss = DSCHED_LOSS_GIVEN;
    job->learning_rate = 0.05;
    job->is_exact[0] = 1;
    for (size_t i = 0; i < JOB_PLANS; i++) {
        job->step_ns[i] = EXACT_NS;
        job->cycle[i] = 1;
    }
}

void job_offer(struct job *job, int64_t predicted_ns, int64_t real_ns, uint32_t cycle,
               uint64_t hash) {
    job->proposal = (struct tuner_plan){.hash = hash,
                                        .rule = DSCHED_AVERAGED,
                                        .cycle = cycle,
                                        .merge = cycle,
                                        .delay = 1,
                                        .updates_ppm = 1000000 / cycle,
                                        .progress_ppm = 1000000,
                                        .predicted_step_ns = predicted_ns};
    job->proposal_step_ns = real_ns;
    job->has_proposal = 1;
}

void job_decided(struct job *job, const struct tuner_decision *decision) {
    uint64_t seq = decision->plan_seq;
    job->counts[decision->kind]++;
    if (decision->kind == TUNER_NOTHING) {
        return;
    }
    assert_true(decision->reason[0] != '\0');
    if (decision->kind == TUNER_SOLVE) {
        struct tuner_decision answer;
        tuner_solved(&job->tuner, job->has_proposal ? &job->proposal : NULL, job->running_ns,
                     job->has_proposal ? "a price" : "none was offered", &answer);
        job_decided(job, &answer);
        return;
    }
    job->last = *decision;
    if (job->watch != NULL) {
        job->watch(job, decision);
    }
    if (!tuner_pushes(decision)) {
        return;
    }
    assert_true(seq > job->pushed_seq); /* numbers only grow */
    assert_true(seq < JOB_PLANS);
    job->pushed_seq = seq;
    job->switch_in = job->ignores_pushes ? 0 : 4;
    if (decision->kind == TUNER_PUSH) {
        job->step_ns[seq] = job->proposal_step_ns;
        job->cycle[seq] = job->proposal.cycle;
    } else {
        job->step_ns[seq] = job->step_ns[decision->target_seq];
        job->cycle[seq] = job->cycle[decision->target_seq];
        job->is_exact[seq] = job->is_exact[decision->target_seq];
    }
}

/* Within 1 % of noise, and now and then a checkpoint. Under merge k one step of k is long. */
static int64_t job_step(struct job *job) {
    int64_t mean = job->step_ns[job->running_seq];
    uint32_t cycle = job->cycle[job->running_seq];
    int64_t step = mean;
    if (cycle > 1) {
        step = job->iteration % cycle == 0 ? mean / 2 * (int64_t)(cycle + 1) : mean / 2;
    }
    step += step / 10000 * ((int64_t)testing_random_below(&job->random, 201) - 100);
    return testing_random_below(&job->random, 40) == 0 ? step * 5 : step;
}

double job_noise(struct job *job) {
    return (double)testing_random_below(&job->random, 2000001) / 1e6 - 1;
}

void job_run(struct job *job, int n) {
    for (int i = 0; i < n; i++) {
        struct tuner_decision decision;
        double loss = job->loss != NULL ? job->loss(job) : 1; /* may set gives_loss */
        const struct tuner_sample sample = {
            .plan_seq = job->running_seq,
            .step_ns = job_step(job),
            .figures = {.iteration = job->iteration,
                        .merge = job->cycle[job->running_seq],
                        .loss_given = job->gives_loss,
                        .loss = loss,
                        .grad_sq_local = 4,
                        .grad_sq_mean = job->is_exact[job->running_seq] ? 3 : (double)NAN,
                        .change_sq_local = (double)NAN,
                        .learning_rate = job->learning_rate}};
        tuner_sample(&job->tuner, &sample, &decision);
        job_decided(job, &decision);
        job->iteration++;
        if (job->switch_in > 0 && --job->switch_in == 0) {
            job->running_seq = job->pushed_seq;
        }
    }
}
