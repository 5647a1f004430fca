/* api/openapi.yaml names exactly the routes that are served, the members of what is printed, and
 * the words that the code has for kinds, phases and states. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <dsched/loss.h>

#include "service.h"
#include "service_openapi.h"
#include "testing.h"
#include "tuning/tuner.h"
#include "wire/wire.h"

/* Calls `found` for each method of each path: paths are indented by 2, methods by 4. */
static size_t each_operation(int (*found)(const char *path, const char *method)) {
    static const char *const methods[] = {"get", "put", "post", "delete", "patch", "head"};
    char path[128] = "";
    size_t n = 0;
    const char *line = strstr(service_openapi, "\npaths:\n");
    assert_non_null(line);
    line += strlen("\npaths:\n");
    while (*line == ' ') {
        size_t length = strcspn(line, "\n");
        if (strncmp(line, "  /", 3) == 0) {
            (void)snprintf(path, sizeof(path), "%.*s", (int)length - 3, line + 2);
        }
        for (size_t m = 0; m < sizeof(methods) / sizeof(methods[0]); m++) {
            size_t n_method = strlen(methods[m]);
            if (length == n_method + 5 && strncmp(line + 4, methods[m], n_method) == 0) {
                assert_true(found(path, methods[m]));
                n++;
            }
        }
        line += length + 1;
    }
    return n;
}

static int is_served(const char *path, const char *method) {
    for (size_t i = 0; i < service_n_routes; i++) {
        if (strcmp(service_routes[i].pattern, path) == 0 &&
            strcasecmp(service_routes[i].method, method) == 0) {
            return 1;
        }
    }
    print_error("%s %s is described, but not served\n", method, path);
    return 0;
}

static void description_and_routes_agree(void **unused) {
    (void)unused;
    assert_int_equal(strncmp(service_openapi, "openapi: 3.1", 12), 0);
    /* Each is served, none is there twice: equal numbers mean equal sets. */
    assert_int_equal(each_operation(is_served), service_n_routes);
}

/* --- rights ----------------------------------------------------------------------------------- */

/* What stands behind the operation, up to its summary: whose token it needs, or that it is open. */
static void needs_are_described(void **unused) {
    static const char *const needs[] = {"x-deft-need: operator\n", "x-deft-need: viewer\n",
                                        "x-deft-need: agent\n", "security: []\n"};
    (void)unused;
    for (size_t i = 0; i < service_n_routes; i++) {
        const struct http_route *route = &service_routes[i];
        char line[160];
        (void)snprintf(line, sizeof(line), "\n  %s:\n", route->pattern);
        const char *at = strstr(service_openapi, line);
        assert_non_null(at);
        (void)snprintf(line, sizeof(line), "\n    %c%c%c", tolower(route->method[0]),
                       tolower(route->method[1]), tolower(route->method[2]));
        at = strstr(at, line);
        assert_non_null(at);
        at = strstr(at, "operationId:");
        assert_non_null(at);
        at = strchr(at, '\n') + 1;
        at += strspn(at, " ");
        const char *need = needs[route->need];
        if (strncmp(at, need, strlen(need)) != 0) {
            fail_msg("%s %s is not described by %s", route->method, route->pattern, need);
        }
    }
}

/* --- members ---------------------------------------------------------------------------------- */

/* The text of one schema, malloc'ed: from its name to the next one at its depth. */
static char *schema_text(const char *name) {
    char head[64];
    (void)snprintf(head, sizeof(head), "\n    %s:\n", name);
    const char *begin = strstr(strstr(service_openapi, "\n  schemas:\n"), head);
    assert_non_null(begin);
    const char *end = begin + 1;
    do {
        end = strchr(end, '\n');
        assert_non_null(end);
        end++;
    } while (*end != '\0' && (strncmp(end, "     ", 5) == 0 || *end == '\n'));
    char *text = strndup(begin, (size_t)(end - begin));
    assert_non_null(text);
    return text;
}

/* Members that stand at this depth of the schema. */
static size_t count_members(const char *schema, int depth) {
    size_t n = 0;
    for (const char *line = strchr(schema, '\n'); line != NULL; line = strchr(line + 1, '\n')) {
        n += strspn(line + 1, " ") == (size_t)depth && islower((unsigned char)line[1 + depth]);
    }
    return n;
}

