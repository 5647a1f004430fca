/* deft db and deft-controller db as operators type them, beside a controller at work and without
 * one. */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "controller_child.h"
#include "store_fill.h"
#include "talk.h"
#include "testing.h"

/* Runs `program` db ARGUMENTS; the exit status, what it said in `*out` (malloc'ed; NULL: dropped).
 */
static int run_with(const char *program, const char *const *arguments, char **out) {
    const char *argv[10] = {program, "db"};
    struct child child;
    for (size_t i = 0; arguments[i] != NULL; i++) {
        argv[i + 2] = arguments[i];
    }
    child_start(&child, argv, NULL, -1, 1);
    int status = child_wait(&child);
    if (out != NULL) {
        *out = strdup(child.output != NULL ? child.output : "");
    }
    child_free(&child);
    return status;
}

static int run(char **out, const char *a, const char *b, const char *c, const char *d,
               const char *e, const char *f) {
    const char *const arguments[] = {a, b, c, d, e, f, NULL};
    return run_with(DEFT_CONTROLLER, arguments, out);
}

#define RUN1(out, a)          run(out, a, NULL, NULL, NULL, NULL, NULL)
#define RUN2(out, a, b)       run(out, a, b, NULL, NULL, NULL, NULL)
#define RUN3(out, a, b, c)    run(out, a, b, c, NULL, NULL, NULL)
#define RUN4(out, a, b, c, d) run(out, a, b, c, d, NULL, NULL)

static void expect_word(char *text, const char *word) {
    if (strstr(text, word) == NULL) {
        fail_msg("'%s' is not in: %s", word, text);
    }
    free(text);
}

static void start_filled(struct store_world *world) {
    store_world_start(world);
    (void)store_fill_job(world, "job-1", 20, 5, STORE_WORLD_BEGIN_NS);
    (void)store_fill_job(world, "job-2", 20, 6, STORE_WORLD_BEGIN_NS);
    store_close(world->store);
    world->store = NULL;
}

static const char *beside(const struct store_world *world, const char *name, char out[160]) {
    (void)snprintf(out, 160, "%s/%s", world->dir, name);
    return out;
}

static int64_t bytes_of(const char *path) {
    struct stat stat_of;
    return stat(path, &stat_of) == 0 ? (int64_t)stat_of.st_size : -1;
}

static void check_tells_whole_from_damaged(void **unused) {
    struct store_world world;
    char *text = NULL;
    char path[160];
    uint8_t noise[100] = {1, 2, 3};
    (void)unused;
    start_filled(&world);
    assert_int_equal(RUN2(&text, "check", world.path), 0);
    assert_non_null(strstr(text, "iterations"));
    expect_word(text, "\nwhole\n");
    /* It leaves nothing beside. */
    assert_int_equal(bytes_of(beside(&world, "deft.db-wal", path)), -1);
    assert_int_equal(bytes_of(beside(&world, "deft.db-shm", path)), -1);
    /* References to nothing, a table that is not ours, one that is missing, books that are wrong.
     */
    store_world_sql(&world, "PRAGMA foreign_keys = OFF; DELETE FROM jobs WHERE id = 'job-1'");
    assert_int_equal(RUN2(&text, "check", world.path), 1);
    assert_non_null(strstr(text, "foreign keys: row"));
    expect_word(text, "\ndamaged\n");
    store_world_sql(&world, "CREATE TABLE notes (x); DROP TABLE ends");
    assert_int_equal(RUN2(&text, "check", world.path), 1);
    assert_non_null(strstr(text, "'notes' is not one of ours"));
    expect_word(text, "'ends' is missing");
    store_world_sql(&world, "DELETE FROM upkeep WHERE incarnation = 4");
    assert_int_equal(RUN2(&text, "check", world.path), 1);
    expect_word(text, "books: iterations of incarnation 4");
    /* A page, the header, no database at all. */
    int fd = open(world.path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, noise, sizeof(noise), 81920), sizeof(noise));
    assert_int_equal(RUN2(&text, "check", world.path), 1);
    expect_word(text, "\nintegrity: ");
    assert_int_equal(pwrite(fd, noise, sizeof(noise), 0), sizeof(noise));
    (void)close(fd);
    assert_int_equal(RUN2(&text, "check", world.path), 1);
    expect_word(text, "damaged");
    assert_int_equal(RUN2(&text, "check", "/nowhere/deft.db"), 1);
    expect_word(text, "No such file");
    store_world_stop(&world);
}

