/* What goes, when, and in which order; and what never goes. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store_world.h"
#include "testing.h"

#define SECOND_NS STORE_WORLD_SECOND_NS
#define DAY_NS    STORE_WORLD_DAY_NS

/* A report of iterations, all-reduces and events of agent "a". */
static void send_all(struct store_world *world, int64_t incarnation, uint64_t seq, uint64_t first,
                     int64_t now_ns) {
    struct wire_iteration rows[20];
    struct wire_op_summary ops[3];
    struct wire_event events[2] = {{.rank = 0, .kind = "dropped", .count = 1},
                                   {.rank = 1, .kind = "switched", .plan_seq = 1}};
    struct wire_report report = {.agent = "a",
                                 .seq = seq,
                                 .n_iterations = 20,
                                 .iterations = rows,
                                 .n_ops = 3,
                                 .ops = ops,
                                 .n_events = 2,
                                 .events = events};
    events[1].iteration = first;
    for (uint32_t i = 0; i < 20; i++) {
        rows[i] = store_world_row(i % 2, first + i / 2, 0);
    }
    for (uint32_t i = 0; i < 3; i++) {
        ops[i] = (struct wire_op_summary){.rank = i % 2,
                                          .bytes = 1024u << i,
                                          .count = 2,
                                          .min_ns = (int64_t)(10 + seq),
                                          .median_ns = 100,
                                          .max_ns = (int64_t)(200 + seq)};
    }
    store_world_report(world, incarnation, &report, now_ns);
}

