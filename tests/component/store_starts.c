/* What may lie in the place of the database, or be wrong with it, when a controller starts: each
 * has its sentence, and nothing is touched. */
#include <fcntl.h>
#include <linux/magic.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store_world.h"
#include "testing.h"

#define NOBODY 65534

/* A world whose database is closed. */
static void start_closed(struct store_world *world, uint32_t n_iterations) {
    store_world_start(world);
    int64_t id = store_world_register(world, "job", "start", 2, STORE_WORLD_BEGIN_NS);
    if (n_iterations > 0) {
        store_world_iterations(world, id, 1, 2, 0, n_iterations, STORE_WORLD_BEGIN_NS);
    }
    store_close(world->store);
    world->store = NULL;
}

static size_t read_all(const char *path, char **out) {
    struct stat stat_of = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0 && fstat(fd, &stat_of) == 0);
    *out = malloc((size_t)stat_of.st_size + 1);
    assert_non_null(*out);
    assert_int_equal(read(fd, *out, (size_t)stat_of.st_size), stat_of.st_size);
    (void)close(fd);
    return (size_t)stat_of.st_size;
}

static void write_all(const char *path, const void *bytes, size_t n_bytes) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n_bytes), n_bytes);
    (void)close(fd);
}

static void overwrite(const char *path, off_t at, const void *bytes, size_t n_bytes) {
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, n_bytes, at), n_bytes);
    (void)close(fd);
}

/* Refused with one sentence that has the path and `words`; the file stays as it is. */
static void expect_refusal(const struct store_world *world, const char *words) {
    struct store *store = NULL;
    struct deft_error error = {0};
    struct stat stat_of;
    char *before = NULL;
    char *after = NULL;
    int is_file = stat(world->path, &stat_of) == 0 && S_ISREG(stat_of.st_mode);
    size_t n_before = is_file ? read_all(world->path, &before) : 0;
    assert_int_not_equal(store_open(world->path, &store, &error), DEFT_OK);
    assert_null(store);
    if (strstr(error.text, words) == NULL || strstr(error.text, world->path) == NULL ||
        strchr(error.text, '\n') != NULL) {
        fail_msg("expected '%s', got: %s", words, error.text);
    }
    if (is_file) {
        size_t n_after = read_all(world->path, &after);
        assert_int_equal(n_after, n_before);
        assert_memory_equal(after, before, n_before);
    }
    free(before);
    free(after);
}

/* --- other things in its place ------------------------------------------------------------------
 */

static void what_is_no_database_is_refused(void **unused) {
    static const char text[] = "Dear diary, today I was put where a database should be.";
    struct store_world world;
    (void)unused;
    start_closed(&world, 0);
    write_all(world.path, "", 0);
    expect_refusal(&world, "is empty");
    write_all(world.path, text, sizeof(text) - 1);
    expect_refusal(&world, "is no database, or its header is damaged");
    write_all(world.path, "SQLi", 4);
    expect_refusal(&world, "is no database, or its header is damaged");
    assert_int_equal(unlink(world.path), 0);
    assert_int_equal(mkdir(world.path, 0700), 0);
    expect_refusal(&world, "is a folder");
    assert_int_equal(rmdir(world.path), 0);
    assert_int_equal(mkfifo(world.path, 0600), 0);
    expect_refusal(&world, "is no regular file");
    store_world_stop(&world);
}

static void other_programs_databases_are_refused(void **unused) {
    static const char *const others[] = {
        "CREATE TABLE notes (x)",
        "PRAGMA user_version = 2; CREATE TABLE notes (x)",
        ("PRAGMA application_id = 252006673; CREATE TABLE jobs (x); CREATE TABLE incarnations (x);"
         "CREATE TABLE iterations (x); PRAGMA user_version = 2"),
        "PRAGMA user_version = 7",
    };
    struct store_world world;
    (void)unused;
    start_closed(&world, 0);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        assert_int_equal(unlink(world.path), 0);
        store_world_sql(&world, "%s", others[i]);
        expect_refusal(&world, "is a database of another program");
    }
    store_world_stop(&world);
}

/* A log whose database has gone must not be applied to a new one. */
static void a_log_without_its_database_is_refused(void **unused) {
    struct store_world world;
    char log[128];
    (void)unused;
    start_closed(&world, 0);
    (void)snprintf(log, sizeof(log), "%s-wal", world.path);
    assert_int_equal(unlink(world.path), 0);
    write_all(log, "something", 9);
    expect_refusal(&world, "there is no database");
    assert_int_not_equal(access(world.path, F_OK), 0);
    assert_int_equal(unlink(log), 0);
    assert_int_equal(store_open(world.path, &world.store, NULL), DEFT_OK);
    store_world_stop(&world);
}

