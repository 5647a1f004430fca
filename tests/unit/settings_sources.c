/* Settings from a default, a file, the environment and the command line: which one holds, where it
 * comes from, and what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/settings.h"
#include "testing.h"

struct target {
    const char *text;
    const char *list;
    uint16_t port;
    uint64_t bytes;
    double share;
    int loud;
    int once;
};
struct nested {
    int padding;
    struct target target;
};

static const struct setting rows[] = {
    {.name = "text",
     .argument = "TEXT",
     .doc = "A text",
     .flags = SETTING_RELOADS,
     .take = settings_take_text,
     .offset = offsetof(struct target, text)},
    {.name = "the-list",
     .argument = "A,B",
     .doc = "Several texts",
     .flags = SETTING_LIST,
     .take = settings_take_text,
     .offset = offsetof(struct target, list)},
    {.name = "port",
     .letter = 'p',
     .argument = "N",
     .doc = "A number",
     .value = "7600",
     .take = settings_take_u16,
     .offset = offsetof(struct target, port),
     .least = 1,
     .most = UINT16_MAX},
    {.name = "bytes",
     .argument = "N",
     .doc = "A large number",
     .take = settings_take_u64,
     .offset = offsetof(struct target, bytes),
     .most = UINT64_MAX},
    {.name = "share",
     .argument = "X",
     .doc = "A fraction",
     .value = "0.5",
     .take = settings_take_fraction,
     .offset = offsetof(struct target, share)},
    {.name = "loud",
     .letter = 'v',
     .doc = "A switch",
     .value = "no",
     .take = settings_take_switch,
     .offset = offsetof(struct target, loud)},
    {.name = NULL},
};
static const struct setting more_rows[] = {
    {.name = "once",
     .argument = "N",
     .doc = "On the command line only",
     .flags = SETTING_ONLY_FLAG,
     .take = settings_take_int,
     .offset = offsetof(struct target, once),
     .most = 9},
    {.name = "secret",
     .argument = "TEXT",
     .doc = "A secret",
     .flags = SETTING_SECRET,
     .take = settings_take_text,
     .offset = offsetof(struct target, text)},
    {.name = NULL},
};
static const struct settings_group groups[] = {
    {rows, offsetof(struct nested, target)},
    {more_rows, offsetof(struct nested, target)},
};
static const struct settings_program program = {
    .name = "toy", .prefix = "TOY_", .doc = "A toy.", .groups = groups, .n_groups = 2};

enum { ROW_TEXT, ROW_LIST, ROW_PORT, ROW_BYTES, ROW_SHARE, ROW_LOUD, ROW_ONCE, ROW_SECRET, N_ROWS };

static struct settings *opened(void) {
    struct settings *settings = NULL;
    assert_int_equal(settings_open(&program, &settings, NULL), DEFT_OK);
    return settings;
}

static enum deft_status read_text(struct settings *settings, const char *text,
                                  struct deft_error *error) {
    return settings_read_text(settings, "toy.conf", text, strlen(text), error);
}

static enum deft_status read_variable(struct settings *settings, const char *variable,
                                      struct deft_error *error) {
    char copy[256];
    char *environment[] = {copy, NULL};
    (void)snprintf(copy, sizeof(copy), "%s", variable);
    return settings_read_environment(settings, environment, error);
}

static void read_flags(struct settings *settings, const char *first, const char *second) {
    char copies[3][256] = {"toy"};
    char *argv[] = {copies[0], copies[1], copies[2], NULL};
    int argc = 1;
    (void)snprintf(copies[1], sizeof(copies[1]), "%s", first != NULL ? first : "");
    (void)snprintf(copies[2], sizeof(copies[2]), "%s", second != NULL ? second : "");
    argc += (first != NULL) + (second != NULL);
    argv[argc] = NULL;
    settings_read_flags(settings, argc, argv);
}

static void rows_are_found_by_their_place(void **unused) {
    static const char *const names[] = {"text",  "the-list", "port", "bytes",
                                        "share", "loud",     "once", "secret"};
    (void)unused;
    assert_int_equal(settings_n_rows(&program), N_ROWS);
    for (size_t i = 0; i < N_ROWS; i++) {
        assert_string_equal(settings_row(&program, i)->name, names[i]);
    }
}

/* Any set of sources, each with a value of its own. */
static void a_later_source_wins_and_says_where_it_is(void **unused) {
    static const char *const wheres[] = {"", ":3", "TOY_PORT", "--port"};
    (void)unused;
    for (unsigned set = 0; set < 8; set++) {
        struct settings *settings = opened();
        struct settings_value value;
        struct nested nested = {0};
        size_t last = set >= 4 ? 3 : set >= 2 ? 2 : set;
        if (set & 1) {
            assert_int_equal(read_text(settings, "\n# a comment\n port = 1 \n", NULL), DEFT_OK);
        }
        if (set & 2) {
            assert_int_equal(read_variable(settings, "TOY_PORT=2", NULL), DEFT_OK);
        }
        if (set & 4) {
            read_flags(settings, "-p4", NULL);
        }
        settings_value(settings, ROW_PORT, &value);
        assert_int_equal(value.source, last);
        assert_string_equal(value.where, wheres[last]);
        assert_int_equal(settings_apply(settings, &nested, NULL), DEFT_OK);
        assert_int_equal(nested.target.port, last == 0 ? 7600 : 1u << (last - 1));
        assert_int_equal(nested.padding, 0);
        assert_true(nested.target.share == 0.5);
        assert_null(nested.target.text);
        settings_close(settings);
    }
}

