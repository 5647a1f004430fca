/* The real agent and its files, while the controller is away, and across the agent's own end. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "child.h"
#include "controller_peer.h"
#include "ipc_rank.h"
#include "testing.h"

#define N_RANKS      4
#define N_ITERATIONS 4000u

struct setting {
    struct controller_peer *peer;
    uint16_t port;
    struct child agent;
    int owner_fd;
    char socket[64];
    char dir[64]; /* of the test */
    char spool[80];
    const char *limit; /* "--spool-bytes=N"; NULL: the default */
    struct ipc_rank ranks[N_RANKS];
};

static void start_agent(struct setting *setting, const char *job) {
    int fds[2];
    char byte;
    char url[64];
    char spool[96];
    (void)snprintf(setting->socket, sizeof(setting->socket), "@agent-spool-%ld", (long)getpid());
    (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u", setting->port);
    (void)snprintf(spool, sizeof(spool), "--spool-dir=%s", setting->spool);
    const char *argv[] = {DEFT_AGENT,
                          "--socket",
                          setting->socket,
                          "--controller",
                          url,
                          "--ready-fd=3",
                          "--exit-with-fd=3",
                          spool,
                          job != NULL ? job : setting->limit,
                          job != NULL ? setting->limit : NULL,
                          NULL};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    child_start(&setting->agent, argv, NULL, fds[1], 1);
    (void)close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 1);
    setting->owner_fd = fds[0];
}

/* With a port on which nobody listens yet. */
static void set_up(struct setting *setting) {
    *setting = (struct setting){.dir = "/tmp/agent-spool-XXXXXX"};
    assert_non_null(mkdtemp(setting->dir));
    (void)snprintf(setting->spool, sizeof(setting->spool), "%s/spool", setting->dir);
    struct controller_peer *reserved = controller_peer_start(0);
    setting->port = controller_peer_port(reserved);
    controller_peer_stop(reserved);
}

static void end_agent(struct setting *setting) {
    (void)close(setting->owner_fd);
    assert_int_equal(child_wait(&setting->agent), 0);
}