static void wrong_command_lines_are_told(void **unused) {
    char *text = NULL;
    (void)unused;
    assert_int_equal(RUN1(&text, NULL), 2);
    expect_word(text, "was expected");
    assert_int_equal(RUN1(&text, "dance"), 2);
    expect_word(text, "was expected");
    assert_int_equal(RUN1(&text, "backup"), 2);
    expect_word(text, "expected is: backup FILE TO");
    assert_int_equal(RUN4(&text, "check", "x", "--as", "y"), 2);
    expect_word(text, "--as belongs to import");
    assert_int_equal(run(&text, "export", "a", "b", "c", "d", NULL), 2);
    expect_word(text, "'d' was not expected");
    assert_int_equal(RUN1(&text, "--help"), 0);
    expect_word(text, "Exit status");
    const char *const help[] = {"--help", NULL};
    assert_int_equal(run_with(DEFT, help, &text), 0);
    expect_word(text, "Exit status");
    const char *const nothing[] = {"check", "/nowhere", NULL};
    assert_int_equal(run_with(DEFT, nothing, NULL), 1);
}

/* A name with a typing error in it makes no database. */
static void what_is_not_there_is_not_made(void **unused) {
    struct store_world world;
    char path[160];
    char lock[168];
    char *text = NULL;
    (void)unused;
    store_world_start(&world);
    (void)beside(&world, "typo.db", path);
    (void)snprintf(lock, sizeof(lock), "%s.lock", path);
    const char *const commands[][6] = {
        {DEFT_CONTROLLER, "db", "keep", path, "job-1", "raw=1d"},
        {DEFT_CONTROLLER, "replay", path, "job-1"},
        {DEFT_CONTROLLER, "token", "list", "--db", path},
        {DEFT_CONTROLLER, "token", "revoke", "x", "--db", path},
    };
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++) {
        const char *argv[7] = {NULL};
        struct child child;
        memcpy(argv, commands[i], sizeof(commands[i]));
        child_start(&child, argv, NULL, -1, 1);
        assert_int_not_equal(child_wait(&child), 0);
        assert_non_null(strstr(child.output, "No such file or directory"));
        child_free(&child);
        assert_int_equal(bytes_of(path), -1);
        assert_int_equal(bytes_of(lock), -1);
    }
    assert_int_equal(RUN4(&text, "keep", world.dir, "job-1", "raw=1d"), 1);
    expect_word(text, "is a folder, but a database was expected");
    store_world_stop(&world);
}

/* --- beside a controller ------------------------------------------------------------------------
 */

static void send_report(const struct controller *c, const char *incarnation, uint64_t seq) {
    char path[160];
    char body[1024];
    (void)snprintf(path, sizeof(path), "/api/v1/incarnations/%s/reports", incarnation);
    (void)snprintf(body, sizeof(body),
                   "{\"agent\":\"a\",\"seq\":%llu,\"iterations\":[[0,%llu,0,1,1,1,1,1,9],"
                   "[1,%llu,0,1,1,1,1,1,9]]}",
                   (unsigned long long)seq, (unsigned long long)seq, (unsigned long long)seq);
    free(talk_expect(c->port, "POST", path, body, 200));
}

static void register_job(const struct controller *c, const char *job) {
    static const char body[] =
        "{\"key\":\"k\",\"agent\":\"a\",\"n_ranks\":2,\"table_hash\":\"0000000000000007\","
        "\"local_ranks\":[0,1],\"tensors\":[{\"name\":\"w\",\"elements\":1000,\"dtype\":\"f32\"}],"
        "\"links\":[{\"name\":\"mem:a\",\"probes\":[[4096,20000],[1048576,900000]]}]}";
    char path[160];
    (void)snprintf(path, sizeof(path), "/api/v1/jobs/%s/incarnations", job);
    free(talk_expect(c->port, "POST", path, body, 201));
}

