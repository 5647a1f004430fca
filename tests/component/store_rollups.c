/* Roll-ups against all the rows they were made of, whatever the order in which things happen. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_world.h"
#include "talk.h"
#include "testing.h"

#define MAX_ITERATIONS 400u
#define MAX_RANKS      5u
#define SECOND_NS      STORE_WORLD_SECOND_NS

/* A job whose ranks report through an agent each, in pieces, some of them late or never. */
struct job {
    struct store_world world;
    uint64_t random;
    int64_t now_ns;
    int64_t incarnation;
    uint32_t n_ranks;
    uint32_t n_iterations;
    uint64_t seq[MAX_RANKS];
    uint64_t plan_seq[MAX_ITERATIONS];
    uint8_t state[MAX_ITERATIONS][MAX_RANKS]; /* 0: not yet, 1: sent, 2: late, 3: never */
};

static uint64_t below(struct job *job, uint64_t bound) {
    return testing_random_below(&job->random, bound);
}

static void start_job(struct job *job, uint64_t random) {
    memset(job, 0, sizeof(*job));
    job->random = random;
    store_world_start(&job->world);
    job->now_ns = STORE_WORLD_BEGIN_NS + (int64_t)below(job, 7200) * SECOND_NS;
    job->n_ranks = 1 + (uint32_t)below(job, MAX_RANKS);
    job->n_iterations = 50 + (uint32_t)below(job, MAX_ITERATIONS - 50);
    job->incarnation = store_world_register(&job->world, "job", "start", job->n_ranks, job->now_ns);
    uint64_t plan = 0;
    for (uint32_t i = 0; i < job->n_iterations; i++) {
        int missing = below(job, 40) == 0; /* all ranks */
        plan += below(job, 60) == 0;
        job->plan_seq[i] = plan;
        for (uint32_t rank = 0; rank < job->n_ranks; rank++) {
            uint64_t kind = below(job, 50);
            job->state[i][rank] = missing || kind == 0 ? 3 : kind == 1 ? 2 : 0;
        }
        if (missing && below(job, 4) == 0) { /* a gap */
            uint32_t to = i + (uint32_t)below(job, 90);
            for (; i < to && i < job->n_iterations; i++) {
                memset(job->state[i], 3, job->n_ranks);
            }
        }
    }
}

/* One report of one rank: what it has not sent of iterations before `to`, at most 40. */
static void send_some(struct job *job, uint32_t rank, uint32_t to, uint8_t state) {
    struct wire_iteration rows[40];
    char agent[16];
    struct wire_report report = {.iterations = rows};
    for (uint32_t i = 0; i < to && report.n_iterations < 40; i++) {
        if (job->state[i][rank] == state) {
            job->state[i][rank] = 1;
            rows[report.n_iterations++] = store_world_row(rank, i, job->plan_seq[i]);
        } else if (job->state[i][rank] == 1 && below(job, 30) == 0) {
            /* Again, and not the same: the first one counts. */
            rows[report.n_iterations] = store_world_row(rank, i, job->plan_seq[i]);
            rows[report.n_iterations++].step_ns += 1000;
        }
    }
    (void)snprintf(agent, sizeof(agent), "agent-%u", rank);
    memcpy(report.agent, agent, sizeof(agent));
    report.seq = ++job->seq[rank];
    store_world_report(&job->world, job->incarnation, &report, job->now_ns);
    store_world_remember(&job->world);
}

/* Time passes: at most `most_s`. */
static void pass(struct job *job, uint64_t most_s) {
    job->now_ns += (int64_t)below(job, most_s) * SECOND_NS;
}

static void settle(struct job *job) {
    for (int i = 0; i < 3; i++) { /* what is late, what is rolled up again, what follows */
        job->now_ns += job->world.options.settle_ns + SECOND_NS;
        store_world_tidy(&job->world, job->now_ns);
    }
}

static void stop_job(struct job *job) {
    store_world_stop(&job->world);
}

/* Whether the rows are in order, come twice, late or never, and whenever upkeep and restarts come
 * in between: in the end minutes are what all rows come to. */
