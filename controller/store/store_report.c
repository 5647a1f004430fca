/* A report, written so that it counts once. */
#include "store/store.h"

#include <sqlite3.h>
#include <string.h>

#include "store/store_bind.h"
#include "store/store_db.h"
#include "store/store_links.h"

/* What the database knows of the incarnation and agent of a report. Times are 0 for none. */
struct report_books {
    int has_history; /* a row of upkeep */
    int64_t newest;
    int64_t rolled_to;
    int64_t raw_from;
    int64_t raw_ns;
    int has_agent;
    int64_t committed_seq;
    int64_t events_ns;
    uint32_t n_taken;  /* iterations of this report that were not there yet */
    int64_t late_from; /* of them: the first that was rolled up without it; -1: none */
};

/* --- before -------------------------------------------------------------------------------------
 */

static enum deft_status report_read_books(struct store_db *db, const struct store_report *in,
                                          struct report_books *out, struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "SELECT u.newest, u.rolled_to, u.raw_from, u.raw_ns, a.committed_seq,"
            " a.events_ns FROM incarnations i LEFT JOIN upkeep u ON u.incarnation = i.id"
            " LEFT JOIN agents a ON a.incarnation = i.id AND a.agent = ?2"
            " WHERE i.id = ?1 AND i.state <> 'removing'");
    if (s == NULL) {
        return store_db_fail(db, "be searched for an agent", error);
    }
    store_bind_int(s, 1, in->incarnation);
    store_bind_text(s, 2, in->report.agent);
    int code = sqlite3_step(s);
    if (code == SQLITE_DONE) {
        return deft_fail(error, DEFT_NOT_FOUND, 0, "there is no such incarnation");
    }
    if (code != SQLITE_ROW) {
        return store_db_fail(db, "be searched for an agent", error);
    }
    *out = (struct report_books){.has_history = sqlite3_column_type(s, 0) != SQLITE_NULL,
                                 .newest = sqlite3_column_int64(s, 0),
                                 .rolled_to = sqlite3_column_int64(s, 1),
                                 .raw_from = sqlite3_column_int64(s, 2),
                                 .raw_ns = sqlite3_column_int64(s, 3),
                                 .has_agent = sqlite3_column_type(s, 4) != SQLITE_NULL,
                                 .committed_seq = sqlite3_column_int64(s, 4),
                                 .events_ns = sqlite3_column_int64(s, 5),
                                 .late_from = -1};
    if (!out->has_history) {
        out->newest = -1;
        out->rolled_to = -1;
    }
    (void)sqlite3_reset(s);
    return DEFT_OK;
}

/* An agent this database has not met is taken too: its registration may have been lost. */
static enum deft_status report_agent(struct store_db *db, const struct store_report *in,
                                     const struct report_books *books, struct deft_error *error) {
    int marks = books->events_ns == 0 && in->report.n_events > 0;
    sqlite3_stmt *s = NULL;
    if (books->has_agent && !marks) { /* nearly always, and without touching an index */
        s = store_db_statement(
            db, "UPDATE agents SET committed_seq = ?3 WHERE incarnation = ?1 AND agent = ?2");
    } else {
        s = store_db_statement(
            db, "INSERT INTO agents (incarnation, agent, committed_seq, registered_ns, events_ns)"
                " VALUES (?1, ?2, ?3, ?4, iif(?5, ?4, NULL))"
                " ON CONFLICT (incarnation, agent) DO UPDATE SET committed_seq = ?3,"
                " events_ns = coalesce(events_ns, iif(?5, ?4, NULL))");
    }
    if (s == NULL) {
        return store_db_fail(db, "take a report", error);
    }
    store_bind_int(s, 1, in->incarnation);
    store_bind_text(s, 2, in->report.agent);
    store_bind_int(s, 3, (int64_t)in->report.seq);
    if (!books->has_agent || marks) {
        store_bind_int(s, 4, in->now_ns);
        store_bind_int(s, 5, in->report.n_events > 0);
    }
    return store_db_step(db, s, "take a report", error);
}

/* --- rows ---------------------------------------------------------------------------------------
 */