static void decide(struct store_world *world, const char *job, int64_t incarnation, uint64_t seq,
                   int64_t now_ns) {
    const struct wire_decision decision = {.kind = "push", .plan_seq = seq, .reason = "because"};
    struct store_change change;
    struct deft_error error = {0};
    store_change_init(&change);
    change.incarnation = incarnation;
    change.job = job;
    change.decision = &decision;
    change.plan_seq = seq;
    change.plan = "{}";
    change.now_ns = now_ns;
    if (store_run(world->store, &change.write, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
}

static int64_t count(const struct store_world *world, const char *table) {
    return store_world_int(world, "SELECT count(*) FROM %s", table);
}

static char *links(struct store_world *world, int64_t incarnation) {
    struct json_out out = {0};
    char *text = NULL;
    json_out_begin_object(&out, NULL);
    assert_int_equal(store_print_links(world->store, incarnation, &out, NULL), DEFT_OK);
    json_out_end_object(&out);
    assert_int_equal(json_out_finish(&out, &text, NULL), DEFT_OK);
    return text;
}

/* Each table has an age of its own; what has been decided stays with its job. */
static void each_table_has_its_age(void **unused) {
    struct store_world world;
    int64_t begin_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    store_world_start(&world);
    int64_t incarnation = store_world_register(&world, "job", "start", 2, begin_ns);
    for (uint64_t seq = 1; seq <= 40; seq++) { /* one a day */
        send_all(&world, incarnation, seq, (seq - 1) * 10, begin_ns + (int64_t)seq * DAY_NS);
        decide(&world, "job", incarnation, seq, begin_ns + (int64_t)seq * DAY_NS);
    }
    char *before = links(&world, incarnation);
    int64_t now_ns = begin_ns + 40 * DAY_NS + 3600 * SECOND_NS;
    store_world_tidy(&world, now_ns);
    assert_int_equal(count(&world, "iterations"), 7 * 20); /* of the last 7 days */
    assert_int_equal(count(&world, "rollups WHERE period_s = 60"), 40);
    assert_int_equal(count(&world, "rollups WHERE period_s = 3600"), 33);
    assert_int_equal(count(&world, "events"), 30 * 2);
    store_world_tidy(&world, now_ns + 65 * DAY_NS);
    assert_int_equal(count(&world, "iterations"), 0);
    assert_int_equal(count(&world, "rollups WHERE period_s = 60"), 25);
    assert_int_equal(count(&world, "rollups WHERE period_s = 3600"), 40);
    assert_int_equal(count(&world, "events"), 0);
    /* What links took in all, and when a plan began, is still told. */
    char *after = links(&world, incarnation);
    assert_string_equal(before, after);
    assert_int_equal(count(&world, "activations WHERE plan_seq = 1 AND iteration = 0"), 1);
    store_world_tidy(&world, now_ns + 800 * DAY_NS);
    assert_int_equal(count(&world, "rollups"), 0);
    assert_int_equal(count(&world, "decisions"), 40);
    assert_int_equal(count(&world, "plans"), 40);
    free(before);
    free(after);
    store_world_stop(&world);
}

static void keep_for(struct store_world *world, const char *job, const struct store_keep *keep) {
    struct store_keep_job write;
    store_keep_job_init(&write);
    write.job = job;
    write.keep = *keep;
    assert_int_equal(store_run(world->store, &write.write, NULL), DEFT_OK);
}

/* A job may want more, or less, than others. */
static void a_job_has_its_own_ages(void **unused) {
    static const struct store_keep longer = {
        .raw_ns = STORE_FOR_EVER, .raw_iterations = STORE_FOR_EVER, .logs_ns = 50 * DAY_NS};
    static const struct store_keep shorter = {.raw_ns = 2 * DAY_NS, .logs_ns = DAY_NS};
    static const char *const names[] = {"as others", "longer", "shorter"};
    struct store_world world;
    struct store_keep_job nobody;
    int64_t ids[3];
    int64_t begin_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    store_world_start(&world);
    for (int i = 0; i < 3; i++) {
        ids[i] = store_world_register(&world, names[i], "start", 2, begin_ns);
    }
    keep_for(&world, "longer", &longer);
    keep_for(&world, "shorter", &shorter);
    for (uint64_t seq = 1; seq <= 40; seq++) {
        for (int i = 0; i < 3; i++) {
            send_all(&world, ids[i], seq, (seq - 1) * 10, begin_ns + (int64_t)seq * DAY_NS);
        }
    }
    store_world_tidy(&world, begin_ns + 40 * DAY_NS + 3600 * SECOND_NS);
    static const int64_t n_days[3][2] = {{7, 30}, {40, 40}, {2, 1}};
    for (int i = 0; i < 3; i++) {
        assert_int_equal(store_world_int(&world,
                                         "SELECT count(*) FROM iterations"
                                         " WHERE incarnation = %lld",
                                         (long long)ids[i]),
                         n_days[i][0] * 20);
        assert_int_equal(store_world_int(&world,
                                         "SELECT count(*) FROM events WHERE incarnation = %lld",
                                         (long long)ids[i]),
                         n_days[i][1] * 2);
    }
    store_keep_job_init(&nobody);
    nobody.job = "nobody";
    assert_int_equal(store_run(world.store, &nobody.write, NULL), DEFT_NOT_FOUND);
    store_world_stop(&world);
}

/* The number is of the job: its older starts give up theirs first. */
static void iterations_are_bounded_per_job(void **unused) {
    struct store_world world;
    int64_t now_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    store_world_start(&world);
    world.options.keep.raw_iterations = 150;
    store_world_restart(&world);
    for (int start = 0; start < 4; start++) {
        char key[24];
        (void)snprintf(key, sizeof(key), "start-%d", start);
        int64_t incarnation = store_world_register(&world, "job", key, 2, now_ns);
        int64_t other = store_world_register(&world, "other", key, 2, now_ns);
        store_world_iterations(&world, incarnation, 1, 2, 0, 60, now_ns);
        store_world_iterations(&world, other, 1, 2, 0, 20, now_ns);
        now_ns += 200 * SECOND_NS;
        store_world_tidy(&world, now_ns);
    }
    static const int64_t left[4] = {0, 30, 60, 60};
    for (int start = 0; start < 4; start++) {
        assert_int_equal(store_world_int(&world,
                                         "SELECT count(DISTINCT t.iteration) FROM iterations t JOIN"
                                         " incarnations i ON i.id = t.incarnation"
                                         " WHERE i.job = 'job' AND i.key = 'start-%d'",
                                         start),
                         left[start]);
    }
    assert_int_equal(store_world_int(&world, "SELECT sum(n_iterations) FROM rollups"
                                             " WHERE period_s = 60"),
                     4 * 80);
    store_world_stop(&world);
}

/* --- jobs that are gone -------------------------------------------------------------------------
 */

static int64_t make_job(struct store_world *world, const char *job, uint64_t n_reports,
                        int64_t now_ns) {
    int64_t incarnation = store_world_register(world, job, "start", 2, now_ns);
    struct wire_event ends[2] = {{.rank = 0, .kind = "finished"}, {.rank = 1, .kind = "failed"}};
    int64_t offsets[1] = {5};
    struct wire_readiness readiness = {.n_offsets = 1, .offsets_ns = offsets};
    struct wire_report report = {.agent = "b",
                                 .seq = 1,
                                 .n_events = 2,
                                 .events = ends,
                                 .n_readiness = 1,
                                 .readiness = &readiness};
    for (uint64_t seq = 1; seq <= n_reports; seq++) {
        send_all(world, incarnation, seq, (seq - 1) * 10, now_ns);
        decide(world, job, incarnation, seq, now_ns);
    }
    store_world_report(world, incarnation, &report, now_ns);
    return incarnation;
}

static enum deft_status remove_job(struct store_world *world, const char *job) {
    struct store_remove write;
    store_remove_init(&write);
    write.job = job;
    return store_run(world->store, &write.write, NULL);
}

/* Every table that knows of an incarnation or a job, by what the schema says. */
static int64_t count_rows_of(const struct store_world *world, int64_t incarnation) {
    static const char *const tables[] = {"iterations", "events", "rollups",     "readiness",
                                         "ends",       "agents", "link_totals", "activations",
                                         "decisions",  "plans",  "upkeep"};
    int64_t n = store_world_int(world, "SELECT count(*) FROM incarnations WHERE id = %lld",
                                (long long)incarnation);
    for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
        n += store_world_int(world, "SELECT count(*) FROM %s WHERE incarnation = %lld", tables[i],
                             (long long)incarnation);
    }
    /* A table that is new to the schema must be among them. */
    assert_int_equal(store_world_int(world, "SELECT count(*) FROM sqlite_master m,"
                                            " pragma_table_info(m.name) c WHERE m.type = 'table'"
                                            " AND c.name = 'incarnation'"),
                     sizeof(tables) / sizeof(tables[0]));
    return n;
}

static void a_removed_job_leaves_nothing(void **unused) {
    struct store_world world;
    struct store_job job;
    struct store_incarnation left = {0};
    struct json_out out = {0};
    char *summary = NULL;
    int64_t now_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    store_world_start(&world);
    int64_t gone = make_job(&world, "job", 300, now_ns);
    int64_t stays = make_job(&world, "other", 10, now_ns);
    store_world_tidy(&world, now_ns + 200 * SECOND_NS);
    int64_t n_stays = count_rows_of(&world, stays);
    assert_true(count_rows_of(&world, gone) > INT64_C(300) * (20 + 2 + 2));
    assert_int_equal(remove_job(&world, "job"), DEFT_STATE); /* it runs */
    assert_int_equal(remove_job(&world, "nobody"), DEFT_NOT_FOUND);
    store_world_end(&world, "job", gone, now_ns);
    assert_int_equal(remove_job(&world, "job"), DEFT_OK);
    /* Gone at once for everybody... */
    assert_int_equal(store_read_job(world.store, "job", &job, &summary, NULL), DEFT_NOT_FOUND);
    assert_int_equal(store_read_incarnation(world.store, gone, &left, NULL), DEFT_NOT_FOUND);
    assert_int_equal(store_print_incarnation(world.store, gone, &out, NULL), DEFT_NOT_FOUND);
    assert_int_equal(store_print_plan(world.store, gone, 1, 0, &out, NULL), DEFT_NOT_FOUND);
    json_out_done(&out);
    assert_int_equal(remove_job(&world, "job"), DEFT_NOT_FOUND);
    struct wire_iteration row = store_world_row(0, 9000, 0);
    struct store_report late;
    store_report_init(&late);
    late.incarnation = gone;
    late.report =
        (struct wire_report){.agent = "a", .seq = 9000, .n_iterations = 1, .iterations = &row};
    assert_int_equal(store_run(world.store, &late.write, NULL), DEFT_NOT_FOUND);
    /* ...and its name is free, but its number is not. */
    int64_t again = store_world_register(&world, "job", "start", 2, now_ns);
    assert_true(again > gone && again > stays);
    store_world_tidy(&world, now_ns + 201 * SECOND_NS);
    assert_int_equal(count_rows_of(&world, gone), 0);
    assert_int_equal(count_rows_of(&world, stays), n_stays);
    assert_int_equal(count(&world, "jobs"), 2);
    assert_int_equal(count(&world, "pragma_foreign_key_check"), 0);
    store_world_stop(&world);
}

/* A removal that is interrupted goes on after the next start. */
static void removal_survives_a_restart(void **unused) {
    struct store_world world;
    int64_t now_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    store_world_start(&world);
    int64_t gone = make_job(&world, "job", 20, now_ns);
    store_world_end(&world, "job", gone, now_ns);
    assert_int_equal(remove_job(&world, "job"), DEFT_OK);
    store_world_restart(&world);
    assert_true(count_rows_of(&world, gone) > 0);
    store_world_tidy(&world, now_ns + SECOND_NS);
    assert_int_equal(count_rows_of(&world, gone), 0);
    assert_int_equal(count(&world, "jobs"), 0);
    store_world_stop(&world);
}

static void jobs_go_a_year_after_their_end(void **unused) {
    static const struct store_keep for_ever = {.jobs_ns = STORE_FOR_EVER};
    struct store_world world;
    int64_t now_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    store_world_start(&world);
    int64_t gone = make_job(&world, "ended", 3, now_ns);
    int64_t kept = make_job(&world, "kept", 3, now_ns);
    (void)make_job(&world, "running", 3, now_ns);
    store_world_end(&world, "ended", gone, now_ns);
    store_world_end(&world, "kept", kept, now_ns);
    keep_for(&world, "kept", &for_ever);
    store_world_tidy(&world, now_ns + 364 * DAY_NS);
    assert_int_equal(count(&world, "jobs"), 3);
    store_world_tidy(&world, now_ns + 366 * DAY_NS);
    assert_int_equal(count(&world, "jobs"), 2);
    assert_int_equal(count_rows_of(&world, gone), 0);
    assert_int_equal(count(&world, "decisions"), 2 * 3);
    store_world_stop(&world);
}

/* --- size ---------------------------------------------------------------------------------------
 */

static int64_t used_bytes(const struct store_world *world) {
    return store_world_int(world, "SELECT (page_count - freelist_count) * page_size FROM"
                                  " pragma_page_count, pragma_freelist_count, pragma_page_size");
}

/* However much comes, the file stays within its bound; the oldest rows go, decisions stay, and what
 * was counted stays counted. */
static void the_file_is_bounded(void **unused) {
    struct store_world world;
    int64_t ids[3];
    int64_t now_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    store_world_start(&world);
    world.options.max_bytes = STORE_MIN_MAX_BYTES;
    world.options.settle_ns = SECOND_NS;
    store_world_restart(&world);
    for (int i = 0; i < 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "job-%d", i);
        ids[i] = make_job(&world, name, 5, now_ns);
    }
    for (uint64_t round = 0; round < 40; round++) {
        for (int i = 0; i < 3; i++) {
            store_world_iterations(&world, ids[i], 100 + round, 2, 50 + round * 1000, 1000, now_ns);
        }
        now_ns += 100 * SECOND_NS;
        store_world_tidy(&world, now_ns);
        assert_true(used_bytes(&world) <= world.options.max_bytes);
        assert_true(store_world_int(&world, "SELECT page_count * page_size FROM pragma_page_count,"
                                            " pragma_page_size") <= world.options.max_bytes);
    }
    int64_t n = count(&world, "iterations");
    assert_true(n > 40000 && n < 240000);
    /* All three have lost the same days. */
    assert_true(store_world_int(&world, "SELECT max(raw_from) - min(raw_from) FROM upkeep") <=
                2100);
    assert_int_equal(store_world_int(&world, "SELECT sum(n_iterations) FROM rollups"
                                             " WHERE period_s = 60"),
                     3 * (50 + 40 * 1000));
    assert_int_equal(count(&world, "decisions"), 15);
    assert_int_equal(count(&world, "plans"), 15);
    assert_int_equal(count(&world, "events"), 0); /* older than any of those that stay */
    store_world_stop(&world);
}

