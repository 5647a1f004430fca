/* A job that is tuned with losses: compared, resumed, committed, left by its fuse; and its
 * decisions decided again, by a process of its own, from the database of the controller at work. */
#include <math.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "child.h"
#include "scripted_agent.h"
#include "talk.h"
#include "testing.h"

/* More than any phase of these jobs lasts. */
#define MANY 3000u

static const char *const options[] = {"--warmup", "40", "--guard", "400", NULL};

static void start(struct controller *c, struct scripted_agent *agent) {
    controller_child_prepare(c, options);
    controller_child_launch(c);
    scripted_agent_start(agent, c, "j", scripted_agent_decaying);
}

/* Decisions are recorded a moment after they hold. */
static void await_decisions(const struct scripted_agent *agent, const char *kind, uint32_t n) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(60);
    while (scripted_agent_count(agent, kind) < n) {
        assert_true(clock_monotonic_ns() < until_ns);
    }
    assert_int_equal(scripted_agent_count(agent, kind), n);
}

/* `deft replay`; its output must be freed with child_free. */
static int replay(const struct controller *c, const char *job, const char *option,
                  struct child *out) {
    const char *argv[] = {DEFT, "replay", c->db, job, option, NULL};
    child_start(out, argv, NULL, -1, 1);
    return child_wait(out);
}

static void expect_agreement(const struct controller *c, const struct scripted_agent *agent) {
    struct wire_decisions decisions = {0};
    struct child child;
    char last[64];
    scripted_agent_decisions(agent, &decisions);
    uint32_t n = decisions.n_decisions;
    assert_true(n > 0);
    int exit_code = replay(c, agent->job, NULL, &child);
    (void)snprintf(last, sizeof(last), "\n%u of %u decisions agree (", n, n);
    if (exit_code != 0 || strstr(child.output, last) == NULL) {
        fail_msg("exit status %d:\n%s", exit_code, child.output);
    }
    for (uint32_t i = 0; i < n; i++) { /* each has its line */
        assert_non_null(strstr(child.output, decisions.decisions[i].reason));
    }
    child_free(&child);
    wire_decisions_done(&decisions);
}

/* --- cases ------------------------------------------------------------------------------------ */

static void a_plan_is_compared_before_it_is_committed(void **unused) {
    struct controller c;
    struct scripted_agent agent;
    struct wire_decisions decisions = {0};
    static const char *const kinds[] = {"push", "compare", "resume", "commit"};
    (void)unused;
    start(&c, &agent);
    scripted_agent_run_to(&agent, "committed", MANY);
    await_decisions(&agent, "commit", 1);
    scripted_agent_decisions(&agent, &decisions);
    /* The canary's windows may take more than one triple. */
    assert_true(decisions.n_decisions >= 4 && decisions.n_decisions % 2 == 0);
    for (uint32_t i = 0; i < decisions.n_decisions; i++) {
        const char *kind = i == 0                           ? kinds[0]
                           : i == decisions.n_decisions - 1 ? kinds[3]
                                                            : kinds[2 - i % 2];
        assert_string_equal(decisions.decisions[i].kind, kind);
    }
    assert_true(decisions.decisions[0].iteration >= 40); /* after the warm-up */
    wire_decisions_done(&decisions);
    scripted_agent_run(&agent, 60);
    assert_true(agent.view.gain > 1.5);
    assert_true(agent.view.progress > 0.5 && agent.view.progress <= 1);
    assert_true(agent.view.noise_samples > 0);
    assert_string_equal(agent.view.loss_state, "fine");
    assert_non_null(strstr(agent.view.status, "committed, next compared with exact at iteration"));
    expect_agreement(&c, &agent);
    /* The guard's own comparison. */
    scripted_agent_run_to(&agent, "comparing", MANY);
    scripted_agent_run_to(&agent, "committed", MANY);
    expect_agreement(&c, &agent);
    controller_child_stop(&c);
}

static void replay_agrees_across_restarts(void **unused) {
    static const char *const phases[] = {"canary", "comparing", "committed", "comparing"};
    struct controller c;
    struct scripted_agent agent;
    (void)unused;
    start(&c, &agent);
    for (size_t i = 0; i < sizeof(phases) / sizeof(phases[0]); i++) {
        scripted_agent_run_to(&agent, phases[i], MANY);
        (void)controller_child_halt(&c, SIGKILL);
        controller_child_launch(&c);
        scripted_agent_run(&agent, 5);
    }
    scripted_agent_run_to(&agent, "committed", MANY);
    await_decisions(&agent, "commit", 1);
    await_decisions(&agent, "push", 1);
    await_decisions(&agent, "rollback", 0);
    expect_agreement(&c, &agent);
    (void)controller_child_halt(&c, SIGTERM);
    struct child child;
    assert_int_equal(replay(&c, "j", "--json", &child), 0); /* without a controller as well */
    assert_true(talk_number(child.output, "n_differing") == 0);
    assert_true(talk_number(child.output, "n_solved") >= 1);
    child_free(&child);
    controller_child_clean(&c);
}

