/* --optimizer and its kin on the command line: what updates cost changes which plan is chosen, and
 * is shown. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "offline.h"
#include "testing.h"

/* `deft COMMAND`, one or two more arguments, and a profile; child_free is the caller's. */
static void run(struct child *child, const char *command, const char *option, const char *other,
                const char *path) {
    const char *const argv[] = {DEFT, command, path, option, other, NULL};
    offline_run(child, argv, 0);
}

/* Every "key": in a text of JSON: the number behind it, or -1 for null. Returns how many. */
static size_t numbers(const char *json, const char *key, double *out, size_t n_most) {
    char quoted[64];
    size_t n = 0;
    (void)snprintf(quoted, sizeof(quoted), "\"%s\":", key);
    for (const char *at = strstr(json, quoted); at != NULL; at = strstr(at, quoted)) {
        at += strlen(quoted);
        assert_true(n < n_most);
        out[n++] = strncmp(at, "null", 4) == 0 ? -1 : strtod(at, NULL);
    }
    return n;
}

#define MANY 128u

struct figures {
    size_t n;
    double step_ns[MANY]; /* with the margin */
    double progress[MANY];
    double cost_ns[MANY];
};

static void figures_of(const char *json, struct figures *out) {
    *out = (struct figures){0};
    out->n = numbers(json, "margin_step_ns", out->step_ns, MANY);
    assert_true(out->n > 0);
    assert_int_equal(numbers(json, "progress", out->progress, MANY), out->n);
    assert_int_equal(numbers(json, "cost_ns", out->cost_ns, MANY), out->n);
}

static void without_statistics_the_step_is_the_cost(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    struct child child;
    struct figures figures;
    offline_folder(folder);
    offline_make(folder, "small", path);
    run(&child, "plan", "--json", NULL, path);
    figures_of(child.output, &figures);
    for (size_t i = 0; i < figures.n; i++) {
        assert_true(figures.progress[i] == 1 && figures.cost_ns[i] == figures.step_ns[i]);
    }
    child_free(&child);
    run(&child, "plan", NULL, NULL, path);
    assert_null(strstr(child.output, "progress"));
    child_free(&child);
    run(&child, "explain", NULL, NULL, path);
    assert_null(strstr(child.output, "progress"));
    child_free(&child);
    offline_remove(folder);
}

static void any_statistic_shows_the_price(void **unused) {
    (void)unused;
    static const char *const given[][2] = {
        {"--optimizer=unknown", NULL},
        {"--optimizer=adamw", NULL},
        {"--batch=1024", NULL},
        {"--noise-scale=0.5", NULL},
        {"--momentum=0.9", "--optimizer=sgd"},
        {"--optimizer=sgd", "--rate-curvature=0.01"},
    };
    char folder[40];
    char path[128];
    struct child child;
    offline_folder(folder);
    offline_make(folder, "small", path);
    for (size_t i = 0; i < sizeof(given) / sizeof(given[0]); i++) {
        run(&child, "plan", given[i][0], given[i][1], path);
        assert_non_null(strstr(child.output, "per sample of exact's"));
        assert_non_null(strstr(child.output, "  progress  "));
        assert_non_null(strstr(child.output, "  cost  verdict\n"));
        child_free(&child);
        run(&child, "explain", given[i][0], given[i][1], path);
        assert_non_null(strstr(child.output, "; progress 1.000, cost "));
        child_free(&child);
        run(&child, "compare", given[i][0], given[i][1], path);
        assert_non_null(strstr(child.output, "; chosen by progress\n"));
        child_free(&child);
    }
    offline_remove(folder);
}

