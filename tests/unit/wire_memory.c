/* Every allocation of a message fails once, one after the other: the call says so, has written
 * nothing, and leaks nothing (the sanitizers watch). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "testing.h"
#include "wire/wire.h"
#include "wire_support.h"

/* The linker sends our own calls here (--wrap); cJSON's come through its hooks. */
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *old, size_t size);
void *__real_malloc(size_t size);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *old, size_t size);

static uint64_t countdown; /* the allocation that fails; 0: none */

static int is_failing(void) {
    return countdown > 0 && --countdown == 0;
}

void *__wrap_malloc(size_t size) {
    return is_failing() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t n, size_t size) {
    return is_failing() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *old, size_t size) {
    return is_failing() ? NULL : __real_realloc(old, size);
}

static enum deft_status decode_report(const char *text, struct deft_error *error) {
    struct wire_report out = {0};
    enum deft_status status = wire_report_decode(text, strlen(text), &out, error);
    wire_report_done(&out);
    return status;
}

static enum deft_status decode_registration(const char *text, struct deft_error *error) {
    struct wire_registration out = {0};
    enum deft_status status = wire_registration_decode(text, strlen(text), &out, error);
    wire_registration_done(&out);
    return status;
}

static enum deft_status decode_plan_event(const char *text, struct deft_error *error) {
    struct wire_plan_event out = {0};
    enum deft_status status = wire_plan_event_decode(text, strlen(text), &out, error);
    wire_plan_event_done(&out);
    return status;
}

/* Decodes a plan, untouched by failures, to have something to print. */
static enum deft_status print_plan(const char *text, struct deft_error *error) {
    struct wire_plan_event event = {0};
    uint64_t saved = countdown;
    char *out = NULL;
    countdown = 0;
    assert_int_equal(wire_plan_event_decode(text, strlen(text), &event, NULL), DEFT_OK);
    countdown = saved;
    enum deft_status status = wire_plan_event_encode(&event, &out, error);
    assert_true((status == DEFT_OK) == (out != NULL));
    free(out);
    wire_plan_event_done(&event);
    return status;
}

static enum deft_status decode_solve(const char *text, struct deft_error *error) {
    struct wire_solve out = {0};
    enum deft_status status = wire_solve_decode(text, strlen(text), &out, error);
    wire_solve_done(&out);
    return status;
}

static enum deft_status print_solve(const char *text, struct deft_error *error) {
    struct wire_solve solve;
    uint64_t saved = countdown;
    char *out = NULL;
    countdown = 0;
    assert_int_equal(wire_solve_decode(text, strlen(text), &solve, NULL), DEFT_OK);
    countdown = saved;
    enum deft_status status = wire_solve_encode(&solve.profile, &solve.options, &out, error);
    assert_true((status == DEFT_OK) == (out != NULL));
    free(out);
    wire_solve_done(&solve);
    return status;
}

static enum deft_status decode_limits(const char *text, struct deft_error *error) {
    struct wire_limits out = {0};
    return wire_limits_decode(text, strlen(text), &out, error);
}

static void torture(enum deft_status (*call)(const char *text, struct deft_error *error),
                    const char *text) {
    uint64_t n = 0;
    int exhausted = 0;
    while (!exhausted) {
        struct deft_error error = {0};
        countdown = ++n;
        enum deft_status status = call(text, &error);
        exhausted = countdown > 0; /* not one allocation failed */
        countdown = 0;
        if (exhausted) {
            assert_int_equal(status, DEFT_OK);
        } else {
            assert_int_equal(status, DEFT_NO_MEMORY);
            assert_true(error.text[0] != '\0');
        }
    }
    assert_true(n > 3);
}

static void every_allocation_may_fail(void **unused) {
    cJSON_Hooks hooks = {.malloc_fn = __wrap_malloc, .free_fn = free};
    uint64_t state = testing_seed();
    struct wire_report report;
    struct wire_registration registration;
    struct wire_plan_event event = {.seq = 1, .max_loss = 2.5, .max_grad_sq = (double)NAN};
    struct wire_solve solve;
    struct wire_limits limits;
    char *texts[5];
    (void)unused;
    wire_support_report(&state, &report);
    wire_support_registration(&state, &registration);
    wire_support_plan(&state, &event.plan);
    assert_int_equal(wire_report_encode(&report, &texts[0], NULL), DEFT_OK);
    assert_int_equal(wire_registration_encode(&registration, &texts[1], NULL), DEFT_OK);
    assert_int_equal(wire_plan_event_encode(&event, &texts[2], NULL), DEFT_OK);
    do { /* one with a table */
        wire_support_solve(&state, &solve);
        assert_int_equal(wire_solve_encode(&solve.profile, &solve.options, &texts[3], NULL),
                         DEFT_OK);
        if (solve.options.progress == NULL) {
            free(texts[3]);
            texts[3] = NULL;
        }
        wire_solve_done(&solve);
    } while (texts[3] == NULL);
    wire_support_limits(&state, &limits);
    assert_int_equal(wire_limits_encode(&limits, &texts[4], NULL), DEFT_OK);
    cJSON_InitHooks(&hooks);
    torture(decode_report, texts[0]);
    torture(decode_registration, texts[1]);
    torture(decode_plan_event, texts[2]);
    torture(print_plan, texts[2]);
    torture(decode_solve, texts[3]);
    torture(print_solve, texts[3]);
    torture(decode_limits, texts[4]);
    cJSON_InitHooks(NULL);
    for (int i = 0; i < 5; i++) {
        free(texts[i]);
    }
    wire_report_done(&report);
    wire_registration_done(&registration);
    wire_plan_event_done(&event);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_allocation_may_fail),
};
TESTING_MAIN(cases)