/* `json` is flat. */
static void members_agree(const char *json, const char *schema, int depth) {
    size_t n = 0;
    for (const char *key = strchr(json, '"'); key != NULL; key = strstr(key, ",\"")) {
        char line[80];
        key += *key == ',' ? 2 : 1;
        size_t length = strcspn(key, "\"");
        (void)snprintf(line, sizeof(line), "\n%*s%.*s:", depth, "", (int)length, key);
        if (strstr(schema, line) == NULL) {
            fail_msg("%.*s is not described", (int)length, key);
        }
        n++;
    }
    assert_int_equal(n, count_members(schema, depth));
}

static void members_of_a_job_are_described(void **unused) {
    const struct wire_job job = {.id = "j", .state = "running", .mode = "auto"};
    char *json = NULL;
    char *schema = schema_text("job");
    (void)unused;
    assert_int_equal(wire_job_encode(&job, &json, NULL), DEFT_OK);
    members_agree(json, schema, 8);
    free(schema);
    free(json);
}

static void members_of_limits_are_described(void **unused) {
    const struct wire_limits limits = {.max_merge = 1};
    char *json = NULL;
    char *schema = schema_text("limits");
    (void)unused;
    assert_int_equal(wire_limits_encode(&limits, &json, NULL), DEFT_OK);
    members_agree(json, schema, 8);
    free(schema);
    free(json);
}

static void members_of_a_decision_are_described(void **unused) {
    struct wire_decision decision = {.kind = "push", .reason = "r"};
    const struct wire_decisions decisions = {.n_decisions = 1, .decisions = &decision};
    char *json = NULL;
    char *schema = schema_text("decisions");
    (void)unused;
    assert_int_equal(wire_decisions_encode(&decisions, &json, NULL), DEFT_OK);
    members_agree(strchr(json, '['), schema, 14);
    free(schema);
    free(json);
}

/* --- words ------------------------------------------------------------------------------------ */

/* The enumeration of the member at `line`, as ", a, b, c,"; malloc'ed. */
static char *enumeration(const char *schema, const char *line) {
    const char *at = strstr(schema, line);
    assert_non_null(at);
    at = strstr(at, "enum:");
    assert_non_null(at);
    const char *begin = strchr(at, '[');
    size_t n = strcspn(begin, "]");
    char *words = calloc(1, 2 * n + 8);
    size_t length = 0;
    assert_non_null(words);
    words[length++] = ',';
    for (size_t i = 1; i < n; i++) {
        if (begin[i] != ' ' && begin[i] != '\n' && begin[i] != '"') {
            words[length++] = begin[i];
        }
    }
    words[length] = ',';
    return words;
}

/* Every name below `n_names` from `first`, and nothing else; '' may be there as well. */
static void words_agree(const char *words, const char *(*name)(int value), int first, int n_names) {
    size_t n_words = 0;
    for (const char *c = words + 1; *c != '\0'; c++) {
        n_words += *c == ',' && c[-1] != ',';
    }
    for (int i = first; i < n_names; i++) {
        char word[32];
        (void)snprintf(word, sizeof(word), ",%s,", name(i));
        if (strstr(words, word) == NULL) {
            fail_msg("'%s' is not among %s", name(i), words);
        }
    }
    assert_int_equal(n_words, n_names - first);
}

static const char *kind_name(int value) {
    return tuner_kind_name((enum tuner_kind)value);
}
static const char *phase_name(int value) {
    return tuner_phase_name((enum tuner_phase)value);
}
static const char *loss_name(int value) {
    return dsched_loss_state_name((enum dsched_loss_state)value);
}

static void words_of_the_tuner_are_described(void **unused) {
    char *decisions = schema_text("decisions");
    char *job = schema_text("job");
    char *kinds = enumeration(decisions, "\n              kind:");
    char *phases = enumeration(job, "\n        phase:");
    char *states = enumeration(job, "\n        loss_state:");
    (void)unused;
    words_agree(kinds, kind_name, TUNER_OBSERVED, TUNER_N_KINDS);
    words_agree(phases, phase_name, 0, TUNER_RESUMING + 1);
    words_agree(states, loss_name, 0, (int)DSCHED_N_LOSS_STATES);
    free(kinds);
    free(phases);
    free(states);
    free(decisions);
    free(job);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(description_and_routes_agree),
    cmocka_unit_test(needs_are_described),
    cmocka_unit_test(members_of_a_job_are_described),
    cmocka_unit_test(members_of_limits_are_described),
    cmocka_unit_test(members_of_a_decision_are_described),
    cmocka_unit_test(words_of_the_tuner_are_described),
};
TESTING_MAIN(cases)
