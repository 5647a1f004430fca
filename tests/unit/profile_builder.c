/* Observations of a known job give its profile back. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "testing.h"
#include "tuning/observe.h"
#include "tuning/profile_build.h"

#define N_RANKS   3u
#define N_TENSORS 4u

static void registration_of(struct wire_registration *out) {
    memset(out, 0, sizeof(*out));
    memcpy(out->key, "job-1", 6);
    out->n_ranks = N_RANKS;
    out->n_tensors = N_TENSORS;
    out->tensors = calloc(N_TENSORS, sizeof(*out->tensors));
    out->n_links = 1;
    out->links = calloc(1, sizeof(*out->links));
    assert_true(out->tensors != NULL && out->links != NULL);
    for (uint32_t i = 0; i < N_TENSORS; i++) {
        out->tensors[i].name[0] = (char)('a' + i);
        out->tensors[i].elements = UINT64_C(1000) * (i + 1);
    }
    memcpy(out->links[0].name, "mem:a", 6);
    out->links[0].n_probes = 3;
    out->links[0].probes = calloc(3, sizeof(struct dsched_sample));
    assert_non_null(out->links[0].probes);
    for (uint32_t i = 0; i < 3; i++) {
        out->links[0].probes[i].bytes = UINT64_C(1000) << (4 * i);
        out->links[0].probes[i].ns = 50000 + (int64_t)out->links[0].probes[i].bytes * 10;
    }
}

/* Rank 1 computes longest. Ranks without a neighbour's data wait for it. */
static struct wire_iteration row_of(uint32_t rank, uint64_t iteration, uint64_t *state) {
    int64_t noise = (int64_t)testing_random_below(state, 2001) - 1000;
    struct wire_iteration row = {.rank = rank,
                                 .iteration = iteration,
                                 .forward_ns = (rank == 1 ? 1000000 : 800000) + noise,
                                 .backward_ns = rank == 1 ? 2000000 : 1500000,
                                 .exposed_ns = rank == 1 ? 100000 : 800000,
                                 .optimizer_ns = 300000,
                                 .loss = 1.0,
                                 .grad_sq_local = NAN,
                                 .grad_sq_mean = NAN};
    row.step_ns =
        row.forward_ns + row.backward_ns + row.exposed_ns + row.optimizer_ns + 50000; /* loading */
    return row;
}

static uint32_t feed(struct observe *observe, uint64_t first, uint64_t n, uint64_t *state) {
    uint32_t n_whole = 0;
    for (uint64_t i = first; i < first + n; i++) {
        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
            struct wire_iteration row = row_of(rank, i, state);
            struct observed whole;
            if (i % 16 == 5) {
                row.backward_ns *= 20; /* a page fault storm: medians do not care */
                row.step_ns *= 20;
            }
            n_whole += (uint32_t)observe_iteration(observe, &row, &whole);
        }
    }
    return n_whole;
}

static void compute_is_the_slowest_rank(void **unused) {
    uint64_t state = testing_seed();
    struct wire_registration registration;
    struct observe *observe = NULL;
    struct dsched_profile profile = {0};
    struct deft_error error = {0};
    (void)unused;
    registration_of(&registration);
    assert_int_equal(observe_create(N_RANKS, N_TENSORS, 1, &observe), DEFT_OK);
    assert_int_equal(profile_build(&registration, observe, &profile, &error), DEFT_STATE);
    assert_int_equal(feed(observe, 0, 40, &state), 40);
    assert_int_equal(profile_build(&registration, observe, &profile, &error), DEFT_OK);
    assert_in_range(profile.forward_ns, 998000, 1002000);
    assert_int_equal(profile.backward_ns, 2000000);
    assert_int_equal(profile.optimizer_ns, 350000); /* with what is outside of the stages */
    assert_int_equal(profile.world_size, N_RANKS);
    dsched_profile_done(&profile);
    observe_destroy(observe);
    wire_registration_done(&registration);
}

/* A profile says what computing takes beside idle links. A busy one of the host's processors made
 * it longer, which the planner will add again. */
