/* The other writes: registrations, changes, what a job wants kept. */
#include "store/store.h"

#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_access.h"
#include "store/store_bind.h"
#include "store/store_db.h"

static void write_hash_text(uint64_t hash, char out[20]) {
    (void)snprintf(out, 20, "%016" PRIx64, hash);
}

/* --- registrations -----------------------------------------------------------------------------
 */

static enum deft_status register_job(struct store_db *db, const struct store_register *in,
                                     struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT INTO jobs (id, user, state, mode, max_merge, max_delay, epsilon,"
            " min_progress, loss_floor, summary, created_ns, updated_ns)"
            " VALUES (?1, ?2, 'running', ?3, ?4, ?5, ?10, ?11, ?12, '', ?6, ?6)"
            " ON CONFLICT (id) DO UPDATE SET user = ?2, state = 'running', updated_ns = ?6,"
            " mode = CASE WHEN ?7 THEN ?3 ELSE mode END,"
            " max_merge = CASE WHEN ?8 THEN ?4 ELSE max_merge END,"
            " max_delay = CASE WHEN ?9 THEN ?5 ELSE max_delay END,"
            " epsilon = CASE WHEN ?13 THEN ?10 ELSE epsilon END");
    if (s == NULL) {
        return store_db_fail(db, "take a job", error);
    }
    const struct wire_registration *r = in->registration;
    store_bind_text(s, 1, in->job);
    store_bind_text(s, 2, r->user);
    store_bind_text(s, 3, in->mode);
    store_bind_int(s, 4, in->limits.max_merge);
    store_bind_int(s, 5, in->limits.max_delay);
    store_bind_int(s, 6, in->now_ns);
    store_bind_int(s, 7, r->mode[0] != '\0');
    store_bind_int(s, 8, r->max_merge > 0);
    store_bind_int(s, 9, r->max_delay > 0);
    store_bind_real(s, 10, in->limits.epsilon);
    store_bind_real(s, 11, in->limits.min_progress);
    store_bind_real(s, 12, in->limits.loss_floor);
    store_bind_int(s, 13, r->epsilon > 0.0);
    return store_db_step(db, s, "take a job", error);
}

static enum deft_status register_find(struct store_db *db, struct store_register *in,
                                      int *out_found, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT id, n_ranks, table_hash FROM incarnations WHERE job = ?1 AND key = ?2");
    if (s == NULL) {
        return store_db_fail(db, "be searched for an incarnation", error);
    }
    store_bind_text(s, 1, in->job);
    store_bind_text(s, 2, in->registration->key);
    int code = sqlite3_step(s);
    *out_found = code == SQLITE_ROW;
    if (code == SQLITE_ROW) {
        in->incarnation = sqlite3_column_int64(s, 0);
        in->n_ranks = (uint32_t)sqlite3_column_int64(s, 1);
        in->table_hash = strtoull(store_db_text(s, 2), NULL, 16);
    } else if (code != SQLITE_DONE) {
        return store_db_fail(db, "be searched for an incarnation", error);
    }
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

/* A number is never given twice: an agent may still report under the one of a job that was removed.
 */
static enum deft_status register_next_id(struct store_db *db, int64_t *out,
                                         struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "UPDATE sequences SET last = last + 1 WHERE name = 'incarnations' RETURNING last");
    if (s == NULL || sqlite3_step(s) != SQLITE_ROW) {
        return store_db_fail(db, "take an incarnation", error);
    }
    *out = sqlite3_column_int64(s, 0);
    return store_db_step(db, s, "take an incarnation", error);
}

