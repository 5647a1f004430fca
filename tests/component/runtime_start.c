/* How a rank may start and end otherwise: with a plan from the first iteration on, with a listening
 * socket of its own, without input while others still have some; and averages on demand. */
#include <math.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/runtime.h"
#include "testing.h"
#include "world.h"

#define N_RANKS 3
#define N       10u
#define ALL_CAN (DEFT_CAN_PREVIEW | DEFT_CAN_SKIP | DEFT_CAN_AVERAGE)

struct job {
    float w[N_RANKS][N];
    uint8_t plan[512];
    size_t plan_bytes;
    int odd_rank; /* starts with another plan; -1: none */
    int expect_mismatch;
    uint64_t finished_at[N_RANKS];
};

static void commit(struct world_rank *self, struct deft_error *error, enum deft_status *out) {
    struct job *job = self->world->shared;
    uint32_t id;
    struct deft_tensor tensor = {
        .name = "w", .elements = N, .dtype = DEFT_F32, .parameters = job->w[self->rank]};
    WORLD_CHECK(self, deft_tensor_add(self->rt, &tensor, &id, error) == DEFT_OK, "%s", error->text);
    *out = deft_commit(self->rt, error);
}

static void commit_well(struct world_rank *self) {
    struct deft_error error = {.text = ""};
    enum deft_status status;
    commit(self, &error, &status);
    WORLD_CHECK(self, status == DEFT_OK, "%s", error.text);
}

/* One plain step of gradient descent; returns what the boundary said last. */
static struct deft_update iterate(struct world_rank *self, const float *gradient) {
    struct job *job = self->world->shared;
    struct deft_error error = {.text = ""};
    struct deft_update update;
    deft_forward_begin(self->rt);
    deft_backward_begin(self->rt);
    WORLD_CHECK(self, deft_grad_ready(self->rt, 0, gradient) == DEFT_OK, "gradient refused");
    do {
        WORLD_CHECK(self, deft_step(self->rt, &update, &error) == DEFT_OK, "%s", error.text);
        for (uint32_t i = 0; update.action != DEFT_DONE && i < N; i++) {
            job->w[self->rank][i] -= 0.1f * ((float *)update.gradients[0])[i];
        }
    } while (update.action != DEFT_DONE);
    return update;
}

/* --- a first plan ----------------------------------------------------------------------------- */

static void make_plan(struct job *job, enum dsched_rule rule, uint16_t merge, uint8_t delay) {
    struct dsched_plan plan;
    assert_int_equal(dsched_plan_init(&plan, 1, 1), DSCHED_OK);
    plan.rule = rule;
    plan.n_links = 1;
    plan.buckets[0].end = N;
    plan.merge[0] = merge;
    plan.ops[0].delay = delay;
    job->plan_bytes = dsched_plan_encode(&plan, job->plan, sizeof(job->plan));
    assert_true(job->plan_bytes > 0 && job->plan_bytes <= sizeof(job->plan));
    dsched_plan_done(&plan);
}

static void with_first_plan(const struct world_rank *self, struct deft_options *options) {
    const struct job *job = self->world->shared;
    options->capabilities = ALL_CAN;
    if (self->rank != job->odd_rank) {
        options->first_plan = job->plan;
        options->first_plan_bytes = job->plan_bytes;
    }
}

static void run_with_first_plan(struct world_rank *self) {
    struct job *job = self->world->shared;
    struct deft_stats stats;
    uint8_t exported[sizeof(job->plan)];
    float gradient[N] = {1};
    commit_well(self);
    WORLD_CHECK(self, deft_plan_export(self->rt, NULL, 0) == job->plan_bytes, "size");
    WORLD_CHECK(self,
                deft_plan_export(self->rt, exported, sizeof(exported)) == job->plan_bytes &&
                    memcmp(exported, job->plan, job->plan_bytes) == 0,
                "another plan runs");
    gradient[1] = (float)self->rank;
    /* merge 2, delay 1: the mean of iterations 0 and 1 lands at boundary 2 */
    for (int step = 0; step < 3; step++) {
        WORLD_CHECK(self, job->w[self->rank][0] == 0, "moved before boundary 2");
        (void)iterate(self, gradient);
    }
    WORLD_CHECK(self, fabsf(job->w[self->rank][0] + 0.1f) < 1e-6f, "w is %g",
                job->w[self->rank][0]);
    WORLD_CHECK(self, fabsf(job->w[self->rank][1] + 0.1f) < 1e-6f, "w is %g",
                job->w[self->rank][1]);
    deft_stats(self->rt, &stats);
    WORLD_CHECK(self, stats.plan_seq == 0 && strcmp(stats.rule, "delayed") == 0, "%s", stats.rule);
}