static void contention_is_not_counted_twice(void **unused) {
    uint64_t state = testing_seed();
    struct wire_registration registration;
    struct observe *observe = NULL;
    struct dsched_profile profile = {0};
    (void)unused;
    registration_of(&registration);
    memcpy(registration.links[0].name, "gloo:a", 7);
    for (uint64_t bytes = 0; bytes <= 1000000; bytes += 100000) {
        assert_int_equal(observe_create(N_RANKS, N_TENSORS, 1, &observe), DEFT_OK);
        for (uint64_t i = 0; i < 40; i++) {
            for (uint32_t rank = 0; rank < N_RANKS; rank++) {
                struct wire_iteration row = row_of(rank, i, &state);
                struct observed whole;
                row.bytes = bytes;
                (void)observe_iteration(observe, &row, &whole);
            }
        }
        assert_int_equal(profile_build(&registration, observe, &profile, NULL), DEFT_OK);
        const struct dsched_link *link = &profile.links[0];
        double contention = link->contention_ppm / 1e6;
        assert_true(contention > 1);
        double busy_ns = (double)bytes * (double)dsched_link_ns(link, 256000) / 256000 - 1e5;
        double share = fmin(fmax(busy_ns / (1e6 + 2e6 + 3.5e5), 0), 1);
        double expected = 2e6 * (1 - share * (contention - 1) / contention);
        assert_in_range(profile.backward_ns, (int64_t)(expected * 0.999),
                        (int64_t)(expected * 1.001));
        dsched_profile_done(&profile);
        observe_destroy(observe);
    }
    wire_registration_done(&registration);
}

/* Under a plan that merges three, the iteration beside the all-reduces is half as long again. The
 * profile has that factor, and the mean of the cycle cleared of it; what ran before does not count.
 */
static void the_plan_that_runs_counts_by_places(void **unused) {
    const struct contention_plan plan = {.seq = 1, .at_boundary = 1, .cycle = 3, .n_merged = 3};
    uint64_t state = testing_seed();
    struct wire_registration registration;
    struct observe *observe = NULL;
    struct dsched_profile profile = {0};
    (void)unused;
    registration_of(&registration);
    assert_int_equal(observe_create(N_RANKS, N_TENSORS, 1, &observe), DEFT_OK);
    (void)feed(observe, 0, 40, &state);
    observe_runs(observe, &plan);
    for (uint64_t i = 40; i < 40 + 30; i++) {
        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
            struct wire_iteration row = row_of(rank, i, &state);
            struct observed whole;
            int is_beside = i % 3 == 1;
            row.plan_seq = 1;
            row.exposed_ns = 0;
            row.forward_ns += is_beside ? row.forward_ns / 2 : 0;
            row.backward_ns += is_beside ? row.backward_ns / 2 : 0;
            row.optimizer_ns += is_beside ? row.optimizer_ns / 2 : 0;
            row.step_ns = row.forward_ns + row.backward_ns + row.optimizer_ns;
            row.bytes = is_beside ? 256000 : 0;
            (void)observe_iteration(observe, &row, &whole);
        }
    }
    assert_int_equal(profile_build(&registration, observe, &profile, NULL), DEFT_OK);
    assert_in_range(profile.links[0].contention_ppm, 1490000, 1510000);
    /* 2.61 ms of all-reduces beside iterations of 3.3, 3.3 and 4.95 ms. */
    double share = (double)dsched_link_ns(&profile.links[0], 256000) / 11550000;
    double undisturbed = 1 - share * (1 - 1 / 1.5);
    assert_in_range(profile.forward_ns, (int64_t)(1e6 * 3.5 / 3 * undisturbed * 0.99),
                    (int64_t)(1e6 * 3.5 / 3 * undisturbed * 1.01));
    assert_in_range(profile.backward_ns, (int64_t)(2e6 * 3.5 / 3 * undisturbed * 0.99),
                    (int64_t)(2e6 * 3.5 / 3 * undisturbed * 1.01));
    dsched_profile_done(&profile);
    observe_destroy(observe);
    wire_registration_done(&registration);
}

