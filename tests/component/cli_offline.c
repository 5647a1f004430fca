/* plan, explain, simulate and compare on a small profile, as a user would call them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "testing.h"
#include "wire/wire.h"

/* Communication as long as compute, so that the planner has something to gain. */
static void make_profile(char path[40]) {
    struct dsched_tensor tensors[8] = {0};
    struct dsched_link links[2] = {{.name = "fast"}, {.name = "slow"}};
    struct dsched_profile profile = {.name = "small",
                                     .world_size = 4,
                                     .forward_ns = 8000000,
                                     .backward_ns = 16000000,
                                     .optimizer_ns = 500000,
                                     .n_tensors = 8,
                                     .tensors = tensors,
                                     .n_links = 2,
                                     .links = links};
    for (size_t i = 0; i < 8; i++) {
        (void)snprintf(tensors[i].name, sizeof(tensors[i].name), "layer%zu", i);
        tensors[i].elements = 500000;
        tensors[i].forward_ns = 1000000;
        tensors[i].backward_ns = 2000000;
    }
    for (size_t i = 0; i < 2; i++) {
        links[i].alpha_ns = 50000;
        links[i].bytes_per_s = INT64_C(500000000) / ((int64_t)i + 1);
        links[i].contention_ppm = 1000000;
    }
    char *text = NULL;
    assert_int_equal(wire_profile_encode(&profile, &text, NULL), DEFT_OK);
    (void)snprintf(path, 40, "/tmp/cli_offline.XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    (void)close(fd);
    free(text);
}

/* The output of a command that must end with `exit_code`. */
static void run(struct child *child, const char *const *argv, int exit_code) {
    child_start(child, argv, NULL, -1, 1);
    int got = child_wait(child);
    if (got != exit_code) {
        fail_msg("'%s %s' ended with %d:\n%s", argv[0], argv[1], got, child->output);
    }
}

static void people_get_figures_and_a_chart(void **unused) {
    (void)unused;
    char path[40];
    struct child child;
    make_profile(path);
    const char *const plan[] = {DEFT, "plan", path, NULL};
    const char *const explain[] = {DEFT, "explain", path, NULL};
    run(&child, plan, 0);
    assert_non_null(strstr(child.output, "small, 4 ranks, 8 tensors, 2 links"));
    assert_non_null(strstr(child.output, "*  "));
    assert_non_null(strstr(child.output, "\ncompute    |"));
    assert_non_null(strstr(child.output, "\nfast       |"));
    assert_non_null(strstr(child.output, "\nslow       |"));
    child_free(&child);
    run(&child, explain, 0);
    assert_non_null(strstr(child.output, "packing\n"));
    assert_non_null(strstr(child.output, "alternatives\n"));
    child_free(&child);
    (void)unlink(path);
}

static void limits_are_kept(void **unused) {
    (void)unused;
    char path[40];
    struct child child;
    make_profile(path);
    const char *const exact[] = {DEFT, "plan", "--rules", "exact", path, NULL};
    const char *const merged[] = {DEFT, "plan", "--rules=averaged", "--max-merge=1", path, NULL};
    run(&child, exact, 0);
    assert_non_null(strstr(child.output, "chosen           exact"));
    child_free(&child);
    run(&child, merged, 0);
    assert_null(strstr(child.output, "averaged           2"));
    child_free(&child);
    (void)unlink(path);
}

/* The JSON of `plan` holds a plan that `explain` takes. */
static void programs_get_json_that_other_commands_take(void **unused) {
    (void)unused;
    char path[40];
    char plan_path[48];
    struct child child;
    struct dsched_plan plan;
    struct deft_error error = {0};
    make_profile(path);
    const char *const command[] = {DEFT, "plan", "--json", path, NULL};
    run(&child, command, 0);
    char *begin = strstr(child.output, "\"plan\":");
    assert_non_null(begin);
    begin += strlen("\"plan\":");
    /* The plan is the last member: what follows it is the end of the outer object. */
    char *end = strrchr(child.output, '}');
    assert_non_null(end);
    if (wire_plan_decode(begin, (size_t)(end - begin), &plan, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(plan.buckets[plan.n_buckets - 1].end, 8 * 500000);
    dsched_plan_done(&plan);
    (void)snprintf(plan_path, sizeof(plan_path), "%s.plan", path);
    FILE *file = fopen(plan_path, "we");
    assert_non_null(file);
    assert_int_equal(fwrite(begin, 1, (size_t)(end - begin), file), end - begin);
    assert_int_equal(fclose(file), 0);
    child_free(&child);
    const char *const explain[] = {DEFT, "explain", plan_path, NULL};
    run(&child, explain, 0);
    assert_non_null(strstr(child.output, "packing\n"));
    child_free(&child);
    (void)unlink(plan_path);
    (void)unlink(path);
}

static void every_policy_can_be_simulated_and_compared(void **unused) {
    (void)unused;
    char path[40];
    struct child child;
    struct child table;
    make_profile(path);
    const char *const compare[] = {DEFT, "compare", path, NULL};
    const char *const json[] = {DEFT, "compare", "--json", path, NULL};
    run(&table, compare, 0);
    for (size_t i = 0; dsched_policies[i] != NULL; i++) {
        const char *name = dsched_policies[i]->name;
        const char *const simulate[] = {DEFT, "simulate", "--policy", name, path, NULL};
        assert_non_null(strstr(table.output, name));
        run(&child, simulate, 0);
        assert_non_null(strstr(child.output, "updates"));
        child_free(&child);
    }
    child_free(&table);
    run(&child, json, 0);
    assert_non_null(strstr(child.output, "\"bound\":{\"exact_step_ns\":"));
    assert_non_null(strstr(child.output, "\"policy\":\"deft\""));
    child_free(&child);
    (void)unlink(path);
}

static void bad_input_is_one_sentence_and_exit_2(void **unused) {
    (void)unused;
    const char *const commands[][6] = {
        {DEFT, "plan", "/no/such/file", NULL},
        {DEFT, "plan", "/dev/null", NULL},
        {DEFT, "explain", "/etc/passwd", NULL},
        {DEFT, "simulate", "--policy", "magic", "/dev/null", NULL},
        {DEFT, "simulate", "/dev/null", NULL},
        {DEFT, "plan", "--rules", "fast", "/dev/null", NULL},
        {DEFT, "compare", NULL},
        {DEFT, "nonsense", NULL},
        {DEFT, NULL},
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        struct child child;
        run(&child, commands[i], 2);
        assert_true(child.n_output > 0);
        child_free(&child);
    }
}

/* Whoever reads the file: the same names are wrong. */
static void names_that_are_no_files_are_wrong_input(void **unused) {
    char folder[] = "/tmp/cli_offline.XXXXXX";
    char loop[64];
    char name[300];
    (void)unused;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(loop, sizeof(loop), "%s/loop", folder);
    assert_int_equal(symlink(loop, loop), 0);
    memset(name, 'a', sizeof(name));
    name[sizeof(name) - 1] = '\0';
    const char *const names[] = {loop, name, folder, "/dev/null/x", "/no/such/file", ""};
    const char *const commands[][4] = {
        {"plan"}, {"explain"}, {"compare"}, {"simulate", "--policy=wfbp"}, {"import", "kineto"}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        for (size_t j = 0; j < sizeof(commands) / sizeof(commands[0]); j++) {
            const char *second = commands[j][1] != NULL ? commands[j][1] : names[i];
            const char *argv[] = {DEFT, commands[j][0], second,
                                  commands[j][1] != NULL ? names[i] : NULL, NULL};
            struct child child;
            run(&child, argv, 2);
            assert_int_equal(strncmp(child.output, "deft: '", 7), 0);
            assert_ptr_equal(strchr(child.output, '\n'), child.output + child.n_output - 1);
            child_free(&child);
        }
    }
    assert_int_equal(unlink(loop), 0);
    assert_int_equal(rmdir(folder), 0);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(people_get_figures_and_a_chart),
    cmocka_unit_test(limits_are_kept),
    cmocka_unit_test(programs_get_json_that_other_commands_take),
    cmocka_unit_test(every_policy_can_be_simulated_and_compared),
    cmocka_unit_test(bad_input_is_one_sentence_and_exit_2),
    cmocka_unit_test(names_that_are_no_files_are_wrong_input),
};
TESTING_MAIN(cases)