static void kill_agent(struct setting *setting) {
    assert_int_equal(kill(setting->agent.pid, SIGKILL), 0);
    assert_int_equal(child_wait(&setting->agent), 128 + SIGKILL);
    (void)close(setting->owner_fd);
    child_free(&setting->agent);
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

static void tear_down(struct setting *setting) {
    child_free(&setting->agent);
    if (setting->peer != NULL) {
        controller_peer_stop(setting->peer);
    }
    assert_int_equal(nftw(setting->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void join_all(struct setting *setting) {
    for (int32_t i = 0; i < N_RANKS; i++) {
        ipc_rank_join(&setting->ranks[i], setting->socket, i, N_RANKS, "job", "job/1");
    }
}

static void send_all(struct setting *setting, uint64_t first, uint32_t n) {
    for (uint32_t done = 0; done < n; done += 100) {
        for (size_t i = 0; i < N_RANKS; i++) {
            ipc_rank_iterations(&setting->ranks[i], first + done, 100, 0);
        }
    }
}

static void leave_all(struct setting *setting) {
    for (size_t i = 0; i < N_RANKS; i++) {
        ipc_rank_event(&setting->ranks[i], IPC_EVENT_FINISHED, 0);
        ipc_rank_leave(&setting->ranks[i]);
    }
}

struct files {
    unsigned n_folders;
    unsigned n_reports;
    uint64_t n_bytes; /* of reports, in blocks of 4 KiB */
    uint64_t n_iterations;
    char first[1024]; /* path of one report */
};

static void count_report(struct files *files, const char *path, const char *name) {
    struct stat info;
    const char *place = strchr(strchr(name, '-') + 1, '-');
    if (stat(path, &info) != 0) {
        return; /* just delivered */
    }
    files->n_reports++;
    files->n_bytes += (uint64_t)(info.st_size + 4095) / 4096 * 4096;
    files->n_iterations += strtoull(place + 1, NULL, 10);
    (void)snprintf(files->first, sizeof(files->first), "%s", path);
}

static struct files look(const struct setting *setting) {
    struct files files = {0};
    DIR *dir = opendir(setting->spool);
    for (struct dirent *entry = dir != NULL ? readdir(dir) : NULL; entry != NULL;
         entry = readdir(dir)) {
        char path[512];
        if (entry->d_name[0] == '.') {
            continue;
        }
        files.n_folders++;
        (void)snprintf(path, sizeof(path), "%s/%s", setting->spool, entry->d_name);
        DIR *folder = opendir(path);
        for (struct dirent *file = folder != NULL ? readdir(folder) : NULL; file != NULL;
             file = readdir(folder)) {
            size_t length = strlen(file->d_name);
            char place[1024];
            if (length > 7 && strcmp(file->d_name + length - 7, ".report") == 0) {
                (void)snprintf(place, sizeof(place), "%s/%s", path, file->d_name);
                count_report(&files, place, file->d_name);
            }
        }
        if (folder != NULL) {
            (void)closedir(folder);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
    return files;
}

/* Until at least so many iterations are on disk. */
static struct files await_files(const struct setting *setting, uint64_t n_iterations) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(20);
    struct files files = look(setting);
    while (files.n_iterations < n_iterations) {
        struct timespec tick = {.tv_nsec = 5000000};
        assert_true(clock_monotonic_ns() < until_ns);
        (void)nanosleep(&tick, NULL);
        files = look(setting);
    }
    return files;
}

static void await_empty(const struct setting *setting) {
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(20);
    while (look(setting).n_reports > 0) {
        struct timespec tick = {.tv_nsec = 5000000};
        assert_true(clock_monotonic_ns() < until_ns);
        (void)nanosleep(&tick, NULL);
    }
}

static void expect_all_once(struct setting *setting) {
    for (unsigned i = 0; i < N_RANKS; i++) {
        controller_peer_await_iterations(setting->peer, i, N_ITERATIONS);
    }
    assert_int_equal(controller_peer_most_counted(setting->peer), 1);
    assert_int_equal(controller_peer_gaps(setting->peer), 0);
}

static void what_memory_does_not_hold_waits_on_disk(void **unused) {
    (void)unused;
    struct setting setting;
    set_up(&setting);
    start_agent(&setting, NULL);
    join_all(&setting);
    send_all(&setting, 0, N_ITERATIONS);
    (void)await_files(&setting, N_ITERATIONS);
    setting.peer = controller_peer_start(setting.port);
    expect_all_once(&setting);
    await_empty(&setting);
    leave_all(&setting);
    controller_peer_await_event(setting.peer, "finished", 0);
    end_agent(&setting);
    assert_int_equal(look(&setting).n_folders, 0);
    tear_down(&setting);
}

/* A whole job without a controller. */
static void leave_job_behind(struct setting *setting) {
    set_up(setting);
    start_agent(setting, NULL);
    join_all(setting);
    send_all(setting, 0, N_ITERATIONS);
    leave_all(setting);
    end_agent(setting);
}

static void a_controller_that_was_away_for_the_whole_job_gets_everything(void **unused) {
    (void)unused;
    struct setting setting;
    leave_job_behind(&setting);
    assert_non_null(strstr(setting.agent.output, "for the next agent of the job"));
    assert_int_equal(look(&setting).n_iterations, N_RANKS * N_ITERATIONS);
    child_free(&setting.agent);
    setting.peer = controller_peer_start(setting.port);
    start_agent(&setting, "--job=other"); /* which is not its affair */
    end_agent(&setting);
    child_free(&setting.agent);
    assert_int_equal(look(&setting).n_iterations, N_RANKS * N_ITERATIONS);
    start_agent(&setting, "--job=job");
    expect_all_once(&setting);
    controller_peer_await_event(setting.peer, "finished", 0);
    await_empty(&setting);
    end_agent(&setting);
    assert_int_equal(look(&setting).n_folders, 0);
    tear_down(&setting);
}

static void a_killed_agent_is_followed_without_a_loss_or_a_repeat(void **unused) {
    (void)unused;
    struct setting setting;
    unsigned n_arrived = 0;
    set_up(&setting);
    setting.peer = controller_peer_start(setting.port);
    controller_peer_lose_answers(setting.peer, 1); /* the first report is committed, and no more */
    start_agent(&setting, NULL);
    join_all(&setting);
    send_all(&setting, 0, N_ITERATIONS);
    (void)await_files(&setting, N_ITERATIONS);
    kill_agent(&setting);
    struct files files = look(&setting);
    controller_peer_lose_answers(setting.peer, 0);
    unsigned n_repeats = controller_peer_repeats(setting.peer);
    start_agent(&setting, "--job=job");
    await_empty(&setting);
    for (unsigned i = 0; i < N_RANKS; i++) {
        n_arrived += controller_peer_iterations(setting.peer, i);
    }
    assert_int_equal(n_arrived, files.n_iterations);
    assert_int_equal(controller_peer_most_counted(setting.peer), 1);
    assert_int_equal(controller_peer_gaps(setting.peer), 0);
    assert_int_equal(controller_peer_repeats(setting.peer), n_repeats);
    for (size_t i = 0; i < N_RANKS; i++) {
        ipc_rank_leave(&setting.ranks[i]);
    }
    end_agent(&setting);
    assert_int_equal(look(&setting).n_folders, 0);
    tear_down(&setting);
}

/* What a proxy, say, answers in the controller's place is no refusal. */
static void an_answer_of_something_else_gives_nothing_up(void **unused) {
    (void)unused;
    struct setting setting;
    leave_job_behind(&setting);
    child_free(&setting.agent);
    setting.peer = controller_peer_start(setting.port);
    controller_peer_be_other(setting.peer, 1);
    start_agent(&setting, "--job=job");
    controller_peer_await_registrations(setting.peer, 2);
    controller_peer_be_other(setting.peer, 0);
    expect_all_once(&setting);
    await_empty(&setting);
    end_agent(&setting);
    tear_down(&setting);
}

static void a_torn_file_is_skipped_and_counted(void **unused) {
    (void)unused;
    struct setting setting;
    unsigned n_arrived = 0;
    set_up(&setting);
    start_agent(&setting, NULL);
    join_all(&setting);
    send_all(&setting, 0, N_ITERATIONS);
    (void)await_files(&setting, N_ITERATIONS);
    kill_agent(&setting);
    struct files files = look(&setting);
    assert_int_equal(truncate(files.first, 1000), 0);
    setting.peer = controller_peer_start(setting.port);
    start_agent(&setting, "--job=job");
    child_await_output(&setting.agent, "a spool file is skipped, 1 so far");
    await_empty(&setting);
    for (unsigned i = 0; i < N_RANKS; i++) {
        n_arrived += controller_peer_iterations(setting.peer, i);
    }
    assert_true(n_arrived < files.n_iterations && n_arrived + 2048 > files.n_iterations);
    assert_int_equal(controller_peer_most_counted(setting.peer), 1);
    for (size_t i = 0; i < N_RANKS; i++) {
        ipc_rank_leave(&setting.ranks[i]);
    }
    end_agent(&setting);
    tear_down(&setting);
}

static unsigned count_text(const char *text, const char *part) {
    unsigned n = 0;
    for (const char *place = strstr(text, part); place != NULL; place = strstr(place + 1, part)) {
        n++;
    }
    return n;
}

/* A disk that takes nothing: memory has to do, with one warning. */
static void expect_memory_to_do(struct setting *setting) {
    join_all(setting);
    send_all(setting, 0, N_ITERATIONS);
    child_await_output(&setting->agent, "reports stay in memory");
    setting->peer = controller_peer_start(setting->port);
    expect_all_once(setting);
    leave_all(setting);
    controller_peer_await_event(setting->peer, "finished", 0);
    end_agent(setting);
    assert_int_equal(count_text(setting->agent.output, "reports stay in memory"), 1);
    assert_int_equal(look(setting).n_folders, 0);
    tear_down(setting);
}

static void a_full_disk_leaves_memory(void **unused) {
    (void)unused;
    struct setting setting;
    struct rlimit before;
    struct rlimit small;
    set_up(&setting);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 4096; /* the start fits, a report of 256 iterations does not */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    start_agent(&setting, NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    expect_memory_to_do(&setting);
}

/* In a name space of the test's own, so that no mount is left behind. */
static void a_small_file_system_is_filled_and_then_memory_used(void **unused) {
    (void)unused;
    struct setting setting;
    set_up(&setting);
    assert_int_equal(mkdir(setting.spool, 0700), 0);
    if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
        mount("none", setting.spool, "tmpfs", 0, "size=256k") != 0) {
        (void)rmdir(setting.spool);
        (void)rmdir(setting.dir);
        testing_skip("file systems can be mounted by root only");
    }
    start_agent(&setting, NULL);
    join_all(&setting);
    send_all(&setting, 0, N_ITERATIONS);
    child_await_output(&setting.agent, "No space left on device");
    assert_true(look(&setting).n_iterations > 0);
    setting.peer = controller_peer_start(setting.port);
    expect_all_once(&setting);
    leave_all(&setting);
    end_agent(&setting);
    assert_int_equal(count_text(setting.agent.output, "reports stay in memory"), 1);
    assert_int_equal(look(&setting).n_folders, 0);
    assert_int_equal(umount(setting.spool), 0);
    tear_down(&setting);
}

static void a_folder_that_cannot_be_made_leaves_memory(void **unused) {
    (void)unused;
    struct setting setting;
    set_up(&setting);
    /* A file is in the way, which stops root too. */
    int fd = open(setting.spool, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    start_agent(&setting, NULL);
    expect_memory_to_do(&setting);
}

static void the_bound_holds_and_what_is_lost_is_told(void **unused) {
    (void)unused;
    struct setting setting;
    unsigned n_arrived = 0;
    set_up(&setting);
    setting.limit = "--spool-bytes=524288";
    start_agent(&setting, NULL);
    join_all(&setting);
    for (uint32_t i = 0; i < N_ITERATIONS; i += 1000) {
        send_all(&setting, i, 1000);
        assert_true(look(&setting).n_bytes <= 524288 + 65536); /* a file may go while we look */
    }
    (void)await_files(&setting, 100);
    setting.peer = controller_peer_start(setting.port);
    leave_all(&setting);
    controller_peer_await_event(setting.peer, "finished", 0);
    controller_peer_await_event(setting.peer, "dropped", 0);
    await_empty(&setting);
    end_agent(&setting);
    for (unsigned i = 0; i < N_RANKS; i++) {
        n_arrived += controller_peer_iterations(setting.peer, i);
    }
    assert_true(n_arrived > 0 && n_arrived < N_RANKS * N_ITERATIONS);
    assert_int_equal(controller_peer_most_counted(setting.peer), 1);
    tear_down(&setting);
}

static void make_leftover(const struct setting *setting, const char *name, time_t age_s) {
    char path[256];
    char file[300];
    struct timespec times[2] = {{.tv_sec = time(NULL) - age_s}, {.tv_sec = time(NULL) - age_s}};
    (void)snprintf(path, sizeof(path), "%s/%s", setting->spool, name);
    (void)snprintf(file, sizeof(file), "%s/000001-0000000000000001-1-0-0.report", path);
    assert_int_equal(mkdir(path, 0700), 0);
    int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    (void)close(fd);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
}

static int exists(const struct setting *setting, const char *name) {
    char path[256];
    (void)snprintf(path, sizeof(path), "%s/%s", setting->spool, name);
    return access(path, F_OK) == 0;
}

static void leftovers_go_after_a_day_and_nothing_else(void **unused) {
    (void)unused;
    struct setting setting;
    set_up(&setting);
    assert_int_equal(mkdir(setting.spool, 0700), 0);
    make_leftover(&setting, "elsewhere-1-2-3.spool", 90000);
    make_leftover(&setting, "elsewhere-4-5-6.spool", 80000);
    make_leftover(&setting, "precious", 90000);
    setting.peer = controller_peer_start(setting.port);
    start_agent(&setting, "--job=job");
    end_agent(&setting);
    assert_false(exists(&setting, "elsewhere-1-2-3.spool"));
    assert_true(exists(&setting, "elsewhere-4-5-6.spool"));
    assert_true(exists(&setting, "precious"));
    assert_false(exists(&setting, "precious/lock"));
    tear_down(&setting);
}

static uint64_t resident_bytes(pid_t pid) {
    char path[64];
    unsigned long long pages[2] = {0, 0};
    char text[256] = "";
    (void)snprintf(path, sizeof(path), "/proc/%ld/statm", (long)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_true(read(fd, text, sizeof(text) - 1) > 0);
    (void)close(fd);
    char *rest = text;
    pages[0] = strtoull(rest, &rest, 10);
    pages[1] = strtoull(rest, NULL, 10);
    assert_true(pages[0] > 0);
    return pages[1] * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void a_large_spool_leaves_the_agent_small(void **unused) {
    (void)unused;
    struct setting setting;
    set_up(&setting);
    start_agent(&setting, NULL);
    join_all(&setting);
    struct files files = {0};
    for (unsigned i = 1; i <= 10; i++) { /* not faster than a busy machine's disk takes them */
        send_all(&setting, (uint64_t)i * 4000, 4000);
        files = await_files(&setting, (uint64_t)i * N_RANKS * 4000 - 8000);
    }
    uint64_t n_bytes = resident_bytes(setting.agent.pid);
    print_message("%llu bytes on disk, %llu resident\n", (unsigned long long)files.n_bytes,
                  (unsigned long long)n_bytes);
#ifndef DEFT_SPOOL_SANITIZED
    assert_true(n_bytes < 20u << 20);
#endif
    kill_agent(&setting);
    for (size_t i = 0; i < N_RANKS; i++) {
        ipc_rank_leave(&setting.ranks[i]);
    }
    tear_down(&setting);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(what_memory_does_not_hold_waits_on_disk),
    cmocka_unit_test(a_controller_that_was_away_for_the_whole_job_gets_everything),
    cmocka_unit_test(a_killed_agent_is_followed_without_a_loss_or_a_repeat),
    cmocka_unit_test(an_answer_of_something_else_gives_nothing_up),
    cmocka_unit_test(a_torn_file_is_skipped_and_counted),
    cmocka_unit_test(a_full_disk_leaves_memory),
    cmocka_unit_test(a_small_file_system_is_filled_and_then_memory_used),
    cmocka_unit_test(a_folder_that_cannot_be_made_leaves_memory),
    cmocka_unit_test(the_bound_holds_and_what_is_lost_is_told),
    cmocka_unit_test(leftovers_go_after_a_day_and_nothing_else),
    cmocka_unit_test(a_large_spool_leaves_the_agent_small),
};
TESTING_MAIN(cases)
