#include "store/store_remove.h"

#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

#include "store/store_access.h"
#include "store/store_bind.h"

/* --- marking ------------------------------------------------------------------------------------
 */

static enum deft_status remove_check(struct store_db *db, const char *job,
                                     struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    sqlite3_stmt *s = store_db_statement(db, "SELECT state FROM jobs WHERE id = ?1");
    if (s == NULL) {
        return store_db_fail(db, "be searched for a job", error);
    }
    store_bind_text(s, 1, job);
    int code = sqlite3_step(s);
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        return store_db_fail(db, "be searched for a job", error);
    }
    const char *state = code == SQLITE_ROW ? store_db_text(s, 0) : "removing";
    if (strcmp(state, "removing") == 0) {
        status = deft_fail(error, DEFT_NOT_FOUND, 0, "there is no such job");
    } else if (strcmp(state, "running") == 0) {
        status = deft_fail(error, DEFT_STATE, 0,
                           "the job is running: only jobs that have ended or are lost are removed");
    }
    (void)sqlite3_reset(s);
    return status;
}

/* Statements that take the job's name as ?1 and the new one as ?2. */
static const char *const remove_marks[] = {
    "DELETE FROM job_keep WHERE job = ?1",
    "UPDATE jobs SET id = ?2, state = 'removing', summary = '' WHERE id = ?1",
    ("UPDATE incarnations SET job = ?2, state = 'removing', registration = '', tuner = '',"
     " profile = '' WHERE job = ?1"),
};

enum deft_status store_remove_mark(struct store_db *db, const char *job,
                                   const struct store_audit *cause, struct deft_error *error) {
    char name[WIRE_ID_BYTES + 32];
    enum deft_status status = remove_check(db, job, error);
    sqlite3_stmt *s = NULL;
    if (status != DEFT_OK) {
        return status;
    }
    s = store_db_statement(db, "INSERT INTO sequences VALUES ('removals', 1) ON CONFLICT"
                               " DO UPDATE SET last = last + 1 RETURNING last");
    if (s == NULL || sqlite3_step(s) != SQLITE_ROW) {
        return store_db_fail(db, "mark a job for removal", error);
    }
    (void)snprintf(name, sizeof(name), "removed %0*lld", (int)WIRE_ID_BYTES,
                   (long long)sqlite3_column_int64(s, 0));
    status = store_db_step(db, s, "mark a job for removal", error);
    if (status == DEFT_OK) { /* ends with the transaction */
        status = store_db_exec(db, "PRAGMA defer_foreign_keys = ON", error);
    }
    for (size_t i = 0; i < sizeof(remove_marks) / sizeof(remove_marks[0]); i++) {
        s = status == DEFT_OK ? store_db_statement(db, remove_marks[i]) : NULL;
        if (s != NULL) {
            store_bind_text(s, 1, job);
            store_bind_text(s, 2, name);
            status = store_db_step(db, s, "mark a job for removal", error);
        } else if (status == DEFT_OK) {
            status = store_db_fail(db, "mark a job for removal", error);
        }
    }
    return status == DEFT_OK ? store_access_end_job(db, job, cause, error) : status;
}

static enum deft_status remove_apply(struct store_db *db, struct store_write *write,
                                     struct deft_error *error) {
    const struct store_remove *in = (const struct store_remove *)write;
    enum deft_status status = store_remove_mark(db, in->job, in->audit, error);
    return status == DEFT_OK && in->audit != NULL ? store_audit_insert(db, in->audit, error)
                                                  : status;
}

void store_remove_init(struct store_remove *write) {
    memset(write, 0, sizeof(*write));
    write->write.apply = remove_apply;
}

/* --- rows ---------------------------------------------------------------------------------------
 */

#define REMOVE_KEYED(table, key)                                                                   \
    "DELETE FROM " table " WHERE (" key ") IN (SELECT " key " FROM " table                         \
    " WHERE incarnation = ?1 LIMIT ?2)"
#define REMOVE_BY_ID(table)                                                                        \
    "DELETE FROM " table " WHERE id IN (SELECT id FROM " table " WHERE incarnation = ?1 LIMIT ?2)"

/* Everything that refers to an incarnation, and what a row of it costs. */
static const struct {
    const char *sql;
    unsigned cost;
} remove_tables[] = {
    {REMOVE_KEYED("iterations", "incarnation, iteration, rank"), 1},
    {REMOVE_KEYED("events", "incarnation, agent, seq, position"), 1},
    {REMOVE_KEYED("rollups", "incarnation, period_s, first"), 1},
    {REMOVE_KEYED("readiness", "incarnation, rank"), 64}, /* a blob per row */
    {REMOVE_KEYED("link_totals", "incarnation, link, bytes"), 1},
    {REMOVE_KEYED("ends", "incarnation, rank"), 1},
    {REMOVE_KEYED("activations", "incarnation, plan_seq"), 1},
    {REMOVE_KEYED("agents", "incarnation, agent"), 1},
    {REMOVE_BY_ID("decisions"), 64}, /* long texts */
    {REMOVE_BY_ID("plans"), 64},
    {"DELETE FROM upkeep WHERE incarnation = ?1 AND ?2 > 0", 1},
    {"DELETE FROM incarnations WHERE id = ?1 AND ?2 > 0", 1},
};

static enum deft_status remove_rows(struct store_db *db, const char *sql, int64_t incarnation,
                                    unsigned rows, unsigned *out_n, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(db, sql);
    if (s == NULL) {
        return store_db_fail(db, "remove a job", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_int(s, 2, rows);
    enum deft_status status = store_db_step(db, s, "remove a job", error);
    if (status == DEFT_OK) {
        *out_n = (unsigned)sqlite3_changes(db->handle);
    }
    return status;
}

/* Tables are emptied in turn; a table that gave as many rows as it was asked for has more. */
static enum deft_status remove_incarnation(struct store_db *db, int64_t incarnation, unsigned rows,
                                           struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (size_t i = 0; i < sizeof(remove_tables) / sizeof(remove_tables[0]); i++) {
        unsigned most = rows / remove_tables[i].cost + 1;
        unsigned n = 0;
        status = remove_rows(db, remove_tables[i].sql, incarnation, most, &n, error);
        if (status != DEFT_OK || n == most) {
            return status;
        }
        unsigned cost = n * remove_tables[i].cost;
        rows = cost < rows ? rows - cost : 0;
    }
    return status;
}

enum deft_status store_remove_some(struct store_db *db, unsigned rows, int *out_again,
                                   struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT j.id, i.id FROM jobs j LEFT JOIN incarnations i ON i.job = j.id"
            " WHERE j.state = 'removing' LIMIT 1");
    if (s == NULL) {
        return store_db_fail(db, "be searched for a job", error);
    }
    int code = sqlite3_step(s);
    if (code != SQLITE_ROW) {
        *out_again = 0;
        return code == SQLITE_DONE ? DEFT_OK : store_db_fail(db, "be searched for a job", error);
    }
    *out_again = 1;
    if (sqlite3_column_type(s, 1) != SQLITE_NULL) {
        int64_t incarnation = sqlite3_column_int64(s, 1);
        (void)sqlite3_reset(s);
        return remove_incarnation(db, incarnation, rows, error);
    }
    char job[WIRE_ID_BYTES + 32];
    (void)snprintf(job, sizeof(job), "%s", store_db_text(s, 0));
    s = store_db_statement(db, "DELETE FROM jobs WHERE id = ?1");
    if (s == NULL) {
        return store_db_fail(db, "remove a job", error);
    }
    store_bind_text(s, 1, job);
    return store_db_step(db, s, "remove a job", error);
}
