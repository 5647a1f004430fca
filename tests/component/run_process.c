/* `deft run` with real processes: what users see, and that nothing is left behind. */
#include <dirent.h>
#include <errno.h>
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

static void make_folder(char folder[32]) {
    (void)snprintf(folder, 32, "/tmp/run_process.XXXXXX");
    assert_non_null(mkdtemp(folder));
}

static void remove_folder(const char *folder) {
    char path[300];
    DIR *dir = opendir(folder);
    assert_non_null(dir);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        (void)snprintf(path, sizeof(path), "%s/%s", folder, entry->d_name);
        (void)unlink(path);
    }
    (void)closedir(dir);
    assert_int_equal(rmdir(folder), 0);
}

/* The process whose command line contains both texts; 0 if there is none. */
static pid_t find_process(const char *program, const char *text) {
    pid_t found = 0;
    DIR *dir = opendir("/proc");
    assert_non_null(dir);
    for (const struct dirent *entry = readdir(dir); entry != NULL; entry = readdir(dir)) {
        char path[300];
        char line[1024] = "";
        (void)snprintf(path, sizeof(path), "/proc/%s/cmdline", entry->d_name);
        FILE *file = fopen(path, "re");
        size_t n = file != NULL ? fread(line, 1, sizeof(line) - 1, file) : 0;
        for (size_t i = 0; i < n; i++) {
            if (line[i] == '\0') {
                line[i] = ' ';
            }
        }
        const char *end = strchr(line, ' ');
        const char *name = strstr(line, program);
        if (end != NULL && name != NULL && name < end && strstr(line, text) != NULL) {
            found = (pid_t)strtol(entry->d_name, NULL, 10);
        }
        if (file != NULL) {
            (void)fclose(file);
        }
    }
    (void)closedir(dir);
    return found;
}

static void await_no_process(const char *program, const char *text) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(10);
    while (find_process(program, text) != 0) {
        struct timespec tick = {.tv_nsec = 10000000};
        assert_true(clock_monotonic_ns() < until_ns);
        (void)nanosleep(&tick, NULL);
    }
}

static void run(struct child *child, const char *folder, const char *nproc,
                const char *const *command) {
    const char *argv[24] = {DEFT, "run", "--nproc", nproc, "--state-dir", folder, "--job", "test"};
    size_t n = 8;
    argv[n++] = "--";
    for (size_t i = 0; command[i] != NULL; i++) {
        argv[n++] = command[i];
    }
    child_start(child, argv, NULL, -1, 1);
}

/* Runs a shell line on every rank to its end. */
static int run_shell(const char *nproc, const char *line, struct child *out) {
    char folder[32];
    const char *command[] = {"sh", "-c", line, NULL};
    make_folder(folder);
    run(out, folder, nproc, command);
    int exit_code = child_wait(out);
    await_no_process("deft-controller", folder);
    await_no_process("deft-agent", folder);
    remove_folder(folder);
    return exit_code;
}

static void a_job_is_tuned_and_leaves_nothing(void **unused) {
    (void)unused;
    struct child child;
    char folder[32];
    const char *command[] = {DEFT_RUN_RANK, "200", NULL};
    make_folder(folder);
    run(&child, folder, "2", command);
    int exit_code = child_wait(&child);
    if (exit_code != 0) {
        fail_msg("exit status %d:\n%s", exit_code, child.output);
    }
    assert_non_null(strstr(child.output, "[0] done\n"));
    assert_non_null(strstr(child.output, "[1] done\n"));
    assert_non_null(strstr(child.output, "deft: test: step "));
    assert_non_null(strstr(child.output, "deft.db\n"));
    await_no_process("deft-controller", folder);
    await_no_process("deft-agent", folder);
    child_free(&child);
    remove_folder(folder);
}