static enum deft_status report_iteration(struct store_db *db, const struct store_report *in,
                                         const struct wire_iteration *row,
                                         struct deft_error *error) {
    sqlite3_stmt *s = store_db_statement(
        db, "INSERT OR IGNORE INTO iterations VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10,"
            " ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21)");
    if (s == NULL) {
        return store_db_fail(db, "take iterations", error);
    }
    const int64_t integers[] = {in->incarnation,        (int64_t)row->iteration, row->rank,
                                (int64_t)row->plan_seq, row->forward_ns,         row->backward_ns,
                                row->exposed_ns,        row->optimizer_ns,       row->runtime_ns,
                                row->step_ns,           (int64_t)row->bytes};
    for (int column = 0; column < 11; column++) {
        store_bind_int(s, column + 1, integers[column]);
    }
    store_bind_real(s, 12, row->loss);
    store_bind_real(s, 13, row->grad_sq_local);
    store_bind_real(s, 14, row->grad_sq_mean);
    store_bind_int(s, 15, row->updates);
    store_bind_int(s, 16, row->skipped);
    store_bind_int(s, 17, row->merge);
    store_bind_int(s, 18, row->flags);
    store_bind_real(s, 19, row->change_sq_local);
    store_bind_real(s, 20, row->learning_rate);
    store_bind_int(s, 21, in->now_ns);
    return store_db_step(db, s, "take iterations", error);
}

/* What retention has removed already is not taken again: nothing could be done with it. */
static enum deft_status report_iterations(struct store_db *db, const struct store_report *in,
                                          struct report_books *books, struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < in->report.n_iterations && status == DEFT_OK; i++) {
        const struct wire_iteration *row = &in->report.iterations[i];
        int64_t iteration = (int64_t)row->iteration;
        if (iteration < books->raw_from) {
            continue;
        }
        status = report_iteration(db, in, row, error);
        if (status != DEFT_OK || sqlite3_changes(db->handle) == 0) {
            continue;
        }
        books->n_taken++;
        books->newest = iteration > books->newest ? iteration : books->newest;
        if (iteration <= books->rolled_to &&
            (books->late_from < 0 || iteration < books->late_from)) {
            books->late_from = iteration;
        }
    }
    return status;
}

/* Upkeep finds its work by what is written here. */
static enum deft_status report_history(struct store_db *db, const struct store_report *in,
                                       const struct report_books *books, int64_t newest_before,
                                       struct deft_error *error) {
    sqlite3_stmt *s = NULL;
    int marks = !books->has_history || books->raw_ns == 0 || books->late_from >= 0;
    if (books->n_taken == 0 || (!marks && books->newest == newest_before)) {
        return DEFT_OK;
    }
    if (!marks) { /* nearly always, and touches one index only */
        s = store_db_statement(db, "UPDATE upkeep SET newest = ?2 WHERE incarnation = ?1");
    } else {
        s = store_db_statement(
            db, "INSERT INTO upkeep (incarnation, newest, raw_ns) VALUES (?1, ?2, ?3)"
                " ON CONFLICT (incarnation) DO UPDATE SET newest = ?2,"
                " raw_ns = coalesce(raw_ns, ?3),"
                " late_from = iif(late_ns IS NULL, ?4, min(late_from, coalesce(?4, late_from))),"
                " late_ns = iif(?4 IS NULL, late_ns, ?3)");
    }
    if (s == NULL) {
        return store_db_fail(db, "take iterations", error);
    }
    store_bind_int(s, 1, in->incarnation);
    store_bind_int(s, 2, books->newest);
    if (marks) {
        store_bind_int(s, 3, in->now_ns);
    }
    if (books->late_from >= 0) {
        store_bind_int(s, 4, books->late_from);
    }
    return store_db_step(db, s, "take iterations", error);
}

static enum deft_status report_readiness(struct store_db *db, const struct store_report *in,
                                         struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < in->report.n_readiness && status == DEFT_OK; i++) {
        const struct wire_readiness *row = &in->report.readiness[i];
        sqlite3_stmt *s = store_db_statement(
            db, "INSERT INTO readiness VALUES (?1, ?2, ?3, ?4) ON CONFLICT (incarnation, rank)"
                " DO UPDATE SET iteration = ?3, offsets_ns = ?4 WHERE iteration < ?3");
        if (s == NULL) {
            return store_db_fail(db, "take readiness", error);
        }
        store_bind_int(s, 1, in->incarnation);
        store_bind_int(s, 2, row->rank);
        store_bind_int(s, 3, (int64_t)row->iteration);
        (void)sqlite3_bind_blob(s, 4, row->offsets_ns,
                                (int)(row->n_offsets * sizeof(*row->offsets_ns)), SQLITE_STATIC);
        status = store_db_step(db, s, "take readiness", error);
    }
    return status;
}

