/* The rows of deft-controller and deft-agent: what they promise, docs/configuration.md keeps. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "controller_options.h"
#include "daemon_options.h"
#include "daemon_spool.h"
#include "testing.h"
#include "tuning/quantify.h"

static const struct settings_program *const programs[] = {&controller_options_program,
                                                          &daemon_options_program};
#define N_PROGRAMS (sizeof(programs) / sizeof(programs[0]))

static void rows_are_well_made(void **unused) {
    (void)unused;
    for (size_t p = 0; p < N_PROGRAMS; p++) {
        size_t n_rows = settings_n_rows(programs[p]);
        assert_in_range(n_rows, 10, SETTINGS_MAX_ROWS);
        for (size_t i = 0; i < n_rows; i++) {
            const struct setting *row = settings_row(programs[p], i);
            assert_int_equal(strspn(row->name, "abcdefghijklmnopqrstuvwxyz0123456789-"),
                             strlen(row->name));
            assert_true(isupper((unsigned char)row->doc[0]));
            assert_int_not_equal(row->doc[strlen(row->doc) - 1], '.');
            assert_non_null(row->take);
            assert_true(row->argument != NULL || strcmp(row->value, "no") == 0);
            for (size_t j = 0; j < i; j++) {
                const struct setting *other = settings_row(programs[p], j);
                assert_string_not_equal(row->name, other->name);
                assert_true(row->letter == 0 || row->letter != other->letter);
            }
        }
    }
}

/* Texts in the rows and figures in the code are the same. */
static void defaults_are_those_of_the_code(void **unused) {
    struct settings *settings = NULL;
    struct controller_options *options = calloc(1, sizeof(*options));
    struct store_options store;
    struct tuner_config tuner;
    struct wire_limits limits;
    (void)unused;
    assert_non_null(options);
    store_defaults(&store);
    tuner_defaults(&tuner);
    quantify_default_limits(&limits);
    assert_int_equal(settings_open(&controller_options_program, &settings, NULL), DEFT_OK);
    assert_int_equal(controller_options_fill(settings, options, NULL), DEFT_OK);
    assert_memory_equal(&options->store, &store, sizeof(store));
    assert_memory_equal(&options->tuner, &tuner, sizeof(tuner));
    assert_int_equal(options->limits.max_merge, limits.max_merge);
    assert_int_equal(options->limits.max_delay, limits.max_delay);
    assert_true(options->limits.epsilon == limits.epsilon);
    assert_true(options->limits.min_progress == limits.min_progress);
    assert_int_equal(options->mode, TUNER_OBSERVE);
    assert_string_equal(options->listen.host, "127.0.0.1");
    assert_int_equal(listen_rate(&options->listen), 0);
    settings_close(settings);
    free(options);
}

static void defaults_of_the_agent_are_those_of_the_code(void **unused) {
    struct settings *settings = NULL;
    struct daemon_options options;
    struct deft_error error = {0};
    static const char text[] = "socket = @x\ncontroller = http://127.0.0.1:1\n";
    (void)unused;
    assert_int_equal(settings_open(&daemon_options_program, &settings, NULL), DEFT_OK);
    assert_int_equal(daemon_options_fill(settings, &options, &error), DEFT_INVALID);
    assert_string_equal(error.text, "--socket and --controller are needed");
    assert_int_equal(settings_read_text(settings, "x", text, strlen(text), NULL), DEFT_OK);
    assert_int_equal(daemon_options_fill(settings, &options, NULL), DEFT_OK);
    assert_true(options.spool_bytes == DAEMON_SPOOL_DISK_BYTES);
    assert_int_equal(options.ready_fd, -1);
    assert_int_equal(options.owner_fd, -1);
    assert_string_equal(options.mode, "");
    settings_close(settings);
}

/* --- lists, ages ------------------------------------------------------------------------------ */

static enum deft_status fill(const char *text, struct controller_options *out,
                             struct settings **settings, struct deft_error *error) {
    assert_int_equal(settings_open(&controller_options_program, settings, NULL), DEFT_OK);
    assert_int_equal(settings_read_text(*settings, "c.conf", text, strlen(text), error), DEFT_OK);
    return controller_options_fill(*settings, out, error);
}

static void names_and_ages_are_taken_whole(void **unused) {
    struct controller_options *options = calloc(1, sizeof(*options));
    struct settings *settings = NULL;
    struct store_options store;
    struct deft_error error = {0};
    (void)unused;
    assert_non_null(options);
    store_defaults(&store);
    assert_int_equal(fill("host = a.example,b\nkeep = jobs=2y\nmax-db-bytes = 1T\nmax-rate = 0\n"
                          "guard = 100000\nlisten = 0.0.0.0\n",
                          options, &settings, &error),
                     DEFT_OK);
    assert_int_equal(options->listen.n_names, 2);
    assert_string_equal(options->listen.names[0], "a.example");
    assert_string_equal(options->listen.names[1], "b");
    assert_true(options->store.keep.jobs_ns == INT64_C(2) * 31536000 * 1000000000);
    assert_true(options->store.keep.raw_ns == store.keep.raw_ns);
    assert_true(options->store.max_bytes == INT64_C(1) << 40);
    assert_int_equal(listen_rate(&options->listen), 0);
    assert_int_equal(options->tuner.n_guard_most, 100000);
    settings_close(settings);
    free(options);
}

