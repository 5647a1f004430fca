/* The peers' policies: steps computed by hand, what each rule promises, and what holds for all. */
#include <string.h>

#include <dsched/simulate.h>

#include "sched_support.h"
#include "testing.h"

#define MS  INT64_C(1000000)
#define PPM INT64_C(1000000)
/* Least of US-Byte's units, without latency. */
#define UNIT_NS INT64_C(65536)

static void run(const struct dsched_profile *profile, const char *name, dsched_span_fn on_span,
                void *context, struct dsched_outcome *out) {
    struct dsched_error error = {.text = ""};
    const struct dsched_policy *policy = dsched_policy_find(name);
    assert_non_null(policy);
    memset(out, 0, sizeof(*out));
    if (policy->simulate(profile, on_span, context, out, &error) != DSCHED_OK) {
        fail_msg("%s: %s", name, error.text);
    }
}

static int64_t step_of(const struct dsched_profile *profile, const char *name) {
    struct dsched_outcome outcome;
    run(profile, name, NULL, NULL, &outcome);
    return outcome.report.step_ns;
}

static void tables_show_policies_in_order(void **unused) {
    static const char *const names[] = {"serial", "wfbp",    "mg-wfbp", "bytescheduler", "us-byte",
                                        "dear",   "pipesgd", "sapipe",  "deft-paper",    "deft"};
    (void)unused;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        assert_non_null(dsched_policies[i]);
        assert_string_equal(dsched_policies[i]->name, names[i]);
        assert_true(strlen(dsched_policies[i]->summary) > 0);
        assert_ptr_equal(dsched_policy_find(names[i]), dsched_policies[i]);
    }
    assert_null(dsched_policies[sizeof(names) / sizeof(names[0])]);
}

/* --- by hand ---------------------------------------------------------------------------------- */

/* Two tensors on a link of 1 ms + 4 ms per million elements: t0, 1e6 elements, forward 3, backward
 * 2; t1, 2e6 elements, forward 5, backward 6. T = 16 ms. */
static void two_layers(struct dsched_profile *out) {
    support_profile(out, 2, 1);
    out->tensors[0].elements = 1000000;
    out->tensors[0].forward_ns = 3 * MS;
    out->tensors[0].backward_ns = 2 * MS;
    out->tensors[1].elements = 2000000;
    out->tensors[1].forward_ns = 5 * MS;
    out->tensors[1].backward_ns = 6 * MS;
    support_sum(out);
    out->links[0].alpha_ns = 1 * MS;
}

static void without_layers_two_tensors_match_hand_computed_steps(void **unused) {
    struct dsched_profile profile;
    struct dsched_outcome outcome;
    (void)unused;
    two_layers(&profile);
    assert_int_equal(step_of(&profile, "serial"), (16 + 9 + 5) * MS);
    /* forward 8; t1 ready at 14, 9 on the link; t0 5 more */
    assert_int_equal(step_of(&profile, "wfbp"), (14 + 9 + 5) * MS);
    run(&profile, "pipesgd", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 16 * MS); /* one message of 13 */
    assert_int_equal(outcome.report.max_delay, 1);
    assert_int_equal(outcome.report.mean_delay_milli, 1000);
    assert_int_equal(outcome.report.pending_bytes, 2 * 12000000);
    assert_int_equal(outcome.rule, DSCHED_DELAYED);
    profile.links[0].bytes_per_s = 500000000;
    assert_int_equal(step_of(&profile, "pipesgd"), 25 * MS);
    dsched_profile_done(&profile);
}

/* The same and t2, 0.5e6 elements, forward 2, backward 4, on the output side; t1 takes 6 and t0 2:
 * ready at 4, 10, 12. */