/* Grows under a plan, falls back under exact. */
static double diverging(struct scripted_agent *agent) {
    double noise = (double)testing_random_below(&agent->random, 2000001) / 1e6 - 1;
    double level = agent->level > 0 ? agent->level : 0.7;
    agent->level = agent->is_exact ? fmax(0.7, level * 0.98) : level * 1.02;
    return agent->level * (1 + 0.01 * noise);
}

static void a_plan_that_hurts_is_left_and_that_is_replayed(void **unused) {
    struct controller c;
    struct scripted_agent agent;
    (void)unused;
    controller_child_prepare(&c, options);
    controller_child_launch(&c);
    scripted_agent_start(&agent, &c, "j", diverging);
    scripted_agent_run_to(&agent, "returning", MANY);
    scripted_agent_run(&agent, 100);
    await_decisions(&agent, "rollback", 1);
    await_decisions(&agent, "commit", 0);
    assert_int_equal(agent.is_exact, 1);
    assert_int_equal(agent.view.n_rollbacks, 1);
    expect_agreement(&c, &agent);
    controller_child_stop(&c);
}

static void a_fuse_leads_to_a_decision(void **unused) {
    struct controller c;
    struct scripted_agent agent;
    struct wire_decisions decisions = {0};
    (void)unused;
    start(&c, &agent);
    scripted_agent_run_to(&agent, "committed", MANY);
    scripted_agent_fuse(&agent, "the mean loss is 9, above the 2.1 allowed");
    assert_string_equal(agent.view.phase, "observing");
    await_decisions(&agent, "fused", 1); /* although both ranks say so */
    scripted_agent_decisions(&agent, &decisions);
    const struct wire_decision *fused = &decisions.decisions[decisions.n_decisions - 1];
    assert_string_equal(fused->kind, "fused");
    assert_int_equal(fused->plan_seq, agent.plan_seq);
    assert_non_null(strstr(fused->reason, "the mean loss is 9, above the 2.1 allowed"));
    wire_decisions_done(&decisions);
    scripted_agent_run(&agent, 200); /* the ranks go on under the number of the plan they left */
    assert_string_equal(agent.view.rule, "exact");
    assert_int_equal(agent.view.n_rollbacks, 1);
    await_decisions(&agent, "rollback", 0);
    expect_agreement(&c, &agent);
    controller_child_stop(&c);
}

/* --- tampering -------------------------------------------------------------------------------- */

static void run_sql(const struct controller *c, const char *sql) {
    sqlite3 *db = NULL;
    char *why = NULL;
    assert_int_equal(sqlite3_open(c->db, &db), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, 10000);
    if (sqlite3_exec(db, sql, NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s: %s", sql, why);
    }
    assert_int_equal(sqlite3_changes(db), 1);
    assert_int_equal(sqlite3_close(db), SQLITE_OK);
}

static void what_was_tampered_with_differs(void **unused) {
    static const struct {
        const char *tamper;
        const char *restore;
        const char *says;
    } cases[] = {
        {"UPDATE decisions SET inputs = replace(inputs, '\"has_proposal\":true',"
         " '\"has_proposal\":false') WHERE kind = 'push'",
         "UPDATE decisions SET inputs = replace(inputs, '\"has_proposal\":false',"
         " '\"has_proposal\":true') WHERE kind = 'push'",
         "decided again it is 'keep': no plan was found"},
        {"UPDATE decisions SET inputs = '{' || inputs WHERE kind = 'push'",
         "UPDATE decisions SET inputs = substr(inputs, 2) WHERE kind = 'push'",
         "its inputs cannot be read: "},
        {"UPDATE decisions SET reason = reason || '!' WHERE kind = 'push'",
         "UPDATE decisions SET reason = rtrim(reason, '!') WHERE kind = 'push'",
         "decided again the reason is: "},
        {"UPDATE decisions SET plan_seq = 7 WHERE kind = 'push'",
         "UPDATE decisions SET plan_seq = 1 WHERE kind = 'push'",
         "decided again it is about plan 1, not 7"},
        {"UPDATE decisions SET iteration = iteration + 1 WHERE kind = 'push'",
         "UPDATE decisions SET iteration = iteration - 1 WHERE kind = 'push'",
         "decided again it is at iteration "},
        {"UPDATE decisions SET solve = replace(solve, '\"max_delay\":8', '\"max_delay\":0')"
         " WHERE kind = 'push'",
         "UPDATE decisions SET solve = replace(solve, '\"max_delay\":0', '\"max_delay\":8')"
         " WHERE kind = 'push'",
         "solved again the plan has the hash "},
        {"UPDATE decisions SET solve = 'x' WHERE kind = 'push'", NULL,
         "what was solved cannot be read: "},
    };
    struct controller c;
    struct scripted_agent agent;
    (void)unused;
    start(&c, &agent);
    scripted_agent_run_to(&agent, "committed", MANY);
    await_decisions(&agent, "commit", 1);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct child child;
        run_sql(&c, cases[i].tamper);
        int exit_code = replay(&c, "j", NULL, &child);
        const char *line = strstr(child.output, " push      differs ");
        if (exit_code != 1 || line == NULL || strstr(line, cases[i].says) == NULL) {
            fail_msg("%s\nexit status %d:\n%s", cases[i].tamper, exit_code, child.output);
        }
        child_free(&child);
        if (cases[i].restore != NULL) {
            run_sql(&c, cases[i].restore);
            expect_agreement(&c, &agent);
        }
    }
    controller_child_stop(&c);
}

