/* One job as a file: what comes in is what went out, and what is no whole archive leaves nothing.
 */
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>

#include "store/store_archive.h"
#include "store/store_file.h"
#include "store_fill.h"
#include "testing.h"

struct places {
    struct store_world from;
    struct store_world to;
    char archive[160];
};

static void begin(struct places *places, uint64_t n_reports, const char *ending) {
    store_world_start(&places->from);
    (void)store_fill_job(&places->from, "other", 3, 99, STORE_WORLD_BEGIN_NS);
    (void)store_fill_job(&places->from, "job '\"\\ \xf0\x9f\x90\x8c", n_reports, testing_seed(),
                         STORE_WORLD_BEGIN_NS);
    store_close(places->from.store);
    store_world_start(&places->to);
    (void)store_fill_job(&places->to, "other", 5, 7, STORE_WORLD_BEGIN_NS);
    store_close(places->to.store);
    (void)snprintf(places->archive, sizeof(places->archive), "%s/job.%s", places->from.dir, ending);
}

static void end(struct places *places) {
    places->from.store = NULL;
    places->to.store = NULL;
    store_world_stop(&places->from);
    store_world_stop(&places->to);
}

#define JOB "job '\"\\ \xf0\x9f\x90\x8c"

static void export_job(struct places *places) {
    struct deft_error error = {0};
    if (store_file_export(places->from.path, JOB, places->archive, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
}

static void import_job(struct places *places, const char *as, const char *expected) {
    struct deft_error error = {0};
    char job[WIRE_ID_BYTES] = "";
    if (store_file_import(places->to.path, places->archive, as, job, &error) != DEFT_OK) {
        fail_msg("%s", error.text);
    }
    assert_string_equal(job, expected);
}

/* Columns of a table but those that an import gives anew. */
static char *columns_of(sqlite3 *db, const char *table) {
    sqlite3_stmt *s = NULL;
    char *out = NULL;
    assert_int_equal(
        sqlite3_prepare_v2(db,
                           "SELECT group_concat('t.\"' || name || '\"', ', ') FROM"
                           " pragma_table_info(?1) WHERE name NOT IN ('incarnation', 'job')"
                           " AND NOT (name = 'id') AND NOT (?1 = 'jobs' AND name IN ('state',"
                           " 'updated_ns')) AND NOT (?1 = 'incarnations' AND name = 'state')",
                           -1, &s, NULL),
        SQLITE_OK);
    (void)sqlite3_bind_text(s, 1, table, -1, SQLITE_STATIC);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    out = strdup((const char *)sqlite3_column_text(s, 0));
    (void)sqlite3_finalize(s);
    return out;
}

static int64_t ask(sqlite3 *db, char *sql) {
    sqlite3_stmt *s = NULL;
    if (sqlite3_prepare_v2(db, sql, -1, &s, NULL) != SQLITE_OK || sqlite3_step(s) != SQLITE_ROW) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    int64_t value = sqlite3_column_int64(s, 0);
    (void)sqlite3_finalize(s);
    sqlite3_free(sql);
    return value;
}

/* Rows of `table` of a job, its starts by their keys. */
static char *rows_of(sqlite3 *db, const char *schema, const char *table, const char *job) {
    char *columns = columns_of(db, table);
    char *sql = NULL;
    if (strcmp(table, "jobs") == 0) {
        sql = sqlite3_mprintf("SELECT %s FROM %s.jobs t WHERE t.id = %Q", columns, schema, job);
    } else if (strcmp(table, "incarnations") == 0 || strcmp(table, "job_keep") == 0) {
        sql =
            sqlite3_mprintf("SELECT %s FROM %s.%s t WHERE t.job = %Q", columns, schema, table, job);
    } else {
        sql = sqlite3_mprintf("SELECT i.key, %s FROM %s.%s t JOIN %s.incarnations i ON i.id ="
                              " t.incarnation WHERE i.job = %Q",
                              columns, schema, table, schema, job);
    }
    free(columns);
    return sql;
}

static void expect_alike(const struct places *places, const char *job_there) {
    sqlite3 *db = NULL;
    char *attach = sqlite3_mprintf("ATTACH %Q AS here", places->from.path);
    assert_int_equal(sqlite3_open(places->to.path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, attach, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_free(attach);
    for (unsigned i = 0; i < STORE_ARCHIVE_N_TABLES; i++) {
        const char *table = store_archive_tables[i].name;
        char *here = rows_of(db, "here", table, JOB);
        char *there = rows_of(db, "main", table, job_there);
        int64_t n = ask(db, sqlite3_mprintf("SELECT count(*) FROM (%s)", here));
        assert_true(n > 0); /* or nothing would be tested */
        assert_int_equal(n, ask(db, sqlite3_mprintf("SELECT count(*) FROM (%s)", there)));
        if (ask(db, sqlite3_mprintf("SELECT count(*) FROM (%s EXCEPT %s)", here, there)) != 0) {
            fail_msg("%s is not alike", table);
        }
        sqlite3_free(here);
        sqlite3_free(there);
    }
    (void)sqlite3_close(db);
}

static void expect_whole(const struct store_world *world) {
    struct store_file_check *check = calloc(1, sizeof(*check));
    assert_non_null(check);
    assert_int_equal(store_file_check(world->path, check, NULL), DEFT_OK);
    if (check->n_findings > 0) {
        fail_msg("%s", check->findings[0]);
    }
    free(check);
}

static void an_archive_is_the_job(void **unused) {
    static const char *const endings[] = {"json", "json.gz"};
    (void)unused;
    for (int i = 0; i < 2; i++) {
        struct places places;
        struct stat stat_of;
        begin(&places, 40, endings[i]);
        uint64_t before = store_fill_sum(places.from.path);
        export_job(&places);
        assert_true(store_fill_sum(places.from.path) == before);
        assert_int_equal(stat(places.archive, &stat_of), 0);
        assert_int_equal(stat_of.st_mode & 0777, 0600);
        import_job(&places, NULL, JOB);
        expect_alike(&places, JOB);
        expect_whole(&places.to);
        /* It is there: not a second time, unless under another name. */
        struct deft_error error = {0};
        char job[WIRE_ID_BYTES] = "";
        assert_int_equal(store_file_import(places.to.path, places.archive, NULL, job, &error),
                         DEFT_MISMATCH);
        assert_non_null(strstr(error.text, "--as"));
        import_job(&places, "again", "again");
        expect_alike(&places, "again");
        /* Upkeep has nothing against them. */
        assert_int_equal(
            store_open_with(places.to.path, &places.to.options, &places.to.store, NULL), DEFT_OK);
        store_world_tidy(&places.to, STORE_WORLD_BEGIN_NS + STORE_WORLD_DAY_NS);
        store_close(places.to.store);
        expect_whole(&places.to);
        end(&places);
    }
}

/* The job as the API shows it names itself and its new start. */
static void its_summary_names_the_new_one(void **unused) {
    struct places places;
    struct wire_job job = {.state = "running", .mode = "auto", .plan_seq = 3};
    char *summary = NULL;
    (void)unused;
    begin(&places, 4, "json");
    (void)snprintf(job.id, sizeof(job.id), "%s", JOB);
    (void)snprintf(job.incarnation, sizeof(job.incarnation), "i4");
    (void)snprintf(job.plan, sizeof(job.plan), "i4.3");
    assert_int_equal(wire_job_encode(&job, &summary, NULL), DEFT_OK);
    char *quoted = sqlite3_mprintf("%Q", summary);
    store_world_sql(&places.from, "UPDATE jobs SET summary = %s WHERE id <> 'other'", quoted);
    sqlite3_free(quoted);
    free(summary);
    export_job(&places);
    import_job(&places, "new", "new");
    struct store_job known;
    assert_int_equal(store_open(places.to.path, &places.to.store, NULL), DEFT_OK);
    assert_int_equal(store_read_job(places.to.store, "new", &known, &summary, NULL), DEFT_OK);
    assert_int_equal(wire_job_decode(summary, strlen(summary), &job, NULL), DEFT_OK);
    assert_string_equal(job.id, "new");
    assert_string_equal(job.state, "lost");
    assert_string_equal(job.mode, "auto");
    int64_t newest = store_world_int(&places.to, "SELECT max(id) FROM incarnations");
    char id[STORE_ID_BYTES];
    store_id_text(newest, id);
    assert_string_equal(job.incarnation, id);
    store_plan_id_text(newest, 3, id);
    assert_string_equal(job.plan, id);
    free(summary);
    store_close(places.to.store);
    end(&places);
}

static void write_bytes(const char *path, const char *bytes, size_t n) {
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    (void)close(fd);
}

/* An archive of schema 5 tells all-reduces one by one; agent 'a' has two that are in the totals. */
static void all_reduces_of_an_earlier_archive_count_once(void **unused) {
    static const char archive[] =
        "{\"schema\":\"deft.job-archive/1\",\"job\":\"earlier\",\"database\":5}\n"
        "{\"table\":\"jobs\",\"columns\":[\"id\",\"user\",\"state\",\"mode\",\"max_merge\","
        "\"max_delay\",\"summary\",\"created_ns\",\"updated_ns\"]}\n"
        "{\"rows\":[[\"earlier\",\"u\",\"lost\",\"auto\",1,1,\"\",1,1]]}\n"
        "{\"table\":\"incarnations\",\"columns\":[\"id\",\"job\",\"key\",\"state\",\"n_ranks\","
        "\"table_hash\",\"registration\",\"tuner\",\"profile\",\"registered_ns\",\"updated_ns\"]}\n"
        "{\"rows\":[[7,\"earlier\",\"k\",\"lost\",1,\"7\",\"\",\"\",\"\",1,1]]}\n"
        "{\"table\":\"agents\",\"columns\":[\"incarnation\",\"agent\",\"committed_seq\","
        "\"registered_ns\",\"ops_seq\",\"ops_ns\",\"events_ns\"]}\n"
        "{\"rows\":[[7,\"a\",3,1,2,1,null],[7,\"b\",1,1,0,1,5]]}\n"
        "{\"table\":\"link_totals\",\"columns\":[\"incarnation\",\"link\",\"bytes\",\"count\","
        "\"n_medians\",\"min_ns\",\"median_ns\",\"max_ns\"]}\n"
        "{\"rows\":[[7,0,64,3,2,3,9,6]]}\n"
        "{\"table\":\"ops\",\"columns\":[\"incarnation\",\"agent\",\"seq\",\"position\",\"rank\","
        "\"link\",\"bytes\",\"count\",\"min_ns\",\"median_ns\",\"max_ns\",\"received_ns\"]}\n"
        "{\"rows\":[[7,\"a\",1,0,0,0,64,1,3,4,5,1],[7,\"a\",2,0,0,0,64,2,3,5,6,1],"
        "[7,\"a\",3,0,0,0,64,4,2,6,9,1],[7,\"b\",1,0,1,0,64,16,3,7,8,1],"
        "[7,\"a\",3,1,0,1,64,8,1,2,3,1]]}\n"
        "{\"end\":{\"jobs\":1,\"incarnations\":1,\"agents\":2,\"link_totals\":1,\"ops\":5}}\n";
    struct places places;
    (void)unused;
    begin(&places, 2, "json");
    write_bytes(places.archive, archive, strlen(archive));
    import_job(&places, NULL, "earlier");
    assert_int_equal(store_world_int(&places.to,
                                     "SELECT count(*) FROM link_totals t JOIN incarnations i"
                                     " ON i.id = t.incarnation WHERE i.job = 'earlier'"),
                     2);
    assert_int_equal(
        store_world_int(&places.to,
                        "SELECT count(*) FROM link_totals t JOIN incarnations i"
                        " ON i.id = t.incarnation WHERE i.job = 'earlier' AND"
                        " (link, bytes, count, n_medians, min_ns, median_ns, max_ns)"
                        " IN (VALUES (0, 64, 23, 4, 2, 22, 9), (1, 64, 8, 1, 1, 2, 3))"),
        2);
    assert_int_equal(store_world_int(&places.to,
                                     "SELECT sum(committed_seq * 10 + coalesce(events_ns, 0)) FROM"
                                     " agents a JOIN incarnations i ON i.id = a.incarnation"
                                     " WHERE i.job = 'earlier'"),
                     45);
    expect_whole(&places.to);
    end(&places);
}

/* --- what is none -------------------------------------------------------------------------------
 */

static char *read_plain(const char *path, size_t *out_n) {
    size_t capacity = 16 << 20;
    char *text = malloc(capacity);
    gzFile file = gzopen(path, "rb");
    assert_true(text != NULL && file != NULL);
    int n = gzread(file, text, (unsigned)capacity);
    assert_true(n > 0 && (size_t)n < capacity);
    (void)gzclose(file);
    *out_n = (size_t)n;
    return text;
}

/* Refused with one sentence, and nothing of it can be seen; upkeep removes what was taken. */
static void expect_refusal(struct places *places, uint64_t sum) {
    struct deft_error error = {0};
    char job[WIRE_ID_BYTES] = "";
    assert_int_not_equal(store_file_import(places->to.path, places->archive, NULL, job, &error),
                         DEFT_OK);
    if (strstr(error.text, places->archive) == NULL || strchr(error.text, '\n') != NULL) {
        fail_msg("%s", error.text);
    }
    assert_int_equal(store_world_int(&places->to, "SELECT count(*) FROM jobs WHERE state <>"
                                                  " 'removing'"),
                     1);
    assert_int_equal(store_open_with(places->to.path, &places->to.options, &places->to.store, NULL),
                     DEFT_OK);
    store_world_tidy(&places->to, STORE_WORLD_BEGIN_NS + STORE_WORLD_SECOND_NS);
    store_close(places->to.store);
    store_world_sql(&places->to, "DELETE FROM sequences; INSERT INTO sequences VALUES"
                                 " ('incarnations', 2)");
    if (store_fill_sum(places->to.path) != sum) {
        fail_msg("something is left of: %s", error.text);
    }
}

static void what_is_cut_off_leaves_nothing(void **unused) {
    uint64_t random = testing_seed();
    static const char *const endings[] = {"json", "json.gz"};
    (void)unused;
    for (int i = 0; i < 2; i++) {
        struct places places;
        struct stat stat_of;
        begin(&places, 30, endings[i]);
        export_job(&places);
        store_world_sql(&places.to, "DELETE FROM sequences; INSERT INTO sequences VALUES"
                                    " ('incarnations', 2)");
        uint64_t sum = store_fill_sum(places.to.path);
        assert_int_equal(stat(places.archive, &stat_of), 0);
        for (int round = 0; round < 15; round++) {
            off_t n =
                stat_of.st_size - 1 -
                (off_t)testing_random_below(&random, round < 3 ? 20 : (uint64_t)stat_of.st_size);
            n = n > 0 ? n : 0;
            (void)unlink(places.archive);
            export_job(&places);
            assert_int_equal(truncate(places.archive, n), 0);
            if (!(i == 0 && n == stat_of.st_size - 1)) { /* the end of the last line */
                expect_refusal(&places, sum);
            }
        }
        end(&places);
    }
}

static void hostile_archives_leave_nothing(void **unused) {
    static const char *const lines[] = {
        "",
        "\n",
        "[]\n",
        "{}\n",
        "{\"schema\":\"deft.job-archive/2\",\"job\":\"x\"}\n",
        "{\"schema\":\"deft.job-archive/1\"}\n{\"end\":{}}\n",
        "{\"schema\":\"deft.job-archive/1\",\"job\":\"x\"}\n{\"end\":{}}\n",
        "{\"schema\":\"deft.job-archive/1\",\"job\":\"x\"}\n{\"end\":{\"jobs\":1}}\n",
        "{\"schema\":\"deft.job-archive/"
        "1\",\"job\":\"x\"}\n{\"table\":\"jobs\",\"columns\":[\"id\"]}\n"
        "{\"rows\":[[\"x\"]]}\n{\"end\":{\"jobs\":1}}\n",
        "{\"schema\":\"deft.job-archive/1\",\"job\":\"x\"}\n{\"table\":\"jobs\",\"columns\":[1]}\n",
        "{\"schema\":\"deft.job-archive/"
        "1\",\"job\":\"x\"}\n{\"table\":\"jobs\",\"columns\":[\"id\","
        "\"nothing\\\") VALUES (1);--\"]}\n{\"rows\":[[\"x\",1]]}\n",
        "{\"schema\":\"deft.job-archive/"
        "1\",\"job\":\"x\"}\n{\"rows\":[[1]]}\n{\"end\":{\"jobs\":0}}\n",
        "{\"schema\":\"deft.job-archive/1\",\"job\":\"x\"}\n{\"table\":\"tokens\",\"columns\":"
        "[\"name\"]}\n{\"rows\":[[\"me\"]]}\n{\"end\":{\"tokens\":1}}\n",
        "{\"schema\":\"deft.job-archive/1\",\"job\":\"x\"}\n{\"table\":\"plans\",\"columns\":"
        "[\"incarnation\"]}\n{\"rows\":[[1]]}\n",
        "{\"schema\":\"deft.job-archive/"
        "1\",\"job\":\"x\"}\n{\"table\":\"jobs\",\"columns\":[\"id\"]}\n"
        "{\"rows\":[[{\"a\":[[[[[[]]]]]]}]]}\n",
        "{\"schema\":\"deft.job-archive/"
        "1\",\"job\":\"x\"}\n{\"table\":\"jobs\",\"columns\":[\"id\"]}\n"
        "{\"rows\":[[\"x\",2]]}\n",
        "{\"schema\":\"deft.job-archive/"
        "1\",\"job\":\"x\"}\n{\"table\":\"jobs\",\"columns\":[\"id\"]}\n"
        "{\"rows\":[[]]}\n",
        "{\"schema\":\"deft.job-archive/1\",\"job\":\"x\"}\n{\"table\":\"readiness\",\"columns\":"
        "[\"rank\",\"offsets_ns\"]}\n{\"rows\":[[1,\"0g\"]]}\n",
        "\x1f\x8b\x08\x00garbage",
    };
    struct places places;
    (void)unused;
    begin(&places, 2, "json");
    store_world_sql(&places.to, "DELETE FROM sequences; INSERT INTO sequences VALUES"
                                " ('incarnations', 2)");
    uint64_t sum = store_fill_sum(places.to.path);
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
        write_bytes(places.archive, lines[i], strlen(lines[i]));
        expect_refusal(&places, sum);
    }
    end(&places);
}

/* Whatever byte is another one: it is refused, or the database is sound. */
static void no_byte_breaks_the_database(void **unused) {
    uint64_t random = testing_seed();
    struct places places;
    size_t n = 0;
    (void)unused;
    begin(&places, 3, "json");
    export_job(&places);
    char *text = read_plain(places.archive, &n);
    for (int round = 0; round < 60; round++) {
        struct deft_error error = {0};
        char name[16];
        char job[WIRE_ID_BYTES] = "";
        static const char bytes[] = "\"{}[],:0129eE-.\\un \x80";
        size_t at = (size_t)testing_random_below(&random, n);
        char before = text[at];
        text[at] = bytes[testing_random_below(&random, sizeof(bytes) - 1)];
        write_bytes(places.archive, text, n);
        text[at] = before;
        (void)snprintf(name, sizeof(name), "job-%d", round);
        deft_ignore(store_file_import(places.to.path, places.archive, name, job, &error));
    }
    free(text);
    expect_whole(&places.to);
    end(&places);
}

/* Tables and columns of a release to come are left out. */
static void what_is_not_known_is_left_out(void **unused) {
    struct places places;
    size_t n = 0;
    (void)unused;
    begin(&places, 5, "json");
    export_job(&places);
    char *text = read_plain(places.archive, &n);
    char *more = malloc(n + 4096);
    assert_non_null(more);
    const char *head_end = memchr(text, '\n', n);
    assert_non_null(head_end);
    size_t n_head = (size_t)(head_end - text) + 1;
    size_t n_more = (size_t)snprintf(
        more, n + 4096,
        "%.*s{\"table\":\"dreams\",\"columns\":[\"a\",\"b\"],\"colour\":{\"x\":[1,\"2\"]}}\n"
        "{\"rows\":[[1,\"two\"],[null,[true,false,null]]]}\n",
        (int)n_head, text);
    memcpy(more + n_more, text + n_head, n - n_head);
    write_bytes(places.archive, more, n_more + n - n_head);
    free(more);
    free(text);
    import_job(&places, NULL, JOB);
    expect_alike(&places, JOB);
    end(&places);
}

static void exports_refuse_what_they_must(void **unused) {
    struct places places;
    struct deft_error error = {0};
    (void)unused;
    begin(&places, 2, "json");
    assert_int_equal(store_file_export(places.from.path, "nobody", places.archive, &error),
                     DEFT_NOT_FOUND);
    export_job(&places);
    assert_int_equal(store_file_export(places.from.path, JOB, places.archive, &error),
                     DEFT_MISMATCH);
    assert_int_equal(store_file_export(places.from.path, JOB, "/nowhere/x.json", &error), DEFT_IO);
    assert_int_equal(store_file_export(places.archive, JOB, "x", &error), DEFT_STORE);
    assert_int_equal(store_file_export("/nowhere/deft.db", JOB, "x", &error), DEFT_NOT_FOUND);
    end(&places);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(an_archive_is_the_job),
    cmocka_unit_test(its_summary_names_the_new_one),
    cmocka_unit_test(all_reduces_of_an_earlier_archive_count_once),
    cmocka_unit_test(what_is_cut_off_leaves_nothing),
    cmocka_unit_test(hostile_archives_leave_nothing),
    cmocka_unit_test(no_byte_breaks_the_database),
    cmocka_unit_test(what_is_not_known_is_left_out),
    cmocka_unit_test(exports_refuse_what_they_must),
};
TESTING_MAIN(cases)
