/* Standard output that is full or closed, and programs that are started without the standard
 * descriptors. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "child.h"
#include "testing.h"

/* `$0` with its arguments, and a redirection. */
#define STREAMS_FULL   "exec \"$0\" \"$@\" >/dev/full"
#define STREAMS_CLOSED "exec \"$0\" \"$@\" >&-"
#define STREAMS_NONE   "exec \"$0\" \"$@\" <&- >&- 2>&-"

static int run_lost(const char *line, const char *const *command, struct child *out) {
    const char *argv[16] = {"sh", "-c", line};
    size_t n = 3;
    for (size_t i = 0; command[i] != NULL; i++) {
        argv[n++] = command[i];
    }
    child_start(out, argv, NULL, -1, 1);
    return child_wait(out);
}

/* Also where the parser ends the program by itself. */
static void what_cannot_be_printed_is_told_once(void **unused) {
    static const char sentence[] = "standard output cannot be written";
    static const char *const commands[][6] = {
        {DEFT, "--version"},
        {DEFT, "help"},
        {DEFT, "plan", "--help"},
        {DEFT, "plan", "--usage"},
        {DEFT, "simulate", "--policy", "list"},
        {DEFT_AGENT, "--help"},
        {DEFT_AGENT, "--version"},
        {DEFT_AGENT, "--socket", "s", "--controller=http://127.0.0.1:1", "--print-config"},
        {DEFT_CONTROLLER, "--help"},
        {DEFT_CONTROLLER, "--version"},
        {DEFT_CONTROLLER, "--print-config"},
        {DEFT_CONTROLLER, "db", "--help"},
        {DEFT_CONTROLLER, "token", "--usage"},
#ifdef DEFT_TRAIN
        {DEFT_TRAIN, "--help"},
#endif
    };
    static const char *const lines[] = {STREAMS_FULL, STREAMS_CLOSED};
    (void)unused;
    for (size_t i = 0; i < 2 * sizeof(commands) / sizeof(commands[0]); i++) {
        struct child child;
        int exit_code = run_lost(lines[i % 2], commands[i / 2], &child);
        const char *told = strstr(child.output, sentence);
        if (exit_code != 1 || told == NULL || strstr(told + 1, sentence) != NULL) {
            fail_msg("%s %s, %s: exit status %d\n%s", commands[i / 2][0], commands[i / 2][1],
                     lines[i % 2], exit_code, child.output);
        }
        child_free(&child);
    }
}

/* A wrong command line stays one. */
static void the_first_failure_counts(void **unused) {
    static const char *const command[] = {DEFT, "plan", "--nonsense", NULL};
    struct child child;
    (void)unused;
    assert_int_equal(run_lost(STREAMS_FULL, command, &child), 2);
    assert_non_null(strstr(child.output, "unrecognized option"));
    child_free(&child);
}

static void await_file(const char *path) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(20);
    struct stat stat_of;
    while (stat(path, &stat_of) != 0) {
        struct timespec tick = {.tv_nsec = 10000000};
        assert_true(clock_monotonic_ns() < until_ns);
        (void)nanosleep(&tick, NULL);
    }
}

/* The log would else be written into whatever is opened first: the lock file, the database. */
static void closed_descriptors_are_nothing_elses(void **unused) {
    static const char *const names[] = {"port", "db", "db.lock", "db-wal", "db-shm"};
    char folder[] = "/tmp/streams_process.XXXXXX";
    char port[64];
    char db[64];
    struct child child;
    struct stat stat_of;
    (void)unused;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(port, sizeof(port), "%s/port", folder);
    (void)snprintf(db, sizeof(db), "%s/db", folder);
    const char *argv[] = {"sh",          "-c", STREAMS_NONE, DEFT_CONTROLLER,
                          "--port",      "0",  "--db",       db,
                          "--port-file", port, NULL};
    child_start(&child, argv, NULL, -1, 1);
    await_file(port);
    for (int fd = 0; fd <= 2; fd++) {
        char path[64];
        char target[64] = "";
        (void)snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)child.pid, fd);
        assert_true(readlink(path, target, sizeof(target) - 1) > 0);
        assert_string_equal(target, "/dev/null");
    }
    assert_int_equal(kill(child.pid, SIGTERM), 0);
    assert_int_equal(child_wait(&child), 0);
    child_free(&child);
    (void)snprintf(port, sizeof(port), "%s/db.lock", folder);
    assert_int_equal(stat(port, &stat_of), 0);
    assert_int_equal(stat_of.st_size, 0);
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        (void)snprintf(port, sizeof(port), "%s/%s", folder, names[i]);
        (void)unlink(port);
    }
    assert_int_equal(rmdir(folder), 0);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(what_cannot_be_printed_is_told_once),
    cmocka_unit_test(the_first_failure_counts),
    cmocka_unit_test(closed_descriptors_are_nothing_elses),
};

TESTING_MAIN(cases)