static void programs_get_progress_and_cost(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    struct child child;
    struct figures figures;
    size_t n_none = 0;
    size_t n_less = 0;
    offline_folder(folder);
    offline_make(folder, "small", path);
    const char *const argv[] = {
        DEFT, "plan", "--json", path, "--optimizer=sgd", "--momentum=0.9", "--rate-curvature=0.9",
        NULL};
    offline_run(&child, argv, 0);
    figures_of(child.output, &figures);
    for (size_t i = 0; i < figures.n; i++) {
        double cost_ns = figures.step_ns[i] / figures.progress[i];
        n_none += figures.progress[i] == 0;
        n_less += figures.progress[i] > 0 && figures.progress[i] < 1;
        assert_int_equal(figures.progress[i] == 0, figures.cost_ns[i] == -1);
        assert_true(figures.progress[i] == 0 || (figures.cost_ns[i] >= cost_ns * (1 - 1e-9) &&
                                                 figures.cost_ns[i] < cost_ns + 2));
    }
    assert_true(n_none > 0 && n_less > 0);
    assert_non_null(strstr(child.output, "\"verdict\":\"no progress\""));
    child_free(&child);
    run(&child, "explain", "--json", "--optimizer=adam", path);
    assert_non_null(strstr(child.output, "\"updates_per_step\":1,\"progress\":1,\"cost_ns\":"));
    child_free(&child);
    offline_remove(folder);
}

/* What only merges in time is cheap while gradients are noise, and dear when they are not. */
static void the_price_changes_the_choice(void **unused) {
    (void)unused;
    char folder[40];
    char path[128];
    struct child child;
    const char *noisy[] = {DEFT,
                           "plan",
                           "--rules=delayed",
                           path,
                           "--optimizer=sgd",
                           "--batch=100",
                           "--noise-scale=1000000",
                           NULL};
    offline_folder(folder);
    offline_make(folder, "small", path);
    run(&child, "plan", "--rules=delayed", NULL, path);
    assert_non_null(strstr(child.output, "chosen           delayed"));
    child_free(&child);
    offline_run(&child, noisy, 0);
    assert_non_null(strstr(child.output, "chosen           delayed"));
    child_free(&child);
    noisy[6] = "--noise-scale=1";
    offline_run(&child, noisy, 0);
    assert_non_null(strstr(child.output, "chosen           exact"));
    child_free(&child);
    offline_remove(folder);
}

static void wrong_statistics_are_one_sentence(void **unused) {
    (void)unused;
    static const char *const wrong[][2] = {
        {"--optimizer=rmsprop", "expected one of unknown, sgd, adam, adamw"},
        {"--optimizer=", "expected one of unknown, sgd, adam, adamw"},
        {"--momentum=1", "expected a number from 0 to 0.999999"},
        {"--momentum=-0.1", "expected a number from 0 to 0.999999"},
        {"--momentum=nan", "expected a number from 0 to 0.999999"},
        {"--momentum=0.9", "of --optimizer=sgd only"},
        {"--batch=0", "expected a whole number from 1 to 1000000000000"},
        {"--batch=1.5", "expected a whole number from 1 to 1000000000000"},
        {"--batch=1000000000001", "expected a whole number from 1 to 1000000000000"},
        {"--noise-scale=-1", "expected a number from 0 to 1000000000000"},
        {"--noise-scale=inf", "expected a number from 0 to 1000000000000"},
        {"--noise-scale=1000000000001", "expected a number from 0 to 1000000000000"},
        {"--rate-curvature=-1", "expected a number from 0 to 100"},
        {"--rate-curvature=100.1", "expected a number from 0 to 100"},
        {"--rate-curvature=0.1", "of --optimizer=sgd only"},
    };
    static const char *const commands[] = {"plan", "explain", "compare"};
    for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
        const char *const argv[] = {DEFT, commands[i % 3], wrong[i][0], "/dev/null", NULL};
        offline_refused(argv, wrong[i][1]);
    }
    const char *const adam[] = {DEFT,           "plan",      "--optimizer=adam",
                                "--momentum=0", "/dev/null", NULL};
    offline_refused(adam, "--momentum is given, but it says something of --optimizer=sgd only");
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(without_statistics_the_step_is_the_cost),
    cmocka_unit_test(any_statistic_shows_the_price),
    cmocka_unit_test(programs_get_progress_and_cost),
    cmocka_unit_test(the_price_changes_the_choice),
    cmocka_unit_test(wrong_statistics_are_one_sentence),
};
TESTING_MAIN(cases)
