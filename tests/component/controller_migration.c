/* Databases of older releases: opened by the controller of today, brought up to date, and their
 * jobs go on with their plans. */
#include <inttypes.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "child.h"
#include "scripted_agent.h"
#include "store/store_schema.h"
#include "talk.h"
#include "testing.h"

/* What the first release wrote of a tuner that watches a committed plan. */
#define OLD_TUNER                                                                                  \
    "{\"phase\":\"committed\",\"next_seq\":2,"                                                     \
    "\"running\":{\"seq\":1,\"hash\":\"%016" PRIx64                                                \
    "\",\"rule\":2,\"cycle\":1,\"merge\":1,\"delay\":1,"                                           \
    "\"updates_ppm\":1000000,\"is_exact\":false,\"predicted_step_ns\":200010000},"                 \
    "\"previous\":{\"seq\":0,\"hash\":\"0000000000000000\",\"rule\":0,\"cycle\":1,\"merge\":1,"    \
    "\"delay\":0,\"updates_ppm\":1000000,\"is_exact\":true,\"predicted_step_ns\":0},"              \
    "\"pushed\":{\"seq\":1,\"hash\":\"%016" PRIx64                                                 \
    "\",\"rule\":2,\"cycle\":1,\"merge\":1,\"delay\":1,"                                           \
    "\"updates_ppm\":1000000,\"is_exact\":false,\"predicted_step_ns\":200010000},"                 \
    "\"iteration\":244,\"pushed_iteration\":34,\"wait_until\":265,"                                \
    "\"failed_hash\":\"0000000000000000\",\"backoff\":0,\"n_switches\":1,\"n_rollbacks\":0,"       \
    "\"refined\":false,\"finite_loss\":true,\"exact_step_ns\":380000000,"                          \
    "\"before_step_ns\":380000000,\"step_ns\":200000000,\"reference_step_ns\":200010000,"          \
    "\"best_step_ns\":200010000}"

struct old {
    sqlite3 *db;
    char *registration;
    char *plan;
    uint64_t hash;
};

static void run_sql(struct old *old, const char *sql, const char *const *texts) {
    sqlite3_stmt *s = NULL;
    assert_int_equal(sqlite3_prepare_v2(old->db, sql, -1, &s, NULL), SQLITE_OK);
    for (int i = 0; texts != NULL && texts[i] != NULL; i++) {
        assert_int_equal(sqlite3_bind_text(s, i + 1, texts[i], -1, SQLITE_STATIC), SQLITE_OK);
    }
    assert_int_equal(sqlite3_step(s), SQLITE_DONE);
    assert_int_equal(sqlite3_finalize(s), SQLITE_OK);
}

/* A plan of one bucket for all of the scripted agent's tensors, one boundary late. */
static void make_plan(struct old *old) {
    struct dsched_plan plan = {0};
    assert_int_equal(dsched_plan_init(&plan, 1, 1), DSCHED_OK);
    plan.rule = DSCHED_LOOKAHEAD;
    plan.n_links = 1;
    plan.buckets[0] = (struct dsched_bucket){0, UINT64_C(8) << 20};
    plan.merge[0] = 1;
    plan.ops[0] = (struct dsched_op){.link = 0, .delay = 1};
    plan.forecast.step_ns = 200010000;
    plan.forecast.updates_per_step_ppm = 1000000;
    old->hash = dsched_plan_hash(&plan);
    assert_int_equal(wire_plan_encode(&plan, &old->plan, NULL), DEFT_OK);
    dsched_plan_done(&plan);
}

/* A database of schema 1 with one running job, as the first release left it. */
static void make_database(const char *path) {
    struct old old = {0};
    char tuner[2048];
    char hash[24];
    char *why = NULL;
    make_plan(&old);
    old.registration = scripted_agent_registration();
    (void)snprintf(tuner, sizeof(tuner), OLD_TUNER, old.hash, old.hash);
    (void)snprintf(hash, sizeof(hash), "%016" PRIx64, old.hash);
    assert_int_equal(sqlite3_open(path, &old.db), SQLITE_OK);
    if (sqlite3_exec(old.db, store_schema[0], NULL, NULL, &why) != SQLITE_OK) {
        fail_msg("%s", why);
    }
    run_sql(&old, "PRAGMA user_version = 1", NULL);
    run_sql(&old,
            "INSERT INTO jobs (id, user, state, mode, max_merge, max_delay, summary, created_ns,"
            " updated_ns) VALUES ('j', 'user-1', 'running', 'auto', 2, 4, '', 1, 1)",
            NULL);
    run_sql(&old,
            "INSERT INTO incarnations (id, job, key, state, n_ranks, table_hash, registration,"
            " tuner, profile, registered_ns, updated_ns)"
            " VALUES (1, 'j', 'start-1', 'running', 2, '0000000000000007', ?1, ?2, '', 1, 1)",
            (const char *[]){old.registration, tuner, NULL});
    run_sql(&old, "INSERT INTO agents VALUES (1, 'host-1', 3, 1)", NULL);
    run_sql(&old,
            "INSERT INTO plans (incarnation, seq, hash, plan, solution, created_ns)"
            " VALUES (1, 1, ?1, ?2, '', 1)",
            (const char *[]){hash, old.plan, NULL});
    run_sql(&old,
            "INSERT INTO decisions (incarnation, at_ns, kind, iteration, plan_seq, exact_step_ns,"
            " before_step_ns, predicted_step_ns, measured_step_ns, reason) VALUES"
            " (1, 1, 'push', 34, 1, 380000000, 380000000, 200010000, 380000000, 'as predicted')",
            NULL);
    run_sql(&old,
            "INSERT INTO iterations VALUES (1, 244, 0, 1, 60000000, 120000000, 0, 20000000, 0,"
            " 200000000, 0, 1.5, 4, NULL, 1, 0, 1, 0)",
            NULL);
    assert_int_equal(sqlite3_close(old.db), SQLITE_OK);
    free(old.registration);
    free(old.plan);
}