static void wrong_values_are_one_sentence(void **unused) {
    static const struct {
        const char *text;
        const char *says;
    } bad[] = {
        {"host = a,,b", ":1: host is 'a,,b', expected up to 8 names"},
        {"host = a,b,c,d,e,f,g,h,i", "expected up to 8 names"},
        {"keep = raw", ":1: keep is 'raw', expected raw, minutes"},
        {"max-db-bytes = 1M", ":1: max-db-bytes is '1M', expected a number of bytes from 16M on"},
        {"max-rate = 1000001", "max-rate is '1000001', expected a whole number from 0 to 1000000"},
        {"mode = on", ":1: mode is 'on', expected off, observe or auto"},
        {"epsilon = 2", ":1: epsilon is '2', expected a number from 0 to 1"},
        {"guard = 0", ":1: guard is '0', expected a whole number from 1"},
        {"tls-key = x", "--tls-cert and --tls-key belong together"},
    };
    struct controller_options *options = calloc(1, sizeof(*options));
    (void)unused;
    assert_non_null(options);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct settings *settings = NULL;
        struct deft_error error = {0};
        assert_int_equal(fill(bad[i].text, options, &settings, &error), DEFT_INVALID);
        if (strstr(error.text, bad[i].says) == NULL) {
            fail_msg("'%s' says: %s", bad[i].text, error.text);
        }
        settings_close(settings);
    }
    free(options);
}

/* --- documents -------------------------------------------------------------------------------- */

static char *file_text(const char *path) {
    char *text = calloc(1, 1 << 17);
    FILE *file = fopen(path, "re");
    assert_non_null(text);
    if (file == NULL) {
        fail_msg("%s cannot be read", path);
    }
    assert_in_range(fread(text, 1, (1 << 17) - 1, file), 1, (1 << 17) - 2);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* "| `max-rate` | 1000; ... | yes | ": name, default, whether SIGHUP changes it. */
static void expected_line(const struct setting *row, char *out, size_t capacity_bytes) {
    const char *tick = row->value != NULL ? "`" : "";
    const char *value = row->value != NULL       ? row->value
                        : row->otherwise != NULL ? row->otherwise
                                                 : "";
    const char *changes = (row->flags & SETTING_ONLY_FLAG) != 0 ? "command line only"
                          : (row->flags & SETTING_RELOADS) != 0 ? "reload"
                                                                : "";
    (void)snprintf(out, capacity_bytes, "\n| `%s` | %s%s%s%s| %s%s| ", row->name, tick, value, tick,
                   value[0] != '\0' ? " " : "", changes, changes[0] != '\0' ? " " : "");
}

static void the_page_has_every_row_and_no_other(void **unused) {
    char *page = file_text(DEFT_DOCS "/configuration.md");
    (void)unused;
    for (size_t p = 0; p < N_PROGRAMS; p++) {
        char head[64];
        size_t n_lines = 0;
        (void)snprintf(head, sizeof(head), "\n## Settings of %s\n", programs[p]->name);
        char *begin = strstr(page, head);
        assert_non_null(begin);
        char *end = strstr(begin + 4, "\n## ");
        char *section = strndup(begin, end != NULL ? (size_t)(end - begin) : strlen(begin));
        assert_non_null(section);
        for (size_t i = 0; i < settings_n_rows(programs[p]); i++) {
            char line[256];
            expected_line(settings_row(programs[p], i), line, sizeof(line));
            if (strstr(section, line) == NULL) {
                fail_msg("docs/configuration.md lacks a line that begins with%s", line);
            }
        }
        for (const char *at = strstr(section, "\n| `"); at != NULL; at = strstr(at + 1, "\n| `")) {
            n_lines++;
        }
        assert_int_equal(n_lines, settings_n_rows(programs[p]));
        free(section);
    }
    free(page);
}

/* What the package installs is right, and names every setting, if only in a comment. */
static void the_packaged_file_is_right(void **unused) {
    char *text = file_text(DEFT_PACKAGING "/controller.conf");
    struct controller_options *options = calloc(1, sizeof(*options));
    struct settings *settings = NULL;
    struct deft_error error = {0};
    (void)unused;
    assert_non_null(options);
    assert_int_equal(fill(text, options, &settings, &error), DEFT_OK);
    assert_string_equal(options->db, "/var/lib/deft/deft.db");
    assert_true(listen_is_private(&options->listen));
    for (size_t i = 0; i < settings_n_rows(&controller_options_program); i++) {
        char line[64];
        const char *name = settings_row(&controller_options_program, i)->name;
        (void)snprintf(line, sizeof(line), "%s =", name);
        if (strstr(text, line) == NULL) {
            fail_msg("packaging/controller.conf does not tell of %s", name);
        }
    }
    settings_close(settings);
    free(options);
    free(text);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(rows_are_well_made),
    cmocka_unit_test(defaults_are_those_of_the_code),
    cmocka_unit_test(defaults_of_the_agent_are_those_of_the_code),
    cmocka_unit_test(names_and_ages_are_taken_whole),
    cmocka_unit_test(wrong_values_are_one_sentence),
    cmocka_unit_test(the_page_has_every_row_and_no_other),
    cmocka_unit_test(the_packaged_file_is_right),
};
TESTING_MAIN(cases)
