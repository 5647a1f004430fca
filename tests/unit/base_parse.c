/* Numbers, words, log lines and the state directory. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/parse.h"
#include "base/state_dir.h"
#include "testing.h"

static void numbers_round_trip(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int i = 0; i < 2000; i++) {
        uint64_t value = testing_random(&state) >> testing_random_below(&state, 64);
        uint64_t back = 0;
        char text[32];
        (void)snprintf(text, sizeof(text), "%" PRIu64, value);
        assert_int_equal(parse_u64("x", text, 0, UINT64_MAX, &back, NULL), DEFT_OK);
        assert_true(back == value);
        if (value > 0) {
            assert_int_equal(parse_u64("x", text, 0, value - 1, &back, NULL), DEFT_INVALID);
        }
        if (value < UINT64_MAX) {
            assert_int_equal(parse_u64("x", text, value + 1, UINT64_MAX, &back, NULL),
                             DEFT_INVALID);
        }
    }
}

static void what_is_no_number_is_refused(void **unused) {
    (void)unused;
    static const char *const bad[] = {"",
                                      "-1",
                                      "+1",
                                      " 1",
                                      "1 ",
                                      "0x10",
                                      "1.5",
                                      "1e3",
                                      "ten",
                                      "1\n",
                                      "18446744073709551616",
                                      "99999999999999999999999999"};
    uint64_t value = 7;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct deft_error error = {0};
        assert_int_equal(parse_u64("--port", bad[i], 0, UINT64_MAX, &value, &error), DEFT_INVALID);
        assert_non_null(strstr(error.text, "--port is '"));
        assert_int_equal(value, 7);
    }
}

static void real_numbers_round_trip(void **unused) {
    (void)unused;
    uint64_t state = testing_seed();
    for (int i = 0; i < 2000; i++) {
        double value =
            ldexp((double)testing_random(&state), -(int)testing_random_below(&state, 128));
        double back = 0;
        char text[64];
        value = i % 2 == 0 ? value : -value;
        (void)snprintf(text, sizeof(text), i % 3 == 0 ? "%.17g" : "%.17e", value);
        assert_int_equal(parse_real("x", text, -1e300, 1e300, &back, NULL), DEFT_OK);
        assert_true(back == value);
        assert_int_equal(parse_real("x", text, value + fabs(value) / 2 + 1, 1e300, &back, NULL),
                         DEFT_INVALID);
        assert_int_equal(parse_real("x", text, -1e300, value - fabs(value) / 2 - 1, &back, NULL),
                         DEFT_INVALID);
    }
}

static void what_is_no_real_number_is_refused(void **unused) {
    (void)unused;
    static const char *const bad[] = {"",      " 1",  "1 ",  "+1",    "-",    ".",    "-.",
                                      "1e",    "1e-", "0x1", "1p3",   "inf",  "nan",  "1,5",
                                      "1.2.3", "--1", "1\n", "1e999", "-0.1", "1.01", "one"};
    double value = 7;
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct deft_error error = {0};
        assert_int_equal(parse_real("--epsilon", bad[i], 0, 1, &value, &error), DEFT_INVALID);
        assert_non_null(strstr(error.text, "', expected a number from 0 to 1"));
        assert_true(value == 7);
    }
    assert_int_equal(parse_real("x", ".5", 0, 1, &value, NULL), DEFT_OK);
    assert_true(value == 0.5);
    assert_int_equal(parse_real("x", "1.", 0, 1, &value, NULL), DEFT_OK);
    assert_true(value == 1);
}

static void words_are_listed_when_refused(void **unused) {
    (void)unused;
    static const char *const words[] = {"off", "observe", "auto", NULL};
    struct deft_error error = {0};
    size_t i = 9;
    assert_int_equal(parse_word("--mode", "auto", words, &i, &error), DEFT_OK);
    assert_int_equal(i, 2);
    assert_int_equal(parse_word("--mode", "aut", words, &i, &error), DEFT_INVALID);
    assert_string_equal(error.text, "--mode is 'aut', expected one of off, observe, auto");
    assert_int_equal(i, 2);
}

static void the_state_directory_follows_the_environment(void **unused) {
    (void)unused;
    char path[128];
    char small[8] = "keep";
    struct deft_error error = {0};
    assert_int_equal(setenv("XDG_STATE_HOME", "/x/state", 1), 0);
    assert_int_equal(setenv("HOME", "/homes/user", 1), 0);
    assert_int_equal(state_dir_default(path, sizeof(path), &error), DEFT_OK);
    assert_string_equal(path, "/x/state/deft");
    assert_int_equal(state_dir_default(small, sizeof(small), &error), DEFT_LIMIT);
    assert_string_equal(small, "keep");
    assert_int_equal(setenv("XDG_STATE_HOME", "relative", 1), 0);
    assert_int_equal(state_dir_default(path, sizeof(path), &error), DEFT_OK);
    assert_string_equal(path, "/homes/user/.local/state/deft");
}

static void the_state_directory_is_made_and_private(void **unused) {
    (void)unused;
    char base[] = "/tmp/base_parse.XXXXXX";
    char parent[64];
    char path[64];
    struct stat info;
    struct deft_error error = {0};
    assert_non_null(mkdtemp(base));
    (void)snprintf(parent, sizeof(parent), "%s/a", base);
    (void)snprintf(path, sizeof(path), "%s/a/b", base);
    assert_int_equal(state_dir_make(path, &error), DEFT_OK);
    assert_int_equal(state_dir_make(path, &error), DEFT_OK);
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 07777, 0700);
    assert_int_equal(rmdir(path), 0);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(state_dir_make(path, &error), DEFT_IO);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(parent), 0);
    assert_int_equal(rmdir(base), 0);
}

/* What a log holds after some calls. */
static size_t read_all(int fd, char *out, size_t capacity_bytes) {
    assert_int_equal(lseek(fd, 0, SEEK_SET), 0);
    ssize_t n = read(fd, out, capacity_bytes - 1);
    assert_true(n >= 0);
    out[n] = '\0';
    return (size_t)n;
}