/* A job runs once at a time: what ran before it has ended, or nobody is left to say so. */
static enum deft_status register_close_old(struct store_db *db, struct store_register *in,
                                           int64_t id, struct deft_error *error) {
    sqlite3_stmt *older =
        store_db_statement(db, "SELECT 1 FROM incarnations WHERE job = ?1 AND id <> ?2 LIMIT 1");
    if (older == NULL) {
        return store_db_fail(db, "be searched for an incarnation", error);
    }
    store_bind_text(older, 1, in->job);
    store_bind_int(older, 2, id);
    int code = sqlite3_step(older);
    (void)sqlite3_reset(older);
    in->has_older = code == SQLITE_ROW;
    if (code == SQLITE_DONE) {
        return DEFT_OK;
    }
    sqlite3_stmt *s = store_db_statement(db, "UPDATE incarnations SET state = 'lost'"
                                             " WHERE job = ?1 AND id <> ?2 AND state = 'running'");
    if (s == NULL) {
        return store_db_fail(db, "take an incarnation", error);
    }
    store_bind_text(s, 1, in->job);
    store_bind_int(s, 2, id);
    return store_db_step(db, s, "take an incarnation", error);
}

static enum deft_status register_incarnation(struct store_db *db, struct store_register *in,
                                             struct deft_error *error) {
    char hash[20];
    int64_t id = 0;
    enum deft_status status = register_next_id(db, &id, error);
    if (status != DEFT_OK) {
        return status;
    }
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT INTO incarnations (job, key, state, n_ranks, table_hash, registration, tuner,"
            " profile, registered_ns, updated_ns, id)"
            " VALUES (?1, ?2, 'running', ?3, ?4, ?5, '', '', ?6, ?6, ?7)");
    if (s == NULL) {
        return store_db_fail(db, "take an incarnation", error);
    }
    write_hash_text(in->registration->table_hash, hash);
    store_bind_text(s, 1, in->job);
    store_bind_text(s, 2, in->registration->key);
    store_bind_int(s, 3, in->registration->n_ranks);
    store_bind_text(s, 4, hash);
    store_bind_text(s, 5, in->registration_text);
    store_bind_int(s, 6, in->now_ns);
    store_bind_int(s, 7, id);
    status = store_db_step(db, s, "take an incarnation", error);
    if (status == DEFT_OK) {
        status = register_close_old(db, in, id, error);
    }
    if (status == DEFT_OK) {
        in->incarnation = id;
        in->n_ranks = in->registration->n_ranks;
        in->table_hash = in->registration->table_hash;
        in->is_new = 1;
    }
    return status;
}

static enum deft_status register_agent(struct store_db *db, struct store_register *in,
                                       struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT INTO agents (incarnation, agent, committed_seq, registered_ns)"
            " VALUES (?1, ?2, 0, ?3) ON CONFLICT (incarnation, agent)"
            " DO UPDATE SET registered_ns = ?3 RETURNING committed_seq");
    if (s == NULL) {
        return store_db_fail(db, "take an agent", error);
    }
    store_bind_int(s, 1, in->incarnation);
    store_bind_text(s, 2, in->registration->agent);
    store_bind_int(s, 3, in->now_ns);
    if (sqlite3_step(s) != SQLITE_ROW) {
        return store_db_fail(db, "take an agent", error);
    }
    in->committed_seq = (uint64_t)sqlite3_column_int64(s, 0);
    return store_db_step(db, s, "take an agent", error);
}

static enum deft_status register_apply(struct store_db *db, struct store_write *write,
                                       struct deft_error *error) {
    struct store_register *in = (struct store_register *)write;
    int found = 0;
    enum deft_status status = register_find(db, in, &found, error);
    if (status == DEFT_OK && !found) {
        status = register_job(db, in, error);
        if (status == DEFT_OK) {
            status = register_incarnation(db, in, error);
        }
    }
    if (status == DEFT_OK && (in->n_ranks != in->registration->n_ranks ||
                              in->table_hash != in->registration->table_hash)) {
        return deft_fail(error, DEFT_MISMATCH, 0,
                         "the incarnation has %u ranks and table %016" PRIx64
                         ", but this agent has %u and %016" PRIx64,
                         in->n_ranks, in->table_hash, in->registration->n_ranks,
                         in->registration->table_hash);
    }
    return status == DEFT_OK ? register_agent(db, in, error) : status;
}

void store_register_init(struct store_register *write) {
    memset(write, 0, sizeof(*write));
    write->write.apply = register_apply;
}

