/* Databases of every schema that there was, with a row in every table, become today's, and nothing
 * that was in them changes. */
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/store_schema.h"
#include "store_world.h"
#include "testing.h"

/* A database of schema `version`, made by the very statements that made it then. */
static void make_old(const struct store_world *world, size_t version) {
    for (size_t step = 0; step < version; step++) {
        store_world_sql(world, "BEGIN;%s;PRAGMA user_version = %zu;COMMIT", store_schema[step],
                        step + 1);
    }
}

/* Names of columns that a row must be given a value for, and values by their type; `n` tells rows
 * apart. Columns of keys must refer to each other, so they are given by hand. */
static void fill_table(sqlite3 *db, const char *table, int n) {
    char columns[2048] = "";
    char values[4096] = "";
    sqlite3_stmt *s = NULL;
    assert_int_equal(
        sqlite3_prepare_v2(db, "SELECT name, type FROM pragma_table_info(?1)", -1, &s, NULL),
        SQLITE_OK);
    (void)sqlite3_bind_text(s, 1, table, -1, SQLITE_STATIC);
    while (sqlite3_step(s) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(s, 0);
        const char *type = (const char *)sqlite3_column_text(s, 1);
        size_t at = strlen(values);
        size_t column = strlen(columns);
        const char *comma = at > 0 ? "," : "";
        (void)snprintf(columns + column, sizeof(columns) - column, "%s%s", comma, name);
        if (strcmp(name, "job") == 0 || (strcmp(table, "jobs") == 0 && strcmp(name, "id") == 0)) {
            (void)snprintf(values + at, sizeof(values) - at, "%s'job ''%d'", comma, n);
        } else if (strcmp(name, "incarnation") == 0 || strcmp(name, "id") == 0) {
            (void)snprintf(values + at, sizeof(values) - at, "%s%d", comma, n);
        } else if (strcmp(name, "state") == 0) {
            (void)snprintf(values + at, sizeof(values) - at, "%s'running'", comma);
        } else if (strcmp(name, "kind") == 0) {
            (void)snprintf(values + at, sizeof(values) - at, "%s'%s'", comma,
                           n == 1 ? "switched" : "failed");
        } else if (strcmp(type, "INTEGER") == 0) {
            (void)snprintf(values + at, sizeof(values) - at, "%s%zu", comma, 1000 * column + 7);
        } else if (strcmp(type, "REAL") == 0) {
            (void)snprintf(values + at, sizeof(values) - at, "%s%zu.125", comma, column);
        } else if (strcmp(type, "BLOB") == 0) {
            (void)snprintf(values + at, sizeof(values) - at, "%sx'00ff%02x'", comma, (unsigned)n);
        } else {
            (void)snprintf(values + at, sizeof(values) - at, "%s'%s %d'", comma, name, n);
        }
    }
    (void)sqlite3_finalize(s);
    char *sql = sqlite3_mprintf("INSERT INTO %s (%s) VALUES (%s)", table, columns, values);
    if (sqlite3_exec(db, sql, NULL, NULL, NULL) != SQLITE_OK) {
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    }
    sqlite3_free(sql);
}

/* Tables of a database, those that others refer to first; NULL-terminated. */
static void list_tables(sqlite3 *db, char tables[32][32]) {
    sqlite3_stmt *s = NULL;
    int n = 0;
    assert_int_equal(
        sqlite3_prepare_v2(db,
                           "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY"
                           " name <> 'jobs', name <> 'incarnations', name",
                           -1, &s, NULL),
        SQLITE_OK);
    while (sqlite3_step(s) == SQLITE_ROW && n < 31) {
        (void)snprintf(tables[n++], 32, "%s", sqlite3_column_text(s, 0));
    }
    (void)sqlite3_finalize(s);
    tables[n][0] = '\0';
}

static sqlite3 *open_db(const struct store_world *world) {
    sqlite3 *db = NULL;
    assert_int_equal(sqlite3_open(world->path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, "PRAGMA foreign_keys = ON", NULL, NULL, NULL), SQLITE_OK);
    return db;
}