/* --- damage -------------------------------------------------------------------------------------
 */

/* Any byte of the header: refused, or of no consequence. */
static void a_damaged_header_is_refused(void **unused) {
    uint64_t random = testing_seed();
    struct store_world world;
    struct deft_error error = {0};
    char *good = NULL;
    int n_refused = 0;
    (void)unused;
    start_closed(&world, 10);
    size_t n_bytes = read_all(world.path, &good);
    for (off_t at = 0; at < 108; at++) {
        uint8_t byte = (uint8_t)(good[at] + 1 + (int)testing_random_below(&random, 255));
        write_all(world.path, good, n_bytes);
        overwrite(world.path, at, &byte, 1);
        if (store_open(world.path, &world.store, &error) == DEFT_OK) {
            assert_int_equal(store_world_int(&world, "SELECT count(*) FROM iterations"), 20);
            store_close(world.store);
        } else {
            assert_non_null(strstr(error.text, world.path));
            assert_null(strchr(error.text, '\n'));
            n_refused++;
        }
    }
    assert_true(n_refused > 40);
    write_all(world.path, good, n_bytes);
    assert_int_equal(store_open(world.path, &world.store, NULL), DEFT_OK);
    free(good);
    store_world_stop(&world);
}

static void a_file_that_was_cut_off_is_refused(void **unused) {
    struct store_world world;
    (void)unused;
    start_closed(&world, 2000);
    int64_t n_bytes = store_world_int(&world, "SELECT page_count * page_size FROM"
                                              " pragma_page_count, pragma_page_size");
    assert_int_equal(truncate(world.path, n_bytes - 4096), 0);
    expect_refusal(&world, "");
    assert_int_equal(truncate(world.path, n_bytes / 2 / 4096 * 4096), 0);
    expect_refusal(&world, "");
    store_world_stop(&world);
}

/* Whatever page it is, of a small database it is noticed. */
static void a_damaged_page_is_refused(void **unused) {
    uint64_t random = testing_seed();
    struct store_world world;
    char *good = NULL;
    uint8_t noise[64];
    (void)unused;
    start_closed(&world, 2000);
    size_t n_bytes = read_all(world.path, &good);
    int64_t n_pages = store_world_int(&world, "PRAGMA page_count");
    int64_t n_free = store_world_int(&world, "PRAGMA freelist_count");
    assert_int_equal(n_free, 0);
    for (int round = 0; round < 40; round++) {
        /* The head of a page: what is in its rows no check can know. Not that of pointers. */
        int64_t page = 3 + (int64_t)testing_random_below(&random, (uint64_t)n_pages - 2);
        for (size_t i = 0; i < sizeof(noise); i++) {
            noise[i] = (uint8_t)testing_random(&random);
        }
        write_all(world.path, good, n_bytes);
        overwrite(world.path, (off_t)(page - 1) * 4096, noise, sizeof(noise));
        expect_refusal(&world, "is damaged");
    }
    free(good);
    store_world_stop(&world);
}

/* --- others at it -------------------------------------------------------------------------------
 */

