#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/convergence.h>

#include "facts.h"
#include "guard.h"
#include "quadratic.h"
#include "random.h"

#define N_DIMS       32u
#define N_RANKS      4u
#define MOMENTUM     0.9
#define FLOOR        1.0  /* loss that no training takes away */
#define NOISE        0.01 /* deviation of a loss from batch to batch */
#define GRADIENT     0.02 /* of each coordinate of a rank's gradient */
#define BURN_IN      1500 /* iterations until a job is stationary */
#define N_STATIONARY 10000u
#define N_DIVERGING  10000u
#define AFTERMATH    200u /* iterations after a step-back in which harm still counts */

/* A job under the guard, and a twin that runs exact only and sees the same noise. */
struct watched {
    struct quadratic *job;
    struct quadratic *twin;
    struct guard guard;
    uint64_t random; /* of the losses */
};

/* Curvatures from 1 to 0.01; `s` is the rate times the largest. */
static struct quadratic *watched_job(double s, uint64_t seed) {
    static double curvature[N_DIMS];
    double start[N_DIMS];
    for (uint32_t d = 0; d < N_DIMS; d++) {
        curvature[d] = pow(0.01, (double)d / (N_DIMS - 1));
        start[d] = 0.1;
    }
    struct quadratic_setup setup = {.curvature = curvature,
                                    .n_dims = N_DIMS,
                                    .n_ranks = N_RANKS,
                                    .rate = s,
                                    .momentum = MOMENTUM,
                                    .noise = GRADIENT,
                                    .seed = seed};
    struct quadratic *job = quadratic_create(&setup, start);
    for (int i = 0; i < BURN_IN && job != NULL; i++) {
        quadratic_step(job);
    }
    return job;
}

static int watched_start(struct watched *w, const struct guard_plan *plan, double s,
                         uint64_t seed) {
    *w = (struct watched){
        .job = watched_job(s, seed), .twin = watched_job(s, seed), .random = random_seed(5, seed)};
    guard_init(&w->guard, plan, N_RANKS, MOMENTUM);
    return w->job != NULL && w->twin != NULL;
}

static void watched_end(struct watched *w) {
    quadratic_destroy(w->job);
    quadratic_destroy(w->twin);
}

/* One iteration of both; 0 when there is no memory for a switch. */
static int watched_step(struct watched *w) {
    const struct guard_plan *plan = &w->guard.plan;
    int was_plan = w->guard.is_plan;
    quadratic_step(w->twin);
    quadratic_step(w->job);
    double loss = FLOOR + quadratic_loss(w->job) + NOISE * random_normal(&w->random);
    guard_add(&w->guard, loss, quadratic_part_norm2(w->job), quadratic_mean_norm2(w->job));
    if (w->guard.is_plan == was_plan) {
        return 1;
    }
    return w->guard.is_plan ? quadratic_switch(w->job, plan->rule, plan->merge, plan->delay)
                            : quadratic_switch(w->job, DSCHED_EXACT, 1, 0);
}

static double watched_excess(const struct watched *w) {
    return (FLOOR + quadratic_loss(w->job)) / (FLOOR + quadratic_loss(w->twin)) - 1;
}

static int guard_stationary(const struct guard_plan *plan, int n_runs) {
    int n_stepped_back = 0;
    int n_fused = 0;
    int n_committed = 0;
    uint64_t n_triples = 0;
    int ok = 1;
    for (int run = 0; run < n_runs && ok; run++) {
        struct watched w;
        ok = watched_start(&w, plan, 0.3, 11 + (uint64_t)run);
        for (uint32_t t = 0; t < N_STATIONARY && ok && w.guard.n_step_backs == 0; t++) {
            ok = watched_step(&w);
        }
        n_stepped_back += w.guard.n_step_backs > 0;
        n_fused += w.guard.n_step_backs > 0 && w.guard.is_fused;
        n_committed += w.guard.is_committed;
        n_triples += w.guard.n_triples;
        watched_end(&w);
    }
    printf("{\"kind\":\"stationary\",\"rule\":\"%s\",\"merge\":%u,\"delay\":%u,\"runs\":%d,"
           "\"iterations\":%u,\"committed\":%d,\"triples\":%llu,\"stepped_back\":%d,"
           "\"by_fuse\":%d}\n",
           dsched_rule_name(plan->rule), plan->merge, plan->delay, n_runs, N_STATIONARY,
           n_committed, (unsigned long long)n_triples, n_stepped_back, n_fused);
    return ok;
}

/* What happened to one job beyond the edge. */
struct guard_harm {
    double excess; /* largest, of the loss over the twin's */
    double plan_iterations;
    double back_after; /* iterations from the step-back until the excess is below 5 % for good */
};

