/* Paths to routes and parameters. */
#include <string.h>

#include "http/http_route.h"
#include "testing.h"

static void ignore(struct http_request *request, void *context) {
    (void)request;
    (void)context;
}

static const struct http_route routes[] = {
    {"GET", "/jobs", ignore, 0},
    {"GET", "/jobs/{job}", ignore, 0},
    {"PUT", "/jobs/{job}/mode", ignore, 0},
    {"POST", "/jobs/{job}/mode", ignore, 0},
    {"GET", "/", ignore, 0},
};

static enum deft_status find(const char *method, const char *path, char *copy,
                             struct http_route_match *out) {
    memcpy(copy, path, strlen(path) + 1);
    return http_route_find(routes, sizeof(routes) / sizeof(routes[0]), method, copy, out);
}

static void parameters_are_decoded(void **unused) {
    struct http_route_match match;
    char copy[128];
    (void)unused;
    assert_int_equal(find("HEAD", "/jobs/a%2Fb%20c%C3%A4", copy, &match), DEFT_OK);
    assert_ptr_equal(match.route, &routes[1]);
    assert_int_equal(match.n_params, 1);
    assert_int_equal(match.name_bytes[0], 3);
    assert_memory_equal(match.names[0], "job", 3);
    assert_string_equal(match.values[0], "a/b c\xC3\xA4");
    assert_int_equal(find("GET", "/", copy, &match), DEFT_OK);
    assert_ptr_equal(match.route, &routes[4]);
}

static void bad_escapes_are_refused(void **unused) {
    static const char *const bad[] = {"/jobs/%",   "/jobs/%4",   "/jobs/%zz", "/jobs/%00",
                                      "/jobs/%0a", "/jobs/%7f",  "/jobs/%ff", "/jobs/%c3",
                                      "/%2",       "/jobs/a%gb", "/jobs/\x01"};
    struct http_route_match match;
    char copy[128];
    (void)unused;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(find("GET", bad[i], copy, &match), DEFT_INVALID);
    }
}

static void other_paths_and_methods_are_told_apart(void **unused) {
    static const char *const unknown[] = {"/job",          "/jobs/",
                                          "/jobs//mode",   "",
                                          "jobs",          "/jobs/a/modes",
                                          "//jobs",        "/jobs/a/b/c",
                                          "/jobs/a/mode/", "/a/b/c/d/e/f/g/h/i/j/k/l/m/n"};
    struct http_route_match match;
    char copy[128];
    (void)unused;
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++) {
        assert_int_equal(find("GET", unknown[i], copy, &match), DEFT_OK);
        assert_null(match.route);
        assert_false(match.path_known);
    }
    assert_int_equal(find("DELETE", "/jobs/a/mode", copy, &match), DEFT_OK);
    assert_null(match.route);
    assert_string_equal(match.allow, "PUT, POST");
    assert_int_equal(find("POST", "/jobs/a", copy, &match), DEFT_OK);
    assert_string_equal(match.allow, "GET, HEAD");
}

/* Decoding never grows a text, and what it accepts has no control characters. */
static void random_escapes_are_survived(void **unused) {
    static const char alphabet[] = "%%%0123abcdefFz/.\xC3\xA4\x01";
    uint64_t state = testing_seed();
    (void)unused;
    for (int i = 0; i < 20000; i++) {
        char text[32];
        size_t n = testing_random_below(&state, sizeof(text));
        for (size_t c = 0; c < n; c++) {
            text[c] = alphabet[testing_random_below(&state, sizeof(alphabet) - 1)];
        }
        text[n] = '\0';
        if (http_route_unescape(text)) {
            assert_true(strlen(text) <= n);
            for (const char *c = text; *c != '\0'; c++) {
                assert_true((unsigned char)*c >= 0x20);
            }
        }
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(parameters_are_decoded),
    cmocka_unit_test(bad_escapes_are_refused),
    cmocka_unit_test(other_paths_and_methods_are_told_apart),
    cmocka_unit_test(random_escapes_are_survived),
};
TESTING_MAIN(cases)
