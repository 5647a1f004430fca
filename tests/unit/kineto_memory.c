/* Every allocation of an import fails once: a sentence, nothing leaked, nothing half-done. */
#include <stdlib.h>
#include <string.h>

#include "kineto/kineto.h"
#include "kineto/kineto_reader.h"
#include "kineto/kineto_trace.h"
#include "kineto/kineto_verdict.h"
#include "kineto_synthetic.h"
#include "testing.h"

/* The linker sends calls of ours here (--wrap); yajl's go to libc. */
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_reallocarray(void *old, size_t n, size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_reallocarray(void *old, size_t n, size_t size);

static unsigned until_failure; /* 0: none fails */

static int fails(void) {
    return until_failure > 0 && --until_failure == 0;
}

void *__wrap_calloc(size_t n, size_t size) {
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_reallocarray(void *old, size_t n, size_t size) {
    return fails() ? NULL : __real_reallocarray(old, n, size);
}

/* Allocations of a verdict that fail: the first ones are of this library, what follows is of the
 * scheduling library's searches, thousands of them, which have their own test. */
#define MEMORY_VERDICT_ALLOCATIONS 40u

static enum deft_status judge(const struct kineto_job *job, const struct dsched_profile *profile,
                              struct deft_error *error) {
    struct kineto_verdict verdict = {0};
    enum deft_status status = kineto_verdict(job, profile, &verdict, error);
    assert_true(status == DEFT_OK || verdict.replay_step_ns == 0);
    return status;
}

static void judge_with_failures(const struct kineto_job *job,
                                const struct dsched_profile *profile) {
    for (unsigned nth = 1; nth <= MEMORY_VERDICT_ALLOCATIONS; nth++) {
        struct deft_error error = {0};
        until_failure = nth;
        enum deft_status status = judge(job, profile, &error);
        until_failure = 0;
        assert_true(status == DEFT_OK || (status == DEFT_NO_MEMORY && error.text[0] != '\0'));
    }
}

static enum deft_status import(const char *text, size_t n_bytes, struct deft_error *error) {
    struct kineto_trace *trace = NULL;
    struct kineto_reader *reader = NULL;
    struct kineto_job job = {0};
    struct dsched_profile profile = {0};
    enum deft_status status = kineto_trace_create("made", 100000, &trace, error);
    if (status == DEFT_OK) {
        status = kineto_reader_create(trace, &reader, error);
    }
    if (status == DEFT_OK) {
        status = kineto_reader_feed(reader, text, n_bytes, error);
    }
    if (status == DEFT_OK) {
        status = kineto_reader_finish(reader, error);
    }
    if (status == DEFT_OK) {
        status = kineto_job_init(&job, &trace, 1, error);
        assert_true(status == DEFT_OK || job.steps == NULL);
    }
    if (status == DEFT_OK) {
        status = kineto_profile(&job, "made", 0, &profile, error);
        assert_true(status == DEFT_OK || profile.tensors == NULL);
    }
    if (status == DEFT_OK) {
        judge_with_failures(&job, &profile);
    }
    dsched_profile_done(&profile);
    kineto_job_done(&job);
    kineto_reader_destroy(reader);
    kineto_trace_destroy(trace);
    return status;
}

static void each_allocation_may_fail(void **unused) {
    (void)unused;
    struct synthetic made;
    struct deft_error error = {0};
    size_t n_bytes = 0;
    unsigned n_failed = 0;
    enum deft_status status = DEFT_NO_MEMORY;
    synthetic_init(&made, testing_seed());
    char *text = synthetic_write(&made, 0, &n_bytes);
    for (unsigned nth = 1; status != DEFT_OK; nth++) {
        memset(&error, 0, sizeof(error));
        until_failure = nth;
        status = import(text, n_bytes, &error);
        n_failed += status != DEFT_OK;
        assert_true(status == DEFT_OK || status == DEFT_NO_MEMORY);
        assert_true(status == DEFT_OK || error.text[0] != '\0');
    }
    until_failure = 0;
    assert_true(n_failed > 20);
    free(text);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(each_allocation_may_fail),
};
TESTING_MAIN(cases)