/* --- events -------------------------------------------------------------------------------------
 */

/* What outlives the event itself. */
static enum deft_status report_fact(struct store_db *db, const struct store_report *in,
                                    const struct wire_event *event, struct deft_error *error) {
    int failed = strcmp(event->kind, "failed") == 0;
    sqlite3_stmt *s = NULL;
    if (strcmp(event->kind, "switched") == 0) {
        s = store_db_statement(
            db, "INSERT INTO activations VALUES (?1, ?2, ?3) ON CONFLICT (incarnation, plan_seq)"
                " DO UPDATE SET iteration = ?3 WHERE iteration > ?3");
    } else if (failed || strcmp(event->kind, "finished") == 0) {
        s = store_db_statement(db, "INSERT OR IGNORE INTO ends VALUES (?1, ?2, ?3)");
    } else {
        return DEFT_OK;
    }
    if (s == NULL) {
        return store_db_fail(db, "take events", error);
    }
    store_bind_int(s, 1, in->incarnation);
    if (strcmp(event->kind, "switched") == 0) {
        store_bind_int(s, 2, (int64_t)event->plan_seq);
        store_bind_int(s, 3, (int64_t)event->iteration);
    } else {
        store_bind_int(s, 2, event->rank);
        store_bind_int(s, 3, failed);
    }
    return store_db_step(db, s, "take events", error);
}

static enum deft_status report_events(struct store_db *db, const struct store_report *in,
                                      struct deft_error *error) {
    enum deft_status status = DEFT_OK;
    for (uint32_t i = 0; i < in->report.n_events && status == DEFT_OK; i++) {
        const struct wire_event *event = &in->report.events[i];
        sqlite3_stmt *s =
            store_db_statement(db, "INSERT OR IGNORE INTO events VALUES (?1, ?2, ?3, ?4, ?5, ?6,"
                                   " ?7, ?8, ?9, ?10, ?11)");
        if (s == NULL) {
            return store_db_fail(db, "take events", error);
        }
        store_bind_int(s, 1, in->incarnation);
        store_bind_text(s, 2, in->report.agent);
        store_bind_int(s, 3, (int64_t)in->report.seq);
        store_bind_int(s, 4, i);
        store_bind_int(s, 5, event->rank);
        store_bind_text(s, 6, event->kind);
        store_bind_int(s, 7, (int64_t)event->plan_seq);
        store_bind_int(s, 8, (int64_t)event->iteration);
        store_bind_int(s, 9, (int64_t)event->count);
        store_bind_text(s, 10, event->text);
        store_bind_int(s, 11, in->now_ns);
        status = store_db_step(db, s, "take events", error);
        if (status == DEFT_OK) {
            status = report_fact(db, in, event, error);
        }
    }
    return status;
}

/* --- all of it ----------------------------------------------------------------------------------
 */

static enum deft_status report_apply(struct store_db *db, struct store_write *write,
                                     struct deft_error *error) {
    struct store_report *in = (struct store_report *)write;
    struct report_books books = {0};
    enum deft_status status = report_read_books(db, in, &books, error);
    if (status != DEFT_OK) {
        return status;
    }
    int64_t newest_before = books.newest;
    in->is_fresh = (int64_t)in->report.seq > books.committed_seq;
    in->committed_seq = in->is_fresh ? in->report.seq : (uint64_t)books.committed_seq;
    if (!in->is_fresh) {
        return DEFT_OK;
    }
    status = report_agent(db, in, &books, error);
    if (status == DEFT_OK) {
        status = report_iterations(db, in, &books, error);
    }
    if (status == DEFT_OK) {
        status = report_history(db, in, &books, newest_before, error);
    }
    if (status == DEFT_OK) {
        status = store_links_add(db, in->incarnation, in->report.n_ops, in->report.ops, error);
    }
    if (status == DEFT_OK) {
        status = report_readiness(db, in, error);
    }
    return status == DEFT_OK ? report_events(db, in, error) : status;
}

void store_report_init(struct store_report *write) {
    memset(write, 0, sizeof(*write));
    write->write.apply = report_apply;
}