static void minutes_are_the_sums_of_all_rows(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int round = 0; round < 12; round++) {
        struct job job;
        start_job(&job, testing_random(&seed));
        for (uint32_t to = 0; to < job.n_iterations;) {
            to += (uint32_t)below(&job, 30);
            to = to < job.n_iterations ? to : job.n_iterations;
            for (uint32_t rank = 0; rank < job.n_ranks; rank++) {
                if (below(&job, 4) != 0 || to == job.n_iterations) {
                    send_some(&job, rank, to, 0);
                    pass(&job, 3);
                }
            }
            if (below(&job, 3) == 0) {
                store_world_tidy(&job.world, job.now_ns);
            }
            if (below(&job, 12) == 0) {
                store_world_restart(&job.world);
            }
            if (below(&job, 6) == 0) {
                send_some(&job, (uint32_t)below(&job, job.n_ranks), to, 2);
            }
            pass(&job, below(&job, 10) == 0 ? 4000 : 20);
        }
        for (uint32_t rank = 0; rank < job.n_ranks; rank++) {
            for (uint8_t state = 0; state < 3; state += 2) {
                for (int i = 0; i < 25; i++) {
                    send_some(&job, rank, job.n_iterations, state);
                }
            }
        }
        settle(&job);
        assert_int_equal(store_world_int(&job.world, "SELECT rolled_to - newest FROM upkeep"), 0);
        assert_int_equal(store_world_int(&job.world, "SELECT count(late_ns) FROM upkeep"), 0);
        store_world_check(&job.world);
        stop_job(&job);
    }
}

/* Rows of ranks go, and minutes; what is left still says the same of every iteration. */
static void what_goes_leaves_its_sums(void **unused) {
    uint64_t seed = testing_seed();
    (void)unused;
    for (int round = 0; round < 12; round++) {
        struct job job;
        uint64_t n_sent = 0;
        start_job(&job, testing_random(&seed));
        job.world.options.keep.raw_ns = (int64_t)(200 + below(&job, 2000)) * SECOND_NS;
        job.world.options.keep.raw_iterations = below(&job, 3) == 0 ? 0 : (int64_t)below(&job, 200);
        job.world.options.keep.minutes_ns = (int64_t)(1000 + below(&job, 9000)) * SECOND_NS;
        job.world.options.settle_ns = 5 * SECOND_NS;
        store_world_restart(&job.world);
        for (uint32_t to = 0; to < job.n_iterations;) {
            to += 1 + (uint32_t)below(&job, 30);
            to = to < job.n_iterations ? to : job.n_iterations;
            for (uint32_t rank = 0; rank < job.n_ranks; rank++) {
                send_some(&job, rank, to, 0);
            }
            pass(&job, below(&job, 10) == 0 ? 4000 : 1 + below(&job, 60));
            job.now_ns += 6 * SECOND_NS;
            if (below(&job, 3) != 0) {
                store_world_tidy(&job.world, job.now_ns);
                store_world_check(&job.world);
            }
        }
        settle(&job);
        store_world_check(&job.world);
        for (uint32_t i = 0; i < job.n_iterations; i++) {
            n_sent += memchr(job.state[i], 1, job.n_ranks) != NULL;
        }
        /* And so does the answer of the API, however it is cut. */
        for (int i = 0; i < 8; i++) {
            char *text = store_world_series(&job.world, job.incarnation, 0, UINT32_MAX,
                                            1 + below(&job, 500));
            uint64_t n = 0;
            for (const char *at = text; (at = strstr(at, "\"n_iterations\":")) != NULL; at++) {
                n += (uint64_t)talk_number(at, "n_iterations");
            }
            assert_int_equal(n, n_sent);
            free(text);
        }
        /* A year later nothing is left of it but its hours. */
        store_world_tidy(&job.world, job.now_ns + 365 * STORE_WORLD_DAY_NS);
        assert_int_equal(store_world_int(&job.world, "SELECT count(*) FROM iterations"), 0);
        assert_int_equal(
            store_world_int(&job.world, "SELECT count(*) FROM rollups WHERE period_s = 60"), 0);
        store_world_check(&job.world);
        store_world_tidy(&job.world, job.now_ns + 1095 * STORE_WORLD_DAY_NS);
        assert_int_equal(store_world_int(&job.world, "SELECT count(*) FROM rollups"), 0);
        stop_job(&job);
    }
}