/* A copy that is made while reports come in is a database of one moment between them. */
static void backups_are_made_beside_a_controller(void **unused) {
    struct controller c = {0};
    struct store_world copy;
    char to[160];
    char *text = NULL;
    uint64_t seq = 0;
    (void)unused;
    controller_child_prepare(&c, NULL);
    controller_child_launch(&c);
    register_job(&c, "j");
    for (int round = 0; round < 5; round++) {
        struct child child;
        (void)snprintf(to, sizeof(to), "%s/copy-%d.db", c.dir, round);
        const char *const argv[] = {DEFT_CONTROLLER, "db", "backup", c.db, to, NULL};
        uint64_t before = seq;
        for (int i = 0; i < 20; i++) {
            send_report(&c, "i1", ++seq);
        }
        child_start(&child, argv, NULL, -1, 1);
        for (int i = 0; i < 40; i++) {
            send_report(&c, "i1", ++seq);
        }
        assert_int_equal(child_wait(&child), 0);
        child_free(&child);
        (void)snprintf(copy.path, sizeof(copy.path), "%.90s", to);
        uint64_t n = (uint64_t)store_world_int(&copy, "SELECT count(*) FROM iterations");
        assert_int_equal(n,
                         2 * (uint64_t)store_world_int(&copy, "SELECT committed_seq FROM agents"));
        assert_true(n >= 2 * (before + 20) && n <= 2 * seq);
        assert_int_equal(RUN2(&text, "check", to), 0);
        expect_word(text, "whole");
    }
    /* Not over anything that is there, and not over itself. */
    assert_int_equal(RUN3(&text, "backup", c.db, to), 1);
    expect_word(text, "is there already");
    assert_int_equal(RUN3(&text, "backup", c.db, c.db), 1);
    expect_word(text, "is there already");
    /* The rest of what may, and may not, be done now. */
    assert_int_equal(RUN2(&text, "check", c.db), 0);
    expect_word(text, "whole");
    assert_int_equal(RUN2(&text, "compact", c.db), 1);
    expect_word(text, "another controller has the database");
    assert_int_equal(RUN3(&text, "repair", c.db, "/tmp/never.db"), 1);
    expect_word(text, "another controller has the database");
    assert_int_equal(RUN3(&text, "import", c.db, to), 1);
    expect_word(text, "is no whole archive of a job");
    assert_int_equal(RUN4(&text, "keep", c.db, "j", "raw=30d,jobs=forever"), 0);
    free(text);
    assert_int_equal(RUN4(&text, "keep", c.db, "nobody", "raw=30d"), 1);
    expect_word(text, "there is no such job");
    assert_int_equal(RUN4(&text, "keep", c.db, "j", "raw=soon"), 1);
    expect_word(text, "expected raw, minutes");
    assert_int_equal(RUN4(&text, "export", c.db, "j", "-"), 0);
    expect_word(text, "{\"schema\":\"deft.job-archive/1\",\"job\":\"j\"");
    send_report(&c, "i1", ++seq);
    (void)controller_child_halt(&c, SIGTERM);
    (void)snprintf(copy.path, sizeof(copy.path), "%.90s", c.db);
    assert_int_equal(store_world_int(&copy, "SELECT raw_ns / 86400000000000 FROM job_keep"), 30);
    assert_int_equal(store_world_int(&copy, "SELECT count(*) FROM audit WHERE action = 'job.keep'"
                                            " AND who LIKE 'local:_%%'"),
                     1);
    for (int round = 0; round < 5; round++) {
        (void)snprintf(to, sizeof(to), "%s/copy-%d.db", c.dir, round);
        assert_int_equal(unlink(to), 0);
    }
    controller_child_clean(&c);
}

/* --- without one --------------------------------------------------------------------------------
 */

static void compacting_keeps_everything(void **unused) {
    struct store_world world;
    char *text = NULL;
    (void)unused;
    start_filled(&world);
    store_world_sql(&world, "CREATE TABLE t (x); INSERT INTO t SELECT randomblob(4000000);"
                            "DROP TABLE t");
    /* One as schema 2 left it, which cannot give pages back. */
    store_world_sql(&world, "PRAGMA journal_mode = DELETE; PRAGMA auto_vacuum = NONE; VACUUM");
    store_world_sql(&world, "CREATE TABLE t (x); INSERT INTO t SELECT randomblob(4000000);"
                            "DROP TABLE t");
    assert_int_equal(store_world_int(&world, "PRAGMA auto_vacuum"), 0);
    uint64_t sum = store_fill_sum(world.path);
    int64_t before = bytes_of(world.path);
    const char *const arguments[] = {"compact", world.path, NULL};
    assert_int_equal(run_with(DEFT, arguments, &text), 0);
    expect_word(text, "B, before 4.7 MB");
    assert_true(bytes_of(world.path) < before - 3900000);
    assert_true(store_fill_sum(world.path) == sum);
    assert_int_equal(store_world_int(&world, "PRAGMA auto_vacuum"), 2);
    assert_int_equal(RUN2(&text, "check", world.path), 0);
    expect_word(text, "whole");
    /* Another program has it open: not under its feet. */
    sqlite3 *other = NULL;
    assert_int_equal(sqlite3_open(world.path, &other), SQLITE_OK);
    assert_int_equal(sqlite3_exec(other, "PRAGMA journal_mode = WAL; BEGIN; SELECT * FROM jobs",
                                  NULL, NULL, NULL),
                     SQLITE_OK);
    assert_int_equal(RUN2(&text, "compact", world.path), 1);
    expect_word(text, "another program has the database");
    (void)sqlite3_close(other);
    assert_true(store_fill_sum(world.path) == sum);
    store_world_stop(&world);
}

