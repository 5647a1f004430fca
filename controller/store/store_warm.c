/* What is read of a job's past for its next start: plans that did well, and what it wants kept. */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store.h"
#include "store/store_bind.h"
#include "store/store_db.h"

/* Starts that are looked at, newest first. */
#define WARM_MAX_STARTS 32

/* --- links -------------------------------------------------------------------------------------
 */

static int warm_same_links(const struct wire_registration *was, const struct store_warm_key *key) {
    if (was->n_links != key->n_links) {
        return 0;
    }
    for (uint32_t i = 0; i < was->n_links; i++) {
        if (strcmp(was->links[i].name, key->links[i]) != 0) {
            return 0;
        }
    }
    return 1;
}

/* Of a start whose registration was lost, e.g. in a damaged database: no. */
static enum deft_status warm_matches(struct store_db *db, int64_t incarnation,
                                     const struct store_warm_key *key, int *out,
                                     struct deft_error *error) {
    struct wire_registration was = {0};
    sqlite3_stmt *s = store_db_statement(db, "SELECT registration FROM incarnations WHERE id = ?1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    store_bind_int(s, 1, incarnation);
    int code = sqlite3_step(s);
    const char *text = code == SQLITE_ROW ? store_db_text(s, 0) : "";
    *out = wire_registration_decode(text, strlen(text), &was, NULL) == DEFT_OK &&
           warm_same_links(&was, key);
    wire_registration_done(&was);
    (void)sqlite3_reset(s);
    return code == SQLITE_ROW || code == SQLITE_DONE ? DEFT_OK
                                                     : store_db_fail(db, "be read", error);
}

/* --- verdicts ----------------------------------------------------------------------------------
 */

enum warm_verdict { WARM_NONE, WARM_GOOD, WARM_BAD };

/* The newest word on a plan counts. That an operator has left mode auto says nothing about one. */
static enum deft_status warm_judge(struct store_db *db, int64_t incarnation, enum warm_verdict *out,
                                   uint64_t *out_seq, struct deft_error *error) {
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT kind, plan_seq FROM decisions WHERE incarnation = ?1"
                               " AND kind IN ('commit', 'rollback', 'halt', 'fused')"
                               " AND NOT (kind = 'rollback' AND inputs LIKE '%\"event\":\"mode\"%')"
                               " ORDER BY id DESC LIMIT 1");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    store_bind_int(s, 1, incarnation);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        *out = strcmp(store_db_text(s, 0), "commit") == 0 ? WARM_GOOD : WARM_BAD;
        *out_seq = (uint64_t)sqlite3_column_int64(s, 1);
    }
    (void)sqlite3_reset(s);
    return code == SQLITE_ROW || code == SQLITE_DONE ? DEFT_OK
                                                     : store_db_fail(db, "be read", error);
}

static enum deft_status warm_take(struct store_db *db, int64_t incarnation, uint64_t seq,
                                  struct store_warm *out, struct deft_error *error) {
    enum deft_status status = DEFT_NOT_FOUND;
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT plan, hash FROM plans WHERE incarnation = ?1 AND seq = ?2");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    store_bind_int(s, 1, incarnation);
    store_bind_int(s, 2, (int64_t)seq);
    int code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
        char *plan = strdup(store_db_text(s, 0));
        status =
            plan != NULL ? DEFT_OK : deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a plan");
        if (plan != NULL) {
            out->plan = plan;
            out->hash = strtoull(store_db_text(s, 1), NULL, 16);
            store_plan_id_text(incarnation, seq, out->id);
        }
    } else if (code != SQLITE_DONE) {
        status = store_db_fail(db, "be read", error);
    }
    (void)sqlite3_reset(s);
    return status;
}

static enum deft_status warm_starts(struct store_db *db, int64_t incarnation,
                                    const struct store_warm_key *key, int64_t ids[WARM_MAX_STARTS],
                                    size_t *out_n, struct deft_error *error) {
    char hash[20];
    size_t n = 0;
    (void)snprintf(hash, sizeof(hash), "%016" PRIx64, key->table_hash);
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT i.id FROM incarnations i JOIN jobs j ON j.id = i.job"
            " WHERE i.table_hash = ?1 AND i.n_ranks = ?2 AND i.id < ?3 AND i.state <> 'removing'"
            " AND j.user = ?4 ORDER BY i.id DESC LIMIT ?5");
    if (s == NULL) {
        return store_db_fail(db, "be read", error);
    }
    store_bind_text(s, 1, hash);
    store_bind_int(s, 2, key->n_ranks);
    store_bind_int(s, 3, incarnation);
    store_bind_text(s, 4, key->user);
    store_bind_int(s, 5, WARM_MAX_STARTS);
    int code = sqlite3_step(s);
    for (; code == SQLITE_ROW && n < WARM_MAX_STARTS; code = sqlite3_step(s)) {
        ids[n++] = sqlite3_column_int64(s, 0);
    }
    (void)sqlite3_reset(s);
    *out_n = n;
    return code == SQLITE_ROW || code == SQLITE_DONE ? DEFT_OK
                                                     : store_db_fail(db, "be read", error);
}