static void merging_matches_hand_computed_groups(void **unused) {
    struct dsched_profile profile;
    struct dsched_outcome outcome;
    (void)unused;
    support_profile(&profile, 3, 1);
    profile.tensors[0] =
        (struct dsched_tensor){.elements = 1000000, .forward_ns = 3 * MS, .backward_ns = 2 * MS};
    profile.tensors[1] =
        (struct dsched_tensor){.elements = 2000000, .forward_ns = 5 * MS, .backward_ns = 6 * MS};
    profile.tensors[2] =
        (struct dsched_tensor){.elements = 500000, .forward_ns = 2 * MS, .backward_ns = 4 * MS};
    support_sum(&profile);
    /* alpha 1: t2 4..7; t1 10..19, and t0 is ready at 12, 2 > alpha later: 19..24 */
    profile.links[0].alpha_ns = 1 * MS;
    run(&profile, "mg-wfbp", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, (10 + 24) * MS);
    assert_int_equal(outcome.report.ops_per_step_milli, 3000);
    assert_string_equal(outcome.note, "3 groups");
    /* alpha 3: t2 4..9; t1 would start at 10, t0 is ready 2 < alpha later: both 12..27 */
    profile.links[0].alpha_ns = 3 * MS;
    run(&profile, "mg-wfbp", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, (10 + 27) * MS);
    assert_int_equal(outcome.report.ops_per_step_milli, 2000);
    assert_string_equal(outcome.note, "2 groups");
    assert_int_equal(outcome.rule, DSCHED_EXACT);
    /* alpha 7: t2 4..13 and t1 is ready at 10, 6 < alpha later: both would start at 10; t0 2 <
     * alpha later: all 12..33 */
    profile.links[0].alpha_ns = 7 * MS;
    run(&profile, "mg-wfbp", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, (10 + 33) * MS);
    assert_string_equal(outcome.note, "1 groups");
    dsched_profile_done(&profile);
}

/* t2, 2e6 elements, is sent 4..13; t1, 1e6, is ready at 10, 6 > alpha after t2's start; t0 is ready
 * at 12, before t1 could start, and joins it: 13..22. */
static void merging_counts_from_when_the_link_is_free(void **unused) {
    struct dsched_profile profile;
    struct dsched_outcome outcome;
    (void)unused;
    support_profile(&profile, 3, 1);
    profile.tensors[0] =
        (struct dsched_tensor){.elements = 1000000, .forward_ns = 3 * MS, .backward_ns = 2 * MS};
    profile.tensors[1] =
        (struct dsched_tensor){.elements = 1000000, .forward_ns = 5 * MS, .backward_ns = 6 * MS};
    profile.tensors[2] =
        (struct dsched_tensor){.elements = 2000000, .forward_ns = 2 * MS, .backward_ns = 4 * MS};
    support_sum(&profile);
    profile.links[0].alpha_ns = 1 * MS;
    run(&profile, "mg-wfbp", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, (10 + 22) * MS);
    assert_string_equal(outcome.note, "2 groups");
    dsched_profile_done(&profile);
}

static void layer_by_layer_matches_hand_computed_steps(void **unused) {
    struct dsched_profile profile;
    struct dsched_outcome outcome;
    (void)unused;
    two_layers(&profile);
    /* From the begin of backward: half of t1 6..11, t0 11..16, the rest 16..21; forward of t0
     * 16..19, of t1 21..26. Finer parts pay more latency, coarser ones make t0 wait. */
    run(&profile, "bytescheduler", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 26 * MS);
    assert_int_equal(outcome.report.exposed_ns, 10 * MS);
    assert_int_equal(outcome.report.exposed_forward_ns, 10 * MS);
    assert_int_equal(outcome.report.exposed_boundary_ns, 0);
    assert_int_equal(outcome.report.ops_per_step_milli, 3000);
    assert_int_equal(outcome.report.link_busy_ppm[0], 15 * PPM / 26);
    assert_int_equal(outcome.report.pending_bytes, 12000000);
    assert_int_equal(outcome.report.max_delay, 0);
    assert_int_equal(outcome.rule, DSCHED_EXACT);
    assert_non_null(strstr(outcome.note, "partition 1.00e6"));
    /* t1's share of the gap 6..8 is 16 units of 65.536 us and 1 ms; then t0; then t1's rest; the
     * three messages end at 21 */
    run(&profile, "us-byte", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 26 * MS);
    assert_int_equal(outcome.report.ops_per_step_milli, 3000);
    assert_int_equal(outcome.rule, DSCHED_EXACT);
    /* halves: t1 6..10.5, t0 10.5..13; gathered t0 13..15.5, t1 15.5..20; forward 15.5, 20..25 */
    run(&profile, "dear", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 25 * MS);
    assert_int_equal(outcome.report.ops_per_step_milli, 4000);
    assert_int_equal(outcome.rule, DSCHED_EXACT);
    assert_string_equal(outcome.note, "fusion 1 MB");
    dsched_profile_done(&profile);
}