/* Two rows in every table that schema has, except what a step fills itself. */
static void fill(const struct store_world *world) {
    char tables[32][32];
    sqlite3 *db = open_db(world);
    list_tables(db, tables);
    for (int i = 0; tables[i][0] != '\0'; i++) {
        for (int n = 1; n <= 2 && strcmp(tables[i], "sequences") != 0; n++) {
            fill_table(db, tables[i], n);
        }
    }
    (void)sqlite3_close(db);
}

/* Every value of every table, by column; malloc'ed. `columns_of` is the database that says which
 * columns count. The tuner's state is wrapped by schema 2, all-reduces are but added up by 6. */
static char *dump(sqlite3 *db, sqlite3 *columns_of) {
    char tables[32][32];
    sqlite3_str *out = sqlite3_str_new(NULL);
    list_tables(columns_of, tables);
    for (int i = 0; tables[i][0] != '\0'; i++) {
        sqlite3_stmt *names = NULL;
        if (strcmp(tables[i], "ops") == 0) {
            continue;
        }
        assert_int_equal(sqlite3_prepare_v2(columns_of,
                                            "SELECT group_concat('quote(' || iif(name = 'tuner',"
                                            " 'replace(replace(tuner, ''{\"state\":'', ''''),"
                                            " ''}'', '''')', name) || ')', ' || '' '' || ')"
                                            " FROM pragma_table_info(?1) WHERE name NOT IN"
                                            " ('ops_seq', 'ops_ns')",
                                            -1, &names, NULL),
                         SQLITE_OK);
        (void)sqlite3_bind_text(names, 1, tables[i], -1, SQLITE_STATIC);
        assert_int_equal(sqlite3_step(names), SQLITE_ROW);
        char *sql = sqlite3_mprintf("SELECT %s FROM %s ORDER BY 1", sqlite3_column_text(names, 0),
                                    tables[i]);
        sqlite3_stmt *rows = NULL;
        if (sqlite3_prepare_v2(db, sql, -1, &rows, NULL) != SQLITE_OK) {
            fail_msg("%s: %s", sql, sqlite3_errmsg(db));
        }
        while (sqlite3_step(rows) == SQLITE_ROW) {
            sqlite3_str_appendf(out, "%s: %s\n", tables[i], sqlite3_column_text(rows, 0));
        }
        (void)sqlite3_finalize(rows);
        (void)sqlite3_finalize(names);
        sqlite3_free(sql);
    }
    return sqlite3_str_finish(out);
}

static void start_empty(struct store_world *world) {
    store_world_start(world);
    store_close(world->store);
    world->store = NULL;
    store_world_remove_files(world);
}

static void every_schema_becomes_todays(void **unused) {
    (void)unused;
    for (size_t version = 1; version <= store_schema_steps; version++) {
        struct store_world world;
        char old_path[128];
        start_empty(&world);
        make_old(&world, version);
        fill(&world);
        sqlite3 *db = open_db(&world);
        char *before = dump(db, db);
        assert_true(strlen(before) > 500);
        (void)snprintf(old_path, sizeof(old_path), "%s.old", world.path);
        char *copy = sqlite3_mprintf("VACUUM INTO %Q", old_path);
        assert_int_equal(sqlite3_exec(db, copy, NULL, NULL, NULL), SQLITE_OK);
        sqlite3_free(copy);
        (void)sqlite3_close(db);
        assert_int_equal(store_open_with(world.path, &world.options, &world.store, NULL), DEFT_OK);
        assert_int_equal(store_world_int(&world, "PRAGMA user_version"), store_schema_steps);
        sqlite3 *old = NULL;
        assert_int_equal(sqlite3_open(old_path, &old), SQLITE_OK);
        db = open_db(&world);
        char *after = dump(db, old);
        assert_string_equal(before, after);
        (void)sqlite3_close(db);
        (void)sqlite3_close(old);
        sqlite3_free(before);
        sqlite3_free(after);
        assert_int_equal(store_world_int(&world, "SELECT count(*) FROM pragma_foreign_key_check"),
                         0);
        assert_int_equal(store_world_int(&world, "SELECT integrity_check = 'ok' FROM"
                                                 " pragma_integrity_check"),
                         1);
        store_world_stop(&world);
    }
}

