/* --html, and what explain tells of files. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "offline.h"
#include "testing.h"
#include "wire/wire.h"

static char *read_all(const char *path) {
    struct stat facts;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &facts), 0);
    char *text = calloc(1, (size_t)facts.st_size + 1);
    assert_non_null(text);
    assert_int_equal(read(fd, text, (size_t)facts.st_size), facts.st_size);
    (void)close(fd);
    return text;
}

static size_t n_entries(const char *folder) {
    DIR *directory = opendir(folder);
    size_t n = 0;
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory)) {
        n += entry->d_name[0] != '.';
    }
    (void)closedir(directory);
    return n;
}

static void a_picture_is_one_whole_page(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    char html[128];
    struct child child;
    offline_folder(folder);
    offline_make(folder, "small", path);
    offline_path(folder, "page.html", html);
    const char *const commands[][8] = {
        {DEFT, "plan", "--html", html, path, NULL},
        {DEFT, "plan", "--json", "--html", html, path, NULL},
        {DEFT, "explain", "--html", html, path, NULL},
        {DEFT, "simulate", "--policy", "wfbp", "--html", html, path, NULL},
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        offline_run(&child, commands[i], 0);
        child_free(&child);
        char *page = read_all(html);
        assert_memory_equal(page, "<!DOCTYPE html>", 15);
        assert_non_null(strstr(page, "default-src 'none'"));
        assert_non_null(strstr(page, "{\"schema\":\"deft.timeline/1\",\"profile\":\"small\""));
        assert_non_null(strstr(page, "\"transfers\":[["));
        assert_string_equal(page + strlen(page) - 8, "</html>\n");
        assert_null(strstr(page, "http://localhost"));
        assert_null(strstr(page, "src="));
        free(page);
        assert_int_equal(n_entries(folder), 2); /* nothing temporary stays behind */
    }
    offline_remove(folder);
}

/* A name cannot end the element that holds the data. */
static void names_cannot_break_out_of_a_page(void **unused) {
    (void)unused;
    static const char hostile[] = "</script><script>alert(1)</script><!--";
    char folder[40];
    char path[128];
    char html[128];
    struct dsched_profile profile;
    struct child child;
    offline_folder(folder);
    offline_path(folder, "hostile", path);
    offline_path(folder, "page.html", html);
    offline_profile(&profile, hostile, 8);
    (void)snprintf(profile.links[0].name, sizeof(profile.links[0].name), "%s", hostile);
    offline_save(&profile, path);
    dsched_profile_done(&profile);
    const char *const argv[] = {DEFT, "plan", "--html", html, path, NULL};
    offline_run(&child, argv, 0);
    child_free(&child);
    char *page = read_all(html);
    assert_null(strstr(page, "alert(1)</"));
    assert_null(strstr(page, "<!--"));
    assert_non_null(strstr(page, "\"\\u003c/script>\\u003cscript>alert(1)\\u003c/script>"));
    free(page);
    offline_remove(folder);
}

/* A failure leaves the picture that was there, and nothing else. */
static void a_full_disk_changes_nothing(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    char html[128];
    char script[640];
    struct child child;
    offline_folder(folder);
    offline_make(folder, "small", path);
    offline_path(folder, "page.html", html);
    offline_write(html, "old", 3);
    const char *const full[] = {DEFT, "plan", "--html", "/dev/full", path, NULL};
    offline_run(&child, full, 1);
    assert_non_null(strstr(child.output, "'/dev/full' cannot be written: No space left"));
    assert_null(strstr(child.output, "compute"));
    child_free(&child);
    struct stat facts;
    assert_int_equal(stat("/dev/full", &facts), 0);
    assert_true(S_ISCHR(facts.st_mode));
    /* A limit on the size of files stands for a disk that fills up half-way. */
    (void)snprintf(script, sizeof(script),
                   "trap '' XFSZ; ulimit -f 8; exec '%s' plan --html '%s' '%s'", DEFT, html, path);
    const char *const half[] = {"/bin/sh", "-c", script, NULL};
    offline_run(&child, half, 1);
    assert_non_null(strstr(child.output, "cannot be written: File too large"));
    child_free(&child);
    char *page = read_all(html);
    assert_string_equal(page, "old");
    free(page);
    assert_int_equal(n_entries(folder), 2);
    offline_remove(folder);
}

static void what_cannot_be_created_is_one_sentence(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    offline_folder(folder);
    offline_make(folder, "small", path);
    const char *const nowhere[] = {DEFT, "plan", "--html", "/no/such/folder/x.html", path, NULL};
    offline_refused(nowhere, "'/no/such/folder/x.html' cannot be created: No such file");
    const char *const on_folder[] = {DEFT, "plan", "--html", folder, path, NULL};
    offline_refused(on_folder, "cannot be created: Is a directory");
    const char *const empty[] = {DEFT, "plan", "--html=", path, NULL};
    offline_refused(empty, "names no file");
    const char *const many[] = {DEFT, "plan", "--html", "x.html", path, path, NULL};
    offline_refused(many, "--html draws one profile, but 2 are given");
    const char *const sim[] = {DEFT, "simulate", "--policy=wfbp", "--html", "x.html", path,
                               path, NULL};
    offline_refused(sim, "--html draws one profile, but 2 are given");
    offline_remove(folder);
}

