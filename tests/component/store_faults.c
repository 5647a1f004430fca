/* Disks that fill up or fail while a controller works: what was acknowledged is there, what was
 * refused is counted and can be sent again, and all goes well once the disk does. */
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/clock.h"
#include "fault_vfs.h"
#include "store_world.h"
#include "testing.h"

#define SECOND_NS STORE_WORLD_SECOND_NS
#define N_RANKS   2u

/* Sends report `seq` of iterations [20 (seq - 1), 20 seq); what came of it. */
static enum deft_status try_report(struct store_world *world, int64_t incarnation, uint64_t seq,
                                   struct deft_error *error) {
    struct wire_iteration rows[20 * N_RANKS];
    struct store_report write;
    store_report_init(&write);
    for (uint32_t i = 0; i < 20 * N_RANKS; i++) {
        rows[i] = store_world_row(i % N_RANKS, (seq - 1) * 20 + i / N_RANKS, 0);
    }
    write.incarnation = incarnation;
    write.report = (struct wire_report){
        .agent = "a", .seq = seq, .n_iterations = 20 * N_RANKS, .iterations = rows};
    write.now_ns = STORE_WORLD_BEGIN_NS + (int64_t)seq * SECOND_NS;
    return store_run(world->store, &write.write, error);
}

/* Every row of the first `n` reports is there, once, and of no other. */
static void expect_reports(const struct store_world *world, uint64_t n) {
    assert_int_equal(store_world_int(world, "SELECT count(*) FROM iterations"), n * 20 * N_RANKS);
    assert_int_equal(store_world_int(world, "SELECT coalesce(max(iteration), -1) FROM iterations"),
                     (int64_t)n * 20 - 1);
    assert_int_equal(store_world_int(world, "SELECT coalesce(max(committed_seq), 0) FROM agents"),
                     n);
}

static void await_health(struct store_world *world) {
    struct store_health health;
    int64_t until_ns = clock_monotonic_ns() + testing_deadline_ns(30);
    do {
        (void)poll(NULL, 0, 20);
        store_health(world->store, &health);
    } while (health.failing && clock_monotonic_ns() < until_ns);
    if (health.failing) {
        fail_msg("still failing: %s", health.text);
    }
    assert_string_equal(health.text, "");
}

/* Sends until one is refused; the number of those that were taken. */
static uint64_t fill_up(struct store_world *world, int64_t id, uint64_t n_taken) {
    struct store_health health;
    struct deft_error error = {0};
    store_health(world->store, &health);
    uint64_t n_refused = health.n_failed;
    while (try_report(world, id, n_taken + 1, &error) == DEFT_OK) {
        n_taken++;
        assert_true(n_taken < 100000);
    }
    assert_int_equal(error.status, DEFT_STORE);
    store_health(world->store, &health);
    assert_true(health.failing);
    assert_int_equal(health.n_failed, n_refused + 1);
    assert_string_equal(health.text, error.text);
    return n_taken;
}

/* Files may not grow any more, and then they may again. */
static void room_that_comes_back_is_used(void **unused) {
    struct store_world world;
    struct rlimit limit;
    uint64_t n = 0;
    (void)unused;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit none = limit;
    store_world_start(&world);
    int64_t id = store_world_register(&world, "job", "start", N_RANKS, STORE_WORLD_BEGIN_NS);
    for (int round = 1; round <= 4; round++) {
        limit.rlim_cur = (rlim_t)round << 20;
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
        n = fill_up(&world, id, n);
        expect_reports(&world, n);
        /* Upkeep cannot work either, and says so. */
        deft_ignore(store_tidy(world.store, STORE_WORLD_BEGIN_NS + 1000 * SECOND_NS, NULL));
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
        await_health(&world); /* though nobody writes */
        assert_int_equal(try_report(&world, id, n + 1, NULL), DEFT_OK);
        n++;
        expect_reports(&world, n);
    }
    store_world_remember(&world);
    store_world_tidy(&world, STORE_WORLD_BEGIN_NS + 10000 * SECOND_NS);
    store_world_check(&world);
    store_world_restart(&world);
    expect_reports(&world, n);
    store_world_stop(&world);
}

/* A file system of 24 MiB of one's own, over `dir`; 0: this machine does not allow it. */
static int mount_small(const char *dir) {
    int code = unshare(CLONE_NEWNS);
    if (code != 0) {
        code = unshare(CLONE_NEWUSER | CLONE_NEWNS);
    }
    return code == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("tmpfs", dir, "tmpfs", 0, "size=24m") == 0;
}