/* All ways lead to the same schema: also that of a new database. */
static void old_and_new_schemas_are_alike(void **unused) {
    static const char columns[] =
        "SELECT group_concat(x, ';') FROM (SELECT m.name || '.' || c.name || ' ' || c.type || ' ' "
        "||"
        " c.\"notnull\" || ' ' || c.pk || ' ' || coalesce(c.dflt_value, '') AS x FROM"
        " sqlite_master m, pragma_table_info(m.name) c WHERE m.type IN ('table', 'index')"
        " UNION ALL SELECT sql FROM sqlite_master WHERE type = 'index' ORDER BY 1)";
    char *first = NULL;
    (void)unused;
    for (size_t version = 0; version <= store_schema_steps; version++) {
        struct store_world world;
        sqlite3_stmt *s = NULL;
        start_empty(&world);
        make_old(&world, version);
        assert_int_equal(store_open_with(world.path, &world.options, &world.store, NULL), DEFT_OK);
        sqlite3 *db = open_db(&world);
        assert_int_equal(sqlite3_prepare_v2(db, columns, -1, &s, NULL), SQLITE_OK);
        assert_int_equal(sqlite3_step(s), SQLITE_ROW);
        char *text = strdup((const char *)sqlite3_column_text(s, 0));
        (void)sqlite3_finalize(s);
        (void)sqlite3_close(db);
        if (first == NULL) {
            first = text;
        } else {
            assert_string_equal(first, text);
            free(text);
        }
        store_world_stop(&world);
    }
    free(first);
}

/* What schema 3 derives from what was there before. */
static void old_history_is_rolled_up_too(void **unused) {
    struct store_world world;
    int64_t now_ns = STORE_WORLD_BEGIN_NS;
    (void)unused;
    start_empty(&world);
    make_old(&world, 2);
    store_world_sql(
        &world,
        "INSERT INTO jobs (id, user, state, mode, max_merge, max_delay, summary,"
        " created_ns, updated_ns) VALUES ('job', 'u', 'running', 'auto', 1, 1, '', 1, 1);"
        "INSERT INTO incarnations VALUES (5, 'job', 'k', 'running', 2, '7', '{}', '', '',"
        " 1, %lld);"
        "INSERT INTO agents VALUES (5, 'a', 9, 1);"
        "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 5999)"
        "INSERT INTO iterations SELECT 5, i / 2, i %% 2, 0, 1, 1, 1, 1, 1, 10, 0, 1.5,"
        " NULL, NULL, 1, 0, 1, 0, NULL, NULL FROM n;"
        "INSERT INTO ops VALUES (5, 'a', 1, 0, 0, 0, 64, 3, 1, 4, 9),"
        " (5, 'a', 2, 0, 1, 0, 64, 5, 2, 6, 8);"
        "INSERT INTO events VALUES (5, 'a', 1, 0, 1, 'switched', 3, 41, 0, '', 1),"
        " (5, 'a', 1, 1, 0, 'switched', 3, 40, 0, '', 1),"
        " (5, 'a', 2, 0, 1, 'failed', 0, 0, 0, '', 1);",
        (long long)now_ns);
    assert_int_equal(store_open_with(world.path, &world.options, &world.store, NULL), DEFT_OK);
    assert_int_equal(store_world_int(&world, "SELECT count FROM link_totals"), 8);
    assert_int_equal(store_world_int(&world, "SELECT median_ns FROM link_totals"), 10);
    assert_int_equal(store_world_int(&world, "SELECT iteration FROM activations"), 40);
    assert_int_equal(store_world_int(&world, "SELECT rank * 10 + failed FROM ends"), 11);
    struct store_incarnation left = {0};
    assert_int_equal(store_read_incarnation(world.store, 5, &left, NULL), DEFT_OK);
    assert_int_equal(left.n_iterations, 3000);
    store_incarnation_done(&left);
    store_world_remember(&world);
    store_world_tidy(&world, now_ns + 300 * STORE_WORLD_SECOND_NS);
    assert_int_equal(store_world_int(&world, "SELECT rolled_to FROM upkeep"), 2999);
    store_world_check(&world);
    assert_int_equal(store_read_incarnation(world.store, 5, &left, NULL), DEFT_OK);
    assert_int_equal(left.n_iterations, 3000);
    store_incarnation_done(&left);
    /* Rows without a time are as old as their start was. */
    store_world_tidy(&world, now_ns + 6 * STORE_WORLD_DAY_NS);
    assert_int_equal(store_world_int(&world, "SELECT count(*) FROM iterations"), 6000);
    store_world_tidy(&world, now_ns + 8 * STORE_WORLD_DAY_NS);
    assert_int_equal(store_world_int(&world, "SELECT count(*) FROM iterations"), 0);
    store_world_check(&world);
    /* Numbers go on behind those that were given. */
    assert_int_equal(store_world_register(&world, "job", "next", 2, now_ns), 6);
    store_world_stop(&world);
}