static void a_first_plan_runs_from_the_first_iteration(void **unused) {
    struct job job = {.odd_rank = -1};
    (void)unused;
    make_plan(&job, DSCHED_DELAYED, 2, 1);
    world_run_tuned(N_RANKS, NULL, 1, NULL, with_first_plan, &job, run_with_first_plan);
}

static void run_refused(struct world_rank *self) {
    struct job *job = self->world->shared;
    struct deft_error error = {.text = ""};
    enum deft_status status;
    commit(self, &error, &status);
    WORLD_CHECK(self, status == (job->expect_mismatch ? DEFT_MISMATCH : DEFT_INVALID), "%s",
                error.text);
    WORLD_CHECK(self, strstr(error.text, job->expect_mismatch ? "first plans" : "plan 0") != NULL,
                "%s", error.text);
}

static void a_first_plan_is_checked_and_the_same_for_all(void **unused) {
    struct job job = {.odd_rank = 1, .expect_mismatch = 1};
    (void)unused;
    make_plan(&job, DSCHED_EXACT, 1, 0);
    world_run_tuned(N_RANKS, NULL, 1, NULL, with_first_plan, &job, run_refused);
    job = (struct job){.odd_rank = -1, .plan = {1, 2, 3}, .plan_bytes = 3};
    world_run_tuned(N_RANKS, NULL, 1, NULL, with_first_plan, &job, run_refused);
}

/* --- finishing -------------------------------------------------------------------------------- */

static void run_uneven(struct world_rank *self) {
    struct job *job = self->world->shared;
    float gradient[N] = {1};
    uint64_t n_own = 4 + 3 * (uint64_t)self->rank;
    struct deft_update update;
    commit_well(self);
    for (uint64_t i = 0;; i++) {
        if (i == n_own) {
            deft_finish_request(self->rt);
        }
        update = iterate(self, i < n_own ? gradient : (const float[N]){0});
        if (update.finish_agreed) {
            break;
        }
        WORLD_CHECK(self, i < 100, "the ranks never finish");
    }
    job->finished_at[self->rank] = update.iteration;
    update = iterate(self, gradient);
    WORLD_CHECK(self, !update.finish_agreed || update.iteration < 10 + CONTROL_LAG + CONTROL_LAG,
                "the wish outlived its agreement");
}

static void ranks_finish_together_when_the_last_has_no_input(void **unused) {
    struct job job = {.odd_rank = -1};
    (void)unused;
    world_run_tuned(N_RANKS, NULL, 1, NULL, NULL, &job, run_uneven);
    for (int r = 0; r < N_RANKS; r++) {
        /* rank 2 has 10 iterations and says so at boundary 10 */
        assert_int_equal(job.finished_at[r], 10 + CONTROL_LAG);
    }
}

/* --- averages --------------------------------------------------------------------------------- */

static void run_averages(struct world_rank *self) {
    struct deft_error error = {.text = ""};
    double data[3] = {self->rank, 2.0 * self->rank, 1};
    float bad[2] = {1, self->rank == 1 ? NAN : 1};
    float gradient[N] = {1};
    WORLD_CHECK(self, deft_average(self->rt, data, 3, DEFT_F64, &error) == DEFT_STATE, "%s",
                error.text);
    commit_well(self);
    for (int round = 0; round < 2; round++) {
        WORLD_CHECK(self, deft_average(self->rt, data, 3, DEFT_F64, &error) == DEFT_OK, "%s",
                    error.text);
        WORLD_CHECK(self, fabs(data[0] - 1) < 1e-12 && fabs(data[1] - 2) < 1e-12, "%g %g", data[0],
                    data[1]);
        WORLD_CHECK(self, deft_average(self->rt, bad, 2, DEFT_F32, &error) == DEFT_OK, "%s",
                    error.text);
        WORLD_CHECK(self, bad[0] == 0 && bad[1] == 0, "%g %g", (double)bad[0], (double)bad[1]);
        (void)iterate(self, gradient);
    }
    WORLD_CHECK(self, deft_average(self->rt, NULL, 3, DEFT_F64, &error) == DEFT_INVALID, "NULL");
    WORLD_CHECK(self, deft_average(self->rt, data, 0, DEFT_F64, &error) == DEFT_INVALID, "0");
    deft_forward_begin(self->rt);
    WORLD_CHECK(self, deft_grad_ready(self->rt, 0, gradient) == DEFT_OK, "gradient refused");
    WORLD_CHECK(self, deft_average(self->rt, data, 3, DEFT_F64, &error) == DEFT_STATE, "%s",
                error.text);
}

