/* Damaged databases: every row on a page that can be read is saved, and no row is made up. */
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/store_file.h"
#include "store/store_schema.h"
#include "store_fill.h"
#include "testing.h"

#define PAGE_BYTES 4096

struct patient {
    struct store_world world;
    char whole[128]; /* the database as it was */
    char out[128];   /* the repaired one */
};

static void copy_file(const char *from, const char *to) {
    char block[65536];
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ssize_t n = 0;
    assert_true(in >= 0 && out >= 0);
    while ((n = read(in, block, sizeof(block))) > 0) {
        assert_int_equal(write(out, block, (size_t)n), n);
    }
    (void)close(in);
    (void)close(out);
}

/* Three jobs, hours among their roll-ups, all of it in the file. */
static void admit(struct patient *patient, uint64_t n_reports, uint64_t seed) {
    store_world_start(&patient->world);
    (void)snprintf(patient->whole, sizeof(patient->whole), "%s.whole", patient->world.path);
    (void)snprintf(patient->out, sizeof(patient->out), "%s.out", patient->world.path);
    for (int i = 0; i < 3; i++) {
        char name[16];
        (void)snprintf(name, sizeof(name), "job-%d", i);
        (void)store_fill_job(&patient->world, name, n_reports, seed + (uint64_t)i,
                             STORE_WORLD_BEGIN_NS);
    }
    store_close(patient->world.store);
    patient->world.store = NULL;
    copy_file(patient->world.path, patient->whole);
}

static void discharge(struct patient *patient) {
    store_world_stop(&patient->world);
}

static int64_t query(const struct patient *patient, const char *format, ...) DEFT_PRINTF(2, 3);
static int64_t query(const struct patient *patient, const char *format, ...) {
    va_list arguments;
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    char *attach = sqlite3_mprintf("ATTACH %Q AS whole", patient->whole);
    assert_int_equal(sqlite3_open(patient->out, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, attach, NULL, NULL, NULL), SQLITE_OK);
    va_start(arguments, format);
    char *sql = sqlite3_vmprintf(format, arguments);
    va_end(arguments);
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK || sqlite3_step(s) != SQLITE_ROW) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    int64_t value = sqlite3_column_int64(s, 0);
    (void)sqlite3_finalize(s);
    (void)sqlite3_close(db);
    sqlite3_free(sql);
    sqlite3_free(attach);
    return value;
}

