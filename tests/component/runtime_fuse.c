/* The fuse of a plan: all ranks leave it at the same boundary, the one that the losses name,
 * whatever its rule, and go on under exact as if it had always run; what must not blow it does not.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "agent_peer.h"
#include "base/clock.h"
#include "small_job.h"
#include "testing.h"

#define N_RANKS  4
#define MAX_LOSS 2.0
#define N_STEPS  56u
#define NEVER    UINT64_MAX
/* A plan offered at iteration 0 runs from here on. */
#define FIRST (CONTROL_LAG + 1)
/* Losses rise here, where a set of figures begins; it is complete 4 iterations later. */
#define RISE 20u
/* The boundary at which a set that begins at iteration `first` is known. */
#define KNOWN_AT(first) ((first) + CONTROL_FIGURES_EVERY + CONTROL_LAG)

/* Allocations of the ranks fail while this is set; the linker sends them here (--wrap). */
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__wrap_aligned_alloc(size_t align, size_t size);
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);
void *__real_aligned_alloc(size_t align, size_t size);

static _Thread_local int is_out_of_memory;

void *__wrap_malloc(size_t size) {
    return is_out_of_memory ? NULL : __real_malloc(size);
}
void *__wrap_calloc(size_t n, size_t size) {
    return is_out_of_memory ? NULL : __real_calloc(n, size);
}
void *__wrap_realloc(void *old, size_t size) {
    return is_out_of_memory ? NULL : __real_realloc(old, size);
}
void *__wrap_aligned_alloc(size_t align, size_t size) {
    return is_out_of_memory ? NULL : __real_aligned_alloc(align, size);
}

struct script {
    struct dsched_plan plans[2];  /* number i + 1 */
    struct fuse_limits limits[2]; /* of each */
    uint64_t offers[2];           /* before which iteration each is offered */
    uint64_t last_offer;          /* the second one to the last rank */
    uint64_t repeat;              /* before which the first is offered again, on all ranks */
    uint64_t wishes;              /* before which one rank wishes a drain, another one a stop */
    uint64_t starves;             /* from which on no rank gets any memory; NEVER: none */
    double level;                 /* loss of one rank from RISE on */
    uint32_t write_back;
    struct agent_peer *agent; /* NULL: none */
    void *first_plan;         /* encoded; NULL: none */
    size_t first_plan_bytes;
};

static void train(struct world_rank *self) {
    struct small_job *job = self->world->shared;
    const struct script *script = job->context;
    int is_last = self->rank == self->world->n_ranks - 1;
    struct small_job_rank rank;
    small_job_start(&rank, self);
    for (uint64_t t = 0; t < N_STEPS; t++) {
        if (t == script->offers[0] || t == script->repeat) {
            small_job_offer(&rank, 1, &script->plans[0], script->limits[0].max_loss,
                            script->limits[0].max_grad_sq);
        }
        if (t == (is_last ? script->last_offer : script->offers[1])) {
            small_job_offer(&rank, 2, &script->plans[1], script->limits[1].max_loss,
                            script->limits[1].max_grad_sq);
        }
        if (t == script->wishes && self->rank == 0) {
            deft_drain_request(self->rt);
        }
        if (t == script->wishes && is_last) {
            deft_stop_request(self->rt);
        }
        is_out_of_memory = t >= script->starves;
        small_job_step(&rank);
        if (rank.log->ends[t].drain_agreed) {
            small_job_drain(&rank);
        }
    }
    small_job_drain(&rank);
    is_out_of_memory = 0;
    rank.log->parameters[N_STEPS - 1] = small_job_hash(&rank);
    rank.log->all[N_STEPS - 1].flags |= IPC_ITERATION_DRAINED;
    small_job_end(&rank);
}

static void with_script(const struct world_rank *self, struct deft_options *options) {
    const struct small_job *job = self->world->shared;
    const struct script *script = job->context;
    options->capabilities = SMALL_JOB_ALL_CAN;
    options->write_back = script->write_back;
    options->learning_rate = (double)NAN; /* unknown */
    options->agent_socket = script->agent != NULL ? agent_peer_socket(script->agent) : "";
    options->first_plan = script->first_plan;
    options->first_plan_bytes = script->first_plan_bytes;
}

