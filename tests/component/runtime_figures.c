/* What ranks say of their training: figures of all ranks are the sums over what each was told, the
 * same on all of them, and what an agent gets is what a rank was told. All numbers are multiples of
 * 1/8 and small, so that sums are exact in any order. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "agent_peer.h"
#include "base/clock.h"
#include "runtime/runtime.h"
#include "testing.h"
#include "world.h"

#define N       5u /* elements */
#define N_STEPS 160u

struct job {
    uint64_t seed;
    struct agent_peer *agent; /* NULL: none */
};

enum loss_kind { NONE, EARLY, LATE, TWICE, BAD, BAD_THEN_FINE, FINE_THEN_BAD, N_KINDS };

struct truth {
    enum loss_kind kind;
    double loss; /* NaN: none that is finite */
    int bad;
    double gradient[N];
    double grad_sq;
    int has_gradient;
    double learning_rate;
};

/* What rank `rank` is told in an iteration. Mostly losses; stretches without any and with bad ones.
 */
static struct truth truth_of(uint64_t seed, int32_t rank, uint64_t iteration) {
    uint64_t stretch = seed + iteration / 9 * 15485863 + 1;
    uint64_t x = seed + iteration * 104729 + (uint64_t)rank * 7919 + 1;
    uint64_t mood = testing_random_below(&stretch, 8);
    struct truth out = {.kind = (enum loss_kind)testing_random_below(&x, N_KINDS)};
    if (mood == 0) {
        out.kind = NONE;
    } else if (mood > 2 && out.kind >= BAD) {
        out.kind = EARLY;
    }
    out.bad = out.kind == BAD || out.kind == FINE_THEN_BAD;
    out.loss =
        out.kind == NONE || out.bad ? (double)NAN : (double)testing_random_below(&x, 1000) / 8 - 20;
    out.has_gradient = testing_random_below(&x, 12) != 0;
    for (uint32_t i = 0; i < N && out.has_gradient; i++) {
        out.gradient[i] = (double)testing_random_below(&x, 17) - 8;
    }
    if (testing_random_below(&x, 40) == 0 && out.has_gradient) {
        out.gradient[N - 1] = (double)NAN;
    }
    for (uint32_t i = 0; i < N; i++) {
        out.grad_sq += out.gradient[i] * out.gradient[i];
    }
    /* Sticks for 8 iterations; every third is unknown, some are 0. */
    out.learning_rate =
        iteration / 8 % 3 == 2 ? (double)NAN : (double)((iteration / 8 + 1) % 5) / 64;
    return out;
}

static void give_loss(struct deft_runtime *rt, const struct truth *truth, int early) {
    double bad = truth->gradient[0] > 0 ? (double)INFINITY : (double)NAN;
    if (early != (truth->kind != LATE)) {
        return;
    }
    if (truth->kind == TWICE || truth->kind == FINE_THEN_BAD) {
        deft_loss(rt, 1e6);
    }
    if (truth->kind == BAD || truth->kind == FINE_THEN_BAD || truth->kind == BAD_THEN_FINE) {
        deft_loss(rt, bad);
    }
    if (isfinite(truth->loss)) {
        deft_loss(rt, truth->loss);
    }
}

static void give_learning_rate(struct deft_runtime *rt, const struct truth *truth,
                               uint64_t iteration) {
    if (iteration % 8 == 0 && iteration > 0) {
        double unknown = iteration % 16 == 0 ? -0.5 : (double)INFINITY;
        deft_learning_rate(rt, isnan(truth->learning_rate) ? unknown : truth->learning_rate);
    }
}

static void finish(struct world_rank *self,
                   enum deft_status (*next)(struct deft_runtime *, struct deft_update *,
                                            struct deft_error *)) {
    struct deft_error error = {.text = ""};
    struct deft_update update;
    do {
        WORLD_CHECK(self, next(self->rt, &update, &error) == DEFT_OK, "%s", error.text);
    } while (update.action != DEFT_DONE);
}

/* --- the reference ---------------------------------------------------------------------------- */