static int64_t user_version(const char *path) {
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA user_version", -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    int64_t version = sqlite3_column_int64(s, 0);
    (void)sqlite3_finalize(s);
    (void)sqlite3_close(db);
    return version;
}

static int replay(const struct controller *c, struct child *out) {
    const char *argv[] = {DEFT, "replay", c->db, "j", NULL};
    child_start(out, argv, NULL, -1, 1);
    return child_wait(out);
}

/* The ranks run plan 1 and know nothing of the controller's upgrade. */
static void rejoin(struct scripted_agent *agent, const struct controller *c) {
    scripted_agent_start(agent, c, "j", scripted_agent_decaying);
    assert_int_equal(agent->seq, 3); /* the reports of before count */
    agent->iteration = 245;
    agent->plan_seq = agent->seen_seq = 1;
    agent->is_exact = 0;
    agent->step_ns = 200010000;
}

static void a_job_of_the_first_release_goes_on_with_its_plan(void **unused) {
    static const char *const options[] = {"--guard", "300", NULL};
    struct controller c;
    struct scripted_agent agent;
    struct child child;
    (void)unused;
    controller_child_prepare(&c, options);
    make_database(c.db);
    /* Looking is not opening: a replay leaves it as it is. */
    assert_int_equal(replay(&c, &child), 2);
    assert_non_null(strstr(child.output, "has schema 1, but "));
    child_free(&child);
    assert_int_equal(user_version(c.db), 1);
    controller_child_launch(&c);
    assert_int_equal(user_version(c.db), store_schema_steps);
    /* The plan is pushed to whoever asks, without a fuse. */
    int fd = talk_stream(c.port, "/api/v1/incarnations/i1/events", NULL);
    char *event = talk_read_until(fd, "event: mode");
    assert_non_null(strstr(event, "event: plan\nid: 1\n"));
    assert_non_null(strstr(event, "\"max_loss\":null,\"max_grad_sq\":null}"));
    free(event);
    (void)close(fd);
    rejoin(&agent, &c);
    scripted_agent_run(&agent, 100);
    assert_string_equal(agent.view.phase, "committed");
    assert_string_equal(agent.view.mode, "auto");
    assert_int_equal(agent.view.plan_seq, 1);
    assert_int_equal(agent.view.max_merge, 2);
    assert_int_equal(agent.view.max_delay, 4);
    assert_true(agent.view.epsilon == 0.01 && agent.view.min_progress == 0.5);
    assert_true(agent.view.gain > 1.85 && agent.view.gain < 1.95);
    assert_int_equal(agent.view.n_rollbacks, 0);
    assert_int_equal(agent.view.iterations, 101);
    /* And it is guarded like any other: compared, not committed once more. */
    scripted_agent_run_to(&agent, "comparing", 1000);
    scripted_agent_run_to(&agent, "committed", 1000);
    scripted_agent_run(&agent, 200);
    assert_int_equal(scripted_agent_count(&agent, "commit"), 0);
    assert_int_equal(scripted_agent_count(&agent, "rollback"), 0);
    assert_int_equal(agent.is_exact, 0);
    assert_int_equal(replay(&c, &child), 0);
    assert_non_null(strstr(child.output, " push      not kept  as predicted\n"));
    assert_non_null(strstr(child.output, "; of 1 more the inputs were not kept\n"));
    child_free(&child);
    controller_child_stop(&c);
}

/* Opened once and closed, opened again, killed in between: the same job. */
static void migrating_is_done_once(void **unused) {
    struct controller c;
    struct scripted_agent agent;
    (void)unused;
    controller_child_prepare(&c, NULL);
    make_database(c.db);
    controller_child_launch(&c);
    (void)controller_child_halt(&c, SIGTERM);
    controller_child_launch(&c);
    rejoin(&agent, &c);
    scripted_agent_run(&agent, 50);
    (void)controller_child_halt(&c, SIGKILL);
    controller_child_launch(&c);
    scripted_agent_run(&agent, 50);
    assert_string_equal(agent.view.phase, "committed");
    assert_int_equal(agent.view.plan_seq, 1);
    assert_int_equal(agent.view.iterations, 101);
    controller_child_stop(&c);
}

static void a_database_of_the_future_is_refused(void **unused) {
    struct controller c;
    struct child child;
    struct old old = {0};
    char sql[64];
    (void)unused;
    controller_child_prepare(&c, NULL);
    make_database(c.db);
    assert_int_equal(sqlite3_open(c.db, &old.db), SQLITE_OK);
    (void)snprintf(sql, sizeof(sql), "PRAGMA user_version = %zu", store_schema_steps + 1);
    run_sql(&old, sql, NULL);
    assert_int_equal(sqlite3_close(old.db), SQLITE_OK);
    const char *argv[] = {DEFT_CONTROLLER, "--port", "0", "--db", c.db, NULL};
    child_start(&child, argv, NULL, -1, 1);
    assert_int_equal(child_wait(&child), 1);
    assert_non_null(strstr(child.output, "a newer release made it"));
    child_free(&child);
    assert_int_equal(replay(&c, &child), 2);
    child_free(&child);
    assert_int_equal(user_version(c.db), store_schema_steps + 1);
    controller_child_clean(&c);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_job_of_the_first_release_goes_on_with_its_plan),
    cmocka_unit_test(migrating_is_done_once),
    cmocka_unit_test(a_database_of_the_future_is_refused),
};
TESTING_MAIN(cases)