static void lists_are_joined_and_other_options_replaced(void **unused) {
    struct settings *settings = opened();
    struct nested nested = {0};
    (void)unused;
    assert_int_equal(read_text(settings, "the-list = x,y\nloud = yes\n", NULL), DEFT_OK);
    read_flags(settings, "--the-list=a", "--the-list=b,c");
    read_flags(settings, "--text=one", "--text=two");
    assert_int_equal(settings_apply(settings, &nested, NULL), DEFT_OK);
    assert_string_equal(nested.target.list, "a,b,c");
    assert_string_equal(nested.target.text, "two");
    assert_int_equal(nested.target.loud, 1);
    settings_close(settings);
}

/* --- refusals --------------------------------------------------------------------------------- */

static void wrong_lines_are_named(void **unused) {
    static const struct {
        const char *text;
        const char *says;
    } bad[] = {
        {"port\n", "toy.conf:1: 'port', expected KEY = VALUE"},
        {"\n\nprot = 1\n", "toy.conf:3: 'prot' is no setting of toy"},
        {"= 1", "toy.conf:1: '' is no setting of toy"},
        {"PORT = 1", "toy.conf:1: 'PORT' is no setting of toy"},
        {"port = 1\n# x\nport = 1\n", "toy.conf:3: port is in line 1 already"},
        {"port =\n", "toy.conf:1: port has no value"},
        {"once = 1\n", "toy.conf:1: once belongs on the command line only"},
        {"text = a\x01z\n", "toy.conf:1: there is a control character, expected text"},
        {"[toy]\n", "toy.conf:1: '[toy]', expected KEY = VALUE"},
    };
    (void)unused;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct settings *settings = opened();
        struct deft_error error = {0};
        assert_int_equal(read_text(settings, bad[i].text, &error), DEFT_INVALID);
        assert_string_equal(error.text, bad[i].says);
        settings_close(settings);
    }
}