static void no_room_leaves_all_as_it_was(void **unused) {
    static const struct rlimit small = {1 << 20, RLIM_INFINITY};
    static const struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
    struct store_world world;
    char to[160];
    char *text = NULL;
    (void)unused;
    store_world_start(&world);
    (void)store_fill_job(&world, "job", 300, 5, STORE_WORLD_BEGIN_NS);
    store_close(world.store);
    world.store = NULL;
    uint64_t sum = store_fill_sum(world.path);
    (void)signal(SIGXFSZ, SIG_IGN); /* children inherit both */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    (void)beside(&world, "to", to);
    assert_int_equal(RUN3(&text, "backup", world.path, to), 1);
    free(text);
    assert_int_equal(RUN3(&text, "repair", world.path, to), 1);
    free(text);
    assert_int_equal(RUN4(&text, "export", world.path, "job", to), 1);
    expect_word(text, "cannot be written");
    assert_int_equal(RUN2(&text, "compact", world.path), 1);
    free(text);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    assert_int_equal(bytes_of(to), -1);
    (void)beside(&world, "to.partial", to);
    assert_int_equal(bytes_of(to), -1);
    (void)beside(&world, "deft.db.new", to);
    assert_int_equal(bytes_of(to), -1);
    assert_true(store_fill_sum(world.path) == sum);
    store_world_stop(&world);
}

static void repair_tells_what_was_lost(void **unused) {
    struct store_world world;
    char to[160];
    char *text = NULL;
    uint8_t noise[4096] = {0x77};
    (void)unused;
    start_filled(&world);
    int64_t page = store_world_int(&world, "SELECT pageno FROM dbstat WHERE name = 'iterations' AND"
                                           " pagetype = 'leaf' LIMIT 1 OFFSET 2");
    int fd = open(world.path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, noise, sizeof(noise), (page - 1) * 4096), sizeof(noise));
    (void)close(fd);
    (void)beside(&world, "new.db", to);
    assert_int_equal(RUN3(&text, "repair", world.path, to), 0);
    assert_non_null(strstr(text, "1 of "));
    expect_word(text, "pages cannot be read");
    assert_int_equal(RUN2(&text, "check", to), 0);
    expect_word(text, "whole");
    store_world_stop(&world);
}

/* From one controller to another through a pipe, as a shell would. */
static void jobs_travel(void **unused) {
    struct store_world world;
    struct store_world there;
    char archive[160];
    char *text = NULL;
    (void)unused;
    start_filled(&world);
    store_world_start(&there);
    store_close(there.store);
    there.store = NULL;
    (void)beside(&world, "job.json.gz", archive);
    assert_int_equal(RUN4(NULL, "export", world.path, "job-2", archive), 0);
    assert_int_equal(RUN3(&text, "import", there.path, archive), 0);
    assert_string_equal(text, "job-2\n");
    free(text);
    assert_int_equal(RUN3(&text, "import", there.path, archive), 1);
    expect_word(text, "give it another name with --as");
    assert_int_equal(run(&text, "import", there.path, archive, "--as", "job-3", NULL), 0);
    assert_string_equal(text, "job-3\n");
    free(text);
    assert_int_equal(store_world_int(&there, "SELECT count(*) FROM jobs"), 2);
    assert_int_equal(store_world_int(&there, "SELECT count(*) FROM iterations"),
                     store_world_int(&world, "SELECT count(*) FROM iterations"));
    store_world_stop(&there);
    store_world_stop(&world);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(check_tells_whole_from_damaged),
    cmocka_unit_test(wrong_command_lines_are_told),
    cmocka_unit_test(what_is_not_there_is_not_made),
    cmocka_unit_test(backups_are_made_beside_a_controller),
    cmocka_unit_test(compacting_keeps_everything),
    cmocka_unit_test(no_room_leaves_all_as_it_was),
    cmocka_unit_test(repair_tells_what_was_lost),
    cmocka_unit_test(jobs_travel),
};
TESTING_MAIN(cases)
