/* Many profiles at once, standard input, and files that are none. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offline.h"
#include "testing.h"
#include "wire/wire.h"

static size_t count(const char *text, const char *what) {
    size_t n = 0;
    for (const char *at = strstr(text, what); at != NULL; at = strstr(at + 1, what)) {
        n++;
    }
    return n;
}

static void each_file_has_its_heading_and_compare_a_summary(void **unused) {
    (void)unused;
    const char *const commands[] = {"plan", "compare", "simulate"};
    char folder[40];
    char a[128];
    char b[128];
    char heading[160];
    offline_folder(folder);
    offline_make(folder, "a.json", a);
    offline_make(folder, "b.json", b);
    for (size_t i = 0; i < 3; i++) {
        struct child child;
        const char *const simulate[] = {DEFT, "simulate", "--policy", "wfbp", a, b, NULL};
        const char *const other[] = {DEFT, commands[i], a, b, NULL};
        offline_run(&child, i == 2 ? simulate : other, 0);
        (void)snprintf(heading, sizeof(heading), "== %s ==\n", a);
        assert_int_equal(count(child.output, heading), 1);
        (void)snprintf(heading, sizeof(heading), "\n== %s ==\n", b);
        assert_int_equal(count(child.output, heading), 1);
        assert_int_equal(count(child.output, "summary of 2 profiles"), i == 1);
        assert_int_equal(count(child.output, "deft is "), i == 1 ? 3 : 0);
        child_free(&child);
    }
    const char *const one[] = {DEFT, "compare", a, NULL};
    struct child child;
    offline_run(&child, one, 0);
    assert_null(strstr(child.output, "== "));
    assert_null(strstr(child.output, "summary"));
    child_free(&child);
    offline_remove(folder);
}

static void a_bad_file_is_named_and_the_others_run(void **unused) {
    (void)unused;
    const char *const commands[] = {"plan", "compare", "simulate"};
    char folder[40];
    char good[128];
    char bad[128];
    offline_folder(folder);
    offline_make(folder, "good.json", good);
    offline_path(folder, "bad.json", bad);
    offline_write(bad, "{}", 2);
    for (size_t i = 0; i < 3; i++) {
        struct child child;
        const char *const simulate[] = {DEFT,   "simulate", "--json", "--policy",
                                        "wfbp", bad,        good,     NULL};
        const char *const other[] = {DEFT, commands[i], "--json", bad, good, NULL};
        offline_run(&child, i == 2 ? simulate : other, 2);
        assert_int_equal(count(child.output, bad), 1);
        assert_int_equal(count(child.output, "\n"), 2); /* the sentence and one object */
        assert_non_null(strstr(child.output, "\n{\""));
        child_free(&child);
    }
    offline_remove(folder);
}

static void several_files_are_an_object_per_line_each(void **unused) {
    (void)unused;
    char folder[40];
    char paths[5][128];
    const char *argv[9] = {DEFT, "compare", "--json"};
    struct child child;
    offline_folder(folder);
    for (size_t i = 0; i < 5; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "p%zu", i);
        offline_make(folder, name, paths[i]);
        argv[3 + i] = paths[i];
    }
    offline_run(&child, argv, 0);
    char *line = child.output;
    for (size_t i = 0; i < 5; i++) {
        char begin[40];
        (void)snprintf(begin, sizeof(begin), "{\"profile\":\"p%zu\",\"bound\":", i);
        assert_memory_equal(line, begin, strlen(begin));
        line = strchr(line, '\n');
        assert_non_null(line);
        assert_int_equal(line[-1], '}');
        line++;
    }
    assert_int_equal(*line, '\0');
    child_free(&child);
    offline_remove(folder);
}

/* The fields of design note and manual, in every row, and a row for every policy. */
static void the_json_of_compare_has_the_documented_fields(void **unused) {
    (void)unused;
    static const char *const fields[] = {"policy",
                                         "step_ns",
                                         "exposed_ns",
                                         "updates_per_step",
                                         "rule",
                                         "mean_delay_steps",
                                         "max_delay_steps",
                                         "speedup_vs_wfbp",
                                         "pending_bytes",
                                         "solve_ns",
                                         "note"};
    char folder[40];
    char path[128];
    struct child child;
    size_t n_policies = 0;
    offline_folder(folder);
    offline_make(folder, "small", path);
    const char *const argv[] = {DEFT, "compare", "--json", path, NULL};
    offline_run(&child, argv, 0);
    while (dsched_policies[n_policies] != NULL) {
        char row[64];
        (void)snprintf(row, sizeof(row),
                       "{\"policy\":\"%s\",\"step_ns\":", dsched_policies[n_policies]->name);
        assert_int_equal(count(child.output, row), 1);
        n_policies++;
    }
    assert_int_equal(count(child.output, "{\"policy\":"), n_policies);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        char key[40];
        (void)snprintf(key, sizeof(key), "\"%s\":", fields[i]);
        /* The bound tells updates_per_step as well. */
        assert_int_equal(count(child.output, key),
                         n_policies + (strcmp(fields[i], "updates_per_step") == 0));
    }
    assert_int_equal(count(child.output, "\":"),
                     2 + 4 + n_policies * (sizeof(fields) / sizeof(fields[0])));
    child_free(&child);
    offline_remove(folder);
}