/* What schema 6 adds up is what schemas before it had not, from whichever it comes. */
static void all_reduces_are_added_up_once(void **unused) {
    (void)unused;
    for (size_t version = 1; version < 6; version++) {
        struct store_world world;
        start_empty(&world);
        make_old(&world, version);
        store_world_sql(&world,
                        "INSERT INTO jobs (id, user, state, mode, max_merge, max_delay, summary,"
                        " created_ns, updated_ns) VALUES ('job', 'u', 'running', 'auto', 1, 1, '',"
                        " 1, 1);"
                        "INSERT INTO incarnations VALUES (5, 'job', 'k', 'running', 2, '7', '{}',"
                        " '', '', 1, 1);"
                        "INSERT INTO agents (incarnation, agent, committed_seq, registered_ns)"
                        " VALUES (5, 'a', 3, 1), (5, 'b', 1, 1);"
                        "INSERT INTO ops (incarnation, agent, seq, position, rank, link, bytes,"
                        " count, min_ns, median_ns, max_ns) VALUES"
                        " (5, 'a', 1, 0, 0, 0, 64, 1, 3, 4, 5), (5, 'a', 2, 0, 0, 0, 64, 2, 3, 5,"
                        " 6), (5, 'a', 3, 0, 0, 0, 64, 4, 2, 6, 9), (5, 'a', 3, 1, 0, 1, 64, 8, 1,"
                        " 2, 3), (5, 'b', 1, 0, 1, 0, 64, 16, 3, 7, 8);");
        if (version >= 3) { /* where upkeep had added up the first two */
            store_world_sql(&world, "UPDATE agents SET ops_seq = 2 WHERE agent = 'a';"
                                    "INSERT INTO link_totals VALUES (5, 0, 64, 3, 2, 3, 9, 6)");
        }
        assert_int_equal(store_open_with(world.path, &world.options, &world.store, NULL), DEFT_OK);
        assert_int_equal(store_world_int(&world, "SELECT count(*) FROM link_totals"), 2);
        assert_int_equal(store_world_int(&world,
                                         "SELECT count(*) FROM link_totals WHERE incarnation = 5"
                                         " AND (link, bytes, count, n_medians, min_ns, median_ns,"
                                         " max_ns) IN (VALUES (0, 64, 23, 4, 2, 22, 9),"
                                         " (1, 64, 8, 1, 1, 2, 3))"),
                         2);
        store_world_stop(&world);
    }
}

/* --- kills --------------------------------------------------------------------------------------
 */