static void lines_are_whole_and_named(void **unused) {
    (void)unused;
    struct child child;
    assert_int_equal(run_shell("2",
                               "i=0; while [ $i -lt 300 ]; do echo line-$i-of-$DEFT_RANK; "
                               "i=$((i+1)); done; printf 'one\\rtwo\\rthree\\n'; printf last",
                               &child),
                     0);
    for (int rank = 0; rank < 2; rank++) {
        for (int i = 0; i < 300; i++) {
            char line[64];
            (void)snprintf(line, sizeof(line), "[%d] line-%d-of-%d\n", rank, i, rank);
            assert_non_null(strstr(child.output, line));
        }
    }
    assert_non_null(strstr(child.output, "[0] three\n"));
    assert_null(strstr(child.output, "two"));
    assert_non_null(strstr(child.output, "[1] last\n"));
    child_free(&child);
}

static void one_rank_has_no_prefix(void **unused) {
    (void)unused;
    struct child child;
    assert_int_equal(run_shell("1", "echo rank $DEFT_RANK of $DEFT_WORLD_SIZE", &child), 0);
    assert_non_null(strstr(child.output, "rank 0 of 1\n"));
    assert_null(strstr(child.output, "[0]"));
    child_free(&child);
}

/* The ranks go on; that something is missing is said, and is a failure. */
static void output_that_is_lost_is_told(void **unused) {
    static const char *const argv[] = {
        "sh", "-c",
        "exec \"$0\" run --nproc 2 --controller http://127.0.0.1:1 -- sh -c 'echo text' >/dev/full",
        DEFT, NULL};
    struct child child;
    (void)unused;
    child_start(&child, argv, NULL, -1, 1);
    assert_int_equal(child_wait(&child), 1);
    const char *told = strstr(child.output, "standard output cannot be written: No space left");
    assert_non_null(told);
    assert_null(strstr(told + 1, "standard output"));
    child_free(&child);
}

static void the_environment_is_complete(void **unused) {
    (void)unused;
    struct child child;
    assert_int_equal(run_shell("2",
                               "test -S \"$DEFT_AGENT_SOCKET\" && test $DEFT_LOCAL_RANK = "
                               "$DEFT_RANK && test $DEFT_JOB_ID = test && test -n "
                               "\"$DEFT_JOB_NAME\" && test $DEFT_MASTER_ADDR = 127.0.0.1 && test "
                               "$DEFT_MASTER_PORT -gt 0",
                               &child),
                     0);
    assert_non_null(strstr(child.output, "no rank reported anything"));
    child_free(&child);
}

static void the_first_failure_ends_the_job(void **unused) {
    (void)unused;
    struct child child;
    assert_int_equal(run_shell("3", "test $DEFT_RANK = 1 && exit 7; exec sleep 1000", &child), 7);
    assert_non_null(strstr(child.output, "rank 1 has failed with exit status 7"));
    child_free(&child);
    assert_int_equal(run_shell("2", "test $DEFT_RANK = 0 && kill -9 $$; exec sleep 1000", &child),
                     137);
    assert_non_null(strstr(child.output, "rank 0 was ended by signal 9"));
    child_free(&child);
}

static void a_command_that_cannot_run_says_so(void **unused) {
    (void)unused;
    struct child child;
    const char *const missing[] = {DEFT, "run", "no-such-program-here", NULL};
    const char *const forbidden[] = {DEFT, "run", "--", "/etc/passwd", NULL};
    const char *const usage[] = {DEFT, "run", "--nproc", "0", "true", NULL};
    const char *const nothing[] = {DEFT, "run", NULL};
    const struct {
        const char *const *argv;
        int exit_code;
        const char *text;
    } all[] = {{missing, 127, "is not a program that exists"},
               {forbidden, 126, "may not be executed"},
               {usage, 2, "--nproc is '0', expected a whole number from 1 to 1024"},
               {nothing, 2, "a command is expected"}};
    for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
        child_start(&child, all[i].argv, NULL, -1, 1);
        assert_int_equal(child_wait(&child), all[i].exit_code);
        assert_non_null(strstr(child.output, all[i].text));
        child_free(&child);
    }
}