static void repair(struct patient *patient, struct store_file_repair *report) {
    struct deft_error error = {0};
    (void)unlink(patient->out);
    if (store_file_repair(patient->world.path, patient->out, report, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
}

/* What was never damaged comes out as it went in. */
static void a_whole_database_is_copied(void **unused) {
    struct patient patient;
    struct store_file_repair report;
    (void)unused;
    admit(&patient, 30, testing_seed());
    repair(&patient, &report);
    assert_int_equal(report.n_made_up, 0);
    assert_int_equal(report.n_unknown_pages, 0);
    for (unsigned i = 0; i < report.n_tables; i++) {
        assert_int_equal(report.tables[i].n_bad_pages, 0);
        assert_int_equal(report.tables[i].n_bad_rows, 0);
        assert_int_equal(report.tables[i].n_stray, 0);
        assert_int_equal(report.tables[i].n_rows,
                         query(&patient, "SELECT count(*) FROM whole.%s", report.tables[i].name));
    }
    assert_true(store_fill_sum(patient.out) == store_fill_sum(patient.whole));
    discharge(&patient);
}

/* Rows on pages of the whole database, by what SQLite itself says of each page. */
struct page_map {
    int64_t n_pages;
    uint8_t *is_schema; /* [n_pages + 1] */
    char (*table)[64];  /* [n_pages + 1]; "" for what has no rows of a table */
    int64_t *n_rows;    /* an overflow page has part of one */
};

static void map_pages(const struct patient *patient, struct page_map *map) {
    sqlite3 *db = NULL;
    sqlite3_stmt *s = NULL;
    assert_int_equal(sqlite3_open(patient->whole, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT d.pageno, m.name, iif(d.pagetype = 'overflow', 1,"
                                        " d.ncell) FROM dbstat d JOIN sqlite_master m ON m.name ="
                                        " d.name WHERE m.type = 'table' AND (d.pagetype IN ('leaf',"
                                        " 'overflow') OR m.sql LIKE '%WITHOUT ROWID%')",
                                        -1, &s, NULL),
                     SQLITE_OK);
    map->n_pages = query(patient, "SELECT page_count FROM pragma_page_count('whole')");
    map->table = calloc((size_t)map->n_pages + 1, sizeof(*map->table));
    map->n_rows = calloc((size_t)map->n_pages + 1, sizeof(*map->n_rows));
    assert_non_null(map->table);
    assert_non_null(map->n_rows);
    while (sqlite3_step(s) == SQLITE_ROW) {
        int64_t page = sqlite3_column_int64(s, 0);
        (void)snprintf(map->table[page], sizeof(map->table[page]), "%s", sqlite3_column_text(s, 1));
        map->n_rows[page] = sqlite3_column_int64(s, 2);
    }
    (void)sqlite3_finalize(s);
    map->is_schema = calloc((size_t)map->n_pages + 1, 1);
    assert_non_null(map->is_schema);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT pageno FROM dbstat WHERE name IN ('sqlite_schema',"
                                        " 'sqlite_master')",
                                        -1, &s, NULL),
                     SQLITE_OK);
    while (sqlite3_step(s) == SQLITE_ROW) {
        map->is_schema[sqlite3_column_int64(s, 0)] = 1;
    }
    (void)sqlite3_finalize(s);
    (void)sqlite3_close(db);
}

static void free_map(struct page_map *map) {
    free(map->is_schema);
    free(map->table);
    free(map->n_rows);
}

/* Tables whose rows can be told from all others', also when nothing leads to them. */
static int is_unmistakable(const char *table) {
    static const char *const others[] = {"ends", "activations", "sequences"};
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
        if (strcmp(table, others[i]) == 0) {
            return 0;
        }
    }
    return 1;
}

static void damage(const struct patient *patient, int64_t page, uint64_t *random) {
    uint8_t noise[PAGE_BYTES];
    int fd = open(patient->world.path, O_WRONLY | O_CLOEXEC);
    uint64_t kind = testing_random_below(random, 3);
    for (size_t i = 0; i < sizeof(noise); i++) {
        noise[i] = kind == 0 ? 0 : (uint8_t)testing_random(random);
    }
    /* Zeroes, noise, or noise in the head: enough to lose all of it. */
    size_t n_bytes = kind == 2 ? 1024 : sizeof(noise);
    noise[0] = 0x77;
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, noise, n_bytes, (page - 1) * PAGE_BYTES), n_bytes);
    (void)close(fd);
}

/* Each table has at least what was not on damaged pages, and nothing that was not there. */
static void expect_saved(const struct patient *patient, const struct store_file_repair *report,
                         const struct page_map *map, const uint8_t *is_damaged) {
    int has_schema = 1;
    int has_books = 1;
    assert_non_null(map->table);
    for (int64_t page = 1; page <= map->n_pages; page++) {
        has_schema = has_schema && !(is_damaged[page] && map->is_schema[page]);
        has_books = has_books && !(is_damaged[page] && strcmp(map->table[page], "upkeep") == 0);
    }
    for (unsigned i = 0; i < report->n_tables; i++) {
        const char *table = report->tables[i].name;
        int64_t n_whole = query(patient, "SELECT count(*) FROM whole.%s", table);
        int64_t n_common = query(patient,
                                 "SELECT count(*) FROM (SELECT * FROM whole.%s INTERSECT SELECT *"
                                 " FROM main.%s)",
                                 table, table);
        int64_t n_damaged = 0;
        for (int64_t page = 1; page <= map->n_pages; page++) {
            n_damaged +=
                is_damaged[page] && strcmp(map->table[page], table) == 0 ? map->n_rows[page] : 0;
        }
        /* Books are made anew where they do not fit any more. */
        int is_book = strcmp(table, "upkeep") == 0 || strcmp(table, "agents") == 0 ||
                      strcmp(table, "sequences") == 0;
        if (!is_book && (has_schema || is_unmistakable(table)) && n_common < n_whole - n_damaged) {
            fail_msg("%s: %lld of %lld rows, though only %lld were on damaged pages", table,
                     (long long)n_common, (long long)n_whole, (long long)n_damaged);
        }
        int64_t n_other = query(patient,
                                "SELECT count(*) FROM (SELECT * FROM main.%s EXCEPT SELECT * FROM"
                                " whole.%s)",
                                table, table);
        /* Without books rows that were removed, and lie on free pages, are rows like others. */
        int may_return = !has_books && strcmp(table, "iterations") == 0;
        if (!is_book && !may_return && n_other > (int64_t)report->n_made_up) {
            fail_msg("%s: %lld rows that were never there", table, (long long)n_other);
        }
    }
}