static void what_was_not_kept_is_counted(void **unused) {
    struct controller c;
    struct scripted_agent agent;
    struct child child;
    (void)unused;
    start(&c, &agent);
    scripted_agent_run_to(&agent, "canary", MANY);
    await_decisions(&agent, "push", 1);
    run_sql(&c, "UPDATE decisions SET inputs = ''");
    assert_int_equal(replay(&c, "j", NULL, &child), 0);
    assert_non_null(strstr(child.output, " push      not kept "));
    assert_non_null(strstr(child.output, "\n0 of 0 decisions agree (0 solved again); of 1 more the "
                                         "inputs were not kept\n"));
    child_free(&child);
    controller_child_stop(&c);
}

static void nothing_to_compare_is_said(void **unused) {
    struct controller c;
    struct scripted_agent agent;
    struct controller none;
    struct child child;
    (void)unused;
    start(&c, &agent);
    assert_int_equal(replay(&c, "other", NULL, &child), 2);
    assert_non_null(strstr(child.output, "there is no job 'other' in '"));
    child_free(&child);
    assert_int_equal(replay(&c, "j", "-x", &child), 2);
    child_free(&child);
    none = c;
    (void)snprintf(none.db, sizeof(none.db), "%s/none", c.dir);
    assert_int_equal(replay(&none, "j", NULL, &child), 2);
    assert_non_null(strstr(child.output, "cannot be opened"));
    assert_int_not_equal(access(none.db, F_OK), 0); /* looking makes no database */
    child_free(&child);
    (void)snprintf(none.db, sizeof(none.db), "/etc/passwd");
    assert_int_equal(replay(&none, "j", NULL, &child), 2);
    assert_non_null(strstr(child.output, "not a database"));
    child_free(&child);
    controller_child_stop(&c);
}

/* --- operators -------------------------------------------------------------------------------- */

/* A command of `deft` that asks this controller; its output must be freed with child_free. */
static int ask(const struct controller *c, const char *const *words, struct child *out) {
    char url[64];
    const char *argv[16] = {DEFT, words[0], "--controller", url};
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", c->port);
    for (size_t i = 1; words[i - 1] != NULL; i++) {
        argv[3 + i] = words[i];
    }
    child_start(out, argv, NULL, -1, 1);
    return child_wait(out);
}

static void expect_answer(const struct controller *c, const char *const *words, int exit_code,
                          const char *says) {
    struct child child;
    int got = ask(c, words, &child);
    if (got != exit_code || strstr(child.output, says) == NULL) {
        fail_msg("%s: exit status %d, without '%s':\n%s", words[0], got, says, child.output);
    }
    child_free(&child);
}