static int guard_diverge(struct watched *w, struct guard_harm *out) {
    uint64_t last_high = 0;
    int ok = 1;
    *out = (struct guard_harm){0};
    for (uint32_t t = 0; t < N_DIVERGING && ok; t++) {
        if (w->guard.is_over && w->guard.t > w->guard.fired_at + AFTERMATH) {
            break;
        }
        out->plan_iterations += w->guard.is_plan;
        ok = watched_step(w);
        double excess = watched_excess(w);
        out->excess = fmax(out->excess, excess);
        last_high = excess > 0.05 || !isfinite(excess) ? t : last_high;
    }
    out->back_after = last_high > w->guard.fired_at ? (double)(last_high - w->guard.fired_at) : 0;
    return ok;
}

/* `s` times the largest curvature is the rate, `name` says what it is. */
static int guard_diverging(const struct guard_plan *plan, double s, const char *name, int n_runs) {
    int n_stepped_back = 0;
    int n_fused = 0;
    int n_late = 0;
    double worst = 0;
    double sum = 0;
    double n_iterations = 0;
    double back = 0;
    double progress = 0;
    int ok = 1;
    for (int run = 0; run < n_runs && ok; run++) {
        struct watched w;
        struct guard_harm harm = {0};
        ok = watched_start(&w, plan, s, 900 + (uint64_t)run);
        for (int t = 0; t < 100 && ok; t++) { /* still exact: the tuner warms up */
            ok = watched_step(&w);
        }
        progress = fmax(progress, ok ? guard_progress(&w.guard) : 0);
        ok = ok && guard_diverge(&w, &harm);
        n_stepped_back += w.guard.n_step_backs > 0;
        n_fused += w.guard.n_step_backs > 0 && w.guard.is_fused;
        n_late += harm.excess > 0.05;
        worst = fmax(worst, harm.excess);
        sum += harm.excess;
        n_iterations += harm.plan_iterations;
        back = fmax(back, harm.back_after);
        watched_end(&w);
    }
    printf("{\"kind\":\"diverging\",\"rule\":\"%s\",\"name\":\"%s\",\"rate_curvature\":%.4f,"
           "\"runs\":%d,\"progress\":%.3f,\"stepped_back\":%d,\"by_fuse\":%d,"
           "\"above_5_percent\":%d,\"mean_excess\":%.4g,\"worst_excess\":%.4g,"
           "\"plan_iterations\":%.1f,\"back_after\":%.0f}\n",
           dsched_rule_name(plan->rule), name, s, n_runs, progress, n_stepped_back, n_fused, n_late,
           sum / n_runs, worst, n_iterations / n_runs, back);
    return ok;
}

int facts_guard(int n_runs) {
    static const struct guard_plan averaged = {DSCHED_AVERAGED, 1, 1};
    static const struct guard_plan merged = {DSCHED_AVERAGED, 2, 1};
    static const struct guard_plan lookahead = {DSCHED_LOOKAHEAD, 1, 1};
    static const struct guard_plan delayed = {DSCHED_DELAYED, 1, 1};
    double edge = dsched_stability_edge(DSCHED_DELAYED, MOMENTUM, 1, 1);
    double exact = dsched_stability_edge(DSCHED_EXACT, MOMENTUM, 1, 0);
    int ok = guard_stationary(&lookahead, n_runs) && guard_stationary(&averaged, n_runs) &&
             guard_stationary(&merged, n_runs) &&
             guard_diverging(&delayed, 1.1 * edge, "1.1 of its edge", n_runs) &&
             guard_diverging(&delayed, 1.5 * edge, "1.5 of its edge", n_runs) &&
             guard_diverging(&delayed, 2 * edge, "2 of its edge", n_runs) &&
             guard_diverging(&delayed, 4 * edge, "4 of its edge", n_runs) &&
             guard_diverging(&lookahead, 1.1, "1.1 of its edge", n_runs) &&
             guard_diverging(&lookahead, 1.5, "1.5 of its edge", n_runs) &&
             guard_diverging(&delayed, 0.9 * exact, "0.9 of exact's edge", n_runs) &&
             guard_diverging(&lookahead, 0.9 * exact, "0.9 of exact's edge", n_runs) &&
             guard_diverging(&averaged, 0.9 * exact, "0.9 of exact's edge", n_runs);
    if (!ok) {
        (void)fprintf(stderr, "convergence_facts: no memory\n");
    }
    return ok ? 0 : 1;
}

int facts_watch(const char *rule, uint32_t merge, uint32_t delay, uint32_t n_ranks,
                double momentum) {
    struct guard guard;
    struct guard_plan plan = {.merge = merge, .delay = delay};
    double said[3];
    for (int i = 0; i < (int)DSCHED_N_RULES; i++) {
        if (strcmp(rule, dsched_rule_name((enum dsched_rule)i)) == 0) {
            plan.rule = (enum dsched_rule)i;
        }
    }
    guard_init(&guard, &plan, n_ranks, momentum);
    while (facts_read(said, 3)) {
        guard_add(&guard, said[0], said[1], said[2]);
        printf("%s %u %s %.4f %s\n", guard.is_plan ? "plan" : "exact", guard.n_step_backs,
               guard.is_fused ? "fuse" : "tuner", guard_progress(&guard), guard.text);
        (void)fflush(stdout);
    }
    return 0;
}
