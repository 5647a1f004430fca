/* --link, --world and --scale-compute on the command line, and profiles at the edge. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dsched/simulate.h>

#include "offline.h"
#include "testing.h"

/* Runs wfbp with one more argument, or two; the JSON is the caller's. */
static void simulate(struct child *child, const char *path, const char *option) {
    const char *const argv[] = {DEFT, "simulate", "--json", "--policy=wfbp", path, option, NULL};
    offline_run(child, argv, 0);
}

static double step_of(const char *path, const char *option) {
    struct child child;
    simulate(&child, path, option);
    double step_ns = offline_number(child.output, "step_ns");
    child_free(&child);
    return step_ns;
}

static void the_profiles_own_world_and_factor_1_change_no_figure(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    offline_folder(folder);
    offline_make(folder, "small", path);
    double step_ns = step_of(path, NULL);
    assert_true(step_of(path, "--world=4") == step_ns);
    assert_true(step_of(path, "--scale-compute=1") == step_ns);
    assert_true(step_of(path, "--link=fast:alpha=50us,bw=500MB/s") == step_ns);
    assert_true(step_of(path, "--link=fast:alpha=0.05ms,bw=4Gbit/s,contention=1") == step_ns);
    offline_remove(folder);
}

static void steps_follow_the_change(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    offline_folder(folder);
    offline_make(folder, "small", path);
    double step_ns = step_of(path, NULL);
    assert_true(step_of(path, "--world=2") < step_ns);
    assert_true(step_of(path, "--world=64") > step_ns);
    assert_true(step_of(path, "--scale-compute=0.5") < step_ns);
    assert_true(step_of(path, "--scale-compute=3.25") > step_ns);
    assert_true(step_of(path, "--link=fast:alpha=0,bw=10GB/s") < step_ns);
    assert_true(step_of(path, "--link=fast:alpha=1s,bw=1B/s") > 1000 * step_ns);
    assert_true(step_of(path, "--link=fast:alpha=50us,bw=500MB/s,contention=2") > step_ns);
    offline_remove(folder);
}

static void the_output_tells_what_was_changed(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    struct child child;
    offline_folder(folder);
    offline_make(folder, "small", path);
    const char *const argv[] = {DEFT,      "plan",
                                "--world", "16",
                                "--link",  "third:alpha=60us,bw=10Gbit/s",
                                "--link",  "gloo:eth0:alpha=1ms,bw=1.5GB/s",
                                path,      "--scale-compute=0.5",
                                NULL};
    offline_run(&child, argv, 0);
    assert_non_null(strstr(child.output, "a ring of 16 ranks, not 4: time per byte x 1.250, "
                                         "latency x 5.000\n"));
    assert_non_null(strstr(child.output, "link third with 60.0 us and 1.2 GB/s\n"));
    assert_non_null(strstr(child.output, "link gloo:eth0 with 1.0 ms and 1.5 GB/s\n"));
    assert_non_null(strstr(child.output, "compute x 0.5\n"));
    assert_non_null(strstr(child.output, "small [16 ranks, compute x 0.5, link third, link "
                                         "gloo:eth0], 16 ranks, 8 tensors, 4 links"));
    assert_non_null(strstr(child.output, "\ngloo:eth0  |"));
    child_free(&child);
    simulate(&child, path, "--world=16");
    assert_non_null(strstr(child.output, "\"profile\":\"small [16 ranks]\",\"world_size\":16"));
    child_free(&child);
    offline_remove(folder);
}