static struct control_figures sum_of(const struct world_rank *self, uint64_t first) {
    const struct job *job = self->world->shared;
    struct control_figures out = {.loss = 0};
    for (int32_t r = 0; r < self->world->n_ranks; r++) {
        for (uint64_t i = first; i < first + CONTROL_FIGURES_EVERY; i++) {
            struct truth truth = truth_of(job->seed, r, i);
            out.loss += isfinite(truth.loss) ? truth.loss : 0;
            out.n_losses += isfinite(truth.loss);
            out.n_bad_losses += truth.bad;
            out.grad_sq += isfinite(truth.grad_sq) ? truth.grad_sq : 0;
            out.n_grads += isfinite(truth.grad_sq);
        }
    }
    return out;
}

static int same(double a, double b) {
    return a == b || (isnan(a) && isnan(b));
}

/* |mean gradient|^2 of iteration t; NaN when some rank's is not finite. */
static double landed_of(const struct world_rank *self, uint64_t t) {
    const struct job *job = self->world->shared;
    double sum = 0;
    for (uint32_t i = 0; i < N; i++) {
        double mean = 0;
        for (int32_t r = 0; r < self->world->n_ranks; r++) {
            mean += truth_of(job->seed, r, t).gradient[i] / self->world->n_ranks;
        }
        sum += mean * mean;
    }
    return sum;
}

/* After the boundary of iteration t. */
static void check_stats(struct world_rank *self, uint64_t t) {
    struct deft_stats stats;
    double mean_loss = (double)NAN;
    double mean_grad_sq = (double)NAN;
    double landed = (double)NAN;
    for (uint64_t end = CONTROL_FIGURES_EVERY; end + CONTROL_LAG <= t;
         end += CONTROL_FIGURES_EVERY) {
        struct control_figures sum = sum_of(self, end - CONTROL_FIGURES_EVERY);
        mean_loss = sum.n_losses > 0 ? sum.loss / sum.n_losses : mean_loss;
        mean_grad_sq = sum.n_grads > 0 ? sum.grad_sq / sum.n_grads : mean_grad_sq;
        if (end + CONTROL_LAG == t) {
            const struct control_figures *got = &self->rt->control.figures;
            WORLD_CHECK(self,
                        got->loss == sum.loss && got->n_losses == sum.n_losses &&
                            got->n_bad_losses == sum.n_bad_losses && got->grad_sq == sum.grad_sq &&
                            got->n_grads == sum.n_grads,
                        "figures at %llu: loss %g of %g, %g bad; reference %g of %g, %g bad",
                        (unsigned long long)t, got->loss, got->n_losses, got->n_bad_losses,
                        sum.loss, sum.n_losses, sum.n_bad_losses);
        }
    }
    for (uint64_t i = 0; i <= t; i++) {
        double landed_then = landed_of(self, i);
        landed = isnan(landed_then) ? landed : landed_then;
    }
    deft_stats(self->rt, &stats);
    WORLD_CHECK(self,
                same(stats.mean_loss, mean_loss) && same(stats.mean_grad_sq_local, mean_grad_sq) &&
                    same(stats.grad_sq_mean, landed),
                "after %llu: %g %g %g, reference %g %g %g", (unsigned long long)t, stats.mean_loss,
                stats.mean_grad_sq_local, stats.grad_sq_mean, mean_loss, mean_grad_sq, landed);
}

/* --- the ranks -------------------------------------------------------------------------------- */

static void await_agent(struct world_rank *self) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(20);
    struct deft_stats stats = {.agent_connected = 0};
    while (stats.agent_connected == 0) {
        struct timespec tick = {.tv_nsec = 1000000};
        WORLD_CHECK(self, clock_monotonic_ns() < until_ns, "there is no agent");
        (void)nanosleep(&tick, NULL);
        deft_stats(self->rt, &stats);
    }
}