static void wrong_variables_are_named(void **unused) {
    static const char *const bad[] = {"TOY_PROT=1", "TOY_THE-LIST=1", "TOY_port=1",  "TOY_=1",
                                      "TOY_ONCE=1", "TOY_CONFIG=x",   "TOY_PORT_X=1"};
    static const char *const fine[] = {
        "TOY_TEXT=",        "TOY_THE_LIST=a",           "TOY=url",
        "TOYS_PROT=1",      "TOY_SERVICE_PORT=1",       "TOY_SERVICE_HOST=h",
        "TOY_PORT_1_TCP=t", "TOY_PORT=tcp://10.0.0.1:1"};
    struct settings *settings = opened();
    (void)unused;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct deft_error error = {0};
        char says[128];
        (void)snprintf(says, sizeof(says), "%.*s is in the environment, but is no setting of toy",
                       (int)strcspn(bad[i], "="), bad[i]);
        assert_int_equal(read_variable(settings, bad[i], &error), DEFT_INVALID);
        assert_string_equal(error.text, says);
    }
    for (size_t i = 0; i < sizeof(fine) / sizeof(fine[0]); i++) {
        assert_int_equal(read_variable(settings, fine[i], NULL), DEFT_OK);
    }
    struct settings_value value;
    settings_value(settings, ROW_PORT, &value); /* the URL was not taken */
    assert_int_equal(value.source, SETTINGS_DEFAULT);
    settings_value(settings, ROW_LIST, &value);
    assert_string_equal(value.text, "a");
    settings_close(settings);
}

/* The line, the variable or the option, also where another one wins. */
static void wrong_values_are_named_by_their_place(void **unused) {
    struct deft_error error = {0};
    struct nested nested = {0};
    struct settings *settings = opened();
    (void)unused;
    assert_int_equal(read_variable(settings, "TOY_PORT=0", NULL), DEFT_OK);
    read_flags(settings, "--port=1", NULL);
    assert_int_equal(settings_apply(settings, &nested, &error), DEFT_INVALID);
    assert_string_equal(error.text, "TOY_PORT is '0', expected a whole number from 1 to 65535");
    settings_close(settings);
    settings = opened();
    read_flags(settings, "--bytes=-1", NULL);
    assert_int_equal(settings_apply(settings, &nested, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "--bytes is '-1', expected a whole number from 0 to "));
    settings_close(settings);
    settings = opened();
    assert_int_equal(read_text(settings, "loud = on", NULL), DEFT_OK);
    assert_int_equal(settings_apply(settings, &nested, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, ":1: loud is 'on', expected one of no, yes"));
    settings_close(settings);
}

/* --- files ------------------------------------------------------------------------------------ */

/* Reads settings as `toy --config PATH` does. */
static enum deft_status read_file(const char *path, struct settings **out,
                                  struct deft_error *error) {
    char name[] = "toy";
    char option[] = "--config";
    char copy[128];
    char *argv[] = {name, option, copy, NULL};
    char *environment[] = {NULL};
    (void)snprintf(copy, sizeof(copy), "%s", path);
    return settings_read(&program, 3, argv, environment, out, error);
}

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void a_file_is_read_again_with_the_rest_as_it_was(void **unused) {
    char folder[] = "/tmp/settings.XXXXXX";
    char path[64];
    char where[96];
    struct settings *first = NULL;
    struct settings *second = NULL;
    struct settings *third = NULL;
    struct settings_value value;
    struct deft_error error = {0};
    (void)unused;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/toy.conf", folder);
    write_file(path, "text = old");
    assert_int_equal(read_file(path, &first, &error), DEFT_OK);
    assert_string_equal(settings_file(first), path);
    write_file(path, "port = 9\r\ntext = new\r\n");
    assert_int_equal(settings_read_again(first, &second, &error), DEFT_OK);
    settings_value(second, ROW_TEXT, &value);
    (void)snprintf(where, sizeof(where), "%s:2", path);
    assert_string_equal(value.text, "new");
    assert_string_equal(value.where, where);
    settings_value(first, ROW_TEXT, &value);
    assert_string_equal(value.text, "old");
    write_file(path, "text new");
    assert_int_equal(settings_read_again(second, &third, &error), DEFT_INVALID);
    assert_null(third);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(settings_read_again(second, &third, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, path));
    settings_close(first);
    settings_close(second);
    assert_int_equal(rmdir(folder), 0);
}

static void without_a_file_nothing_is_read_again(void **unused) {
    struct settings *settings = opened();
    struct settings *again = NULL;
    (void)unused;
    assert_int_equal(settings_read_again(settings, &again, NULL), DEFT_STATE);
    assert_null(again);
    settings_close(settings);
}