/* --- changes -----------------------------------------------------------------------------------
 */

static enum deft_status change_plan(struct store_db *db, struct store_change *in,
                                    struct deft_error *error) {
    char hash[20];
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT INTO plans (incarnation, seq, hash, plan, solution, created_ns, max_loss,"
            " max_grad_sq) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)");
    if (s == NULL) {
        return store_db_fail(db, "take a plan", error);
    }
    write_hash_text(in->plan_hash, hash);
    store_bind_int(s, 1, in->incarnation);
    store_bind_int(s, 2, (int64_t)in->plan_seq);
    store_bind_text(s, 3, hash);
    store_bind_text(s, 4, in->plan);
    store_bind_text(s, 5, in->solution != NULL ? in->solution : "");
    store_bind_int(s, 6, in->now_ns);
    store_bind_real(s, 7, in->max_loss);
    store_bind_real(s, 8, in->max_grad_sq);
    return store_db_step(db, s, "take a plan", error);
}

static enum deft_status change_decision(struct store_db *db, const struct store_change *in,
                                        struct deft_error *error) {
    const struct wire_decision *d = in->decision;
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT INTO decisions (incarnation, at_ns, kind, iteration, plan_seq, exact_step_ns,"
            " before_step_ns, predicted_step_ns, measured_step_ns, reason, inputs, solve)"
            " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)");
    if (s == NULL) {
        return store_db_fail(db, "take a decision", error);
    }
    store_bind_int(s, 1, in->incarnation);
    store_bind_int(s, 2, in->now_ns);
    store_bind_text(s, 3, d->kind);
    store_bind_int(s, 4, (int64_t)d->iteration);
    store_bind_int(s, 5, (int64_t)d->plan_seq);
    store_bind_int(s, 6, d->exact_step_ns);
    store_bind_int(s, 7, d->before_step_ns);
    store_bind_int(s, 8, d->predicted_step_ns);
    store_bind_int(s, 9, d->measured_step_ns);
    store_bind_text(s, 10, d->reason);
    store_bind_text(s, 11, in->inputs != NULL ? in->inputs : "");
    store_bind_text(s, 12, in->solve != NULL ? in->solve : "");
    return store_db_step(db, s, "take a decision", error);
}

static enum deft_status change_incarnation(struct store_db *db, const struct store_change *in,
                                           struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "UPDATE incarnations SET state = coalesce(?2, state), tuner = coalesce(?3, tuner),"
            " profile = coalesce(?4, profile), updated_ns = ?5 WHERE id = ?1");
    if (s == NULL) {
        return store_db_fail(db, "change an incarnation", error);
    }
    store_bind_int(s, 1, in->incarnation);
    store_bind_text(s, 2, in->state);
    store_bind_text(s, 3, in->tuner);
    store_bind_text(s, 4, in->profile);
    store_bind_int(s, 5, in->now_ns);
    return store_db_step(db, s, "change an incarnation", error);
}

static enum deft_status change_job(struct store_db *db, const struct store_change *in,
                                   struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "UPDATE jobs SET state = coalesce(?2, state), mode = coalesce(?3, mode),"
            " max_merge = coalesce(?4, max_merge), max_delay = coalesce(?5, max_delay),"
            " summary = coalesce(?6, summary), updated_ns = ?7, epsilon = coalesce(?8, epsilon),"
            " min_progress = coalesce(?9, min_progress),"
            " loss_floor = CASE WHEN ?4 IS NULL THEN loss_floor ELSE ?10 END,"
            " frozen = coalesce(?11, frozen), pin = coalesce(?12, pin) WHERE id = ?1");
    if (s == NULL) {
        return store_db_fail(db, "change a job", error);
    }
    store_bind_text(s, 1, in->job);
    store_bind_text(s, 2, in->state);
    store_bind_text(s, 3, in->mode);
    if (in->limits != NULL) {
        store_bind_int(s, 4, in->limits->max_merge);
        store_bind_int(s, 5, in->limits->max_delay);
        store_bind_real(s, 8, in->limits->epsilon);
        store_bind_real(s, 9, in->limits->min_progress);
        store_bind_real(s, 10, in->limits->loss_floor);
    }
    store_bind_text(s, 6, in->summary);
    store_bind_int(s, 7, in->now_ns);
    if (in->frozen >= 0) {
        store_bind_int(s, 11, in->frozen);
    }
    store_bind_text(s, 12, in->pin);
    return store_db_step(db, s, "change a job", error);
}