static void wrong_flags_are_one_sentence(void **unused) {
    (void)unused;
    static const char *const wrong[][2] = {
        {"--world=0", "expected a whole number from 2 to 1000000"},
        {"--world=1", "expected a whole number from 2 to 1000000"},
        {"--world=-4", "expected a whole number from 2 to 1000000"},
        {"--world=1000001", "expected a whole number from 2 to 1000000"},
        {"--scale-compute=0", "expected a number from 1e-06 to 1000000"},
        {"--scale-compute=-1", "expected a number from 1e-06 to 1000000"},
        {"--scale-compute=nan", "expected a number from 1e-06 to 1000000"},
        {"--scale-compute=inf", "expected a number from 1e-06 to 1000000"},
        {"--scale-compute=1e3", "expected a number from 1e-06 to 1000000"},
        {"--scale-compute=0x10", "expected a number from 1e-06 to 1000000"},
        {"--scale-compute=", "expected a number from 1e-06 to 1000000"},
        {"--scale-compute=.", "expected a number from 1e-06 to 1000000"},
        {"--scale-compute=0.0000001", "expected a number from 1e-06 to 1000000"},
        {"--link=", "expected NAME:alpha=TIME,bw=RATE[,contention=X]"},
        {"--link=fast", "expected NAME:alpha=TIME,bw=RATE[,contention=X]"},
        {"--link=:alpha=1us,bw=1GB/s", "expected NAME:alpha=TIME,bw=RATE[,contention=X]"},
        {"--link=fast:alpha=1us", "expected NAME:alpha=TIME,bw=RATE[,contention=X]"},
        {"--link=fast:alpha", "has no value, expected KEY=VALUE"},
        {"--link=fast:alpha=1us,bw=1GB/s,", "has no value, expected KEY=VALUE"},
        {"--link=fast:beta=1us,bw=1GB/s", "'beta' is not known"},
        {"--link=fast:alpha=1us,alpha=1us,bw=1GB/s", "'alpha' is given twice"},
        {"--link=fast:alpha=60,bw=1GB/s", "expected a duration such as 60us"},
        {"--link=fast:alpha=-1us,bw=1GB/s", "expected a duration such as 60us"},
        {"--link=fast:alpha=9999999s,bw=1GB/s", "expected a duration such as 60us"},
        {"--link=fast:alpha=1us,bw=1", "expected a rate such as 1.2GB/s"},
        {"--link=fast:alpha=1us,bw=0GB/s", "expected a rate such as 1.2GB/s"},
        {"--link=fast:alpha=1us,bw=1Gb/s", "expected a rate such as 1.2GB/s"},
        {"--link=fast:alpha=1us,bw=nanGB/s", "expected a rate such as 1.2GB/s"},
        {"--link=fast:alpha=1us,bw=99999999TB/s", "expected a rate such as 1.2GB/s"},
        {"--link=fast:alpha=1us,bw=1GB/s,contention=0.5", "expected a number from 1 to 100"},
        {"--link=fast:alpha=1us,bw=1GB/s,contention=101", "expected a number from 1 to 100"},
    };
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *const plan[] = {DEFT, "plan", wrong[i][0], "/dev/null", NULL};
        offline_refused(plan, wrong[i][1]);
    }
    const char *const compare[] = {DEFT, "compare", "--world=0", "/dev/null", NULL};
    offline_refused(compare, wrong[0][1]);
}

static void a_ninth_link_is_one_sentence(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    char texts[9][40];
    const char *argv[13] = {DEFT, "plan"};
    offline_folder(folder);
    offline_make(folder, "small", path);
    for (size_t i = 0; i < 9; i++) {
        (void)snprintf(texts[i], sizeof(texts[i]), "--link=l%zu:alpha=1us,bw=1GB/s", i);
        argv[2 + i] = texts[i];
    }
    argv[11] = path;
    offline_refused(argv, "more than 8 times");
    argv[10] = path; /* two of the profile's own and eight more */
    argv[11] = NULL;
    offline_refused(argv, "links that a profile may have");
    offline_remove(folder);
}

static void a_profile_of_one_rank_has_no_ring(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    struct dsched_profile profile;
    offline_folder(folder);
    offline_path(folder, "one", path);
    offline_profile(&profile, "one", 4);
    profile.world_size = 1;
    offline_save(&profile, path);
    dsched_profile_done(&profile);
    const char *const argv[] = {DEFT, "simulate", "--policy=wfbp", "--world=4", path, NULL};
    offline_refused(argv, "a profile of at least 2 ranks was expected");
    offline_remove(folder);
}

/* --- profiles at the edge --------------------------------------------------------------------- */