/* When rows are not enough, roll-ups go, then jobs that have ended; those that run keep what was
 * decided. */
static void the_bound_has_an_order(void **unused) {
    static char text[1 << 20];
    struct store_world world;
    int64_t now_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    memset(text, 'x', sizeof(text) - 1);
    store_world_start(&world);
    world.options.max_bytes = STORE_MIN_MAX_BYTES;
    world.options.settle_ns = SECOND_NS;
    store_world_restart(&world);
    for (int i = 0; i < 12; i++) {
        char name[16];
        struct store_change change;
        (void)snprintf(name, sizeof(name), "job-%d", i);
        int64_t incarnation = make_job(&world, name, 5, now_ns);
        store_change_init(&change);
        change.incarnation = incarnation;
        change.profile = text;
        change.now_ns = now_ns;
        assert_int_equal(store_run(world.store, &change.write, NULL), DEFT_OK);
        if (i % 2 == 0) {
            store_world_end(&world, name, incarnation, now_ns + i);
        }
        now_ns += 100 * SECOND_NS;
    }
    store_world_tidy(&world, now_ns);
    assert_int_equal(count(&world, "jobs"), 12);
    assert_int_equal(count(&world, "rollups WHERE period_s = 60"), 12);
    for (int i = 12; i < 17; i++) { /* five that run, a megabyte each */
        char name[16];
        struct store_change change;
        (void)snprintf(name, sizeof(name), "job-%d", i);
        store_change_init(&change);
        change.incarnation = make_job(&world, name, 5, now_ns);
        change.profile = text;
        change.now_ns = now_ns;
        assert_int_equal(store_run(world.store, &change.write, NULL), DEFT_OK);
    }
    now_ns += 100 * SECOND_NS;
    store_world_tidy(&world, now_ns);
    assert_true(used_bytes(&world) <= world.options.max_bytes);
    assert_int_equal(count(&world, "iterations"), 0);
    assert_int_equal(count(&world, "rollups"), 0);
    assert_int_equal(count(&world, "jobs WHERE state = 'running'"), 11);
    assert_true(count(&world, "jobs WHERE state = 'finished'") < 6);
    assert_int_equal(count(&world, "jobs WHERE id = 'job-0'"), 0); /* ended first */
    assert_int_equal(count(&world, "jobs WHERE id = 'job-10'"), 1);
    assert_int_equal(count(&world, "decisions d JOIN incarnations i ON i.id = d.incarnation"
                                   " WHERE i.state = 'running'"),
                     11 * 5);
    store_world_stop(&world);
}