static void readiness_becomes_backward_times(void **unused) {
    uint64_t state = testing_seed();
    struct wire_registration registration;
    struct observe *observe = NULL;
    struct dsched_profile profile = {0};
    /* Output side first: the last tensor is ready first. Tensor 1 overtakes tensor 2. */
    int64_t offsets[N_TENSORS] = {1900000, 900000, 1000000, 400000};
    int64_t early[N_TENSORS] = {100, 100, 100, 100};
    const struct wire_readiness slow = {.rank = 1, .n_offsets = N_TENSORS, .offsets_ns = offsets};
    const struct wire_readiness fast = {.rank = 0, .n_offsets = N_TENSORS, .offsets_ns = early};
    (void)unused;
    registration_of(&registration);
    assert_int_equal(observe_create(N_RANKS, N_TENSORS, 1, &observe), DEFT_OK);
    (void)feed(observe, 0, 40, &state);
    observe_readiness(observe, &slow);
    observe_readiness(observe, &fast); /* the slowest rank counts */
    assert_int_equal(profile_build(&registration, observe, &profile, NULL), DEFT_OK);
    assert_int_equal(profile.tensors[3].backward_ns, 400000);
    assert_int_equal(profile.tensors[2].backward_ns, 600000);
    assert_int_equal(profile.tensors[1].backward_ns, 0);
    assert_int_equal(profile.tensors[0].backward_ns, 900000);
    int64_t forward = 0;
    for (uint32_t i = 0; i < N_TENSORS; i++) {
        forward += profile.tensors[i].forward_ns;
    }
    assert_true(forward <= profile.forward_ns && forward > profile.forward_ns - 10);
    dsched_profile_done(&profile);
    observe_destroy(observe);
    wire_registration_done(&registration);
}

static void links_are_what_they_do_under_load(void **unused) {
    uint64_t state = testing_seed();
    struct wire_registration registration;
    struct observe *observe = NULL;
    struct dsched_profile profile = {0};
    (void)unused;
    registration_of(&registration);
    assert_int_equal(observe_create(N_RANKS, N_TENSORS, 1, &observe), DEFT_OK);
    (void)feed(observe, 0, 40, &state);
    for (uint32_t i = 0; i < 8; i++) {
        /* Twice as slow as probed; the first report caught a burst. */
        const struct wire_op_summary op = {.link = 0,
                                           .bytes = 256000,
                                           .count = 10,
                                           .min_ns = i == 0 ? 100000 : 5220000,
                                           .median_ns = 6000000,
                                           .max_ns = 9000000};
        observe_ops(observe, &op);
    }
    assert_int_equal(profile_build(&registration, observe, &profile, NULL), DEFT_OK);
    const struct dsched_link *link = &profile.links[0];
    assert_int_equal(dsched_link_ns(link, 256000), 5220000);
    int64_t probed = registration.links[0].probes[1].ns;
    assert_in_range(dsched_link_ns(link, 16000), probed * 19 / 10, probed * 21 / 10);
    for (uint32_t i = 1; i < link->n_samples; i++) {
        assert_true(link->samples[i].bytes > link->samples[i - 1].bytes);
        assert_true(link->samples[i].ns >= link->samples[i - 1].ns);
    }
    dsched_profile_done(&profile);
    observe_destroy(observe);
    wire_registration_done(&registration);
}