/* All four commands, with a chart and as JSON. */
static void everything_works_on(const char *path, const char *html) {
    struct child child;
    const char *const commands[][6] = {
        {DEFT, "plan", path, NULL},    {DEFT, "plan", "--html", html, path, NULL},
        {DEFT, "explain", path, NULL}, {DEFT, "explain", "--json", path, NULL},
        {DEFT, "compare", path, NULL}, {DEFT, "compare", "--json", path, NULL},
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        offline_run(&child, commands[i], 0);
        assert_true(child.n_output > 0);
        child_free(&child);
    }
    for (size_t i = 0; dsched_policies[i] != NULL; i++) {
        const char *const argv[] = {DEFT, "simulate", "--policy", dsched_policies[i]->name,
                                    path, NULL};
        offline_run(&child, argv, 0);
        assert_non_null(strstr(child.output, "\ncompute    |"));
        child_free(&child);
    }
}

static void one_bucket_is_a_job(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    char html[128];
    struct dsched_profile profile;
    offline_folder(folder);
    offline_path(folder, "one.json", path);
    offline_path(folder, "one.html", html);
    offline_profile(&profile, "one", 1);
    profile.tensors[0].elements = 1;
    offline_save(&profile, path);
    dsched_profile_done(&profile);
    everything_works_on(path, html);
    offline_remove(folder);
}

/* No link is fast enough for anything: everything is waiting, and figures stay figures. */
static void a_link_slower_than_everything_is_a_job(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    char html[128];
    struct dsched_profile profile;
    struct child child;
    offline_folder(folder);
    offline_path(folder, "slow.json", path);
    offline_path(folder, "slow.html", html);
    offline_profile(&profile, "slow", 8);
    profile.n_links = 1;
    profile.links[0].bytes_per_s = 1000;
    offline_save(&profile, path);
    dsched_profile_done(&profile);
    everything_works_on(path, html);
    const char *const argv[] = {DEFT, "compare", path, NULL};
    offline_run(&child, argv, 0);
    assert_null(strstr(child.output, "nan"));
    assert_null(strstr(child.output, "inf"));
    child_free(&child);
    offline_remove(folder);
}

static void buckets_of_zero_bytes_are_no_job(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    struct dsched_profile profile;
    offline_folder(folder);
    offline_path(folder, "zero.json", path);
    offline_profile(&profile, "zero", 4);
    profile.tensors[1].elements = 0; /* compute only */
    offline_save(&profile, path);
    struct child child;
    const char *const argv[] = {DEFT, "plan", path, NULL};
    offline_run(&child, argv, 0);
    child_free(&child);
    for (size_t i = 0; i < 4; i++) {
        profile.tensors[i].elements = 0;
    }
    /* The encoder refuses nothing that the scheduler's check would, so the file is made whole. */
    offline_save(&profile, path);
    offline_refused(argv, "at least one is needed");
    dsched_profile_done(&profile);
    offline_remove(folder);
}

/* Alternating dtypes forbid fusion, so that every policy has 10,000 buckets. */
static void ten_thousand_buckets_are_a_job(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    char html[128];
    struct dsched_profile profile;
    struct child child;
    offline_folder(folder);
    offline_path(folder, "many.json", path);
    offline_path(folder, "many.html", html);
    offline_profile(&profile, "many", 10000);
    for (uint32_t i = 0; i < profile.n_tensors; i++) {
        profile.tensors[i].dtype = i % 2 == 0 ? DSCHED_F32 : DSCHED_F16;
    }
    profile.links[0].alpha_ns = 100;
    offline_save(&profile, path);
    dsched_profile_done(&profile);
    const char *const argv[] = {DEFT, "simulate", "--policy=wfbp", "--html", html, path, NULL};
    offline_run(&child, argv, 0);
    assert_non_null(strstr(child.output, "10000.0 per step"));
    child_free(&child);
    offline_remove(folder);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(the_profiles_own_world_and_factor_1_change_no_figure),
    cmocka_unit_test(steps_follow_the_change),
    cmocka_unit_test(the_output_tells_what_was_changed),
    cmocka_unit_test(wrong_flags_are_one_sentence),
    cmocka_unit_test(a_ninth_link_is_one_sentence),
    cmocka_unit_test(a_profile_of_one_rank_has_no_ring),
    cmocka_unit_test(one_bucket_is_a_job),
    cmocka_unit_test(a_link_slower_than_everything_is_a_job),
    cmocka_unit_test(buckets_of_zero_bytes_are_no_job),
    cmocka_unit_test(ten_thousand_buckets_are_a_job),
};
TESTING_MAIN(cases)