static struct script make_script(uint64_t *random, enum dsched_rule rule) {
    struct script script = {
        .limits = {{MAX_LOSS, (double)NAN}, {(double)NAN, (double)NAN}},
        .offers = {0, NEVER},
        .last_offer = NEVER,
        .repeat = NEVER,
        .wishes = NEVER,
        .starves = NEVER,
        .level = 9,
    };
    small_job_plan(random, rule, 1, &script.plans[0]);
    small_job_plan(random, (enum dsched_rule)testing_random_below(random, DSCHED_N_RULES), 1,
                   &script.plans[1]);
    return script;
}

/* One rank's losses take the mean of four to 3: above the limit, and not twice as high. */
static double rising(const struct small_job *job, int32_t rank, uint64_t iteration) {
    const struct script *script = job->context;
    return rank == job->n_ranks / 2 && iteration >= RISE ? script->level : 1;
}

struct result {
    uint64_t left_at; /* first iteration under exact after plan 1; 0: never */
    uint64_t second;  /* first iteration of plan 2; 0: never */
    uint64_t left_second_at;
    uint64_t stopped_at; /* boundaries; NEVER: none */
    uint64_t drained_at;
};

/* Everything that every run must satisfy, and what happened when. */
static struct result check(const struct small_job *job) {
    const struct script *script = job->context;
    const struct small_job_log *log = &job->logs[0];
    uint64_t hashes[2] = {dsched_plan_hash(&script->plans[0]), dsched_plan_hash(&script->plans[1])};
    struct result out = {.stopped_at = NEVER, .drained_at = NEVER};
    small_job_check_alike(job);
    for (uint64_t t = 0; t < N_STEPS; t++) {
        uint64_t plan = log->plans[t];
        int is_left = plan > 0 && log->hashes[t] != hashes[plan - 1];
        uint64_t *left_at = plan == 1 ? &out.left_at : &out.left_second_at;
        *left_at = is_left && *left_at == 0 ? t : *left_at;
        assert_true(is_left || plan == 0 || *left_at == 0); /* never back */
        out.second = plan == 2 && out.second == 0 ? t : out.second;
        out.stopped_at = log->ends[t].stop_agreed && out.stopped_at == NEVER ? t : out.stopped_at;
        out.drained_at = log->ends[t].drain_agreed && out.drained_at == NEVER ? t : out.drained_at;
        if (t > 0 && log->hashes[t] != log->hashes[t - 1]) {
            assert_true((log->all[t - 1].flags & IPC_ITERATION_DRAINED) != 0);
        }
        assert_int_equal((log->all[t].flags & IPC_ITERATION_SWITCHED) != 0,
                         t > 0 && plan != log->plans[t - 1]);
    }
    return out;
}

static struct result run(struct script *script, const char *links, int32_t n_ranks,
                         double (*loss)(const struct small_job *, int32_t, uint64_t)) {
    struct small_job job;
    small_job_init(&job, n_ranks, N_STEPS + 1);
    job.sums_in_rank_order = links == NULL;
    job.loss = loss;
    job.context = script;
    world_run_tuned(n_ranks, links, 1, NULL, with_script, &job, train);
    struct result result = check(&job);
    small_job_done(&job);
    dsched_plan_done(&script->plans[0]);
    dsched_plan_done(&script->plans[1]);
    return result;
}

/* --- what blows it ---------------------------------------------------------------------------- */

/* Two sets of figures above the limit; then the same plan again, which changes nothing, and a newer
 * one, which runs. */
static void each_rule_is_left_for_exact(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    for (uint32_t n = 0; n < 24; n++) {
        struct script script = make_script(&random, (enum dsched_rule)(n % DSCHED_N_RULES));
        uint64_t left_at = KNOWN_AT(RISE + CONTROL_FIGURES_EVERY) + 1;
        script.repeat = left_at + 2;
        script.offers[1] = script.last_offer = left_at + 8;
        script.write_back = n % 8 >= 4;
        struct result result = run(&script, NULL, N_RANKS, rising);
        assert_int_equal(result.left_at, left_at);
        assert_int_equal(result.second, left_at + 8 + FIRST);
        assert_int_equal(result.left_second_at, 0);
    }
}