static void a_picture_is_written_through_a_link(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    char html[128];
    char name[128];
    struct child child;
    struct stat facts;
    offline_folder(folder);
    offline_make(folder, "small", path);
    offline_path(folder, "page.html", html);
    offline_path(folder, "link.html", name);
    offline_write(html, "old", 3);
    assert_int_equal(symlink("page.html", name), 0);
    const char *const argv[] = {DEFT, "plan", "--html", name, path, NULL};
    offline_run(&child, argv, 0);
    child_free(&child);
    assert_int_equal(lstat(name, &facts), 0);
    assert_true(S_ISLNK(facts.st_mode));
    char *page = read_all(html);
    assert_memory_equal(page, "<!DOCTYPE html>", 15);
    free(page);
    offline_remove(folder);
}

/* The plan inside the JSON of `plan`, as a file of its own. */
static void save_plan(const char *path, const char *plan_path) {
    struct child child;
    const char *const argv[] = {DEFT, "plan", "--json", path, NULL};
    offline_run(&child, argv, 0);
    const char *begin = strstr(child.output, "\"plan\":");
    const char *end = strrchr(child.output, '}');
    assert_non_null(begin);
    assert_non_null(end);
    begin += strlen("\"plan\":");
    offline_write(plan_path, begin, (size_t)(end - begin));
    child_free(&child);
}

static void a_plan_is_explained_alone_and_on_a_profile(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    char other[128];
    char plan[128];
    char html[128];
    struct dsched_profile profile;
    struct child child;
    offline_folder(folder);
    offline_make(folder, "small", path);
    offline_path(folder, "plan.json", plan);
    offline_path(folder, "other.json", other);
    offline_path(folder, "page.html", html);
    save_plan(path, plan);
    const char *const alone[] = {DEFT, "explain", plan, NULL};
    offline_run(&child, alone, 0);
    assert_non_null(strstr(child.output, "packing\n"));
    assert_null(strstr(child.output, "compute    |"));
    child_free(&child);
    const char *const drawn_alone[] = {DEFT, "explain", "--html", html, plan, NULL};
    offline_refused(drawn_alone, "--profile names the profile to draw it on");
    const char *const both[] = {DEFT, "explain", "--profile", path, "--html", html, plan, NULL};
    offline_run(&child, both, 0);
    assert_non_null(strstr(child.output, "\ncompute    |"));
    assert_non_null(strstr(child.output, "fast"));
    child_free(&child);
    /* A job of other tensors cannot run the plan. */
    offline_profile(&profile, "other", 9);
    offline_save(&profile, other);
    dsched_profile_done(&profile);
    const char *const wrong[] = {DEFT, "explain", "--profile", other, plan, NULL};
    offline_refused(wrong, "buckets");
    const char *const profiles[] = {DEFT, "explain", "--profile", path, path, NULL};
    offline_refused(profiles, "is a profile already");
    const char *const inputs[] = {DEFT, "explain", "--profile", "-", "-", NULL};
    offline_refused(inputs, "standard input can be read once");
    offline_remove(folder);
}

static void an_explanation_is_json_too(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    char plan[128];
    struct child child;
    struct dsched_plan decoded;
    static const char begins[] = "{\"schema\":\"deft.explanation/1\",\"packing\":[{\"generation\":";
    offline_folder(folder);
    offline_make(folder, "small", path);
    offline_path(folder, "plan.json", plan);
    save_plan(path, plan);
    const char *const of_profile[] = {DEFT, "explain", "--json", path, NULL};
    offline_run(&child, of_profile, 0);
    assert_memory_equal(child.output, begins, strlen(begins));
    assert_non_null(strstr(child.output, "\"alternatives\":[{\"rule\":\"exact\""));
    assert_non_null(strstr(child.output, "\"solution\":{\"schema\":\"deft.solution/1\""));
    child_free(&child);
    const char *const of_plan[] = {DEFT, "explain", "--json", plan, NULL};
    offline_run(&child, of_plan, 0);
    assert_null(strstr(child.output, "alternatives"));
    const char *begin = strstr(child.output, "\"plan\":");
    const char *end = strrchr(child.output, '}');
    assert_non_null(begin);
    assert_non_null(end);
    begin += strlen("\"plan\":");
    assert_int_equal(wire_plan_decode(begin, (size_t)(end - begin), &decoded, NULL), DEFT_OK);
    dsched_plan_done(&decoded);
    child_free(&child);
    offline_remove(folder);
}

static void policies_are_listed_and_unknown_ones_refused(void **unused) {
    (void)unused;
    struct child child;
    const char *const list[] = {DEFT, "simulate", "--policy=list", NULL};
    offline_run(&child, list, 0);
    for (size_t i = 0; dsched_policies[i] != NULL; i++) {
        assert_non_null(strstr(child.output, dsched_policies[i]->summary));
    }
    child_free(&child);
    const char *const unknown[] = {DEFT, "simulate", "--policy=magic", "/dev/null", NULL};
    offline_refused(unknown, "there is no policy 'magic'");
    const char *const without[] = {DEFT, "simulate", "/dev/null", NULL};
    offline_refused(without, "--policy is needed");
    const char *const nothing[] = {DEFT, "simulate", "--policy=wfbp", NULL};
    offline_refused(nothing, "a profile is expected");
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_picture_is_one_whole_page),
    cmocka_unit_test(names_cannot_break_out_of_a_page),
    cmocka_unit_test(a_full_disk_changes_nothing),
    cmocka_unit_test(what_cannot_be_created_is_one_sentence),
    cmocka_unit_test(a_picture_is_written_through_a_link),
    cmocka_unit_test(a_plan_is_explained_alone_and_on_a_profile),
    cmocka_unit_test(an_explanation_is_json_too),
    cmocka_unit_test(policies_are_listed_and_unknown_ones_refused),
};
TESTING_MAIN(cases)
