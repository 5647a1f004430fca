/* The property behind plan switches: whatever valid plans follow each other, at whatever moments
 * they reach the ranks, however long links take and whichever fuses blow on the way, all ranks
 * switch at the same boundary, parameters are bit-equal on all ranks whenever nothing is in flight,
 * the anchor always is, and the gradients of exact plans are bit-equal to a reference sum in rank
 * order. A fuse blows when, and only when, the losses say so. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "small_job.h"
#include "testing.h"

#define N_RANKS   4
#define MAX_STEPS 60000u
#define MAX_LOSS  2.0

struct setting {
    uint32_t n_switches;
    uint64_t seed;
    struct dsched_plan *plans; /* [n_switches]; number i + 1 */
    uint64_t *hashes;          /* of the plans */
    struct fuse_limits *limits;
};

/* --- losses and fuses ------------------------------------------------------------------------- */

/* For stretches of iterations near 1, 3 or 20, on one rank or on all, and sometimes not finite. */
static double loss_of(const struct small_job *job, int32_t rank, uint64_t iteration) {
    const struct setting *setting = job->context;
    uint64_t stretch = setting->seed + (iteration / 7) * 7919 + 1;
    uint64_t kind = testing_random_below(&stretch, 16);
    uint64_t x = setting->seed + iteration * 104729 + (uint64_t)rank * 31 + 1;
    double noise = (double)(testing_random(&x) >> 40) / 16777216.0;
    if (kind == 0 && rank == (int32_t)(iteration % N_RANKS)) {
        return iteration % 2 == 0 ? (double)NAN : (double)INFINITY;
    }
    return noise + (kind < 4 ? 2.5 : kind == 4 && rank == 1 ? 40.0 : 0.5);
}

static void random_limits(uint64_t *random, struct fuse_limits *out) {
    uint64_t kind = testing_random_below(random, 8);
    out->max_loss = kind < 5 ? MAX_LOSS : (double)NAN;
    /* Every gradient is far above the one and far below the other. */
    out->max_grad_sq = kind == 5 ? 1e-30 : kind == 0 || kind == 6 ? 1e30 : (double)NAN;
}

/* The losses of iterations [first, first + 4) and what they say against a limit. */
struct verdict {
    double mean;
    int has_bad;
};

static struct verdict judge(const struct small_job *job, uint64_t first) {
    struct verdict out = {.mean = 0};
    double n = 0;
    for (int32_t r = 0; r < N_RANKS; r++) {
        for (uint64_t i = first; i < first + CONTROL_FIGURES_EVERY; i++) {
            double loss = loss_of(job, r, i);
            out.has_bad |= !isfinite(loss);
            out.mean += isfinite(loss) ? loss : 0;
            n += isfinite(loss);
        }
    }
    out.mean /= n;
    return out;
}

/* Whether the fuse of a plan that has run since iteration `since` blows at boundary t, from nothing
 * but the losses. */
static int blows(const struct small_job *job, const struct fuse_limits *limits, uint64_t since,
                 uint64_t t) {
    if (t % CONTROL_FIGURES_EVERY != CONTROL_LAG || t < CONTROL_FIGURES_EVERY + CONTROL_LAG) {
        return 0;
    }
    uint64_t first = t - CONTROL_LAG - CONTROL_FIGURES_EVERY;
    if (first < since) {
        return 0;
    }
    struct verdict now = judge(job, first);
    if (limits->max_grad_sq < 1) {
        return 1;
    }
    if (!isnan(limits->max_loss) && now.mean > limits->max_loss) {
        int again = first >= since + CONTROL_FIGURES_EVERY &&
                    judge(job, first - CONTROL_FIGURES_EVERY).mean > limits->max_loss;
        if (again || now.mean > 2 * limits->max_loss) {
            return 1;
        }
    }
    return 0;
}

/* Not finite now, and finite in the last figures that no switch or fuse cut in two: with one loss
 * per rank and iteration those are the last ones that lie between two changes. */
static int turns_bad(const struct small_job *job, const uint8_t *is_cut, uint64_t t) {
    uint64_t first = t - CONTROL_LAG - CONTROL_FIGURES_EVERY;
    if (is_cut[first / CONTROL_FIGURES_EVERY] || !judge(job, first).has_bad) {
        return 0;
    }
    while (first >= CONTROL_FIGURES_EVERY) {
        first -= CONTROL_FIGURES_EVERY;
        if (!is_cut[first / CONTROL_FIGURES_EVERY]) {
            return !judge(job, first).has_bad;
        }
    }
    return 0;
}