static enum deft_status warm_find(struct store_db *db, int64_t incarnation,
                                  const struct store_warm_key *key, struct store_warm *out,
                                  struct deft_error *error) {
    int64_t ids[WARM_MAX_STARTS];
    size_t n = 0;
    uint64_t seq = 0;
    enum deft_status status = warm_starts(db, incarnation, key, ids, &n, error);
    for (size_t i = 0; i < n && status == DEFT_OK; i++) {
        enum warm_verdict verdict = WARM_NONE;
        int matches = 0;
        status = warm_judge(db, ids[i], &verdict, &seq, error);
        if (status == DEFT_OK && verdict != WARM_NONE) {
            status = warm_matches(db, ids[i], key, &matches, error);
        }
        if (status == DEFT_OK && matches && verdict == WARM_GOOD) {
            return warm_take(db, ids[i], seq, out, error);
        }
        if (matches) {
            break;
        }
    }
    return status == DEFT_OK ? deft_fail(error, DEFT_NOT_FOUND, 0, "no plan did well before")
                             : status;
}

enum deft_status store_read_warm(struct store *store, int64_t incarnation,
                                 const struct store_warm_key *key, struct store_warm *out,
                                 struct deft_error *error) {
    struct store_db *db = NULL;
    enum deft_status status = store_reader_take(store, &db, error);
    if (status == DEFT_OK) {
        status = warm_find(db, incarnation, key, out, error);
        store_reader_give(store, db);
    }
    return status;
}

/* --- plans by hash -----------------------------------------------------------------------------
 */

enum deft_status store_read_plan_id(struct store *store, const char *job, uint64_t hash,
                                    char out[STORE_ID_BYTES], struct deft_error *error) {
    struct store_db *db = NULL;
    char text[20];
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)snprintf(text, sizeof(text), "%016" PRIx64, hash);
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT p.incarnation, p.seq FROM incarnations i JOIN plans p ON p.incarnation = i.id"
            " WHERE i.job = ?1 AND p.hash = ?2 ORDER BY p.id DESC LIMIT 1");
    int code = SQLITE_ERROR;
    if (s != NULL) {
        store_bind_text(s, 1, job);
        store_bind_text(s, 2, text);
        code = sqlite3_step(s);
    }
    if (code == SQLITE_ROW) {
        store_plan_id_text(sqlite3_column_int64(s, 0), (uint64_t)sqlite3_column_int64(s, 1), out);
    } else if (code == SQLITE_DONE) {
        status = deft_fail(error, DEFT_NOT_FOUND, 0, "the job has no plan with the hash %s", text);
    } else {
        status = store_db_fail(db, "be read", error);
    }
    store_reader_give(store, db);
    return status;
}

/* --- what a job wants kept ---------------------------------------------------------------------
 */

enum deft_status store_read_keep(struct store *store, const char *job, struct store_keep *out,
                                 struct deft_error *error) {
    struct store_db *db = NULL;
    struct store_keep keep = {0};
    enum deft_status status = store_reader_take(store, &db, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT raw_ns, raw_iterations, minutes_ns, hours_ns, logs_ns, jobs_ns FROM job_keep"
            " WHERE job = ?1");
    int code = SQLITE_ERROR;
    if (s != NULL) {
        store_bind_text(s, 1, job);
        code = sqlite3_step(s);
    }
    if (code == SQLITE_ROW) { /* NULL reads as 0 */
        keep = (struct store_keep){.raw_ns = sqlite3_column_int64(s, 0),
                                   .raw_iterations = sqlite3_column_int64(s, 1),
                                   .minutes_ns = sqlite3_column_int64(s, 2),
                                   .hours_ns = sqlite3_column_int64(s, 3),
                                   .logs_ns = sqlite3_column_int64(s, 4),
                                   .jobs_ns = sqlite3_column_int64(s, 5)};
    } else if (code != SQLITE_DONE) {
        status = store_db_fail(db, "be read", error);
    }
    store_reader_give(store, db);
    if (status == DEFT_OK) {
        *out = keep;
    }
    return status;
}
