/* The JSON of timelines says what the simulation did. */
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "sched_support.h"
#include "testing.h"
#include "wire/wire.h"

/* The linker sends our own calls here (--wrap); cJSON has its own. */
void *__wrap_realloc(void *old, size_t size);
void *__real_realloc(void *old, size_t size);

static uint64_t countdown; /* the allocation that fails; 0: none */

void *__wrap_realloc(void *old, size_t size) {
    return countdown > 0 && --countdown == 0 ? NULL : __real_realloc(old, size);
}

struct case_of {
    struct dsched_profile profile;
    struct dsched_window window;
    struct dsched_outcome outcome;
};

static void make(uint64_t *state, const struct dsched_policy *policy, struct case_of *out) {
    struct dsched_error error = {{0}};
    *out = (struct case_of){0};
    support_random(state, 40 + (uint32_t)testing_random_below(state, 300), &out->profile);
    if (policy->simulate(&out->profile, dsched_window_add, &out->window, &out->outcome, &error) !=
            DSCHED_OK ||
        dsched_window_close(&out->window, 3, out->outcome.report.step_ns, &error) != DSCHED_OK) {
        fail_msg("%s: %s", policy->name, error.text);
    }
}

static void done(struct case_of *made) {
    dsched_window_done(&made->window);
    dsched_profile_done(&made->profile);
}

static cJSON *encoded(const struct wire_timeline *timeline) {
    struct deft_error error = {0};
    char *text = NULL;
    if (wire_timeline_encode(timeline, &text, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    cJSON *json = cJSON_Parse(text);
    assert_non_null(json);
    free(text);
    return json;
}

static double number(const cJSON *object, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
    assert_true(cJSON_IsNumber(item));
    return item->valuedouble;
}

static const cJSON *row_of(const cJSON *window, const char *key, int *next) {
    const cJSON *row = cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(window, key), *next);
    (*next)++;
    assert_non_null(row);
    return row;
}

static int64_t cell(const cJSON *row, int i) {
    return (int64_t)cJSON_GetArrayItem(row, i)->valuedouble;
}

static void check_spans(const cJSON *json, const struct dsched_window *window) {
    static const char *const lanes[] = {"forward", "backward", "optimizer", "exposed"};
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(json, "window");
    int n_stages = 0;
    int n_transfers = 0;
    for (uint32_t i = 0; i < window->n_spans; i++) {
        const struct dsched_span *span = &window->spans[i];
        int64_t begin_ns = span->begin_ns - window->begin_ns;
        int64_t end_ns = span->end_ns - window->begin_ns;
        if (span->lane == DSCHED_LANE_LINK) {
            const cJSON *row = row_of(object, "transfers", &n_transfers);
            assert_int_equal(cell(row, 0), span->link);
            assert_int_equal(cell(row, 1), span->generation);
            assert_int_equal(cell(row, 2), span->bucket);
            assert_int_equal(cJSON_IsNull(cJSON_GetArrayItem(row, 3)), span->bytes == 0);
            assert_true(span->bytes == 0 || cell(row, 3) == (int64_t)span->bytes);
            assert_int_equal(cell(row, 4), begin_ns);
            assert_int_equal(cell(row, 5), end_ns);
        } else {
            const cJSON *row = row_of(object, "stages", &n_stages);
            assert_string_equal(cJSON_GetArrayItem(row, 0)->valuestring, lanes[span->lane]);
            assert_int_equal(cell(row, 1), span->iteration);
            assert_int_equal(cell(row, 2), begin_ns);
            assert_int_equal(cell(row, 3), end_ns);
        }
    }
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(object, "stages")), n_stages);
    assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(object, "transfers")), n_transfers);
    assert_int_equal(number(object, "span_ns"), window->end_ns - window->begin_ns);
    assert_int_equal(number(object, "n_iterations"), 3);
}