static void run_broadcasts(struct world_rank *self) {
    struct deft_error error = {.text = ""};
    uint8_t data[37];
    uint8_t expected[sizeof(data)];
    uint64_t seed = 7; /* the same on all ranks */
    commit_well(self);
    for (size_t n_bytes = 0; n_bytes <= sizeof(data); n_bytes++) {
        int32_t root = (int32_t)(n_bytes % N_RANKS);
        for (size_t i = 0; i < sizeof(data); i++) {
            expected[i] = (uint8_t)(testing_random(&seed) >> 32);
            data[i] = self->rank == root ? expected[i] : (uint8_t)~expected[i];
        }
        WORLD_CHECK(self, deft_broadcast(self->rt, root, data, n_bytes, &error) == DEFT_OK, "%s",
                    error.text);
        for (size_t i = 0; i < sizeof(data); i++) {
            uint8_t wanted =
                i < n_bytes || self->rank == root ? expected[i] : (uint8_t)~expected[i];
            WORLD_CHECK(self, data[i] == wanted, "byte %zu of %zu", i, n_bytes);
        }
    }
    WORLD_CHECK(self, deft_broadcast(self->rt, N_RANKS, data, 1, &error) == DEFT_INVALID, "root");
}

static void broadcasts_carry_every_byte(void **unused) {
    struct job job = {.odd_rank = -1};
    (void)unused;
    world_run_tuned(N_RANKS, NULL, 1, NULL, NULL, &job, run_broadcasts);
}

static void averages_are_means_and_never_nan(void **unused) {
    struct job job = {.odd_rank = -1};
    (void)unused;
    world_run_tuned(N_RANKS, NULL, 1, NULL, NULL, &job, run_averages);
}

/* --- a socket of the caller's ----------------------------------------------------------------- */

struct meeting {
    int listener;
    uint16_t port;
};

static void at_the_socket(const struct world_rank *self, struct deft_options *options) {
    const struct meeting *meeting = self->world->shared;
    options->allgather = NULL;
    options->master_host = "127.0.0.1";
    options->master_port = meeting->port;
    options->master_fd = self->rank == 0 ? meeting->listener : -1;
}

static void run_nothing(struct world_rank *self) {
    WORLD_CHECK(self, self->rt->star != NULL, "there is no watch");
}