static void log_lines_are_one_line_each(void **unused) {
    (void)unused;
    char path[] = "/tmp/base_parse.XXXXXX";
    char text[8192];
    char long_text[3000];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct log log = {.fd = fd, .program = "test", .least = LOG_LEVEL_INFO};
    memset(long_text, 'x', sizeof(long_text));
    long_text[sizeof(long_text) - 1] = '\0';
    log_line(&log, LOG_LEVEL_DEBUG, "unseen");
    log_line(&log, LOG_LEVEL_INFO, "two\nlines\x1b[31m");
    log_line(&log, LOG_LEVEL_ERROR, "%s", long_text);
    log_set_least(&log, LOG_LEVEL_ERROR);
    log_line(&log, LOG_LEVEL_WARNING, "unseen as well");
    size_t n = read_all(fd, text, sizeof(text));
    assert_null(strstr(text, "unseen"));
    assert_non_null(strstr(text, "test info: two?lines?[31m\n"));
    const char *first_end = strchr(text, '\n');
    assert_int_equal(strlen(first_end + 1), LOG_LINE_BYTES);
    assert_int_equal(text[n - 1], '\n');
    assert_ptr_equal(strchr(first_end + 1, '\n'), text + n - 1);
    (void)close(fd);
    (void)unlink(path);
}

static void a_wait_is_named_at_most_every_ten_seconds(void **unused) {
    (void)unused;
    char path[] = "/tmp/base_parse.XXXXXX";
    char text[8192];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    struct log log = {.fd = fd, .program = "test", .least = LOG_LEVEL_INFO};
    struct log_wait wait = {0};
    const int64_t second_ns = INT64_C(1000000000);
    for (int64_t tenth = 1; tenth <= 350; tenth++) {
        log_wait_for(&wait, &log, tenth * second_ns / 10, "a friend");
    }
    (void)read_all(fd, text, sizeof(text));
    size_t n_lines = 0;
    for (const char *c = text; *c != '\0'; c++) {
        n_lines += *c == '\n';
    }
    assert_int_equal(n_lines, 4); /* after 1, 11, 21 and 31 s */
    log_wait_over(&wait, &log, 36 * second_ns, "the friend");
    (void)read_all(fd, text, sizeof(text));
    assert_non_null(strstr(text, "the friend is there after 35.9 s\n"));
    assert_int_equal(wait.since_ns, 0);
    (void)close(fd);
    (void)unlink(path);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(numbers_round_trip),
    cmocka_unit_test(what_is_no_number_is_refused),
    cmocka_unit_test(real_numbers_round_trip),
    cmocka_unit_test(what_is_no_real_number_is_refused),
    cmocka_unit_test(words_are_listed_when_refused),
    cmocka_unit_test(the_state_directory_follows_the_environment),
    cmocka_unit_test(the_state_directory_is_made_and_private),
    cmocka_unit_test(log_lines_are_one_line_each),
    cmocka_unit_test(a_wait_is_named_at_most_every_ten_seconds),
};
TESTING_MAIN(cases)
