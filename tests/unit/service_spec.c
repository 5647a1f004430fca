/* api/openapi.yaml names exactly the routes that are served. */
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "service.h"
#include "service_openapi.h"
#include "testing.h"

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

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(description_and_routes_agree),
};
TESTING_MAIN(cases)