static void limits_are_set_from_a_shell(void **unused) {
    static const struct {
        const char *words[8];
        int exit_code;
        const char *says;
    } steps[] = {
        {{"limits", "j"},
         0,
         "merge at most 3, delay at most 8, epsilon 0.01, progress at least "
         "0.5, loss floor none\n"},
        {{"limits", "--epsilon", "0.02", "--loss-floor=-1.5", "j"},
         0,
         "merge at most 3, delay at most 8, epsilon 0.02, progress at least 0.5, loss floor "
         "-1.5\n"},
        {{"limits", "--max-merge", "2", "--min-progress=0", "j"},
         0,
         "merge at most 2, delay at most 8, epsilon 0.02, progress at least 0, loss floor -1.5\n"},
        {{"limits", "--loss-floor", "none", "--max-delay", "0", "j"},
         0,
         "merge at most 2, delay at most 0, epsilon 0.02, progress at least 0, loss floor none\n"},
        {{"limits", "--epsilon", "1.1", "j"}, 2, "--epsilon is '1.1', expected a number from 0"},
        {{"limits", "--max-merge", "0", "j"}, 2, "--max-merge is '0', expected a whole number"},
        {{"limits", "--loss-floor", "low", "j"}, 2, "--loss-floor is 'low', expected a number"},
        {{"limits", "--epsilon", "0.1", "other"}, 1, "there is no such job"},
        {{"mode", "j", "fast"}, 2, "the mode is 'fast', expected one of off, observe, auto"},
        {{"mode", "other", "off"}, 1, "there is no such job"},
        {{"mode", "j", "observe"}, 0, "job j: mode observe\n"},
    };
    struct controller c;
    struct scripted_agent agent;
    (void)unused;
    start(&c, &agent);
    scripted_agent_run(&agent, 5);
    for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
        expect_answer(&c, steps[i].words, steps[i].exit_code, steps[i].says);
    }
    (void)controller_child_halt(&c, SIGKILL);
    controller_child_launch(&c);
    expect_answer(&c, steps[0].words, 0, steps[3].says);
    scripted_agent_run(&agent, 5);
    assert_string_equal(agent.view.mode, "observe");
    assert_true(agent.view.epsilon == 0.02 && agent.view.min_progress == 0);
    assert_true(isnan(agent.view.loss_floor));
    controller_child_stop(&c);
}

static void a_job_tells_what_its_plan_costs(void **unused) {
    static const char *const job[] = {"job", "j", NULL};
    static const char *const lines[] = {
        "\nstatus       plan ",
        " committed, next compared with exact at iteration ",
        ", costs ",
        " % more samples\n",
        "\nloss         ",
        ", usable\n",
        "\nnoise scale  ",
        "\nlimits       merge 3, delay 8, epsilon 0.01, progress 0.5\n",
        "  compare   before ",
    };
    struct controller c;
    struct scripted_agent agent;
    struct child child;
    (void)unused;
    start(&c, &agent);
    scripted_agent_run_to(&agent, "committed", MANY);
    await_decisions(&agent, "commit", 1);
    assert_int_equal(ask(&c, job, &child), 0);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        if (strstr(child.output, lines[i]) == NULL) {
            fail_msg("'%s' is missing:\n%s", lines[i], child.output);
        }
    }
    child_free(&child);
    controller_child_stop(&c);
}

static void options_out_of_range_are_refused(void **unused) {
    static const char *const bad[][2] = {
        {"--epsilon=1.5", "--epsilon is '1.5', expected a number from 0 to 1\n"},
        {"--epsilon=nan", "--epsilon is 'nan', expected a number from 0 to 1\n"},
        {"--min-progress=-0.1", "--min-progress is '-0.1', expected a number from 0 to 1\n"},
        {"--warmup=-1", "--warmup is '-1', expected a whole number from 0 to 1000000000\n"},
        {"--guard=0", "--guard is '0', expected a whole number from 1 to 1000000000\n"},
        {"--max-merge=65", "--max-merge is '65', expected a whole number from 1 to 64\n"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        const char *argv[] = {DEFT_CONTROLLER, bad[i][0], NULL};
        struct child child;
        child_start(&child, argv, NULL, -1, 1);
        assert_int_equal(child_wait(&child), 2);
        assert_non_null(strstr(child.output, bad[i][1]));
        child_free(&child);
    }
}

static void options_are_those_of_new_jobs(void **unused) {
    static const char *const other[] = {"--epsilon", "0.05", "--min-progress", "0.25", "--warmup",
                                        "100000",    NULL};
    struct controller c;
    struct scripted_agent agent;
    (void)unused;
    controller_child_prepare(&c, other);
    controller_child_launch(&c);
    scripted_agent_start(&agent, &c, "j", scripted_agent_decaying);
    scripted_agent_run(&agent, 300);
    assert_true(agent.view.epsilon == 0.05 && agent.view.min_progress == 0.25);
    assert_string_equal(agent.view.status, "warming up, 300 of 100000 iterations");
    await_decisions(&agent, "push", 0);
    controller_child_stop(&c);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_plan_is_compared_before_it_is_committed),
    cmocka_unit_test(replay_agrees_across_restarts),
    cmocka_unit_test(a_plan_that_hurts_is_left_and_that_is_replayed),
    cmocka_unit_test(a_fuse_leads_to_a_decision),
    cmocka_unit_test(what_was_tampered_with_differs),
    cmocka_unit_test(what_was_not_kept_is_counted),
    cmocka_unit_test(nothing_to_compare_is_said),
    cmocka_unit_test(limits_are_set_from_a_shell),
    cmocka_unit_test(a_job_tells_what_its_plan_costs),
    cmocka_unit_test(options_out_of_range_are_refused),
    cmocka_unit_test(options_are_those_of_new_jobs),
};
TESTING_MAIN(cases)