static void a_full_disk_loses_nothing(void **unused) {
    uint64_t random = testing_seed();
    struct store_world world;
    char filler[128];
    uint64_t n = 0;
    (void)unused;
    store_world_start(&world);
    store_close(world.store);
    store_world_remove_files(&world);
    if (!mount_small(world.dir)) {
        (void)rmdir(world.dir);
        testing_skip("no file system may be mounted here");
    }
    (void)snprintf(filler, sizeof(filler), "%s/filler", world.dir);
    assert_int_equal(store_open_with(world.path, &world.options, &world.store, NULL), DEFT_OK);
    int64_t id = store_world_register(&world, "job", "start", N_RANKS, STORE_WORLD_BEGIN_NS);
    for (int round = 0; round < 6; round++) {
        /* Somebody else's file takes nearly all that is left. */
        int fd = open(filler, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        struct statvfs room = {0};
        assert_true(fd >= 0 && fstatvfs(fd, &room) == 0);
        uint64_t n_left = testing_random_below(&random, 400);
        n_left = n_left < room.f_bavail ? n_left : 0;
        assert_int_equal(
            posix_fallocate(fd, 0, (off_t)(room.f_bavail - n_left) * (off_t)room.f_bsize), 0);
        n = fill_up(&world, id, n);
        expect_reports(&world, n);
        if (round % 2 == 1) { /* killed while it is full, in effect: the log stays as it is */
            store_close(world.store);
            struct deft_error error = {0};
            if (store_open_with(world.path, &world.options, &world.store, &error) != DEFT_OK) {
                assert_int_equal(ftruncate(fd, 0), 0);
                assert_int_equal(store_open_with(world.path, &world.options, &world.store, &error),
                                 DEFT_OK);
            }
            expect_reports(&world, n);
        }
        assert_int_equal(ftruncate(fd, 0), 0);
        (void)close(fd);
        await_health(&world);
        assert_int_equal(try_report(&world, id, n + 1, NULL), DEFT_OK);
        /* What is there already is taken out, so that the next round has room again. */
        store_world_sql(&world, "DELETE FROM iterations; DELETE FROM rollups; DELETE FROM upkeep;"
                                "UPDATE agents SET committed_seq = 0");
        n = 0;
    }
    store_close(world.store);
    assert_int_equal(umount2(world.dir, MNT_DETACH), 0);
    assert_int_equal(rmdir(world.dir), 0);
}

/* The n-th write, truncation or sync fails, for every n, once or from then on, and in every way. */
static void every_failing_write_is_survived(void **unused) {
    static const int codes[] = {SQLITE_FULL, SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC};
    int n_hit = 0;
    (void)unused;
    fault_vfs_install();
    for (int n = 0, done = 0; !done; n += n < 24 ? 1 : n / 6) {
        struct store_world world;
        struct store_health health;
        uint64_t n_taken = 0;
        store_world_start(&world);
        int64_t id = store_world_register(&world, "job", "start", N_RANKS, STORE_WORLD_BEGIN_NS);
        store_world_end(&world, "gone", store_world_register(&world, "gone", "start", N_RANKS, 1),
                        1);
        fault_vfs_fail_after(n, n % 4 == 3 ? 1000000 : 1, codes[n % 3]);
        for (int i = 0; i < 4; i++) {
            struct deft_error error = {0};
            enum deft_status status = try_report(&world, id, n_taken + 1, &error);
            assert_true(status == DEFT_OK || status == DEFT_STORE);
            n_taken += status == DEFT_OK;
            store_health(world.store, &health);
            assert_int_equal(health.failing, status != DEFT_OK);
            deft_ignore(store_tidy(world.store, STORE_WORLD_BEGIN_NS + (100 + i * 200) * SECOND_NS,
                                   &error));
        }
        int n_failed = fault_vfs_stop();
        n_hit += n_failed > 0;
        done = n_failed == 0 && n > 24;
        await_health(&world);
        expect_reports(&world, n_taken);
        while (n_taken < 4) {
            n_taken++;
            assert_int_equal(try_report(&world, id, n_taken, NULL), DEFT_OK);
        }
        store_world_remember(&world);
        store_world_tidy(&world, STORE_WORLD_BEGIN_NS + 1000 * SECOND_NS);
        store_world_check(&world);
        assert_int_equal(store_world_int(&world, "SELECT integrity_check = 'ok' FROM"
                                                 " pragma_integrity_check"),
                         1);
        store_world_restart(&world);
        expect_reports(&world, n_taken);
        store_world_stop(&world);
    }
    assert_true(n_hit > 20);
}

/* Overwrites one of the pages that hold a table's rows. */
static void spoil_page(const struct store_world *world, const char *table) {
    static const char noise[200] = {1, 2, 3};
    int64_t page = store_world_int(world,
                                   "SELECT pageno FROM dbstat WHERE name = '%s'"
                                   " AND pagetype = 'leaf' ORDER BY path LIMIT 1 OFFSET 5",
                                   table);
    int fd = open(world->path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, noise, sizeof(noise), (page - 1) * 4096), sizeof(noise));
    (void)close(fd);
}

static void ignore_end(void *context, uint32_t rank, int failed) {
    (void)context;
    (void)rank;
    (void)failed;
}

static enum deft_status ignore_summary(void *context, const char *id, const char *summary) {
    (void)context;
    (void)id;
    (void)summary;
    return DEFT_OK;
}

