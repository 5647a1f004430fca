#include "store/store.h"

#include <inttypes.h>
#include <math.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store/store_access.h"
#include "store/store_db.h"

#define BIND_INT(statement, column, value)                                                         \
    (void)sqlite3_bind_int64((statement), (column), (sqlite3_int64)(value))
/* Texts live until the statement is stepped. */
#define BIND_TEXT(statement, column, value)                                                        \
    (void)sqlite3_bind_text((statement), (column), (value), -1, SQLITE_STATIC)

static void write_bind_real(sqlite3_stmt *statement, int column, double value) {
    if (isfinite(value)) {
        (void)sqlite3_bind_double(statement, column, value);
    } else {
        (void)sqlite3_bind_null(statement, column);
    }
}

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
            " max_delay = CASE WHEN ?9 THEN ?5 ELSE max_delay END");
    if (s == NULL) {
        return store_db_fail(db, "take a job", error);
    }
    const struct wire_registration *r = in->registration;
    BIND_TEXT(s, 1, in->job);
    BIND_TEXT(s, 2, r->user);
    BIND_TEXT(s, 3, in->mode);
    BIND_INT(s, 4, in->limits.max_merge);
    BIND_INT(s, 5, in->limits.max_delay);
    BIND_INT(s, 6, in->now_ns);
    BIND_INT(s, 7, r->mode[0] != '\0');
    BIND_INT(s, 8, r->max_merge > 0);
    BIND_INT(s, 9, r->max_delay > 0);
    write_bind_real(s, 10, in->limits.epsilon);
    write_bind_real(s, 11, in->limits.min_progress);
    write_bind_real(s, 12, in->limits.loss_floor);
    return store_db_step(db, s, "take a job", error);
}

static enum deft_status register_find(struct store_db *db, struct store_register *in,
                                      int *out_found, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT id, n_ranks, table_hash FROM incarnations WHERE job = ?1 AND key = ?2");
    if (s == NULL) {
        return store_db_fail(db, "be searched for an incarnation", error);
    }
    BIND_TEXT(s, 1, in->job);
    BIND_TEXT(s, 2, in->registration->key);
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

static enum deft_status register_incarnation(struct store_db *db, struct store_register *in,
                                             struct deft_error *error) {
    char hash[20];
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT INTO incarnations (job, key, state, n_ranks, table_hash, registration, tuner,"
            " profile, registered_ns, updated_ns)"
            " VALUES (?1, ?2, 'running', ?3, ?4, ?5, '', '', ?6, ?6)");
    if (s == NULL) {
        return store_db_fail(db, "take an incarnation", error);
    }
    write_hash_text(in->registration->table_hash, hash);
    BIND_TEXT(s, 1, in->job);
    BIND_TEXT(s, 2, in->registration->key);
    BIND_INT(s, 3, in->registration->n_ranks);
    BIND_TEXT(s, 4, hash);
    BIND_TEXT(s, 5, in->registration_text);
    BIND_INT(s, 6, in->now_ns);
    enum deft_status status = store_db_step(db, s, "take an incarnation", error);
    if (status == DEFT_OK) {
        in->incarnation = sqlite3_last_insert_rowid(db->handle);
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
    BIND_INT(s, 1, in->incarnation);
    BIND_TEXT(s, 2, in->registration->agent);
    BIND_INT(s, 3, in->now_ns);
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

/* --- reports ------------------------------------------------------------------------------------
 */

static enum deft_status report_iterations(struct store_db *db, const struct store_report *in,
                                          struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < in->report.n_iterations && status == DEFT_OK; i++) {
        const struct wire_iteration *row = &in->report.iterations[i];
        sqlite3_stmt *s = store_db_statement(
            db, "INSERT OR IGNORE INTO iterations VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
                " ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)");
        if (s == NULL) {
            return store_db_fail(db, "take iterations", error);
        }
        const int64_t integers[] = {
            in->incarnation,        (int64_t)row->iteration, row->rank,
            (int64_t)row->plan_seq, row->forward_ns,         row->backward_ns,
            row->exposed_ns,        row->optimizer_ns,       row->runtime_ns,
            row->step_ns,           (int64_t)row->bytes};
        for (int column = 0; column < 11; column++) {
            BIND_INT(s, column + 1, integers[column]);
        }
        write_bind_real(s, 12, row->loss);
        write_bind_real(s, 13, row->grad_sq_local);
        write_bind_real(s, 14, row->grad_sq_mean);
        BIND_INT(s, 15, row->updates);
        BIND_INT(s, 16, row->skipped);
        BIND_INT(s, 17, row->merge);
        BIND_INT(s, 18, row->flags);
        write_bind_real(s, 19, row->change_sq_local);
        write_bind_real(s, 20, row->learning_rate);
        status = store_db_step(db, s, "take iterations", error);
    }
    return status;
}

static enum deft_status report_ops(struct store_db *db, const struct store_report *in,
                                   struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < in->report.n_ops && status == DEFT_OK; i++) {
        const struct wire_op_summary *op = &in->report.ops[i];
        sqlite3_stmt *s = store_db_statement(
            db, "INSERT OR IGNORE INTO ops VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)");
        if (s == NULL) {
            return store_db_fail(db, "take all-reduces", error);
        }
        BIND_INT(s, 1, in->incarnation);
        BIND_TEXT(s, 2, in->report.agent);
        BIND_INT(s, 3, in->report.seq);
        BIND_INT(s, 4, i);
        BIND_INT(s, 5, op->rank);
        BIND_INT(s, 6, op->link);
        BIND_INT(s, 7, op->bytes);
        BIND_INT(s, 8, op->count);
        BIND_INT(s, 9, op->min_ns);
        BIND_INT(s, 10, op->median_ns);
        BIND_INT(s, 11, op->max_ns);
        status = store_db_step(db, s, "take all-reduces", error);
    }
    return status;
}

static enum deft_status report_readiness(struct store_db *db, const struct store_report *in,
                                         struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < in->report.n_readiness && status == DEFT_OK; i++) {
        const struct wire_readiness *row = &in->report.readiness[i];
        sqlite3_stmt *s =
            store_db_statement(db, "INSERT OR REPLACE INTO readiness VALUES (?1, ?2, ?3, ?4)");
        if (s == NULL) {
            return store_db_fail(db, "take readiness", error);
        }
        BIND_INT(s, 1, in->incarnation);
        BIND_INT(s, 2, row->rank);
        BIND_INT(s, 3, row->iteration);
        (void)sqlite3_bind_blob(s, 4, row->offsets_ns,
                                (int)(row->n_offsets * sizeof(*row->offsets_ns)), SQLITE_STATIC);
        status = store_db_step(db, s, "take readiness", error);
    }
    return status;
}

