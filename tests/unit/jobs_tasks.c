/* The order in which the controller's one thread carries out what it has to do. */
#include <stdlib.h>
#include <string.h>

#include "jobs_live.h"
#include "testing.h"

static void begin(struct jobs *jobs) {
    memset(jobs, 0, sizeof(*jobs));
    jobs->last = &jobs->first;
    assert_int_equal(pthread_cond_init(&jobs->work, NULL), 0);
}

/* Of a start of its own. */
static void queue(struct jobs *jobs, enum jobs_task_kind kind, int64_t id) {
    struct jobs_live live = {.id = id};
    struct tuner_decision decision = {.kind = kind == JOBS_ENACT ? TUNER_COMMIT : TUNER_SOLVE};
    if (kind == JOBS_CHANGE) {
        jobs_live_changed(jobs, &live);
        assert_true(live.changing);
    } else {
        jobs_live_decided(jobs, &live, &decision);
        assert_int_equal(live.solving, kind == JOBS_SOLVE);
    }
}

/* As the thread takes it; 0: there is none. */
static int64_t take(struct jobs *jobs, enum jobs_task_kind *out_kind) {
    struct jobs_task *task = jobs->first;
    if (task == NULL) {
        return 0;
    }
    jobs->first = task->next;
    if (jobs->first == NULL) {
        jobs->last = &jobs->first;
    }
    int64_t id = task->id;
    *out_kind = task->kind;
    free(task);
    return id;
}

/* Whatever is queued and taken: decisions come in their order before all else, and the rest in its
 * own. */
static void decisions_go_first(void **unused) {
    uint64_t random = testing_seed();
    struct jobs jobs;
    int64_t n_queued = 0;
    int64_t decided = 0; /* the newest id of each that was taken */
    int64_t other = 0;
    int64_t n_decisions = 0; /* that are waiting */
    int64_t n_taken = 0;
    int n_overtakes = 0;
    (void)unused;
    begin(&jobs);
    for (int round = 0; round < 20000; round++) {
        enum jobs_task_kind kind = (enum jobs_task_kind)testing_random_below(&random, 3);
        if (testing_random_below(&random, 2) == 0) {
            queue(&jobs, kind, ++n_queued);
            n_decisions += kind == JOBS_ENACT;
            continue;
        }
        int64_t id = take(&jobs, &kind);
        if (id == 0) {
            assert_int_equal(n_taken, n_queued);
            continue;
        }
        n_taken++;
        assert_true(kind == JOBS_ENACT || n_decisions == 0);
        int64_t *newest = kind == JOBS_ENACT ? &decided : &other;
        assert_true(id > *newest);
        *newest = id;
        n_decisions -= kind == JOBS_ENACT;
        n_overtakes += kind != JOBS_ENACT && id < decided;
    }
    assert_true(n_overtakes > 100);
    enum jobs_task_kind kind = JOBS_SOLVE;
    while (take(&jobs, &kind) != 0) {
        n_taken++;
    }
    assert_int_equal(n_taken, n_queued);
    (void)pthread_cond_destroy(&jobs.work);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(decisions_go_first),
};
TESTING_MAIN(cases)