static void every_span_and_figure_is_there(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (size_t p = 0; dsched_policies[p] != NULL; p++) {
        struct case_of made;
        make(&state, dsched_policies[p], &made);
        const struct wire_timeline timeline = {.profile = &made.profile,
                                               .policy = dsched_policies[p]->name,
                                               .outcome = &made.outcome,
                                               .window = &made.window};
        cJSON *json = encoded(&timeline);
        const cJSON *report = cJSON_GetObjectItemCaseSensitive(json, "report");
        assert_string_equal(cJSON_GetObjectItem(json, "policy")->valuestring,
                            dsched_policies[p]->name);
        assert_string_equal(cJSON_GetObjectItem(json, "rule")->valuestring,
                            dsched_rule_name(made.outcome.rule));
        assert_int_equal(number(json, "compute_ns"), support_compute_ns(&made.profile));
        assert_int_equal(number(report, "step_ns"), made.outcome.report.step_ns);
        assert_int_equal(number(report, "exposed_ns"), made.outcome.report.exposed_ns);
        assert_int_equal(cJSON_GetArraySize(cJSON_GetObjectItem(json, "links")),
                         made.profile.n_links);
        check_spans(json, &made.window);
        cJSON_Delete(json);
        done(&made);
    }
}

static void without_a_window_the_figures_remain(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct case_of made;
    make(&state, dsched_policies[0], &made);
    struct wire_timeline timeline = {
        .profile = &made.profile, .policy = "serial", .outcome = &made.outcome};
    cJSON *json = encoded(&timeline);
    assert_null(cJSON_GetObjectItem(json, "window"));
    assert_int_equal(number(cJSON_GetObjectItem(json, "report"), "step_ns"),
                     made.outcome.report.step_ns);
    cJSON_Delete(json);
    done(&made);
}

/* The coverage rate is the planner's. */
static void the_coverage_rate_is_that_of_the_planner(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int round = 0; round < 20; round++) {
        struct case_of made;
        struct dsched_planner_options options;
        struct dsched_solution *solution = calloc(1, sizeof(*solution));
        assert_non_null(solution);
        make(&state, dsched_policy_find("wfbp"), &made);
        dsched_planner_defaults(&options);
        assert_int_equal(dsched_solve(&made.profile, &options, solution, NULL), DSCHED_OK);
        const struct wire_timeline timeline = {
            .profile = &made.profile, .policy = "wfbp", .outcome = &made.outcome};
        cJSON *json = encoded(&timeline);
        double difference = number(json, "coverage") - solution->coverage_ppm / 1e6;
        assert_true(difference < 2e-6 && difference > -2e-6);
        cJSON_Delete(json);
        dsched_solution_done(solution);
        free(solution);
        done(&made);
    }
}

static void times_that_json_would_round_are_refused(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct case_of made;
    struct deft_error error = {0};
    char *text = NULL;
    make(&state, dsched_policies[0], &made);
    made.window.spans[made.window.n_spans - 1].end_ns += INT64_C(1) << 53;
    const struct wire_timeline timeline = {.profile = &made.profile,
                                           .policy = "serial",
                                           .outcome = &made.outcome,
                                           .window = &made.window};
    assert_int_equal(wire_timeline_encode(&timeline, &text, &error), DEFT_LIMIT);
    assert_null(text);
    assert_non_null(strstr(error.text, "2^53"));
    done(&made);
}

static void every_allocation_may_fail(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    struct case_of made;
    enum deft_status status = DEFT_NO_MEMORY;
    make(&state, dsched_policy_find("deft"), &made);
    const struct wire_timeline timeline = {.profile = &made.profile,
                                           .policy = "deft",
                                           .outcome = &made.outcome,
                                           .window = &made.window};
    for (uint64_t n = 1; status != DEFT_OK; n++) {
        struct deft_error error = {0};
        char *text = NULL;
        countdown = n;
        status = wire_timeline_encode(&timeline, &text, &error);
        int is_exhausted = countdown > 0; /* not one allocation failed */
        countdown = 0;
        assert_int_equal(status, is_exhausted ? DEFT_OK : DEFT_NO_MEMORY);
        assert_int_equal(text != NULL, is_exhausted);
        free(text);
    }
    done(&made);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_span_and_figure_is_there),
    cmocka_unit_test(without_a_window_the_figures_remain),
    cmocka_unit_test(the_coverage_rate_is_that_of_the_planner),
    cmocka_unit_test(times_that_json_would_round_are_refused),
    cmocka_unit_test(every_allocation_may_fail),
};
TESTING_MAIN(cases)