/* What a shaper lets through in a burst is not what the link can sustain. */
static void bursts_do_not_make_small_messages_cheap(void **unused) {
    uint64_t state = testing_seed();
    struct wire_registration registration;
    struct observe *observe = NULL;
    struct dsched_profile profile = {0};
    struct dsched_sample probes[] = {{4096, 200000}, {262144, 300000}, {4194304, 67200000}};
    (void)unused;
    registration_of(&registration);
    free(registration.links[0].probes);
    registration.links[0].n_probes = 3;
    registration.links[0].probes = malloc(sizeof(probes));
    assert_non_null(registration.links[0].probes);
    memcpy(registration.links[0].probes, probes, sizeof(probes));
    assert_int_equal(observe_create(N_RANKS, N_TENSORS, 1, &observe), DEFT_OK);
    (void)feed(observe, 0, 40, &state);
    assert_int_equal(profile_build(&registration, observe, &profile, NULL), DEFT_OK);
    const struct dsched_link *link = &profile.links[0];
    assert_int_equal(dsched_link_ns(link, 4194304), 67200000);
    /* 262,144 of 4,194,304 bytes are a sixteenth of the 67 ms above the latency of 0.2 ms. */
    assert_in_range(dsched_link_ns(link, 262144), 4387000, 4388000);
    assert_int_equal(dsched_link_ns(link, 4096), 200000);
    dsched_profile_done(&profile);
    observe_destroy(observe);
    wire_registration_done(&registration);
}

/* Rows in any interleaving of ranks, some sent twice: every iteration completes exactly once. */
static void iterations_complete_once(void **unused) {
    uint64_t state = testing_seed();
    struct observe *observe = NULL;
    uint64_t next[N_RANKS] = {0};
    uint32_t n_whole = 0;
    uint64_t last = 0;
    (void)unused;
    assert_int_equal(observe_create(N_RANKS, N_TENSORS, 1, &observe), DEFT_OK);
    while (next[0] < 500 || next[1] < 500 || next[2] < 500) {
        uint32_t rank = (uint32_t)testing_random_below(&state, N_RANKS);
        uint64_t n = testing_random_below(&state, 60);
        uint64_t from = next[rank] - testing_random_below(&state, next[rank] / 2 + 1);
        for (uint64_t i = from; i < next[rank] + n && i < 500; i++) {
            struct wire_iteration row = row_of(rank, i, &state);
            struct observed whole;
            if (observe_iteration(observe, &row, &whole)) {
                assert_true(n_whole == 0 || whole.iteration == last + 1);
                last = whole.iteration;
                n_whole++;
            }
        }
        next[rank] = next[rank] + n < 500 ? next[rank] + n : 500;
    }
    assert_int_equal(n_whole, 500);
    observe_destroy(observe);
}

/* A rank that is heard no more is left out after OBSERVE_SILENT iterations, and counts again when
 * it has caught up. Nothing is whole twice. */
static void silent_ranks_are_not_waited_for(void **unused) {
    uint64_t state = testing_seed();
    struct observe *observe = NULL;
    struct observed whole;
    const uint64_t begin = 1000000; /* after a restart of the controller */
    const uint64_t silent_from = begin + 100;
    uint64_t last = 0;
    uint64_t n_whole = 0;
    uint64_t n_late = 0;
    uint32_t first = 0;
    (void)unused;
    assert_int_equal(observe_create(N_RANKS, N_TENSORS, 1, &observe), DEFT_OK);
    assert_int_equal(observe_heard(observe, &first), 0);
    assert_int_equal(first, 0);
    for (uint64_t i = begin; i < silent_from + 3 * (uint64_t)OBSERVE_SILENT; i++) {
        for (uint32_t rank = 0; rank < N_RANKS; rank++) {
            struct wire_iteration row = row_of(rank, i, &state);
            if ((rank != 1 || i < silent_from) && observe_iteration(observe, &row, &whole)) {
                assert_true(n_whole == 0 || whole.iteration > last);
                assert_true(whole.iteration < silent_from ||
                            whole.iteration >= silent_from + OBSERVE_SILENT);
                last = whole.iteration;
                n_whole++;
            }
        }
    }
    assert_true(n_whole >= 100 + 2 * (uint64_t)OBSERVE_SILENT - 64 &&
                n_whole <= 100 + 2 * (uint64_t)OBSERVE_SILENT);
    assert_int_equal(observe_heard(observe, &first), N_RANKS - 1);
    assert_int_equal(first, 1);
    /* It back-fills what is over, to no effect, and is then waited for again. */
    for (uint64_t i = silent_from; i < silent_from + 3 * (uint64_t)OBSERVE_SILENT; i++) {
        struct wire_iteration row = row_of(1, i, &state);
        n_late += (uint64_t)observe_iteration(observe, &row, &whole);
    }
    assert_int_equal(n_late, 0);
    struct wire_iteration row = row_of(0, silent_from + 3 * (uint64_t)OBSERVE_SILENT, &state);
    assert_int_equal(observe_iteration(observe, &row, &whole), 0);
    row = row_of(2, row.iteration, &state);
    assert_int_equal(observe_iteration(observe, &row, &whole), 0);
    row = row_of(1, row.iteration, &state);
    assert_int_equal(observe_iteration(observe, &row, &whole), 1);
    assert_int_equal(observe_heard(observe, &first), N_RANKS);
    assert_int_equal(first, N_RANKS);
    observe_destroy(observe);
}