static void train(struct world_rank *self) {
    const struct job *job = self->world->shared;
    struct deft_runtime *rt = self->rt;
    struct deft_error error = {.text = ""};
    struct deft_tensor tensor = {.name = "w", .elements = N, .dtype = DEFT_F64};
    uint32_t id;
    WORLD_CHECK(self,
                deft_tensor_add(rt, &tensor, &id, &error) == DEFT_OK &&
                    deft_commit(rt, &error) == DEFT_OK,
                "%s", error.text);
    WORLD_CHECK(self, deft_notice(rt)[0] == '\0', "%s", deft_notice(rt));
    if (job->agent != NULL) {
        await_agent(self);
    }
    for (uint64_t t = 0; t < N_STEPS; t++) {
        struct truth truth = truth_of(job->seed, self->rank, t);
        deft_forward_begin(rt);
        give_loss(rt, &truth, 1);
        deft_backward_begin(rt);
        WORLD_CHECK(self,
                    deft_grad_ready(rt, 0, truth.has_gradient ? truth.gradient : NULL) == DEFT_OK,
                    "refused");
        give_learning_rate(rt, &truth, t);
        finish(self, deft_step);
        give_loss(rt, &truth, 0);
        check_stats(self, t);
        if (t % 13 == 5) { /* a drain carries no figures and disturbs none */
            finish(self, deft_drain);
        }
    }
}

static void with_agent(const struct world_rank *self, struct deft_options *options) {
    const struct job *job = self->world->shared;
    options->learning_rate = truth_of(job->seed, self->rank, 0).learning_rate;
    options->agent_socket = job->agent != NULL ? agent_peer_socket(job->agent) : "";
}

/* --- the cases -------------------------------------------------------------------------------- */

static int64_t random_delay(void *context, int32_t rank, uint32_t channel, uint64_t op) {
    uint64_t x =
        *(const uint64_t *)context + (uint64_t)rank * 131 + (uint64_t)channel * 7 + op * 1009 + 1;
    return testing_random_below(&x, 8) == 0 ? (int64_t)testing_random_below(&x, 300000) : 0;
}

static void figures_are_the_sums_over_all_ranks(void **state) {
    (void)state;
    struct job job = {.seed = testing_seed()};
    struct mem_faults faults = {.delay_ns = random_delay, .context = &job.seed};
    world_run_tuned(4, NULL, 1, &faults, with_agent, &job, train);
    world_run_tuned(8, NULL, 1, NULL, with_agent, &job, train);
}

static void a_world_of_one_has_figures(void **state) {
    (void)state;
    struct job job = {.seed = testing_seed()};
    world_run_tuned(1, NULL, 1, NULL, with_agent, &job, train);
}

static void figures_over_gloo(void **state) {
    (void)state;
#ifdef DEFT_WITH_GLOO
    struct job job = {.seed = testing_seed()};
    world_run_tuned(2, "gloo:lo", 1, NULL, with_agent, &job, train);
#else
    testing_skip("this build has no Gloo links");
#endif
}

/* Losses, the mark of those that are not finite, learning rates: one record per iteration. */
static void an_agent_gets_what_each_rank_was_told(void **state) {
    (void)state;
    enum { N_RANKS = 4 };
    struct job job = {.seed = testing_seed(), .agent = agent_peer_start(N_RANKS)};
    uint32_t n_bad = 0;
    world_run_tuned(N_RANKS, NULL, 1, NULL, with_agent, &job, train);
    agent_peer_join(job.agent);
    for (uint32_t r = 0; r < N_RANKS; r++) {
        const struct agent_peer_rank *rank = agent_peer_rank(job.agent, r);
        assert_int_equal(rank->n_iterations, N_STEPS);
        for (uint32_t t = 0; t < N_STEPS; t++) {
            const struct ipc_iteration *got = &rank->iterations[t];
            struct truth truth = truth_of(job.seed, (int32_t)r, t);
            assert_int_equal(got->iteration, t);
            assert_true(same(got->loss, truth.loss));
            assert_int_equal((got->flags & IPC_ITERATION_BAD_LOSS) != 0, truth.bad);
            assert_true(same(got->learning_rate, truth.learning_rate));
            assert_true(isnan(got->change_sq_local)); /* exact has none */
            assert_true(same(got->grad_sq_local, truth.grad_sq));
            n_bad += (uint32_t)truth.bad;
        }
    }
    assert_true(n_bad > 0);
    agent_peer_free(job.agent);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(figures_are_the_sums_over_all_ranks),
    cmocka_unit_test(a_world_of_one_has_figures),
    cmocka_unit_test(figures_over_gloo),
    cmocka_unit_test(an_agent_gets_what_each_rank_was_told),
};
TESTING_MAIN(cases)