/* In the child: the process ends after so many steps of SQLite's machine, as by kill -9. */
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
    sqlite3_progress_handler(db, 20, count_down, NULL);
    return SQLITE_OK;
}

/* 1 when it got to the end. */
static int migrate_and_die(const struct store_world *world, int n_steps) {
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        struct store *store = NULL;
        n_left = n_steps;
        (void)sqlite3_auto_extension((void (*)(void))watch);
        _exit(store_open(world->path, &store, NULL) == DEFT_OK ? 0 : 1);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 9));
    return WEXITSTATUS(status) == 0;
}

static char *schema_text(const struct store_world *world) {
    sqlite3_stmt *s = NULL;
    sqlite3 *db = open_db(world);
    assert_int_equal(sqlite3_prepare_v2(db,
                                        "SELECT group_concat(sql, ';') FROM (SELECT sql FROM"
                                        " sqlite_master WHERE sql IS NOT NULL ORDER BY name)",
                                        -1, &s, NULL),
                     SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    char *text = strdup((const char *)sqlite3_column_text(s, 0));
    (void)sqlite3_finalize(s);
    (void)sqlite3_close(db);
    return text;
}

/* Wherever it is killed, a whole schema is left, of one of the versions, and the next start goes on
 * from there. */
static void a_killed_migration_leaves_a_whole_schema(void **unused) {
    uint64_t random = testing_seed();
    struct store_world world;
    char *whole[16] = {NULL};
    int n_killed = 0;
    int seen = 0; /* versions that a kill left */
    (void)unused;
    for (size_t version = 1; version <= store_schema_steps; version++) {
        start_empty(&world);
        make_old(&world, version);
        whole[version] = schema_text(&world);
        store_world_stop(&world);
    }
    start_empty(&world);
    for (int round = 0; round < 30; round++) {
        store_world_remove_files(&world);
        make_old(&world, 1);
        fill(&world);
        while (!migrate_and_die(&world, (int)testing_random_below(&random, 400))) {
            int64_t version = store_world_int(&world, "PRAGMA user_version");
            assert_true(version >= 1 && (size_t)version <= store_schema_steps);
            char *left = schema_text(&world);
            assert_string_equal(left, whole[version]);
            free(left);
            seen |= 1 << version;
            n_killed++;
        }
        assert_int_equal(store_world_int(&world, "SELECT count(*) FROM iterations"), 2);
        assert_int_equal(store_world_int(&world, "SELECT count(*) FROM upkeep"), 2);
    }
    assert_true(n_killed > 60);
    assert_true((seen & 6) == 6); /* before the first step, and between two */
    for (size_t version = 1; version <= store_schema_steps; version++) {
        free(whole[version]);
    }
    world.store = NULL;
    store_world_stop(&world);
}

static void a_newer_schema_is_refused(void **unused) {
    struct store_world world;
    struct deft_error error = {0};
    (void)unused;
    store_world_start(&world);
    store_close(world.store);
    store_world_sql(&world, "PRAGMA user_version = %zu", store_schema_steps + 1);
    assert_int_equal(store_open(world.path, &world.store, &error), DEFT_UNSUPPORTED);
    assert_non_null(strstr(error.text, "a newer release made it"));
    assert_null(strchr(error.text, '\n'));
    assert_int_equal(store_world_int(&world, "PRAGMA user_version"), store_schema_steps + 1);
    world.store = NULL;
    store_world_stop(&world);
}

static const struct CMUnitTest cases[] = {
    cmocka_unit_test(every_schema_becomes_todays),
    cmocka_unit_test(old_and_new_schemas_are_alike),
    cmocka_unit_test(old_history_is_rolled_up_too),
    cmocka_unit_test(all_reduces_are_added_up_once),
    cmocka_unit_test(a_killed_migration_leaves_a_whole_schema),
    cmocka_unit_test(a_newer_schema_is_refused),
};
TESTING_MAIN(cases)