/* Follows the log of rank 0 and says where each fuse had to blow. Returns how many did. */
static uint32_t check_fuses(const struct small_job *job) {
    static const struct fuse_limits none = {.max_loss = (double)NAN, .max_grad_sq = (double)NAN};
    const struct setting *setting = job->context;
    const struct small_job_log *log = &job->logs[0];
    uint8_t *is_cut = calloc(log->n_iterations / CONTROL_FIGURES_EVERY + 2, 1);
    uint64_t since = 0;
    uint32_t n_blown = 0;
    assert_non_null(is_cut);
    for (uint64_t t = 0; t + 1 < log->n_iterations; t++) {
        uint64_t plan = log->plans[t];
        int is_plan = plan > 0 && log->hashes[t] == setting->hashes[plan - 1];
        const struct fuse_limits *limits = is_plan ? &setting->limits[plan - 1] : &none;
        int is_due = t % CONTROL_FIGURES_EVERY == CONTROL_LAG && t > CONTROL_FIGURES_EVERY;
        if (is_due && t - CONTROL_LAG - CONTROL_FIGURES_EVERY < since) {
            is_cut[(t - CONTROL_LAG) / CONTROL_FIGURES_EVERY - 1] = 1; /* looked at too late */
        }
        int blown = is_due && (blows(job, limits, since, t) ||
                               (fuse_is_set(limits) && turns_bad(job, is_cut, t)));
        if (log->plans[t + 1] != plan) {
            since = t + 1;
        } else if (blown) {
            assert_true(log->hashes[t + 1] != log->hashes[t]);
            assert_true((log->all[t].flags & IPC_ITERATION_DRAINED) != 0);
            n_blown++;
            since = t + 1;
        } else {
            assert_true(log->hashes[t + 1] == log->hashes[t]);
        }
    }
    free(is_cut);
    return n_blown;
}

/* --- the ranks -------------------------------------------------------------------------------- */

static void train(struct world_rank *self) {
    struct small_job *job = self->world->shared;
    const struct setting *setting = job->context;
    struct small_job_rank rank;
    uint64_t together = setting->seed; /* the same on all ranks */
    uint64_t random = setting->seed + (uint64_t)self->rank + 1;
    small_job_start(&rank, self);
    for (uint32_t s = 0; s < setting->n_switches; s++) {
        uint64_t skew = testing_random_below(&random, 4);
        struct deft_stats stats = {.plan_seq = s};
        for (uint64_t n = 0; stats.plan_seq != s + 1; n++) {
            if (n == skew) {
                small_job_offer(&rank, s + 1, &setting->plans[s], setting->limits[s].max_loss,
                                setting->limits[s].max_grad_sq);
            }
            small_job_step(&rank);
            deft_stats(self->rt, &stats);
        }
        uint64_t more = testing_random_below(&together, 4) == 0
                            ? testing_random_below(&together, 30)
                            : testing_random_below(&together, 6);
        for (uint64_t n = 0; n < more; n++) {
            small_job_step(&rank);
        }
        if (testing_random_below(&together, 4) == 0) {
            small_job_drain(&rank);
        }
    }
    small_job_drain(&rank);
    rank.log->parameters[rank.iteration - 1] = small_job_hash(&rank);
    rank.log->all[rank.iteration - 1].flags |= IPC_ITERATION_DRAINED;
    small_job_end(&rank);
}

/* --- the cases -------------------------------------------------------------------------------- */

static int64_t random_delay(void *context, int32_t rank, uint32_t channel, uint64_t op) {
    uint64_t x =
        *(const uint64_t *)context + (uint64_t)rank * 131 + (uint64_t)channel * 7 + op * 1009 + 1;
    return testing_random_below(&x, 8) == 0 ? (int64_t)testing_random_below(&x, 300000) : 0;
}

static void run_switches(uint32_t n_switches, const char *links, uint32_t n_links, int delays) {
    struct setting setting = {.n_switches = n_switches, .seed = testing_seed()};
    struct mem_faults faults = {.delay_ns = random_delay, .context = &setting.seed};
    struct small_job job;
    uint64_t random = setting.seed;
    small_job_init(&job, N_RANKS, MAX_STEPS);
    job.sums_in_rank_order = links == NULL;
    job.loss = loss_of;
    job.context = &setting;
    setting.plans = calloc(n_switches, sizeof(*setting.plans));
    setting.hashes = calloc(n_switches, sizeof(*setting.hashes));
    setting.limits = calloc(n_switches, sizeof(*setting.limits));
    assert_non_null(setting.plans);
    assert_non_null(setting.hashes);
    assert_non_null(setting.limits);
    for (uint32_t s = 0; s < n_switches; s++) {
        enum dsched_rule rule = (enum dsched_rule)testing_random_below(&random, DSCHED_N_RULES);
        small_job_plan(&random, rule, n_links, &setting.plans[s]);
        setting.hashes[s] = dsched_plan_hash(&setting.plans[s]);
        random_limits(&random, &setting.limits[s]);
    }
    world_run(N_RANKS, links, n_links, delays ? &faults : NULL, SMALL_JOB_ALL_CAN, &job, train);
    small_job_check_alike(&job);
    uint32_t n_blown = check_fuses(&job);
    assert_true(n_switches < 100 || n_blown > n_switches / 20);
    for (uint32_t s = 0; s < n_switches; s++) {
        dsched_plan_done(&setting.plans[s]);
    }
    free(setting.plans);
    free(setting.hashes);
    free(setting.limits);
    small_job_done(&job);
}

static void thousand_switches_on_one_link(void **state) {
    (void)state;
    run_switches(1000, NULL, 1, 1);
}

static void switches_on_three_links(void **state) {
    (void)state;
    run_switches(200, NULL, 3, 1);
}

static void switches_without_delays(void **state) {
    (void)state;
    run_switches(200, NULL, 1, 0);
}

static void switches_over_gloo(void **state) {
    (void)state;
#ifdef DEFT_WITH_GLOO
    run_switches(20, "gloo:lo,gloo:127.0.0.1", 2, 0);
#else
    testing_skip("this build has no Gloo links");
#endif
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(thousand_switches_on_one_link),
    cmocka_unit_test(switches_on_three_links),
    cmocka_unit_test(switches_without_delays),
    cmocka_unit_test(switches_over_gloo),
};
TESTING_MAIN(cases)