/* Only the row of deft obeys, and its note says so. */
static void limits_hold_for_the_row_of_deft(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    struct child free_child;
    struct child limited;
    offline_folder(folder);
    offline_make(folder, "small", path);
    const char *const without[] = {DEFT, "compare", "--json", path, NULL};
    const char *const with[] = {DEFT, "compare", "--json", "--rules=exact", path, NULL};
    offline_run(&free_child, without, 0);
    offline_run(&limited, with, 0);
    const char *a = strstr(free_child.output, "{\"policy\":\"deft\"");
    const char *b = strstr(limited.output, "{\"policy\":\"deft\"");
    assert_non_null(a);
    assert_non_null(b);
    assert_null(strstr(a, "\"rule\":\"exact\""));
    assert_non_null(strstr(b, "\"rule\":\"exact\""));
    assert_non_null(strstr(b, "\"note\":\"limits: "));
    assert_true(offline_number(a, "step_ns") < offline_number(b, "step_ns"));
    a = strstr(free_child.output, "{\"policy\":\"wfbp\"");
    b = strstr(limited.output, "{\"policy\":\"wfbp\"");
    assert_true(offline_number(a, "step_ns") == offline_number(b, "step_ns"));
    child_free(&free_child);
    child_free(&limited);
    offline_remove(folder);
}

static void standard_input_is_a_profile(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    char script[512];
    struct child from_file;
    struct child from_input;
    offline_folder(folder);
    offline_make(folder, "small", path);
    (void)snprintf(script, sizeof(script), "'%s' plan --json - < '%s'", DEFT, path);
    const char *const plan[] = {DEFT, "plan", "--json", path, NULL};
    const char *const shell[] = {"/bin/sh", "-c", script, NULL};
    offline_run(&from_file, plan, 0);
    offline_run(&from_input, shell, 0);
    assert_string_equal(from_file.output, from_input.output);
    child_free(&from_file);
    child_free(&from_input);
    (void)snprintf(script, sizeof(script), "exec '%s' plan - < /dev/null", DEFT);
    offline_refused(shell, "'standard input' is empty");
    const char *const twice[] = {DEFT, "plan", "-", "-", NULL};
    offline_refused(twice, "standard input can be read once");
    offline_remove(folder);
}

static void what_is_no_profile_is_refused(void **unused) {
    (void)unused;
    static const unsigned char binary[] = {0x7f, 'E', 'L', 'F', 0, 1, 2, 0xff, 0xfe, 0};
    char folder[40];
    char path[128];
    offline_folder(folder);
    const char *const on_folder[] = {DEFT, "plan", folder, NULL};
    offline_refused(on_folder, "is a folder, expected a file");
    const char *const explained[] = {DEFT, "explain", folder, NULL};
    offline_refused(explained, "is a folder, expected a file");
    offline_path(folder, "x", path);
    const char *const on_file[] = {DEFT, "compare", path, NULL};
    offline_refused(on_file, "cannot be read: No such file");
    offline_write(path, binary, sizeof(binary));
    offline_refused(on_file, "is no usable deft.profile/1");
    offline_write(path, "", 0);
    offline_refused(on_file, "is empty");
    /* Holes cost no disk: 64 MiB of zeroes, and one byte more. */
    assert_int_equal(truncate(path, 64 << 20), 0);
    offline_refused(on_file, "is no usable deft.profile/1");
    assert_int_equal(truncate(path, (64 << 20) + 1), 0);
    offline_refused(on_file, "has more than the 67108864 bytes");
    offline_remove(folder);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(each_file_has_its_heading_and_compare_a_summary),
    cmocka_unit_test(a_bad_file_is_named_and_the_others_run),
    cmocka_unit_test(several_files_are_an_object_per_line_each),
    cmocka_unit_test(the_json_of_compare_has_the_documented_fields),
    cmocka_unit_test(limits_hold_for_the_row_of_deft),
    cmocka_unit_test(standard_input_is_a_profile),
    cmocka_unit_test(what_is_no_profile_is_refused),
};
TESTING_MAIN(cases)