/* Without latency both reach the bound: t1 6..8, t0 8..12, t1 12..18, then forward of t1. */
static void layer_by_layer_reaches_the_bound_without_latency(void **unused) {
    struct dsched_profile profile;
    struct dsched_bounds bounds;
    (void)unused;
    two_layers(&profile);
    profile.links[0].alpha_ns = 0;
    assert_int_equal(dsched_bounds(&profile, &bounds, NULL), DSCHED_OK);
    assert_int_equal(bounds.exact_step_ns, 23 * MS);
    assert_int_equal(step_of(&profile, "bytescheduler"), 23 * MS);
    assert_in_range(step_of(&profile, "us-byte"), 23 * MS, 23 * MS + 70000); /* one unit */
    dsched_profile_done(&profile);
}

/* t0, which a long forward makes urgent, becomes ready when a message of t1 ends. */
static void what_is_ready_in_the_same_moment_comes_first(void **unused) {
    struct dsched_profile profile;
    struct dsched_outcome outcome;
    (void)unused;
    two_layers(&profile);
    profile.links[0].alpha_ns = 0;
    profile.tensors[0].forward_ns = 10 * MS;
    support_sum(&profile);
    /* half a million elements of t1 6..8; t0 8..12; forward 12..22..27 */
    assert_int_equal(step_of(&profile, "bytescheduler"), 27 * MS);
    /* 30 units of t1 take as long as t0's backward */
    profile.tensors[0].backward_ns = 30 * UNIT_NS;
    support_sum(&profile);
    run(&profile, "us-byte", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 25 * MS + 30 * UNIT_NS);
    assert_int_equal(outcome.report.ops_per_step_milli, 3000);
    /* and when the busy link doubles the time of compute, of half that backward. Forward of t0 is
     * slowed while the rest of t1, 8 ms less 30 units, is sent */
    profile.tensors[0].backward_ns = 15 * UNIT_NS;
    profile.links[0].contention_ppm = 2000000;
    support_sum(&profile);
    run(&profile, "us-byte", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 25 * MS + 30 * UNIT_NS + (8 * MS - 30 * UNIT_NS) / 2);
    assert_int_equal(outcome.report.ops_per_step_milli, 3000);
    dsched_profile_done(&profile);
}

/* Latency 4 ms; t0 to t2 take 35, 30 and 18 ms beside it and are ready at 46, 35 and 20. The first
 * message of t2, 84 units of 131.072 us, just misses t1's readiness at 35. By number t1 would be
 * next, and a rest of t2 would be sent last of all, for another latency: 130 ms. Promoted, the rest
 * of t2 ends exactly at 46; t0 46..85, t1 85..119; forward 85..96, 119..121, 121..128. */
static void priorities_are_adjusted(void **unused) {
    struct dsched_profile profile;
    struct dsched_outcome outcome;
    (void)unused;
    support_profile(&profile, 3, 1);
    profile.tensors[0] =
        (struct dsched_tensor){.elements = 8750000, .forward_ns = 11 * MS, .backward_ns = 11 * MS};
    profile.tensors[1] =
        (struct dsched_tensor){.elements = 7500000, .forward_ns = 2 * MS, .backward_ns = 15 * MS};
    profile.tensors[2] =
        (struct dsched_tensor){.elements = 4500000, .forward_ns = 7 * MS, .backward_ns = 20 * MS};
    support_sum(&profile);
    profile.links[0].alpha_ns = 4 * MS;
    run(&profile, "us-byte", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 128 * MS);
    assert_int_equal(outcome.report.ops_per_step_milli, 4000);
    dsched_profile_done(&profile);
}

/* 3 ms of optimizer are 1 for t0 and 2 for t1, each right before the layer's forward. */
static void updates_come_before_their_layers_forward(void **unused) {
    struct dsched_profile profile;
    struct dsched_outcome outcome;
    (void)unused;
    two_layers(&profile);
    profile.optimizer_ns = 3 * MS;
    /* t0 landed at 16, forward 17..20; t1 landed at 21, forward 23..28 */
    run(&profile, "bytescheduler", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 28 * MS);
    assert_int_equal(outcome.report.exposed_ns, 9 * MS);
    assert_int_equal(outcome.report.exposed_forward_ns, 9 * MS);
    assert_int_equal(step_of(&profile, "dear"), 27 * MS);
    dsched_profile_done(&profile);
}

/* Compute without gradients delays those below it and hides communication like any other: between
 * the two tensors 1 ms of backward and of forward, at the input side 2 ms of backward and 1 of
 * forward that belong to no tensor. */