static void twice_the_limit_is_enough_at_once(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    struct script script = make_script(&random, DSCHED_AVERAGED);
    script.level = 100;
    assert_int_equal(run(&script, NULL, N_RANKS, rising).left_at, KNOWN_AT(RISE) + 1);
}

static void gradients_blow_it_as_losses_do(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    struct script script = make_script(&random, DSCHED_DELAYED);
    script.limits[0] = (struct fuse_limits){.max_loss = (double)NAN, .max_grad_sq = 1e-30};
    /* The first set of figures that begins under the plan. */
    assert_int_equal(run(&script, NULL, N_RANKS, NULL).left_at, KNOWN_AT(4) + 1);
}

static double one_not_finite(const struct small_job *job, int32_t rank, uint64_t iteration) {
    return rank == job->n_ranks - 1 && iteration == RISE + 1 ? (double)-INFINITY : 1;
}

static void a_loss_that_is_not_finite_is_enough(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    for (int n = 0; n < 2; n++) {
        struct script script = make_script(&random, DSCHED_LOOKAHEAD);
        if (n == 1) { /* whichever limit is set */
            script.limits[0] = (struct fuse_limits){.max_loss = (double)NAN, .max_grad_sq = 1e30};
        }
        assert_int_equal(run(&script, NULL, N_RANKS, one_not_finite).left_at, KNOWN_AT(RISE) + 1);
    }
}

/* --- what does not ---------------------------------------------------------------------------- */

/* Far too high before and around the begin of the plan, later once a little. */
static double once_above(const struct small_job *job, int32_t rank, uint64_t iteration) {
    (void)job;
    (void)rank;
    return iteration < CONTROL_FIGURES_EVERY                               ? 1000
           : iteration >= RISE && iteration < RISE + CONTROL_FIGURES_EVERY ? 3
                                                                           : 1;
}

static double never_finite(const struct small_job *job, int32_t rank, uint64_t iteration) {
    (void)job;
    return rank == (int32_t)(iteration % CONTROL_FIGURES_EVERY) ? (double)NAN : 1;
}

static void what_is_not_the_plans_fault_changes_nothing(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    struct script script = make_script(&random, DSCHED_AVERAGED);
    assert_true(FIRST < CONTROL_FIGURES_EVERY);
    assert_int_equal(run(&script, NULL, N_RANKS, once_above).left_at, 0);
    script = make_script(&random, DSCHED_AVERAGED);
    assert_int_equal(run(&script, NULL, N_RANKS, never_finite).left_at, 0);
    script = make_script(&random, DSCHED_AVERAGED);
    script.limits[0].max_loss = (double)NAN; /* no fuse */
    assert_int_equal(run(&script, NULL, N_RANKS, rising).left_at, 0);
}

/* --- beside other things ---------------------------------------------------------------------- */

/* The next plan is known to some ranks when the fuse blows, to the last one later. Its own fuse
 * counts from its own begin. */
static void a_candidate_stays_one(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    struct script script = make_script(&random, DSCHED_AVERAGED);
    uint64_t left_at = KNOWN_AT(RISE + CONTROL_FIGURES_EVERY) + 1; /* 31 */
    script.limits[1].max_loss = MAX_LOSS;
    script.offers[1] = left_at - 7;
    script.last_offer = left_at + 2;
    struct result result = run(&script, NULL, N_RANKS, rising);
    assert_int_equal(result.left_at, left_at);
    assert_int_equal(result.second, left_at + 2 + FIRST);
    /* It begins at 36, with a set of figures. */
    assert_int_equal(result.left_second_at, KNOWN_AT(36 + CONTROL_FIGURES_EVERY) + 1);
}