static void ranks_meet_at_a_listening_socket(void **unused) {
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_addr = {.s_addr = htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    struct meeting meeting = {.listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    (void)unused;
    assert_true(meeting.listener >= 0);
    assert_int_equal(bind(meeting.listener, (struct sockaddr *)&address, length), 0);
    assert_int_equal(listen(meeting.listener, 8), 0);
    assert_int_equal(getsockname(meeting.listener, (struct sockaddr *)&address, &length), 0);
    meeting.port = ntohs(address.sin_port);
    world_run_tuned(N_RANKS, NULL, 1, NULL, at_the_socket, &meeting, run_nothing);
    /* taken over: closed by now */
    assert_int_equal(listen(meeting.listener, 8), -1);
}

static void a_socket_is_closed_when_opening_fails(void **unused) {
    struct deft_options options;
    struct deft_runtime *rt = NULL;
    (void)unused;
    assert_int_equal(deft_options_init(&options, NULL), DEFT_OK);
    options.master_fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(options.master_fd >= 0);
    options.rank = -1;
    assert_int_equal(deft_open(&options, &rt, NULL), DEFT_INVALID);
    assert_int_equal(close(options.master_fd), -1);
}

/* --- an agent that is not there --------------------------------------------------------------- */

static void with_a_lost_agent(const struct world_rank *self, struct deft_options *options) {
    options->agent_socket = self->rank == 0 ? "/nowhere/agent" : "@deft-test-of-nobody";
}

static void train_on(struct world_rank *self) {
    float gradient[N] = {1};
    commit_well(self);
    const char *notice = deft_notice(self->rt);
    WORLD_CHECK(self,
                strstr(notice, self->rank == 0
                                   ? "no agent answers on socket '/nowhere/agent': No"
                                   : "'@deft-test-of-nobody': Connection refused") != NULL,
                "the notice is '%s'", notice);
    for (int t = 0; t < 3; t++) {
        (void)iterate(self, gradient);
    }
}

static void an_agent_that_does_not_answer_is_told_at_once(void **state) {
    (void)state;
    struct job job = {.odd_rank = -1};
    world_run_tuned(2, NULL, 1, NULL, with_a_lost_agent, &job, train_on);
}

/* --- ranks that do different things ----------------------------------------------------------- */

static enum deft_status call_by_rank(struct world_rank *self, struct deft_error *error) {
    float data[4] = {1};
    struct deft_update update;
    switch (self->rank) {
    case 0:
        return deft_drain(self->rt, &update, error);
    case 1:
        return deft_average(self->rt, data, 4, DEFT_F32, error);
    default:
        return deft_broadcast(self->rt, 0, data, sizeof(data), error);
    }
}

static void run_different_calls(struct world_rank *self) {
    struct deft_error error = {.text = ""};
    enum deft_status status;
    float gradient[N] = {1};
    commit_well(self);
    for (int t = 0; t < 5; t++) {
        (void)iterate(self, gradient);
    }
    status = call_by_rank(self, &error);
    WORLD_CHECK(self,
                status == DEFT_MISMATCH &&
                    strstr(error.text, "after 5 iterations, and another") != NULL,
                "status %d: %s", status, error.text);
    struct deft_update update;
    WORLD_CHECK(self, deft_step(self->rt, &update, &error) == DEFT_MISMATCH, "it goes on");
}

static void run_different_sizes(struct world_rank *self) {
    struct deft_error error = {.text = ""};
    enum deft_status status;
    float data[4] = {1};
    commit_well(self);
    status = deft_average(self->rt, data, self->rank == 1 ? 3 : 4, DEFT_F32, &error);
    WORLD_CHECK(self, status == DEFT_MISMATCH && strstr(error.text, "another size") != NULL,
                "status %d: %s", status, error.text);
}

static void ranks_that_call_different_things_are_told(void **state) {
    (void)state;
    struct job job = {.odd_rank = -1};
    world_run_tuned(N_RANKS, NULL, 1, NULL, NULL, &job, run_different_calls);
    world_run_tuned(N_RANKS, NULL, 1, NULL, NULL, &job, run_different_sizes);
}

/* Under averaged the anchor is the parameters of the drain, and a drain goes back to it. */
static void run_loads(struct world_rank *self) {
    struct job *job = self->world->shared;
    struct deft_error error = {.text = ""};
    float gradient[N] = {1};
    commit_well(self);
    for (int drains = 0; drains < 3; drains++) {
        struct deft_update update;
        for (int t = 0; drains < 2 && t < 5; t++) {
            (void)iterate(self, gradient);
        }
        do {
            WORLD_CHECK(self, deft_drain(self->rt, &update, &error) == DEFT_OK, "%s", error.text);
        } while (update.action != DEFT_DONE);
        for (uint32_t i = 0; drains == 1 && i < N; i++) {
            job->w[self->rank][i] = 7;
        }
    }
    for (uint32_t i = 0; i < N; i++) {
        WORLD_CHECK(self, job->w[self->rank][i] == 7, "w[%u] is %g", i, job->w[self->rank][i]);
    }
}

static void what_is_loaded_between_two_drains_stays(void **state) {
    (void)state;
    static const enum dsched_rule rules[] = {DSCHED_EXACT, DSCHED_DELAYED, DSCHED_LOOKAHEAD,
                                             DSCHED_AVERAGED};
    for (size_t r = 0; r < sizeof(rules) / sizeof(rules[0]); r++) {
        struct job job = {.odd_rank = -1};
        make_plan(&job, rules[r], rules[r] == DSCHED_AVERAGED ? 2 : 1, rules[r] != DSCHED_EXACT);
        world_run_tuned(N_RANKS, NULL, 1, NULL, with_first_plan, &job, run_loads);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_first_plan_runs_from_the_first_iteration),
    cmocka_unit_test(a_first_plan_is_checked_and_the_same_for_all),
    cmocka_unit_test(ranks_finish_together_when_the_last_has_no_input),
    cmocka_unit_test(averages_are_means_and_never_nan),
    cmocka_unit_test(broadcasts_carry_every_byte),
    cmocka_unit_test(ranks_meet_at_a_listening_socket),
    cmocka_unit_test(a_socket_is_closed_when_opening_fails),
    cmocka_unit_test(an_agent_that_does_not_answer_is_told_at_once),
    cmocka_unit_test(ranks_that_call_different_things_are_told),
    cmocka_unit_test(what_is_loaded_between_two_drains_stays),
};
TESTING_MAIN(cases)
