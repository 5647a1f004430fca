/* What the registry of jobs has the database keep while that refuses writes. */
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "fault_vfs.h"
#include "jobs.h"
#include "store_world.h"
#include "testing.h"

static const struct log silent = {.fd = -1};

/* An answer that another thread gives. */
struct waiting {
    pthread_mutex_t lock;
    pthread_cond_t answered;
    int is_answered;
    enum deft_status status;
    char incarnation[WIRE_ID_BYTES];
};

static void answer(struct waiting *waiting, enum deft_status status) {
    (void)pthread_mutex_lock(&waiting->lock);
    waiting->status = status;
    waiting->is_answered = 1;
    (void)pthread_cond_signal(&waiting->answered);
    (void)pthread_mutex_unlock(&waiting->lock);
}

static void expect_answer(struct waiting *waiting) {
    (void)pthread_mutex_lock(&waiting->lock);
    while (!waiting->is_answered) {
        (void)pthread_cond_wait(&waiting->answered, &waiting->lock);
    }
    waiting->is_answered = 0;
    (void)pthread_mutex_unlock(&waiting->lock);
    assert_int_equal(waiting->status, DEFT_OK);
}

static void on_registered(void *context, enum deft_status status,
                          const struct wire_registered *registered, const char *field,
                          const struct deft_error *error) {
    struct waiting *waiting = context;
    (void)field;
    (void)error;
    if (status == DEFT_OK) {
        memcpy(waiting->incarnation, registered->incarnation, sizeof(waiting->incarnation));
    }
    answer(waiting, status);
}

/* On the thread that writes: what comes behind this report is refused. */
static void on_reported(void *context, enum deft_status status, uint64_t committed_seq,
                        const struct deft_error *error) {
    (void)committed_seq;
    (void)error;
    fault_vfs_fail_after(0, INT_MAX, SQLITE_FULL);
    answer(context, status);
}

static int64_t register_job(struct jobs *jobs, struct waiting *waiting) {
    struct wire_registration registration = {
        .key = "start", .name = "job", .agent = "a", .n_ranks = 1, .n_local_ranks = 1};
    struct deft_error error = {0};
    int64_t incarnation = 0;
    registration.local_ranks = calloc(1, sizeof(*registration.local_ranks));
    registration.tensors = calloc(1, sizeof(*registration.tensors));
    registration.links = calloc(1, sizeof(*registration.links));
    assert_true(registration.local_ranks != NULL && registration.tensors != NULL &&
                registration.links != NULL);
    registration.n_tensors = 1;
    registration.tensors[0].elements = 4;
    registration.n_links = 1;
    (void)snprintf(registration.links[0].name, sizeof(registration.links[0].name), "gloo");
    (void)snprintf(registration.optimizer, sizeof(registration.optimizer), "sgd");
    if (jobs_register(jobs, "job", &registration, on_registered, waiting, &error) != DEFT_OK) {
        fail_msg("the job did not register: %s", error.text);
    }
    expect_answer(waiting);
    assert_int_equal(store_id_parse(waiting->incarnation, &incarnation), DEFT_OK);
    return incarnation;
}

static void report_end(struct jobs *jobs, int64_t incarnation, struct waiting *waiting) {
    struct wire_report report = {.agent = "a", .seq = 1, .n_events = 1};
    struct deft_error error = {0};
    report.events = calloc(1, sizeof(*report.events));
    assert_non_null(report.events);
    (void)snprintf(report.events[0].kind, sizeof(report.events[0].kind), "finished");
    if (jobs_report(jobs, incarnation, &report, on_reported, waiting, &error) != DEFT_OK) {
        fail_msg("the end was not reported: %s", error.text);
    }
    expect_answer(waiting);
}

/* The disk fills up behind a job's last report, and has room again after a while. */
static void an_end_is_recorded_once_the_database_can(void **unused) {
    struct store_world world;
    struct store_health health;
    struct jobs *jobs = NULL;
    struct jobs_metrics metrics;
    struct deft_error error = {0};
    struct waiting waiting = {.lock = PTHREAD_MUTEX_INITIALIZER,
                              .answered = PTHREAD_COND_INITIALIZER};
    struct jobs_options options = {
        .log = &silent, .mode = TUNER_OBSERVE, .limits = {.max_merge = 1, .min_progress = 0.5}};
    const struct store_audit audit = {.who = "me",
                                      .source = "",
                                      .action = "job.remove",
                                      .subject = "job",
                                      .before = "",
                                      .after = "",
                                      .reason = ""};
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(30);
    (void)unused;
    fault_vfs_install();
    store_world_start(&world);
    options.store = world.store;
    tuner_defaults(&options.tuner);
    assert_int_equal(jobs_start(&options, &jobs, &error), DEFT_OK);
    int64_t incarnation = register_job(jobs, &waiting);
    report_end(jobs, incarnation, &waiting);
    do {
        (void)poll(NULL, 0, 1);
        store_health(world.store, &health);
    } while (health.n_failed == 0 && clock_monotonic_ns() < until_ns);
    assert_true(health.n_failed > 0);
    assert_true(fault_vfs_stop() > 0);
    enum deft_status removed = DEFT_STATE;
    while (removed == DEFT_STATE && clock_monotonic_ns() < until_ns) {
        removed = jobs_remove(jobs, "job", &audit, &error);
        jobs_metrics(jobs, &metrics);
        assert_true(metrics.n_tasks <= 1);
        (void)poll(NULL, 0, 10);
    }
    if (removed != DEFT_OK) {
        fail_msg("the job that has ended is not removed: %s", error.text);
    }
    jobs_stop(jobs);
    store_world_stop(&world);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(an_end_is_recorded_once_the_database_can),
};

TESTING_MAIN(cases)