/* The job may have been removed since the change was thought of. */
static enum deft_status change_find(struct store_db *db, const struct store_change *in,
                                    struct deft_error *error) {
    sqlite3_stmt *s =
        store_db_statement(db, "SELECT 1 FROM incarnations WHERE id = ?1 AND state <> 'removing'");
    if (s == NULL) {
        return store_db_fail(db, "be searched for an incarnation", error);
    }
    store_bind_int(s, 1, in->incarnation);
    int code = sqlite3_step(s);
    (void)sqlite3_reset(s);
    if (code == SQLITE_DONE) {
        return deft_fail(error, DEFT_NOT_FOUND, 0, "there is no such incarnation");
    }
    return code == SQLITE_ROW ? DEFT_OK
                              : store_db_fail(db, "be searched for an incarnation", error);
}

static enum deft_status change_apply(struct store_db *db, struct store_write *write,
                                     struct deft_error *error) {
    struct store_change *in = (struct store_change *)write;
    enum deft_status status = in->incarnation != 0 ? change_find(db, in, error) : DEFT_OK;
    if (status == DEFT_OK && in->plan != NULL) {
        status = change_plan(db, in, error);
    }
    if (status == DEFT_OK && in->decision != NULL) {
        status = change_decision(db, in, error);
    }
    if (status == DEFT_OK && in->incarnation != 0) {
        status = change_incarnation(db, in, error);
    }
    if (status == DEFT_OK && in->job != NULL) {
        status = change_job(db, in, error);
    }
    if (status == DEFT_OK && in->audit != NULL) {
        status = store_audit_insert(db, in->audit, error);
    }
    return status;
}

void store_change_init(struct store_change *write) {
    memset(write, 0, sizeof(*write));
    write->write.apply = change_apply;
    write->frozen = -1;
    write->max_loss = (double)NAN;
    write->max_grad_sq = (double)NAN;
}

/* --- retention of a job -------------------------------------------------------------------------
 */

static void keep_bind(sqlite3_stmt *s, int parameter, int64_t value) {
    if (value != 0) {
        store_bind_int(s, parameter, value);
    }
}

static enum deft_status keep_apply(struct store_db *db, struct store_write *write,
                                   struct deft_error *error) {
    const struct store_keep_job *in = (const struct store_keep_job *)write;
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT OR REPLACE INTO job_keep SELECT id, ?2, ?3, ?4, ?5, ?6, ?7 FROM jobs"
            " WHERE id = ?1 AND state <> 'removing'");
    if (s == NULL) {
        return store_db_fail(db, "change what is kept of a job", error);
    }
    store_bind_text(s, 1, in->job);
    keep_bind(s, 2, in->keep.raw_ns);
    keep_bind(s, 3, in->keep.raw_iterations);
    keep_bind(s, 4, in->keep.minutes_ns);
    keep_bind(s, 5, in->keep.hours_ns);
    keep_bind(s, 6, in->keep.logs_ns);
    keep_bind(s, 7, in->keep.jobs_ns);
    enum deft_status status = store_db_step(db, s, "change what is kept of a job", error);
    if (status == DEFT_OK && sqlite3_changes(db->handle) == 0) {
        return deft_fail(error, DEFT_NOT_FOUND, 0, "there is no such job");
    }
    return status == DEFT_OK && in->audit != NULL ? store_audit_insert(db, in->audit, error)
                                                  : status;
}

void store_keep_job_init(struct store_keep_job *write) {
    memset(write, 0, sizeof(*write));
    write->write.apply = keep_apply;
}