/* Half a list says that the rest is not there. */
static void a_damaged_page_is_no_shorter_list(void **unused) {
    struct store_world world;
    struct deft_error error = {0};
    const struct store_filter all = {.limit = INT64_MAX};
    uint64_t total = 0;
    (void)unused;
    store_world_start(&world);
    int64_t id = store_world_register(&world, "job", "start", N_RANKS, STORE_WORLD_BEGIN_NS);
    store_world_sql(&world,
                    "INSERT INTO ends WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1"
                    " FROM n WHERE i < 20000) SELECT %lld, i, 0 FROM n;"
                    "INSERT INTO jobs (id, user, state, mode, max_merge, max_delay, summary,"
                    " created_ns, updated_ns) WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL"
                    " SELECT i + 1 FROM n WHERE i < 5000) SELECT 'j' || i, 'me', 'lost', 'observe',"
                    " 1, 1, '{}', i, i FROM n",
                    (long long)id);
    store_world_restart(&world); /* all is in the file now */
    assert_int_equal(store_read_ends(world.store, id, ignore_end, NULL, &error), DEFT_OK);
    store_world_restart(&world);
    spoil_page(&world, "ends");
    spoil_page(&world, "jobs");
    assert_int_equal(store_read_ends(world.store, id, ignore_end, NULL, &error), DEFT_STORE);
    assert_non_null(strstr(error.text, "malformed"));
    assert_int_equal(store_read_jobs(world.store, &all, ignore_summary, NULL, &total, &error),
                     DEFT_STORE);
    assert_non_null(strstr(error.text, "malformed"));
    store_world_stop(&world);
}

/* A page of the past goes bad: its reader and upkeep are told, new reports are taken. */
static void a_damaged_page_stops_only_its_readers(void **unused) {
    struct store_world world;
    struct store_health health;
    struct deft_error error = {0};
    struct json_out out = {0};
    const struct store_range whole = {.to = INT64_MAX, .points = 10};
    (void)unused;
    store_world_start(&world);
    int64_t bad = store_world_register(&world, "bad", "start", N_RANKS, STORE_WORLD_BEGIN_NS);
    int64_t good = store_world_register(&world, "good", "start", N_RANKS, STORE_WORLD_BEGIN_NS);
    /* More than the writer remembers of the file. */
    store_world_iterations(&world, bad, 1, N_RANKS, 0, 20000, STORE_WORLD_BEGIN_NS);
    store_world_iterations(&world, good, 1, N_RANKS, 0, 20000, STORE_WORLD_BEGIN_NS);
    store_world_restart(&world); /* all is in the file now */
    spoil_page(&world, "iterations");
    json_out_begin_object(&out, NULL);
    assert_int_equal(store_print_iterations(world.store, bad, &whole, &out, &error), DEFT_STORE);
    assert_non_null(strstr(error.text, "malformed"));
    json_out_done(&out);
    free(store_world_series(&world, good, 0, INT64_MAX, 10));
    assert_int_equal(store_tidy(world.store, STORE_WORLD_BEGIN_NS + 300 * SECOND_NS, &error),
                     DEFT_STORE);
    store_health(world.store, &health);
    assert_non_null(strstr(health.upkeep_text, "malformed"));
    assert_false(health.failing);
    /* The other job's upkeep goes on, and so do its reports. */
    assert_int_equal(store_world_int(&world,
                                     "SELECT rolled_to FROM upkeep WHERE incarnation = %lld",
                                     (long long)good),
                     19999);
    assert_int_equal(try_report(&world, good, 2000, NULL), DEFT_OK);
    store_world_stop(&world);
}

/* Another program writes for longer than a write waits: it is refused, and taken afterwards. */
static void a_lock_of_another_program_passes(void **unused) {
    struct store_world world;
    struct store_health health;
    sqlite3 *other = NULL;
    struct deft_error error = {0};
    (void)unused;
    store_world_start(&world);
    int64_t id = store_world_register(&world, "job", "start", N_RANKS, STORE_WORLD_BEGIN_NS);
    assert_int_equal(sqlite3_open(world.path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "BEGIN IMMEDIATE", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(try_report(&world, id, 1, &error), DEFT_STORE);
    assert_non_null(strstr(error.text, "locked"));
    store_health(world.store, &health);
    assert_true(health.failing && health.n_failed == 1);
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    await_health(&world);
    assert_int_equal(try_report(&world, id, 1, NULL), DEFT_OK);
    expect_reports(&world, 1);
    (void)sqlite3_close(other);
    store_world_stop(&world);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(room_that_comes_back_is_used),
    cmocka_unit_test(a_full_disk_loses_nothing),
    cmocka_unit_test(every_failing_write_is_survived),
    cmocka_unit_test(a_damaged_page_is_no_shorter_list),
    cmocka_unit_test(a_damaged_page_stops_only_its_readers),
    cmocka_unit_test(a_lock_of_another_program_passes),
};
TESTING_MAIN(cases)