/* A row that comes when the roll-up of its minute can no longer be made again, since other rows
 * have gone, is kept, and changes nothing that is counted. One behind that minute is counted. */
static void late_rows_beside_gaps_change_nothing(void **unused) {
    struct store_world world;
    int64_t now_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    store_world_start(&world);
    world.options.keep.raw_iterations = 90;
    store_world_restart(&world);
    int64_t incarnation = store_world_register(&world, "job", "start", 2, now_ns);
    struct wire_iteration row = store_world_row(0, 40, 0);
    struct wire_report report = {.agent = "b", .seq = 1, .n_iterations = 1, .iterations = &row};
    store_world_iterations(&world, incarnation, 1, 2, 0, 40, now_ns);
    store_world_report(&world, incarnation, &report, now_ns); /* of 40 there is rank 0 only */
    store_world_iterations(&world, incarnation, 2, 2, 41, 19, now_ns);
    now_ns += 60 * SECOND_NS;
    store_world_iterations(&world, incarnation, 3, 2, 60, 40, now_ns);
    row = store_world_row(0, 100, 0);
    report.seq = 2;
    store_world_report(&world, incarnation, &report, now_ns);
    store_world_iterations(&world, incarnation, 4, 2, 101, 19, now_ns);
    now_ns += 200 * SECOND_NS;
    store_world_tidy(&world, now_ns);
    assert_int_equal(store_world_int(&world, "SELECT raw_from FROM upkeep"), 30);
    assert_int_equal(store_world_int(&world, "SELECT n_grad_sq_mean FROM rollups WHERE first = 0"),
                     119);
    row = store_world_row(1, 40, 0);
    report.seq = 3;
    store_world_report(&world, incarnation, &report, now_ns);
    row = store_world_row(1, 100, 0);
    report.seq = 4;
    store_world_report(&world, incarnation, &report, now_ns);
    now_ns += 200 * SECOND_NS;
    store_world_tidy(&world, now_ns);
    assert_int_equal(store_world_int(&world, "SELECT n_grad_sq_mean FROM rollups WHERE first = 0"),
                     119);
    assert_int_equal(
        store_world_int(&world, "SELECT sum(n_grad_sq_mean) FROM rollups WHERE first >= 60"), 120);
    assert_int_equal(store_world_int(&world, "SELECT n_rolled FROM upkeep"), 120);
    assert_int_equal(store_world_int(&world, "SELECT n_raw FROM upkeep"), 90);
    assert_int_equal(store_world_int(&world, "SELECT count(late_ns) FROM upkeep"), 0);
    store_world_stop(&world);
}

/* What a restarted controller says of the number of iterations is what was there, whatever is left
 * of them. */
static void iterations_are_counted_for_ever(void **unused) {
    struct store_world world;
    struct store_incarnation left = {0};
    int64_t now_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    store_world_start(&world);
    world.options.keep.raw_iterations = 30;
    store_world_restart(&world);
    int64_t incarnation = store_world_register(&world, "job", "start", 2, now_ns);
    for (uint64_t seq = 1; seq <= 10; seq++) {
        store_world_iterations(&world, incarnation, seq, 2, (seq - 1) * 20, 20, now_ns);
        now_ns += 90 * SECOND_NS;
        store_world_tidy(&world, seq < 10 ? now_ns : now_ns - 60 * SECOND_NS);
        assert_int_equal(store_read_incarnation(world.store, incarnation, &left, NULL), DEFT_OK);
        assert_int_equal(left.n_iterations, seq * 20);
        store_incarnation_done(&left);
    }
    assert_int_equal(store_world_int(&world, "SELECT count(DISTINCT iteration) FROM iterations"),
                     30);
    store_world_stop(&world);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(minutes_are_the_sums_of_all_rows),
    cmocka_unit_test(what_goes_leaves_its_sums),
    cmocka_unit_test(late_rows_beside_gaps_change_nothing),
    cmocka_unit_test(iterations_are_counted_for_ever),
};
TESTING_MAIN(cases)