/* The ranks agree on the next plan at the boundary at which the fuse blows. */
static void a_switch_goes_before(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    struct script script = make_script(&random, DSCHED_DELAYED);
    uint64_t left_at = KNOWN_AT(RISE + CONTROL_FIGURES_EVERY) + 1;
    script.offers[1] = script.last_offer = left_at - FIRST;
    struct result result = run(&script, NULL, N_RANKS, rising);
    assert_int_equal(result.left_at, 0);
    assert_int_equal(result.second, left_at);
}

static void wishes_are_agreed_on_at_the_same_boundary(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    for (uint32_t n = 0; n < DSCHED_N_RULES; n++) {
        struct script script = make_script(&random, (enum dsched_rule)n);
        uint64_t boundary = KNOWN_AT(RISE + CONTROL_FIGURES_EVERY);
        script.wishes = boundary - CONTROL_LAG;
        struct result result = run(&script, NULL, N_RANKS, rising);
        assert_int_equal(result.left_at, boundary + 1);
        assert_int_equal(result.stopped_at, boundary);
        assert_int_equal(result.drained_at, boundary);
    }
}

static void leaving_needs_no_memory(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    for (uint32_t n = 0; n < 2 * DSCHED_N_RULES; n++) {
        struct script script = make_script(&random, (enum dsched_rule)(n % DSCHED_N_RULES));
        script.starves = RISE;
        assert_int_equal(run(&script, NULL, N_RANKS, rising).left_at,
                         KNOWN_AT(RISE + CONTROL_FIGURES_EVERY) + 1);
    }
}

static void a_first_plan_is_not_what_ranks_fall_back_to(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    struct dsched_plan first;
    struct script script = make_script(&random, DSCHED_AVERAGED);
    small_job_plan(&random, DSCHED_DELAYED, 1, &first);
    script.first_plan_bytes = dsched_plan_encode(&first, NULL, 0);
    script.first_plan = malloc(script.first_plan_bytes);
    assert_non_null(script.first_plan);
    (void)dsched_plan_encode(&first, script.first_plan, script.first_plan_bytes);
    /* small_job checks the sums of exact, of which there are none but those behind the fuse */
    assert_int_equal(run(&script, NULL, N_RANKS, rising).left_at,
                     KNOWN_AT(RISE + CONTROL_FIGURES_EVERY) + 1);
    free(script.first_plan);
    dsched_plan_done(&first);
}

static void a_world_of_one_has_a_fuse(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    struct script script = make_script(&random, DSCHED_AVERAGED);
    script.level = 3;
    assert_int_equal(run(&script, NULL, 1, rising).left_at,
                     KNOWN_AT(RISE + CONTROL_FIGURES_EVERY) + 1);
}

static void the_fuse_over_gloo(void **state) {
    (void)state;
#ifdef DEFT_WITH_GLOO
    uint64_t random = testing_seed();
    for (uint32_t n = 0; n < DSCHED_N_RULES; n++) {
        struct script script = make_script(&random, (enum dsched_rule)n);
        assert_int_equal(run(&script, "gloo:lo", 3, rising).left_at,
                         KNOWN_AT(RISE + CONTROL_FIGURES_EVERY) + 1);
    }
#else
    testing_skip("this build has no Gloo links");
#endif
}

/* --- through the agent ------------------------------------------------------------------------ */

/* High as long as the plan runs. */
static double high_under_a_plan(const struct small_job *job, int32_t rank, uint64_t iteration) {
    return job->logs[rank].plans[iteration] == 1 ? 9.25 : 1;
}

