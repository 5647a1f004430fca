/* libcurl that is absent or too old: one sentence, and nothing else of the program minds. */
#include <dlfcn.h>
#include <string.h>

#include "client/http_client.h"
#include "testing.h"

void *__wrap_dlopen(const char *name, int flags);
void *__wrap_dlsym(void *library, const char *name);
void *__real_dlopen(const char *name, int flags);
void *__real_dlsym(void *library, const char *name);

static const char *hidden_library; /* the part of a name that makes dlopen fail */
static const char *hidden_symbol;

void *__wrap_dlopen(const char *name, int flags) {
    int is_hidden = hidden_library != NULL && strstr(name, hidden_library) != NULL;
    return __real_dlopen(is_hidden ? "libabsent.so.0" : name, flags);
}

void *__wrap_dlsym(void *library, const char *name) {
    int is_hidden = hidden_symbol != NULL && strcmp(name, hidden_symbol) == 0;
    return is_hidden ? NULL : __real_dlsym(library, name);
}

static enum deft_status open_client(const char *url, struct http_client **out,
                                    struct deft_error *error) {
    const struct http_client_options options = {.base_url = url};
    return http_client_open(&options, out, error);
}

static void open_fails_with(const char *expected) {
    struct http_client *client = NULL;
    struct deft_error error = {.text = ""};
    assert_int_equal(open_client("http://127.0.0.1:1", &client, &error), DEFT_UNSUPPORTED);
    assert_null(client);
    assert_non_null(strstr(error.text, expected));
}

static void absent_library_is_named(void **unused) {
    (void)unused;
    hidden_library = "libcurl";
    open_fails_with("libcurl4");
    hidden_library = NULL;
}

static void missing_function_is_named(void **unused) {
    (void)unused;
    hidden_symbol = "curl_multi_poll";
    open_fails_with("curl_multi_poll");
    hidden_symbol = NULL;
}

static void opens_any_number_of_times(void **unused) {
    struct http_client *clients[3] = {NULL};
    (void)unused;
    for (int i = 0; i < 3; i++) {
        assert_int_equal(open_client("http://127.0.0.1:1", &clients[i], NULL), DEFT_OK);
    }
    for (int i = 0; i < 3; i++) {
        http_client_close(clients[i]);
    }
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(absent_library_is_named),
    cmocka_unit_test(missing_function_is_named),
    cmocka_unit_test(opens_any_number_of_times),
};
TESTING_MAIN(cases)