static void compute_without_gradients_keeps_its_place(void **unused) {
    struct dsched_profile profile;
    struct dsched_profile wide;
    struct dsched_outcome outcome;
    (void)unused;
    two_layers(&profile);
    support_profile(&wide, 3, 1);
    wide.links[0].alpha_ns = 1 * MS;
    wide.tensors[0] = profile.tensors[0];
    wide.tensors[1] = (struct dsched_tensor){.forward_ns = 1 * MS, .backward_ns = 1 * MS};
    wide.tensors[2] = profile.tensors[1];
    support_sum(&wide);
    wide.forward_ns += 1 * MS;
    wide.backward_ns += 2 * MS;
    /* t0 ready at 9; messages as before: 6..11, 11..16, 16..21; forward 16..19, 20, 21..26 */
    run(&wide, "bytescheduler", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 26 * MS);
    assert_int_equal(outcome.report.exposed_ns, 5 * MS);
    /* with nothing to wait for, forward begins when all of backward has ended */
    wide.tensors[0].elements = 1;
    wide.tensors[2].elements = 1;
    wide.links[0].alpha_ns = 0;
    run(&wide, "bytescheduler", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, support_compute_ns(&wide));
    assert_int_equal(outcome.report.exposed_ns, 0);
    dsched_profile_done(&profile);
    dsched_profile_done(&wide);
}

/* At 4 GB/s t1 is ready at 14 - 4, 3 on the link and lands before the boundary at 16; t0 is ready
 * at the boundary. */
static void only_what_cannot_land_is_late(void **unused) {
    struct dsched_profile profile;
    struct dsched_outcome outcome;
    (void)unused;
    two_layers(&profile);
    profile.links[0].bytes_per_s = INT64_C(4000000000);
    profile.tensors[1].backward_ns = 2 * MS;
    profile.tensors[0].backward_ns = 6 * MS;
    run(&profile, "sapipe", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 16 * MS);
    assert_int_equal(outcome.report.max_delay, 1);
    assert_int_equal(outcome.report.mean_delay_milli, 333);
    assert_int_equal(outcome.report.pending_bytes, 2 * 12000000);
    assert_int_equal(outcome.rule, DSCHED_DELAYED);
    assert_non_null(strstr(outcome.note, "1 of 2 buckets late"));
    /* nothing to wait for: nothing is late, and what is not late is exact */
    profile.links[0].alpha_ns = 0;
    profile.tensors[0].elements = 1;
    run(&profile, "sapipe", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.max_delay, 0);
    assert_int_equal(outcome.rule, DSCHED_EXACT);
    dsched_profile_done(&profile);
    /* at 1 GB/s t1 is ready at 14 and takes 9, so even it is late */
    two_layers(&profile);
    run(&profile, "sapipe", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 16 * MS);
    assert_int_equal(outcome.report.mean_delay_milli, 1000);
    dsched_profile_done(&profile);
}

/* 20,000 buckets of 2 MB would exceed the limit, half of them do not. */
static void sapipe_leaves_out_fusions_of_too_many_buckets(void **unused) {
    struct dsched_profile profile;
    struct dsched_outcome outcome;
    struct dsched_error error = {.text = ""};
    (void)unused;
    support_profile(&profile, 20000, 1);
    for (uint32_t t = 0; t < profile.n_tensors; t++) {
        profile.tensors[t].elements = 500000;
        profile.tensors[t].forward_ns = 1 * MS;
        profile.tensors[t].backward_ns = 2 * MS;
    }
    support_sum(&profile);
    assert_int_equal(dsched_policy_find("sapipe")->simulate(&profile, NULL, NULL, &outcome, &error),
                     DSCHED_OK);
    assert_string_equal(error.text, "");
    assert_in_range(outcome.report.step_ns, 60000 * MS, 60060 * MS);
    for (uint32_t t = 0; t < profile.n_tensors; t++) {
        profile.tensors[t].elements = 34000000; /* not even the coarsest fuses two */
    }
    assert_int_equal(dsched_policy_find("sapipe")->simulate(&profile, NULL, NULL, &outcome, &error),
                     DSCHED_LIMIT);
    assert_non_null(strstr(error.text, "limit of buckets"));
    dsched_profile_done(&profile);
}

