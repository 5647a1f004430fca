/* The peers' policies on the workloads of the design: strong enough to be worth beating. */
#include <stdio.h>
#include <string.h>

#include <dsched/simulate.h>

#include "testing.h"
#include "wire/wire.h"

#define MAX_BYTES (1u << 18)

static const char *const models[] = {"gpt2-124m", "resnet101", "vgg19"};
static const uint32_t coverages[] = {60, 100, 130, 160, 220, 300};

struct workload {
    struct dsched_profile profile;
    struct dsched_bounds bounds;
};

static void load(const char *path, struct workload *out) {
    static char text[MAX_BYTES];
    struct deft_error error = {0};
    FILE *file = fopen(path, "re");
    size_t n;
    assert_non_null(file);
    n = fread(text, 1, sizeof(text), file);
    (void)fclose(file);
    memset(out, 0, sizeof(*out));
    assert_true(n < sizeof(text));
    assert_int_equal(wire_profile_decode(text, n, &out->profile, &error), DEFT_OK);
    assert_int_equal(dsched_bounds(&out->profile, &out->bounds, NULL), DSCHED_OK);
}

static void on_each(void (*check)(const struct workload *workload)) {
    const char *shared = testing_shared_dir();
    if (shared == NULL) {
        testing_skip("DEFT_SHARED_DIR names no folder with workloads");
    }
    for (size_t m = 0; m < sizeof(models) / sizeof(models[0]); m++) {
        for (size_t c = 0; c < sizeof(coverages) / sizeof(coverages[0]); c++) {
            for (uint32_t n_links = 1; n_links <= 2; n_links++) {
                struct workload workload;
                char path[512];
                (void)snprintf(path, sizeof(path), "%s/workloads/%s_cr%03u_l%u.json", shared,
                               models[m], coverages[c], n_links);
                load(path, &workload);
                assert_int_equal(workload.profile.n_links, n_links);
                check(&workload);
                dsched_profile_done(&workload.profile);
            }
        }
    }
}

static struct dsched_outcome run(const struct workload *workload, const char *name) {
    struct dsched_outcome outcome = {.note = ""};
    struct dsched_error error = {.text = ""};
    if (dsched_policy_find(name)->simulate(&workload->profile, NULL, NULL, &outcome, &error) !=
        DSCHED_OK) {
        fail_msg("%s on %s: %s", name, workload->profile.name, error.text);
    }
    return outcome;
}

static int64_t step_ns(const struct workload *workload, const char *name) {
    return run(workload, name).report.step_ns;
}

/* US-Byte is the strongest exact peer in print: a weak model of it would flatter DeFT. */
static void check_us_byte(const struct workload *workload) {
    int64_t bound_ns = workload->bounds.exact_step_ns;
    int64_t us_byte_ns = step_ns(workload, "us-byte");
    assert_true(us_byte_ns >= bound_ns);
    assert_true(us_byte_ns <= bound_ns + bound_ns / 10);
}

static void us_byte_is_near_the_exact_bound(void **unused) {
    (void)unused;
    on_each(check_us_byte);
}

static void check_order(const struct workload *workload) {
    int64_t us_byte_ns = step_ns(workload, "us-byte");
    int64_t bytescheduler_ns = step_ns(workload, "bytescheduler");
    int64_t wfbp_ns = step_ns(workload, "wfbp");
    assert_true(us_byte_ns <= bytescheduler_ns);
    assert_true(bytescheduler_ns <= wfbp_ns);
    assert_true(step_ns(workload, "mg-wfbp") <= wfbp_ns);
}

static void peers_come_in_their_authors_order(void **unused) {
    (void)unused;
    on_each(check_order);
}

/* One message of everything takes C on the first link. */
static int64_t whole_ns(const struct workload *workload) {
    uint64_t bytes = 0;
    for (uint32_t t = 0; t < workload->profile.n_tensors; t++) {
        bytes += workload->profile.tensors[t].elements *
                 dsched_dtype_bytes(workload->profile.tensors[t].dtype);
    }
    return dsched_link_ns(&workload->profile.links[0], bytes);
}

static void check_serial_and_late(const struct workload *workload) {
    const struct dsched_profile *profile = &workload->profile;
    int64_t compute_ns = workload->bounds.deft_step_ns;
    int64_t link_ns = whole_ns(workload);
    struct dsched_outcome serial = run(workload, "serial");
    uint32_t n_buckets = serial.report.ops_per_step_milli / 1000;
    int64_t more_ns = (n_buckets - 1) * profile->links[0].alpha_ns;
    /* T + C, where every bucket after the first pays latency again, and rounds to whole ns */
    assert_in_range(serial.report.step_ns, compute_ns + link_ns + more_ns,
                    compute_ns + link_ns + more_ns + n_buckets);
    assert_int_equal(serial.report.exposed_ns, serial.report.step_ns - compute_ns);
    assert_int_equal(step_ns(workload, "pipesgd"), compute_ns > link_ns ? compute_ns : link_ns);
}

static void serial_adds_and_pipesgd_takes_the_longer(void **unused) {
    (void)unused;
    on_each(check_serial_and_late);
}

/* The abstract's schedule hides everything by merging, and pays with updates. */
static void check_deft_paper(const struct workload *workload) {
    struct dsched_outcome paper = run(workload, "deft-paper");
    struct dsched_outcome sapipe = run(workload, "sapipe");
    assert_int_equal(paper.report.step_ns, workload->bounds.deft_step_ns);
    assert_int_equal(paper.rule, DSCHED_DELAYED);
    assert_true(paper.report.updates_per_step_ppm <= workload->bounds.updates_per_step_ppm);
    assert_true(sapipe.report.max_delay <= 1);
    assert_int_equal(sapipe.report.updates_per_step_ppm, 1000000);
}

static void deft_by_its_abstract_hides_everything(void **unused) {
    (void)unused;
    on_each(check_deft_paper);
}

/* What no link carries is not claimed: S * u <= step, for every policy. */
static void check_bounds(const struct workload *workload) {
    for (uint32_t p = 0; dsched_policies[p] != NULL; p++) {
        struct dsched_outcome outcome = run(workload, dsched_policies[p]->name);
        assert_true(outcome.report.step_ns >= workload->bounds.deft_step_ns);
        if (workload->bounds.updates_per_step_ppm < 1000000) {
            assert_true((double)outcome.report.updates_per_step_ppm *
                            (double)workload->bounds.deft_step_ns <=
                        ((double)workload->bounds.updates_per_step_ppm + 2) *
                            (double)outcome.report.step_ns);
        }
        if (outcome.rule == DSCHED_EXACT && strcmp(dsched_policies[p]->name, "deft") != 0) {
            assert_true(outcome.report.step_ns >= workload->bounds.exact_step_ns);
        }
    }
}

static void no_policy_beats_its_bound(void **unused) {
    (void)unused;
    on_each(check_bounds);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(us_byte_is_near_the_exact_bound),
    cmocka_unit_test(peers_come_in_their_authors_order),
    cmocka_unit_test(serial_adds_and_pipesgd_takes_the_longer),
    cmocka_unit_test(deft_by_its_abstract_hides_everything),
    cmocka_unit_test(no_policy_beats_its_bound),
};
TESTING_MAIN(cases)