static enum deft_status report_events(struct store_db *db, const struct store_report *in,
                                      struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < in->report.n_events && status == DEFT_OK; i++) {
        const struct wire_event *event = &in->report.events[i];
        sqlite3_stmt *s = store_db_statement(
            db,
            "INSERT OR IGNORE INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)");
        if (s == NULL) {
            return store_db_fail(db, "take events", error);
        }
        BIND_INT(s, 1, in->incarnation);
        BIND_TEXT(s, 2, in->report.agent);
        BIND_INT(s, 3, in->report.seq);
        BIND_INT(s, 4, i);
        BIND_INT(s, 5, event->rank);
        BIND_TEXT(s, 6, event->kind);
        BIND_INT(s, 7, event->plan_seq);
        BIND_INT(s, 8, event->iteration);
        BIND_INT(s, 9, event->count);
        BIND_TEXT(s, 10, event->text);
        BIND_INT(s, 11, in->now_ns);
        status = store_db_step(db, s, "take events", error);
    }
    return status;
}

/* An agent this database has not met is taken too: its registration may have been lost. */
static enum deft_status report_sequence(struct store_db *db, struct store_report *in,
                                        struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT committed_seq FROM agents WHERE incarnation = ?1 AND agent = ?2");
    if (s == NULL) {
        return store_db_fail(db, "be searched for an agent", error);
    }
    BIND_INT(s, 1, in->incarnation);
    BIND_TEXT(s, 2, in->report.agent);
    int code = sqlite3_step(s);
    uint64_t committed = code == SQLITE_ROW ? (uint64_t)sqlite3_column_int64(s, 0) : 0;
    (void)sqlite3_reset(s);
    if (code != SQLITE_ROW && code != SQLITE_DONE) {
        return store_db_fail(db, "be searched for an agent", error);
    }
    in->is_fresh = in->report.seq > committed;
    in->committed_seq = in->is_fresh ? in->report.seq : committed;
    if (!in->is_fresh) {
        return DEFT_OK;
    }
    s = store_db_statement(db,
                           "INSERT INTO agents (incarnation, agent, committed_seq, registered_ns)"
                           " VALUES (?1, ?2, ?3, ?4) ON CONFLICT (incarnation, agent)"
                           " DO UPDATE SET committed_seq = ?3");
    if (s == NULL) {
        return store_db_fail(db, "take a report", error);
    }
    BIND_INT(s, 1, in->incarnation);
    BIND_TEXT(s, 2, in->report.agent);
    BIND_INT(s, 3, in->report.seq);
    BIND_INT(s, 4, in->now_ns);
    return store_db_step(db, s, "take a report", error);
}