static void a_locked_database_is_refused(void **unused) {
    struct store_world world;
    sqlite3 *other = NULL;
    (void)unused;
    start_closed(&world, 10);
    assert_int_equal(sqlite3_open(world.path, &other), SQLITE_OK);
    assert_int_equal(
        sqlite3_exec(other, "BEGIN IMMEDIATE; UPDATE jobs SET user = 'x'", NULL, NULL, NULL),
        SQLITE_OK);
    expect_refusal(&world, "another program keeps the database");
    assert_int_equal(sqlite3_exec(other, "ROLLBACK", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(store_open(world.path, &world.store, NULL), DEFT_OK);
    /* One that only reads is no hindrance, even while it reads. */
    store_close(world.store);
    assert_int_equal(
        sqlite3_exec(other, "BEGIN; SELECT count(*) FROM iterations", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(store_open(world.path, &world.store, NULL), DEFT_OK);
    (void)sqlite3_close(other);
    store_world_stop(&world);
}

static void a_second_opening_is_refused(void **unused) {
    struct store_world world;
    struct store *second = NULL;
    struct deft_error error = {0};
    (void)unused;
    store_world_start(&world);
    assert_int_equal(store_open(world.path, &second, &error), DEFT_STATE);
    assert_non_null(strstr(error.text, "another controller has the database"));
    store_world_stop(&world);
}

/* What an unprivileged process is told; `out` is shared with it. */
struct told {
    enum deft_status status;
    char text[DEFT_ERROR_TEXT_BYTES];
};

static void open_as_nobody(const struct store_world *world, struct told *told) {
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct store *store = NULL;
        struct deft_error error = {0};
        if (geteuid() == 0 &&
            (setresgid(NOBODY, NOBODY, NOBODY) != 0 || setresuid(NOBODY, NOBODY, NOBODY) != 0)) {
            _exit(77);
        }
        told->status = store_open(world->path, &store, &error);
        memcpy(told->text, error.text, sizeof(told->text));
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void what_cannot_be_written_is_refused(void **unused) {
    struct store_world world;
    char lock[128];
    (void)unused;
    struct told *told =
        mmap(NULL, sizeof(*told), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(told != MAP_FAILED);
    start_closed(&world, 10);
    (void)snprintf(lock, sizeof(lock), "%s.lock", world.path);
    /* A folder that may not be written, without and with the lock's file. */
    assert_int_equal(chmod(world.path, 0666), 0);
    assert_int_equal(chmod(world.dir, 0555), 0);
    assert_int_equal(unlink(lock), geteuid() == 0 ? 0 : -1);
    open_as_nobody(&world, told);
    assert_int_not_equal(told->status, DEFT_OK);
    assert_non_null(strstr(told->text, world.path));
    assert_non_null(strstr(told->text, "Permission denied"));
    write_all(lock, "", 0);
    assert_int_equal(chmod(lock, 0666), 0);
    open_as_nobody(&world, told);
    assert_int_not_equal(told->status, DEFT_OK);
    assert_non_null(strstr(told->text, world.path));
    /* A file that may not be written. */
    assert_int_equal(chmod(world.dir, 0777), 0);
    assert_int_equal(chmod(world.path, 0444), 0);
    open_as_nobody(&world, told);
    assert_int_not_equal(told->status, DEFT_OK);
    assert_non_null(strstr(told->text, world.path));
    assert_non_null(strstr(told->text, "is read-only"));
    /* Nor one that may not be read. */
    assert_int_equal(chmod(world.path, 0200), 0);
    open_as_nobody(&world, told);
    assert_int_not_equal(told->status, DEFT_OK);
    assert_non_null(strstr(told->text, "cannot be opened"));
    assert_int_equal(chmod(world.path, 0666), 0);
    open_as_nobody(&world, told);
    if (told->status != DEFT_OK) {
        fail_msg("%s", told->text);
    }
    (void)munmap(told, sizeof(*told));
    store_world_stop(&world);
}

/* --- what a crash leaves ------------------------------------------------------------------------
 */

static int64_t size_of(const struct store_world *world, const char *suffix) {
    struct stat stat_of;
    char path[128];
    (void)snprintf(path, sizeof(path), "%s%s", world->path, suffix);
    return stat(path, &stat_of) == 0 ? (int64_t)stat_of.st_size : 0;
}

/* A process that ends in the middle of things leaves all it has committed in a log, however large.
 */
static void a_large_log_is_applied(void **unused) {
    struct store_world world;
    int status = 0;
    (void)unused;
    store_world_start(&world);
    int64_t id = store_world_register(&world, "job", "start", 2, STORE_WORLD_BEGIN_NS);
    store_close(world.store);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        sqlite3 *reader = NULL; /* keeps the log from being applied */
        if (store_open(world.path, &world.store, NULL) != DEFT_OK ||
            sqlite3_open(world.path, &reader) != SQLITE_OK ||
            sqlite3_exec(reader, "BEGIN; SELECT count(*) FROM jobs", NULL, NULL, NULL) !=
                SQLITE_OK) {
            _exit(1);
        }
        for (uint64_t seq = 1; seq <= 100; seq++) {
            store_world_iterations(&world, id, seq, 2, (seq - 1) * 1000, 1000,
                                   STORE_WORLD_BEGIN_NS);
        }
        (void)raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_true(size_of(&world, "-wal") > 16 << 20);
    assert_int_equal(store_open(world.path, &world.store, NULL), DEFT_OK);
    assert_int_equal(size_of(&world, "-wal"), 0);
    assert_int_equal(store_world_int(&world, "SELECT count(*) FROM iterations"), 200000);
    store_world_stop(&world);
}

/* A start that is interrupted while the database is made leaves none, and the next one makes it. */
static int n_left;

static int count_down(void *context) {
    (void)context;
    if (--n_left < 0) {
        _exit(9);
    }
    return 0;
}

static int watch(sqlite3 *db, const char **message, const void *api) {
    (void)message;
    (void)api;
    sqlite3_progress_handler(db, 10, count_down, NULL);
    return SQLITE_OK;
}

static void a_killed_first_start_is_no_hindrance(void **unused) {
    struct store_world world;
    int n_without = 0;
    (void)unused;
    start_closed(&world, 0);
    for (int n = 0; n < 300; n += 7) {
        int status = 0;
        store_world_remove_files(&world);
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            struct store *store = NULL;
            n_left = n;
            (void)sqlite3_auto_extension((void (*)(void))watch);
            _exit(store_open(world.path, &store, NULL) == DEFT_OK ? 0 : 1);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 1);
        n_without += access(world.path, F_OK) != 0;
        assert_int_equal(store_open(world.path, &world.store, NULL), DEFT_OK);
        (void)store_world_register(&world, "job", "start", 2, STORE_WORLD_BEGIN_NS);
        store_close(world.store);
        assert_int_not_equal(size_of(&world, ""), 0);
        assert_int_equal(size_of(&world, ".new"), 0);
    }
    assert_true(n_without > 10);
    world.store = NULL;
    store_world_stop(&world);
}

/* Network file systems, which no test can mount, are told from others by a number. */
static uint32_t network_magic;
int __real_statfs(const char *path, struct statfs *out);
int __wrap_statfs(const char *path, struct statfs *out);

int __wrap_statfs(const char *path, struct statfs *out) {
    int result = __real_statfs(path, out);
    if (result == 0 && network_magic != 0) {
        out->f_type = (__fsword_t)network_magic;
    }
    return result;
}

static void expect_local_only(const char *path, const char *name) {
    struct store_options options;
    struct store *store = NULL;
    struct deft_error error = {0};
    store_defaults(&options);
    assert_int_equal(store_open_with(path, &options, &store, &error), DEFT_INVALID);
    assert_non_null(strstr(error.text, path));
    assert_non_null(strstr(error.text, name));
    assert_non_null(strstr(error.text, "network-db"));
}

/* One that is there, and one that would be made. */
static void a_network_file_system_is_refused(void **unused) {
    static const uint32_t magics[] = {NFS_SUPER_MAGIC, SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC,
                                      CIFS_SUPER_MAGIC};
    struct store_options options;
    struct store_world world;
    struct store *store = NULL;
    struct stat stat_of;
    char *absent = NULL;
    (void)unused;
    start_closed(&world, 1);
    assert_true(asprintf(&absent, "%s.new", world.path) > 0);
    for (size_t i = 0; i < sizeof(magics) / sizeof(magics[0]); i++) {
        network_magic = magics[i];
        expect_local_only(world.path, i == 0 ? "on NFS" : "on SMB");
        expect_local_only(absent, i == 0 ? "on NFS" : "on SMB");
    }
    assert_int_equal(stat(absent, &stat_of), -1); /* nothing was made, no lock either */
    store_defaults(&options);
    options.takes_network = 1;
    assert_int_equal(store_open_with(world.path, &options, &store, NULL), DEFT_OK);
    store_close(store);
    network_magic = 0;
    options.takes_network = 0;
    assert_int_equal(store_open_with(world.path, &options, &world.store, NULL), DEFT_OK);
    free(absent);
    store_world_stop(&world);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_network_file_system_is_refused),
    cmocka_unit_test(what_is_no_database_is_refused),
    cmocka_unit_test(other_programs_databases_are_refused),
    cmocka_unit_test(a_log_without_its_database_is_refused),
    cmocka_unit_test(a_damaged_header_is_refused),
    cmocka_unit_test(a_file_that_was_cut_off_is_refused),
    cmocka_unit_test(a_damaged_page_is_refused),
    cmocka_unit_test(a_locked_database_is_refused),
    cmocka_unit_test(a_second_opening_is_refused),
    cmocka_unit_test(what_cannot_be_written_is_refused),
    cmocka_unit_test(a_large_log_is_applied),
    cmocka_unit_test(a_killed_first_start_is_no_hindrance),
};
TESTING_MAIN(cases)