static void ranks_under_different_plans_are_mixed(void **unused) {
    uint64_t state = testing_seed();
    struct observe *observe = NULL;
    struct observed whole;
    int complete = 0;
    (void)unused;
    assert_int_equal(observe_create(N_RANKS, N_TENSORS, 1, &observe), DEFT_OK);
    for (uint32_t rank = 0; rank < N_RANKS; rank++) {
        struct wire_iteration row = row_of(rank, 9, &state);
        row.plan_seq = rank;
        row.loss = rank == 2 ? NAN : 1.0;
        row.flags = rank == 2 ? WIRE_ITERATION_BAD_LOSS : 0;
        complete = observe_iteration(observe, &row, &whole);
    }
    assert_true(complete);
    assert_true(whole.is_mixed);
    assert_int_equal(whole.figures.loss_given, DSCHED_LOSS_GIVEN);
    assert_false(isfinite(whole.figures.loss));
    observe_destroy(observe);
}

/* Figures are means over the ranks that gave them; what is the same on all ranks is taken once. */
static void figures_are_means_over_the_ranks(void **unused) {
    uint64_t state = testing_seed();
    struct observe *observe = NULL;
    struct observed whole;
    double loss = 0;
    double local = 0;
    (void)unused;
    assert_int_equal(observe_create(N_RANKS, N_TENSORS, 1, &observe), DEFT_OK);
    for (uint32_t rank = 0; rank < N_RANKS; rank++) {
        struct wire_iteration row = row_of(rank, 4, &state);
        row.loss = rank == 0 ? (double)NAN : 1.0 + rank; /* rank 0 gives none */
        row.grad_sq_local = 10.0 + rank;
        row.grad_sq_mean = 7.5;
        row.change_sq_local = (double)NAN;
        row.learning_rate = 0.25;
        row.updates = 1;
        row.merge = 3;
        loss += rank == 0 ? 0 : row.loss;
        local += row.grad_sq_local;
        (void)observe_iteration(observe, &row, &whole);
    }
    assert_true(fabs(whole.figures.loss - loss / (N_RANKS - 1)) < 1e-12);
    assert_true(fabs(whole.figures.grad_sq_local - local / N_RANKS) < 1e-12);
    assert_true(whole.figures.grad_sq_mean == 7.5 && whole.figures.learning_rate == 0.25);
    assert_true(isnan(whole.figures.change_sq_local));
    assert_int_equal(whole.figures.merge, 3);
    assert_int_equal(whole.figures.is_switch, 0);
    observe_destroy(observe);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(compute_is_the_slowest_rank),
    cmocka_unit_test(contention_is_not_counted_twice),
    cmocka_unit_test(the_plan_that_runs_counts_by_places),
    cmocka_unit_test(readiness_becomes_backward_times),
    cmocka_unit_test(links_are_what_they_do_under_load),
    cmocka_unit_test(bursts_do_not_make_small_messages_cheap),
    cmocka_unit_test(iterations_complete_once),
    cmocka_unit_test(silent_ranks_are_not_waited_for),
    cmocka_unit_test(ranks_under_different_plans_are_mixed),
    cmocka_unit_test(figures_are_means_over_the_ranks),
};
TESTING_MAIN(cases)
