#include "guard.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define GUARD_EXACT_NS INT64_C(100000000)

void guard_init(struct guard *guard, const struct guard_plan *plan, uint32_t n_ranks,
                double momentum) {
    const struct quantify_job job = {.n_ranks = n_ranks,
                                     .optimizer = DSCHED_OPTIMIZER_SGD,
                                     .momentum = momentum,
                                     .batch_samples = 64 * (uint64_t)n_ranks};
    struct tuner_config config;
    struct wire_limits limits;
    memset(guard, 0, sizeof(*guard));
    tuner_defaults(&config);
    quantify_default_limits(&limits);
    tuner_init(&guard->tuner, &config, TUNER_AUTO, &job, &limits);
    guard->plan = *plan;
    guard->limits = (struct fuse_limits){.max_loss = NAN, .max_grad_sq = NAN};
}

static void guard_stepped_back(struct guard *guard, const char *reason, int is_fused) {
    guard->n_step_backs++;
    guard->is_fused = is_fused;
    guard->fired_at = guard->t;
    guard->is_over = 0;
    (void)snprintf(guard->text, sizeof(guard->text), "%s", reason);
}

static void guard_decided(struct guard *guard, const struct tuner_decision *decision) {
    if (decision->kind == TUNER_SOLVE) {
        const struct tuner_plan proposal = {.hash = 1,
                                            .rule = (uint32_t)guard->plan.rule,
                                            .cycle = guard->plan.merge,
                                            .merge = guard->plan.merge,
                                            .delay = guard->plan.delay,
                                            .updates_ppm = 1000000 / guard->plan.merge,
                                            .progress_ppm = 1000000,
                                            .predicted_step_ns = GUARD_EXACT_NS / 2};
        struct tuner_decision answer;
        tuner_solved(&guard->tuner, &proposal, 0, "it is made up", &answer);
        guard_decided(guard, &answer);
        return;
    }
    guard->is_committed |= decision->kind == TUNER_COMMIT;
    if (decision->kind == TUNER_ROLL_BACK || decision->kind == TUNER_HALT) {
        guard_stepped_back(guard, decision->reason, 0);
    }
    if (tuner_pushes(decision) && decision->plan_seq > guard->pushed_seq) {
        guard->pushed_seq = decision->plan_seq;
        guard->pushed_is_plan = decision->kind == TUNER_PUSH || decision->target_seq != 0;
        guard->switch_at = guard->t + GUARD_LAG;
    }
}

static void guard_switch(struct guard *guard) {
    guard->running_seq = guard->pushed_seq;
    guard->is_plan = guard->pushed_is_plan;
    guard->is_switch = 1;
    guard->switch_at = 0;
    if (guard->is_plan) {
        quantify_fuse(&guard->tuner.quantify, &guard->limits.max_loss, &guard->limits.max_grad_sq);
    } else {
        guard->limits = (struct fuse_limits){.max_loss = NAN, .max_grad_sq = NAN};
    }
    fuse_start(&guard->fuse, guard->t);
}

/* The ranks' own figures: sums over CONTROL_FIGURES_EVERY iterations, known CONTROL_LAG later. */
static void guard_watch_fuse(struct guard *guard, double loss, double grad_sq) {
    struct control_figures *own = &guard->gathering;
    char text[160];
    if (isfinite(loss)) {
        own->loss += loss;
        own->n_losses++;
    } else {
        own->n_bad_losses++;
    }
    if (isfinite(grad_sq)) {
        own->grad_sq += grad_sq;
        own->n_grads++;
    }
    if ((guard->t + 1) % CONTROL_FIGURES_EVERY == 0) {
        guard->due = *own;
        guard->due_first = guard->t + 1 - CONTROL_FIGURES_EVERY;
        guard->due_at = guard->t + CONTROL_LAG;
        memset(own, 0, sizeof(*own));
    }
    if (guard->due_at > 0 && guard->t == guard->due_at &&
        fuse_look(&guard->fuse, &guard->limits, &guard->due, guard->due_first, text,
                  sizeof(text)) &&
        guard->is_plan) {
        struct tuner_decision decision;
        guard->is_plan = 0;
        guard->is_switch = 1;
        guard->limits = (struct fuse_limits){.max_loss = NAN, .max_grad_sq = NAN};
        guard_stepped_back(guard, text, 1);
        tuner_fused(&guard->tuner, guard->running_seq, guard->t + 1, text, &decision);
    }
}

void guard_add(struct guard *guard, double loss, double part_norm2, double mean_norm2) {
    const struct tuner_sample sample = {
        .plan_seq = guard->running_seq,
        .step_ns = guard->is_plan ? GUARD_EXACT_NS / 2 : GUARD_EXACT_NS,
        .figures = {.iteration = guard->t,
                    .is_switch = guard->is_switch,
                    .merge = guard->is_plan ? guard->plan.merge : 1,
                    .loss_given = DSCHED_LOSS_GIVEN,
                    .loss = loss,
                    .grad_sq_local = part_norm2,
                    .grad_sq_mean = guard->is_plan ? (double)NAN : mean_norm2,
                    .change_sq_local = NAN,
                    .learning_rate = NAN}};
    struct tuner_decision decision;
    uint64_t n_triples = guard->tuner.n_triples;
    guard->is_switch = 0;
    tuner_sample(&guard->tuner, &sample, &decision);
    guard->n_triples += guard->tuner.n_triples > n_triples;
    guard_decided(guard, &decision);
    guard_watch_fuse(guard, loss, part_norm2);
    guard->t++;
    if (guard->switch_at > 0 && guard->t >= guard->switch_at) {
        guard_switch(guard);
    }
    guard->is_over = guard->n_step_backs > 0 && !guard->is_plan;
}

double guard_progress(const struct guard *guard) {
    struct quantify_price price;
    struct deft_error error;
    if (quantify_price(&guard->tuner.quantify, DSCHED_RULE_BIT(guard->plan.rule), &price, &error) !=
        DEFT_OK) {
        return 0;
    }
    return quantify_progress_ppm(&price, (uint32_t)guard->plan.rule, guard->plan.merge,
                                 guard->plan.delay) /
           1e6;
}