/* The repaired one is a database that a controller takes. */
static void expect_usable(const struct patient *patient) {
    struct store *store = NULL;
    struct deft_error error = {0};
    struct store_options options;
    struct store_file_check *check = calloc(1, sizeof(*check));
    assert_non_null(check);
    assert_int_equal(store_file_check(patient->out, check, &error), DEFT_OK);
    if (check->n_findings > 0) {
        fail_msg("%s", check->findings[0]);
    }
    free(check);
    store_defaults(&options);
    options.pause_ns = 0;
    if (store_open_with(patient->out, &options, &store, &error) != DEFT_OK ||
        store_tidy(store, STORE_WORLD_BEGIN_NS + STORE_WORLD_DAY_NS, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    store_close(store);
}

static void rows_on_readable_pages_are_saved(void **unused) {
    uint64_t random = testing_seed();
    struct patient patient;
    struct page_map map;
    (void)unused;
    admit(&patient, 30, testing_random(&random));
    copy_file(patient.whole, patient.out); /* so that there is something to ask */
    map_pages(&patient, &map);
    uint8_t *is_damaged = calloc((size_t)map.n_pages + 1, 1);
    assert_non_null(is_damaged);
    for (int round = 0; round < 40; round++) {
        struct store_file_repair report;
        copy_file(patient.whole, patient.world.path);
        memset(is_damaged, 0, (size_t)map.n_pages + 1);
        uint64_t n = 1 + testing_random_below(&random, round < 20 ? 3 : 40);
        for (uint64_t i = 0; i < n; i++) {
            int64_t page = 2 + (int64_t)testing_random_below(&random, (uint64_t)map.n_pages - 1);
            is_damaged[page] = 1;
            damage(&patient, page, &random);
        }
        repair(&patient, &report);
        expect_saved(&patient, &report, &map, is_damaged);
        expect_usable(&patient);
    }
    free(is_damaged);
    free_map(&map);
    discharge(&patient);
}

/* The first page has the header and the schema: without it rows are known by what they look like.
 */
static void rows_are_known_without_a_schema(void **unused) {
    uint64_t random = testing_seed();
    struct patient patient;
    struct page_map map;
    (void)unused;
    admit(&patient, 30, testing_random(&random));
    copy_file(patient.whole, patient.out);
    map_pages(&patient, &map);
    uint8_t *is_damaged = calloc((size_t)map.n_pages + 1, 1);
    assert_non_null(is_damaged);
    is_damaged[1] = 1;
    for (int round = 0; round < 6; round++) {
        struct store_file_repair report;
        copy_file(patient.whole, patient.world.path);
        damage(&patient, 1, &random);
        repair(&patient, &report);
        expect_saved(&patient, &report, &map, is_damaged);
        expect_usable(&patient);
        assert_int_equal(query(&patient, "SELECT count(*) FROM ends"),
                         query(&patient, "SELECT count(*) FROM whole.ends"));
    }
    free(is_damaged);
    free_map(&map);
    discharge(&patient);
}

/* Bytes anywhere, the file cut off anywhere: there is an answer, and what comes out is sound. */
static void no_damage_is_too_strange(void **unused) {
    uint64_t random = testing_seed();
    struct patient patient;
    struct stat stat_of;
    (void)unused;
    admit(&patient, 8, testing_random(&random));
    assert_int_equal(stat(patient.whole, &stat_of), 0);
    for (int round = 0; round < 60; round++) {
        struct store_file_repair report;
        struct deft_error error = {0};
        copy_file(patient.whole, patient.world.path);
        int fd = open(patient.world.path, O_WRONLY | O_CLOEXEC);
        uint64_t n = testing_random_below(&random, 400);
        assert_true(fd >= 0);
        for (uint64_t i = 0; i < n; i++) {
            uint8_t byte = (uint8_t)testing_random(&random);
            /* Heads of pages, where the numbers are, more often than elsewhere. */
            off_t at = (off_t)testing_random_below(&random, (uint64_t)stat_of.st_size);
            at = i % 2 == 0 ? at / PAGE_BYTES * PAGE_BYTES + at % 16 : at;
            assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        }
        if (round % 4 == 3) {
            assert_int_equal(
                ftruncate(fd, (off_t)testing_random_below(&random, (uint64_t)stat_of.st_size)), 0);
        }
        (void)close(fd);
        (void)unlink(patient.out);
        enum deft_status status =
            store_file_repair(patient.world.path, patient.out, &report, &error);
        if (status == DEFT_OK) {
            expect_usable(&patient);
        } else {
            assert_non_null(strstr(error.text, patient.world.path));
        }
    }
    discharge(&patient);
}

/* Rows that are in the log only are saved too: those of commits, and no others. */
static void the_log_counts(void **unused) {
    struct patient patient;
    struct store_file_repair report;
    int status = 0;
    (void)unused;
    admit(&patient, 10, testing_seed());
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* leaves a log */
        struct store_options options;
        store_defaults(&options);
        options.pause_ns = 0;
        if (store_open_with(patient.world.path, &options, &patient.world.store, NULL) != DEFT_OK) {
            _exit(1);
        }
        (void)store_fill_job(&patient.world, "job-9", 10, 77, STORE_WORLD_BEGIN_NS);
        (void)raise(SIGKILL);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    repair(&patient, &report);
    assert_int_equal(query(&patient, "SELECT count(*) FROM jobs"), 4);
    /* Opening the original applies the log: both are equal then. */
    struct store *store = NULL;
    assert_int_equal(store_open(patient.world.path, &store, NULL), DEFT_OK);
    store_close(store);
    assert_true(store_fill_sum(patient.out) == store_fill_sum(patient.world.path));
    discharge(&patient);
}

/* A damaged database of an older release becomes one of today. */
static void old_schemas_are_repaired_too(void **unused) {
    struct patient patient;
    struct store_file_repair report;
    (void)unused;
    store_world_start(&patient.world);
    store_close(patient.world.store);
    patient.world.store = NULL;
    store_world_remove_files(&patient.world);
    (void)snprintf(patient.whole, sizeof(patient.whole), "%s.whole", patient.world.path);
    (void)snprintf(patient.out, sizeof(patient.out), "%s.out", patient.world.path);
    store_world_sql(&patient.world, "%s;%s; PRAGMA user_version = 2;", store_schema[0],
                    store_schema[1]);
    store_world_sql(&patient.world,
                    "INSERT INTO jobs (id, user, state, mode, max_merge, max_delay, summary,"
                    " created_ns, updated_ns) VALUES ('job', 'u', 'lost', 'auto', 1, 1, '', 1, 1);"
                    "INSERT INTO incarnations VALUES (5, 'job', 'k', 'lost', 1, '7', '{}', 'T', '',"
                    " 1, 1700000000000000000);"
                    "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 999)"
                    "INSERT INTO iterations SELECT 5, i, 0, 0, 1, 1, 1, 1, 1, 10, 0, 1.5, NULL,"
                    " NULL, 1, 0, 1, 0, NULL, NULL FROM n;"
                    "INSERT INTO events VALUES (5, 'a', 1, 0, 0, 'switched', 3, 41, 0, '', 1);");
    copy_file(patient.world.path, patient.whole);
    repair(&patient, &report);
    assert_int_equal(query(&patient, "SELECT count(*) FROM iterations"), 1000);
    assert_int_equal(query(&patient, "SELECT iteration FROM activations"), 41);
    assert_int_equal(query(&patient, "SELECT newest FROM upkeep"), 999);
    assert_int_equal(query(&patient, "SELECT user_version FROM pragma_user_version"),
                     store_schema_steps);
    expect_usable(&patient);
    discharge(&patient);
}

static void a_result_is_never_overwritten(void **unused) {
    struct patient patient;
    struct store_file_repair report;
    struct deft_error error = {0};
    char partial[160];
    (void)unused;
    admit(&patient, 2, testing_seed());
    assert_int_equal(store_file_repair(patient.world.path, patient.whole, &report, &error),
                     DEFT_MISMATCH);
    assert_non_null(strstr(error.text, "is there already"));
    assert_int_equal(store_file_repair("/nowhere/deft.db", patient.out, &report, &error),
                     DEFT_NOT_FOUND);
    (void)snprintf(partial, sizeof(partial), "%s.partial", patient.out);
    assert_int_not_equal(access(partial, F_OK), 0);
    assert_int_not_equal(access(patient.out, F_OK), 0);
    discharge(&patient);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(a_whole_database_is_copied),
    cmocka_unit_test(rows_on_readable_pages_are_saved),
    cmocka_unit_test(rows_are_known_without_a_schema),
    cmocka_unit_test(no_damage_is_too_strange),
    cmocka_unit_test(the_log_counts),
    cmocka_unit_test(old_schemas_are_repaired_too),
    cmocka_unit_test(a_result_is_never_overwritten),
};
TESTING_MAIN(cases)