static void stages_are_packed_as_by_hand(void **unused) {
    struct dsched_profile profile;
    struct dsched_outcome outcome;
    (void)unused;
    two_layers(&profile);
    /* DDP's buckets take 9 and 5: forward of 8 holds 5, the 3 left and backward of 8 hold 9 */
    run(&profile, "deft-paper", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 16 * MS);
    assert_int_equal(outcome.report.mean_delay_milli, 1000);
    assert_int_equal(outcome.report.updates_per_step_ppm, PPM);
    assert_int_equal(outcome.rule, DSCHED_DELAYED);
    assert_string_equal(outcome.note, "merge 1, delay 1");
    /* 17 and 9 are more than an iteration has: two are merged */
    profile.links[0].bytes_per_s = 500000000;
    run(&profile, "deft-paper", NULL, NULL, &outcome);
    assert_int_equal(outcome.report.step_ns, 16 * MS);
    assert_int_equal(outcome.report.mean_delay_milli, 2000);
    assert_int_equal(outcome.report.max_delay, 2);
    assert_int_equal(outcome.report.updates_per_step_ppm, PPM / 2);
    assert_int_equal(outcome.report.pending_bytes, 2 * 12000000);
    dsched_profile_done(&profile);
}

/* --- DDP's buckets ---------------------------------------------------------------------------- */

/* ResNet-50's tensors in the order in which torchvision registers them. */
struct list {
    uint32_t n;
    uint64_t elements[200];
};

static void add(struct list *list, uint64_t elements) {
    assert_true(list->n < sizeof(list->elements) / sizeof(list->elements[0]));
    list->elements[list->n++] = elements;
}

/* Without bias, followed by a batch norm's weight and bias. */
static void add_convolution(struct list *list, uint64_t in, uint64_t out, uint64_t width) {
    add(list, in * out * width * width);
    add(list, out);
    add(list, out);
}

static void resnet50(struct list *list) {
    static const uint32_t n_blocks[] = {3, 4, 6, 3};
    uint64_t in = 64;
    add_convolution(list, 3, 64, 7);
    for (uint32_t stage = 0; stage < 4; stage++) {
        uint64_t planes = UINT64_C(64) << stage;
        for (uint32_t block = 0; block < n_blocks[stage]; block++) {
            add_convolution(list, in, planes, 1);
            add_convolution(list, planes, planes, 3);
            add_convolution(list, planes, 4 * planes, 1);
            if (block == 0) {
                add_convolution(list, in, 4 * planes, 1); /* the shortcut */
            }
            in = 4 * planes;
        }
    }
    add(list, UINT64_C(1000) * 2048);
    add(list, 1000);
}

static void ddp_buckets_of_resnet50_are_pytorchs(void **unused) {
    static const uint64_t expected[] = {2049000, 7875584, 6563840, 6637568, 2431040};
    const uint32_t n_expected = sizeof(expected) / sizeof(expected[0]);
    struct list list = {0};
    uint8_t dtypes[200] = {DSCHED_F32};
    struct dsched_table table = {.elements = list.elements, .dtypes = dtypes};
    struct dsched_plan plan;
    (void)unused;
    resnet50(&list);
    table.n_tensors = list.n;
    assert_int_equal(list.n, 161);
    assert_int_equal(dsched_table_elements(&table), 25557032);
    assert_int_equal(dsched_plan_ddp(&table, UINT64_C(1) << 20, UINT64_C(25) << 20, &plan),
                     DSCHED_OK);
    assert_int_equal(plan.n_buckets, n_expected);
    for (uint32_t b = 0; b < n_expected; b++) {
        assert_int_equal(plan.buckets[b].end - plan.buckets[b].begin, expected[b]);
    }
    dsched_plan_done(&plan);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(tables_show_policies_in_order),
    cmocka_unit_test(without_layers_two_tensors_match_hand_computed_steps),
    cmocka_unit_test(merging_matches_hand_computed_groups),
    cmocka_unit_test(merging_counts_from_when_the_link_is_free),
    cmocka_unit_test(layer_by_layer_matches_hand_computed_steps),
    cmocka_unit_test(layer_by_layer_reaches_the_bound_without_latency),
    cmocka_unit_test(what_is_ready_in_the_same_moment_comes_first),
    cmocka_unit_test(priorities_are_adjusted),
    cmocka_unit_test(updates_come_before_their_layers_forward),
    cmocka_unit_test(compute_without_gradients_keeps_its_place),
    cmocka_unit_test(only_what_cannot_land_is_late),
    cmocka_unit_test(sapipe_leaves_out_fusions_of_too_many_buckets),
    cmocka_unit_test(stages_are_packed_as_by_hand),
    cmocka_unit_test(ddp_buckets_of_resnet50_are_pytorchs),
};
TESTING_MAIN(cases)