static void what_is_no_file_is_refused(void **unused) {
    char folder[] = "/tmp/settings.XXXXXX";
    char path[64];
    struct settings *settings = NULL;
    struct deft_error error = {0};
    (void)unused;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(path, sizeof(path), "%s/toy.conf", folder);
    assert_int_equal(read_file(path, &settings, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "No such file"));
    assert_int_equal(read_file(folder, &settings, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "no regular file"));
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(read_file(path, &settings, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "no regular file"));
    assert_int_equal(unlink(path), 0);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    for (unsigned i = 0; i <= SETTINGS_FILE_BYTES; i++) {
        assert_int_equal(fputc('\n', file), '\n');
    }
    assert_int_equal(fclose(file), 0);
    assert_int_equal(read_file(path, &settings, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, "longer than 65536 bytes"));
    assert_int_equal(truncate(path, SETTINGS_FILE_BYTES), 0);
    assert_int_equal(read_file(path, &settings, &error), DEFT_OK);
    settings_close(settings);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

/* --- print ------------------------------------------------------------------------------------ */

static char *printed(const struct settings *settings, enum deft_status expected) {
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *file = open_memstream(&text, &n_bytes);
    assert_non_null(file);
    assert_int_equal(settings_print(settings, file, NULL), expected);
    assert_int_equal(fclose(file), 0);
    return text;
}

/* Whatever a line can hold: it comes out of the file as it went in. */
static void what_is_printed_reads_the_same(void **unused) {
    static const char letters[] = "ab=#\"' \t,\\\xc3\xa4[;";
    uint64_t state = testing_seed();
    unsigned n_refused = 0;
    (void)unused;
    for (int round = 0; round < 2000; round++) {
        char option[64] = "--text=";
        size_t n = strlen(option);
        size_t n_letters = 1 + testing_random_below(&state, 12);
        for (size_t i = 0; i < n_letters; i++) {
            option[n++] = letters[testing_random_below(&state, sizeof(letters) - 1)];
        }
        option[n] = '\0';
        struct settings *settings = opened();
        read_flags(settings, option, "--loud");
        int blank = strchr(" \t", option[7]) != NULL || strchr(" \t", option[n - 1]) != NULL;
        char *text = printed(settings, blank ? DEFT_INVALID : DEFT_OK);
        n_refused += (unsigned)blank;
        if (!blank) {
            struct settings *again = opened();
            assert_int_equal(read_text(again, text, NULL), DEFT_OK);
            for (size_t i = 0; i < N_ROWS; i++) {
                struct settings_value before;
                struct settings_value after;
                settings_value(settings, i, &before);
                settings_value(again, i, &after);
                if (before.text == NULL || after.text == NULL) {
                    assert_ptr_equal(before.text, after.text);
                } else {
                    assert_string_equal(before.text, after.text);
                }
            }
            settings_close(again);
        }
        settings_close(settings);
        free(text);
    }
    assert_in_range(n_refused, 1, 1999);
}

static void secrets_are_not_printed(void **unused) {
    struct settings *settings = opened();
    (void)unused;
    read_flags(settings, "--secret=hush", "--once=3");
    char *text = printed(settings, DEFT_OK);
    assert_null(strstr(text, "hush"));
    assert_non_null(strstr(text, "# secret is set, and not shown\n"));
    assert_null(strstr(text, "once"));
    assert_non_null(strstr(text, "# A text\n# text =\n"));
    free(text);
    settings_close(settings);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(rows_are_found_by_their_place),
    cmocka_unit_test(a_later_source_wins_and_says_where_it_is),
    cmocka_unit_test(lists_are_joined_and_other_options_replaced),
    cmocka_unit_test(wrong_lines_are_named),
    cmocka_unit_test(wrong_variables_are_named),
    cmocka_unit_test(wrong_values_are_named_by_their_place),
    cmocka_unit_test(a_file_is_read_again_with_the_rest_as_it_was),
    cmocka_unit_test(without_a_file_nothing_is_read_again),
    cmocka_unit_test(what_is_no_file_is_refused),
    cmocka_unit_test(what_is_printed_reads_the_same),
    cmocka_unit_test(secrets_are_not_printed),
};
TESTING_MAIN(cases)