static void train_with_agent(struct world_rank *self) {
    struct small_job *job = self->world->shared;
    const struct script *script = job->context;
    struct small_job_rank rank;
    struct deft_stats stats;
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(30);
    small_job_start(&rank, self);
    do {
        struct timespec tick = {.tv_nsec = 1000000}; /* for the plan to come from another thread */
        (void)nanosleep(&tick, NULL);
        WORLD_CHECK(self, clock_monotonic_ns() < until_ns, "no plan is left");
        small_job_step(&rank);
        deft_stats(self->rt, &stats);
    } while (stats.plan_seq == 0 || strcmp(stats.rule, "exact") != 0);
    if (self->rank == 0) { /* as after a restart of the agent */
        agent_peer_push(script->agent, 1, &script->plans[0], MAX_LOSS, (double)NAN);
    }
    for (int n = 0; n < 8; n++) {
        small_job_step(&rank);
    }
    deft_stats(self->rt, &stats);
    WORLD_CHECK(self,
                stats.plan_seq == 1 && strcmp(stats.rule, "exact") == 0 && stats.switches == 1 &&
                    stats.plan_hash == self->rt->engine->hash,
                "plan %llu runs as %s", (unsigned long long)stats.plan_seq, stats.rule);
    small_job_end(&rank);
}

static void check_events(const struct agent_peer_rank *rank, const struct small_job_log *log) {
    static const char text[] =
        "the mean loss of 4 iterations is 9.25, more than twice the 2 that this plan may reach";
    uint64_t since = 0;
    uint64_t left_at = 0;
    for (uint64_t t = 1; t < log->n_iterations; t++) {
        since = log->plans[t] != log->plans[t - 1] ? t : since;
        left_at =
            log->plans[t] == 1 && log->hashes[t] == log->hashes[0] && left_at == 0 ? t : left_at;
    }
    assert_int_equal(rank->n_events, 3);
    assert_int_equal(rank->events[0].kind, IPC_EVENT_SWITCHED);
    assert_int_equal(rank->events[0].iteration, since);
    assert_int_equal(rank->events[1].kind, IPC_EVENT_FUSED);
    assert_int_equal(rank->events[1].plan_seq, 1);
    assert_int_equal(rank->events[1].iteration, left_at);
    assert_string_equal(rank->events[1].text, text);
    assert_int_equal(rank->events[2].kind, IPC_EVENT_FINISHED);
    assert_int_equal(rank->n_iterations, log->n_iterations);
    for (uint64_t t = 0; t < log->n_iterations; t++) {
        assert_int_equal(rank->iterations[t].plan_seq, log->plans[t]);
        assert_true(isnan(rank->iterations[t].learning_rate));
    }
}

static void the_agent_is_told_where_and_why(void **state) {
    (void)state;
    uint64_t random = testing_seed();
    struct script script = make_script(&random, DSCHED_AVERAGED);
    struct small_job job;
    script.agent = agent_peer_start(N_RANKS);
    small_job_init(&job, N_RANKS, AGENT_PEER_MAX_ITERATIONS);
    job.sums_in_rank_order = 1;
    job.loss = high_under_a_plan;
    job.context = &script;
    agent_peer_push(script.agent, 1, &script.plans[0], MAX_LOSS, (double)NAN);
    world_run_tuned(N_RANKS, NULL, 1, NULL, with_script, &job, train_with_agent);
    agent_peer_join(script.agent);
    small_job_check_alike(&job);
    for (uint32_t r = 0; r < N_RANKS; r++) {
        check_events(agent_peer_rank(script.agent, r), &job.logs[r]);
    }
    agent_peer_free(script.agent);
    small_job_done(&job);
    dsched_plan_done(&script.plans[0]);
    dsched_plan_done(&script.plans[1]);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(each_rule_is_left_for_exact),
    cmocka_unit_test(twice_the_limit_is_enough_at_once),
    cmocka_unit_test(gradients_blow_it_as_losses_do),
    cmocka_unit_test(a_loss_that_is_not_finite_is_enough),
    cmocka_unit_test(what_is_not_the_plans_fault_changes_nothing),
    cmocka_unit_test(a_candidate_stays_one),
    cmocka_unit_test(a_switch_goes_before),
    cmocka_unit_test(wishes_are_agreed_on_at_the_same_boundary),
    cmocka_unit_test(leaving_needs_no_memory),
    cmocka_unit_test(a_first_plan_is_not_what_ranks_fall_back_to),
    cmocka_unit_test(a_world_of_one_has_a_fuse),
    cmocka_unit_test(the_fuse_over_gloo),
    cmocka_unit_test(the_agent_is_told_where_and_why),
};
TESTING_MAIN(cases)