static void without_services_the_job_runs_untuned(void **unused) {
    (void)unused;
    struct child child;
    char folder[32];
    make_folder(folder);
    const char *const no_dir[] = {DEFT, "run", "--state-dir", "/proc/nowhere", "echo", "ran", NULL};
    const char *const no_controller[] = {DEFT,   "run",          "--state-dir",
                                         folder, "--controller", "http://127.0.0.1:1",
                                         "echo", "ran",          NULL};
    /* A default that cannot be had. */
    char state_home[5000] = "XDG_STATE_HOME=/";
    memset(state_home + strlen(state_home), 'a', sizeof(state_home) - 1 - strlen(state_home));
    const char *const environment[] = {state_home, NULL};
    const char *const no_default[] = {DEFT, "run", "echo", "ran", NULL};
    const char *const *all[] = {no_dir, no_controller, no_default};
    for (size_t i = 0; i < 3; i++) {
        child_start(&child, all[i], i == 2 ? environment : NULL, -1, 1);
        assert_int_equal(child_wait(&child), 0);
        assert_non_null(strstr(child.output, "deft: warning: the job runs untuned"));
        assert_non_null(strstr(child.output, "ran\n"));
        child_free(&child);
    }
    remove_folder(folder);
}

static void interrupt_asks_and_the_second_kills(void **unused) {
    (void)unused;
    struct child child;
    char folder[32];
    const char *polite[] = {"sh", "-c", "trap 'exit 3' TERM; echo up; while :; do sleep 0.05; done",
                            NULL};
    const char *deaf[] = {"sh", "-c", "trap '' TERM INT; echo up; while :; do sleep 0.05; done",
                          NULL};
    make_folder(folder);
    run(&child, folder, "2", polite);
    child_await_output(&child, "[0] up");
    child_await_output(&child, "[1] up");
    assert_int_equal(kill(child.pid, SIGINT), 0);
    assert_int_equal(child_wait(&child), 3);
    child_free(&child);

    run(&child, folder, "2", deaf);
    child_await_output(&child, "[0] up");
    child_await_output(&child, "[1] up");
    assert_int_equal(kill(child.pid, SIGTERM), 0);
    child_await_output(&child, "asked to end");
    assert_int_equal(kill(child.pid, SIGINT), 0);
    assert_int_equal(child_wait(&child), 137);
    child_free(&child);
    await_no_process("deft-controller", folder);
    remove_folder(folder);
}

/* Whoever held the output open, grandchildren included, has gone when it ends. */
static void a_killed_run_takes_everything_with_it(void **unused) {
    (void)unused;
    struct child child;
    char folder[32];
    const char *command[] = {"sh", "-c", "sleep 1000 & echo up; wait", NULL};
    make_folder(folder);
    const char *argv[] = {DEFT,   "run", "--no-prefix", "--nproc", "2",        "--state-dir",
                          folder, "--",  "sh",          "-c",      command[2], NULL};
    char temporary[64];
    const char *environment[] = {temporary, NULL};
    (void)snprintf(temporary, sizeof(temporary), "TMPDIR=%s/tmp", folder);
    assert_int_equal(mkdir(temporary + strlen("TMPDIR="), 0700), 0);
    child_start(&child, argv, environment, -1, 1);
    child_await_output(&child, "up\nup\n");
    assert_int_equal(rmdir(temporary + strlen("TMPDIR=")), -1); /* the agent's socket is there */
    assert_int_equal(kill(child.pid, SIGKILL), 0);
    assert_int_equal(child_wait(&child), 137);
    await_no_process("deft-controller", folder);
    await_no_process("deft-agent", folder);
    await_no_process("deft", folder);
    assert_int_equal(rmdir(temporary + strlen("TMPDIR=")), 0);
    child_free(&child);
    remove_folder(folder);
}

static void kill_service(const char *program, const char *folder, pid_t *out_pid) {
    pid_t pid = find_process(program, folder);
    assert_true(pid > 0);
    assert_int_equal(kill(pid, SIGKILL), 0);
    *out_pid = pid;
}