static enum deft_status report_apply(struct store_db *db, struct store_write *write,
                                     struct deft_error *error) {
    struct store_report *in = (struct store_report *)write;
    enum deft_status status = report_sequence(db, in, error);
    if (status != DEFT_OK || !in->is_fresh) {
        return status;
    }
    status = report_iterations(db, in, error);
    if (status == DEFT_OK) {
        status = report_ops(db, in, error);
    }
    if (status == DEFT_OK) {
        status = report_readiness(db, in, error);
    }
    if (status == DEFT_OK) {
        status = report_events(db, in, error);
    }
    return status;
}

void store_report_init(struct store_report *write) {
    memset(write, 0, sizeof(*write));
    write->write.apply = report_apply;
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
    BIND_INT(s, 1, in->incarnation);
    BIND_INT(s, 2, in->plan_seq);
    BIND_TEXT(s, 3, hash);
    BIND_TEXT(s, 4, in->plan);
    BIND_TEXT(s, 5, in->solution != NULL ? in->solution : "");
    BIND_INT(s, 6, in->now_ns);
    write_bind_real(s, 7, in->max_loss);
    write_bind_real(s, 8, in->max_grad_sq);
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
    BIND_INT(s, 1, in->incarnation);
    BIND_INT(s, 2, in->now_ns);
    BIND_TEXT(s, 3, d->kind);
    BIND_INT(s, 4, d->iteration);
    BIND_INT(s, 5, d->plan_seq);
    BIND_INT(s, 6, d->exact_step_ns);
    BIND_INT(s, 7, d->before_step_ns);
    BIND_INT(s, 8, d->predicted_step_ns);
    BIND_INT(s, 9, d->measured_step_ns);
    BIND_TEXT(s, 10, d->reason);
    BIND_TEXT(s, 11, in->inputs != NULL ? in->inputs : "");
    BIND_TEXT(s, 12, in->solve != NULL ? in->solve : "");
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
    BIND_INT(s, 1, in->incarnation);
    BIND_TEXT(s, 2, in->state);
    BIND_TEXT(s, 3, in->tuner);
    BIND_TEXT(s, 4, in->profile);
    BIND_INT(s, 5, in->now_ns);
    return store_db_step(db, s, "change an incarnation", error);
}

static enum deft_status change_job(struct store_db *db, const struct store_change *in,
                                   struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "UPDATE jobs SET state = coalesce(?2, state), mode = coalesce(?3, mode),"
            " max_merge = coalesce(?4, max_merge), max_delay = coalesce(?5, max_delay),"
            " summary = coalesce(?6, summary), updated_ns = ?7, epsilon = coalesce(?8, epsilon),"
            " min_progress = coalesce(?9, min_progress),"
            " loss_floor = CASE WHEN ?4 IS NULL THEN loss_floor ELSE ?10 END WHERE id = ?1");
    if (s == NULL) {
        return store_db_fail(db, "change a job", error);
    }
    BIND_TEXT(s, 1, in->job);
    BIND_TEXT(s, 2, in->state);
    BIND_TEXT(s, 3, in->mode);
    if (in->limits != NULL) {
        BIND_INT(s, 4, in->limits->max_merge);
        BIND_INT(s, 5, in->limits->max_delay);
        write_bind_real(s, 8, in->limits->epsilon);
        write_bind_real(s, 9, in->limits->min_progress);
        write_bind_real(s, 10, in->limits->loss_floor);
    }
    BIND_TEXT(s, 6, in->summary);
    BIND_INT(s, 7, in->now_ns);
    return store_db_step(db, s, "change a job", error);
}

static enum deft_status change_apply(struct store_db *db, struct store_write *write,
                                     struct deft_error *error) {
    struct store_change *in = (struct store_change *)write;
    enum deft_status status = DEFT_OK;
    if (in->plan != NULL) {
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
    write->max_loss = (double)NAN;
    write->max_grad_sq = (double)NAN;
}