/* Pages that are free go back to the file system, a few at a time. */
static void the_file_shrinks_again(void **unused) {
    struct store_world world;
    int64_t now_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    store_world_start(&world);
    int64_t incarnation = make_job(&world, "job", 2000, now_ns);
    store_world_end(&world, "job", incarnation, now_ns);
    int64_t before = store_world_int(&world, "PRAGMA page_count");
    assert_int_equal(remove_job(&world, "job"), DEFT_OK);
    store_world_tidy(&world, now_ns + SECOND_NS);
    assert_true(store_world_int(&world, "PRAGMA page_count") < before / 2);
    assert_true(store_world_int(&world, "PRAGMA freelist_count") < 256); /* not worth moving */
    store_world_stop(&world);
}

/* As SIGHUP does it. */
static void ages_and_the_bound_change_at_work(void **unused) {
    struct store_world world;
    int64_t begin_ns = STORE_WORLD_BEGIN_NS;
    int64_t now_ns = begin_ns + 40 * DAY_NS + 3600 * SECOND_NS;
    (void)unused;
    store_world_start(&world);
    struct store_options wished = world.options;
    int64_t incarnation = store_world_register(&world, "job", "start", 2, begin_ns);
    for (uint64_t seq = 1; seq <= 40; seq++) {
        send_all(&world, incarnation, seq, (seq - 1) * 10, begin_ns + (int64_t)seq * DAY_NS);
    }
    wished.keep.raw_ns = STORE_FOR_EVER;
    store_set_keep(world.store, &wished);
    store_world_tidy(&world, now_ns);
    assert_int_equal(count(&world, "iterations"), 40 * 20);
    wished.keep.raw_ns = 20 * DAY_NS;
    store_set_keep(world.store, &wished);
    store_world_tidy(&world, now_ns + SECOND_NS);
    assert_int_equal(count(&world, "iterations"), 20 * 20);
    wished.max_bytes = 1;
    store_set_keep(world.store, &wished);
    store_world_tidy(&world, now_ns + 2 * SECOND_NS);
    assert_int_equal(count(&world, "iterations"), 0);
    store_world_stop(&world);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(each_table_has_its_age),
    cmocka_unit_test(a_job_has_its_own_ages),
    cmocka_unit_test(iterations_are_bounded_per_job),
    cmocka_unit_test(a_removed_job_leaves_nothing),
    cmocka_unit_test(removal_survives_a_restart),
    cmocka_unit_test(jobs_go_a_year_after_their_end),
    cmocka_unit_test(the_file_is_bounded),
    cmocka_unit_test(the_bound_has_an_order),
    cmocka_unit_test(the_file_shrinks_again),
    cmocka_unit_test(ages_and_the_bound_change_at_work),
};
TESTING_MAIN(cases)
