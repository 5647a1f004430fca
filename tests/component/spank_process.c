/* The agent's process under slurmstepd, played by this one: real processes, without Slurm. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/spank_agent.h"
#include "testing.h"

#define NOBODY 65534U

struct scene {
    char folder[64];
    char file[80]; /* what the agent leaves there */
    struct spank_agent agent;
    char why[SPANK_AGENT_WHY_BYTES];
};

static void set_up(struct scene *scene) {
    memset(scene, 0, sizeof(*scene));
    (void)snprintf(scene->folder, sizeof(scene->folder), "/tmp/spank-process-XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    assert_int_equal(chmod(scene->folder, 0777), 0);
    (void)snprintf(scene->file, sizeof(scene->file), "%s/left", scene->folder);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    assert_int_equal(spank_agent_open(&scene->agent, scene->why), 0);
}

static void tear_down(struct scene *scene) {
    (void)spank_agent_stop(&scene->agent, 0);
    (void)unlink(scene->file);
    assert_int_equal(rmdir(scene->folder), 0);
}

static uid_t user(void) {
    return getuid() == 0 ? NOBODY : getuid();
}

/* `script` finds the file as $LEFT. */
static int run(struct scene *scene, const char *script, int64_t patience_ns) {
    static char shell[] = "/bin/sh";
    static char option[] = "-c";
    char text[1024];
    char left[96];
    char path[] = "PATH=/usr/bin:/bin";
    char *const argv[] = {shell, option, text, NULL};
    char *const environment[] = {left, path, NULL};
    const struct spank_agent_start start = {.argv = argv,
                                            .environment = environment,
                                            .user = user(),
                                            .group = getuid() == 0 ? NOBODY : getgid()};
    (void)snprintf(text, sizeof(text), "%s", script);
    (void)snprintf(left, sizeof(left), "LEFT=%s", scene->file);
    return spank_agent_run(&scene->agent, &start, patience_ns, scene->why);
}

static void read_left(const struct scene *scene, char *out, size_t capacity_bytes) {
    int fd = open(scene->file, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    ssize_t n = read(fd, out, capacity_bytes - 1);
    assert_true(n >= 0);
    out[n] = '\0';
    (void)close(fd);
}

static void no_children(void) {
    assert_int_equal(waitpid(-1, NULL, 0), -1);
    assert_int_equal(errno, ECHILD);
}

static void it_flushes_when_it_is_told_to_end(void **unused) {
    (void)unused;
    struct scene scene;
    char text[64];
    set_up(&scene);
    assert_int_equal(run(&scene, "printf 1 >&3; cat <&3 >/dev/null; echo flushed >$LEFT",
                         testing_deadline_ns(30)),
                     0);
    assert_true(spank_agent_is_ready(&scene.agent));
    assert_int_equal(spank_agent_stop(&scene.agent, testing_deadline_ns(30)), SPANK_AGENT_ENDED);
    read_left(&scene, text, sizeof(text));
    assert_string_equal(text, "flushed\n");
    no_children();
    assert_int_equal(spank_agent_stop(&scene.agent, 0), SPANK_AGENT_NONE); /* again is fine */
    tear_down(&scene);
}

static void why_it_did_not_start_is_said(void **unused) {
    (void)unused;
    static char missing[] = "/nowhere/deft-agent";
    char *const argv[] = {missing, NULL};
    const struct spank_agent_start start = {
        .argv = argv, .environment = argv + 1, .user = user(), .group = getgid()};
    const struct spank_agent_start as_root = {.argv = argv, .environment = argv + 1};
    struct scene scene;
    set_up(&scene);
    assert_int_equal(run(&scene, "exit 3", testing_deadline_ns(30)), -1);
    assert_string_equal(scene.why, "/bin/sh has ended with exit status 3 before it was ready");
    no_children();
    assert_int_equal(spank_agent_open(&scene.agent, scene.why), 0);
    assert_int_equal(run(&scene, "kill -9 $$", testing_deadline_ns(30)), -1);
    assert_string_equal(scene.why, "/bin/sh has ended with signal 9 before it was ready");
    no_children();
    assert_int_equal(spank_agent_open(&scene.agent, scene.why), 0);
    assert_int_equal(spank_agent_run(&scene.agent, &start, testing_deadline_ns(30), scene.why), -1);
    assert_string_equal(scene.why, "/nowhere/deft-agent cannot be run: No such file or directory");
    no_children();
    assert_int_equal(spank_agent_open(&scene.agent, scene.why), 0);
    assert_int_equal(spank_agent_run(&scene.agent, &as_root, testing_deadline_ns(30), scene.why),
                     -1);
    assert_non_null(strstr(scene.why, "cannot become user 0 for good"));
    no_children();
    assert_false(spank_agent_is_ready(&scene.agent));
    tear_down(&scene);
}

static void one_that_is_stuck_is_killed(void **unused) {
    (void)unused;
    struct scene scene;
    set_up(&scene);
    assert_int_equal(run(&scene, "exec sleep 1000", INT64_C(100000000)), -1);
    assert_non_null(strstr(scene.why, "was not ready within"));
    no_children();
    assert_int_equal(spank_agent_open(&scene.agent, scene.why), 0);
    assert_int_equal(run(&scene, "printf 1 >&3; exec sleep 1000", testing_deadline_ns(30)), 0);
    assert_int_equal(spank_agent_stop(&scene.agent, INT64_C(100000000)), SPANK_AGENT_KILLED);
    no_children();
    tear_down(&scene);
}

static const char *line_of(const char *text, const char *name) {
    const char *line = strstr(text, name);
    assert_non_null(line);
    return line + strlen(name);
}

/* As slurmstepd calls: user root, effective user the job's, signals blocked and ignored, files open
 * that are not closed by exec. */
static void nothing_of_slurmstepd_is_left_in_it(void **unused) {
    (void)unused;
    struct scene scene;
    static char text[16384];
    char expected[64];
    sigset_t blocked;
    int was_root = getuid() == 0;
    set_up(&scene);
    (void)sigemptyset(&blocked);
    (void)sigaddset(&blocked, SIGTERM);
    (void)sigaddset(&blocked, SIGUSR1);
    assert_int_equal(sigprocmask(SIG_BLOCK, &blocked, NULL), 0);
    (void)signal(SIGUSR2, SIG_IGN);
    for (int fd = 20; fd < 30; fd++) { /* not closed by exec */
        assert_int_equal(dup2(STDERR_FILENO, fd), fd);
    }
    if (was_root) {
        assert_int_equal(setegid(NOBODY), 0);
        assert_int_equal(seteuid(NOBODY), 0);
    }
    int result = run(&scene,
                     "{ cat /proc/self/status; ls -l /proc/$$/fd; cat /proc/$$/oom_score_adj; "
                     "pwd; echo \"env $(env | grep -vc -e ^PWD= -e ^_= )\"; } >$LEFT; printf 1 >&3",
                     testing_deadline_ns(30));
    if (was_root) {
        assert_int_equal(seteuid(0), 0);
        assert_int_equal(setegid(0), 0);
    }
    assert_int_equal(result, 0);
    assert_int_equal(spank_agent_stop(&scene.agent, testing_deadline_ns(30)), SPANK_AGENT_ENDED);
    read_left(&scene, text, sizeof(text));
    (void)snprintf(expected, sizeof(expected), "\t%u\t%u\t%u\t%u\n", user(), user(), user(),
                   user());
    assert_memory_equal(line_of(text, "Uid:"), expected, strlen(expected));
    assert_memory_equal(line_of(text, "CapPrm:"), "\t0000000000000000\n", 18);
    assert_memory_equal(line_of(text, "CapEff:"), "\t0000000000000000\n", 18);
    assert_memory_equal(line_of(text, "NoNewPrivs:"), "\t1\n", 3);
    assert_memory_equal(line_of(text, "SigBlk:"), "\t0000000000000000\n", 18);
    assert_memory_equal(line_of(text, "SigIgn:"), "\t0000000000000000\n", 18);
    assert_memory_equal(line_of(text, " 0 -> "), "/dev/null\n", 10);
    assert_memory_equal(line_of(text, " 2 -> "), "/dev/null\n", 10);
    assert_memory_equal(line_of(text, " 3 -> "), "socket:", 7);
    assert_null(strstr(text, " 20 -> "));
    assert_non_null(strstr(text, "\n0\n/\nenv 2\n"));
    tear_down(&scene);
}

/* Some releases start it from a process that ends before the tasks begin. */
static void slurmstepd_may_start_it_through_a_process_that_ends(void **unused) {
    (void)unused;
    static const char *const scripts[] = {
        "printf 1 >&3; cat <&3 >/dev/null; echo flushed >$LEFT",
        "printf 1 >&3; exec sleep 1000",
    };
    static const enum spank_agent_end ends[] = {SPANK_AGENT_ENDED, SPANK_AGENT_KILLED};
    struct scene scene;
    char text[64];
    int status = 0;
    set_up(&scene);
    for (size_t i = 0; i < 2; i++) {
        pid_t starter = fork();
        if (starter == 0) {
            _exit(run(&scene, scripts[i], testing_deadline_ns(30)) == 0 ? 0 : 1);
        }
        assert_int_equal(waitpid(starter, &status, 0), starter);
        assert_int_equal(status, 0);
        for (int task = 0; task < 3; task++) { /* each sees it, none takes it away */
            pid_t pid = fork();
            if (pid == 0) {
                _exit(spank_agent_is_ready(&scene.agent) ? 0 : 1);
            }
            assert_int_equal(waitpid(pid, &status, 0), pid);
            assert_int_equal(status, 0);
        }
        spank_agent_settle(&scene.agent);
        assert_int_equal(
            spank_agent_stop(&scene.agent, i == 0 ? testing_deadline_ns(30) : INT64_C(100000000)),
            ends[i]);
        assert_int_equal(waitpid(-1, &status, 0) > 0 || errno == ECHILD, 1);
        no_children();
        if (i == 0) {
            read_left(&scene, text, sizeof(text));
            assert_string_equal(text, "flushed\n");
        }
        assert_int_equal(spank_agent_open(&scene.agent, scene.why), 0);
    }
    tear_down(&scene);
}

static void it_ends_with_slurmstepd(void **unused) {
    (void)unused;
    struct scene scene;
    char text[64];
    int status = 0;
    set_up(&scene);
    spank_agent_settle(&scene.agent);
    (void)spank_agent_stop(&scene.agent, 0);
    pid_t stepd = fork();
    if (stepd == 0) {
        if (spank_agent_open(&scene.agent, scene.why) != 0 ||
            run(&scene, "printf 1 >&3; cat <&3 >/dev/null; echo flushed >$LEFT",
                testing_deadline_ns(30)) != 0) {
            _exit(1);
        }
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(stepd, &status, 0), stepd);
    assert_true(WIFSIGNALED(status));
    assert_true(waitpid(-1, &status, 0) > 0); /* the agent is ours now */
    assert_int_equal(status, 0);
    no_children();
    read_left(&scene, text, sizeof(text));
    assert_string_equal(text, "flushed\n");
    tear_down(&scene);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(it_flushes_when_it_is_told_to_end),
    cmocka_unit_test(why_it_did_not_start_is_said),
    cmocka_unit_test(one_that_is_stuck_is_killed),
    cmocka_unit_test(nothing_of_slurmstepd_is_left_in_it),
    cmocka_unit_test(slurmstepd_may_start_it_through_a_process_that_ends),
    cmocka_unit_test(it_ends_with_slurmstepd),
};
TESTING_MAIN(cases)