/* The job does not notice; what died is back and the history is complete. */
static void services_that_die_come_back(void **unused) {
    (void)unused;
    struct child child;
    char folder[32];
    pid_t controller;
    pid_t agent;
    char n_iterations[24];
    const char *command[] = {DEFT_RUN_RANK, n_iterations, NULL};
    /* About five seconds, also where every iteration is slower. */
    (void)snprintf(n_iterations, sizeof(n_iterations), "%lld",
                   (long long)(1500 * INT64_C(1000000000) / testing_deadline_ns(1)));
    make_folder(folder);
    run(&child, folder, "2", command);
    child_await_output(&child, "[0] ready");
    kill_service("deft-controller", folder, &controller);
    child_await_output(&child, "deft-controller has ended with exit status 137");
    kill_service("deft-agent", folder, &agent);
    child_await_output(&child, "deft-agent has ended with exit status 137");
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(10);
    while (find_process("deft-agent", folder) == 0 ||
           find_process("deft-controller", folder) == 0) {
        struct timespec tick = {.tv_nsec = 10000000};
        assert_true(clock_monotonic_ns() < until_ns);
        (void)nanosleep(&tick, NULL);
    }
    int exit_code = child_wait(&child);
    if (exit_code != 0) {
        fail_msg("exit status %d:\n%s", exit_code, child.output);
    }
    assert_non_null(strstr(child.output, "[0] done\n"));
    assert_non_null(strstr(child.output, "deft: test: "));
    await_no_process("deft-controller", folder);
    child_free(&child);
    remove_folder(folder);
}

static void a_kept_controller_serves_the_next_job(void **unused) {
    (void)unused;
    struct child child;
    char folder[32];
    char state[64];
    make_folder(folder);
    const char *first[] = {DEFT,    "run", "--keep",      "--state-dir", folder, "--job",
                           "first", "--",  DEFT_RUN_RANK, "20",          NULL};
    const char *second[] = {DEFT,     "run", "--state-dir", folder, "--job",
                            "second", "--",  DEFT_RUN_RANK, "20",   NULL};
    child_start(&child, first, NULL, -1, 1);
    assert_int_equal(child_wait(&child), 0);
    const char *url = strstr(child.output, "the controller stays at ");
    assert_non_null(url);
    (void)snprintf(state, sizeof(state), "DEFT_CONTROLLER=%.*s", (int)strcspn(url + 24, " "),
                   url + 24);
    child_free(&child);
    pid_t pid = find_process("deft-controller", folder);
    assert_true(pid > 0);
    child_start(&child, second, NULL, -1, 1);
    assert_int_equal(child_wait(&child), 0);
    child_free(&child);
    assert_int_equal(find_process("deft-controller", folder), pid);

    const char *environment[] = {state, NULL};
    const char *jobs[] = {DEFT, "jobs", NULL};
    const char *job[] = {DEFT, "job", "second", NULL};
    const char *none[] = {DEFT, "job", "third", NULL};
    child_start(&child, jobs, environment, -1, 1);
    assert_int_equal(child_wait(&child), 0);
    assert_non_null(strstr(child.output, "first"));
    assert_non_null(strstr(child.output, "second"));
    child_free(&child);
    child_start(&child, job, environment, -1, 1);
    assert_int_equal(child_wait(&child), 0);
    assert_non_null(strstr(child.output, "iterations   20\n"));
    child_free(&child);
    child_start(&child, none, environment, -1, 1);
    assert_int_equal(child_wait(&child), 1);
    child_free(&child);
    assert_int_equal(kill(pid, SIGTERM), 0);
    await_no_process("deft-controller", folder);
    remove_folder(folder);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_job_is_tuned_and_leaves_nothing),
    cmocka_unit_test(lines_are_whole_and_named),
    cmocka_unit_test(one_rank_has_no_prefix),
    cmocka_unit_test(output_that_is_lost_is_told),
    cmocka_unit_test(the_environment_is_complete),
    cmocka_unit_test(the_first_failure_ends_the_job),
    cmocka_unit_test(a_command_that_cannot_run_says_so),
    cmocka_unit_test(without_services_the_job_runs_untuned),
    cmocka_unit_test(interrupt_asks_and_the_second_kills),
    cmocka_unit_test(a_killed_run_takes_everything_with_it),
    cmocka_unit_test(services_that_die_come_back),
    cmocka_unit_test(a_kept_controller_serves_the_next_job),
};
TESTING_MAIN(cases)
