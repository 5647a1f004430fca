/* What was acknowledged against what the database has. */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load_agent.h"

struct check {
    const struct load_fleet *fleet;
    uint64_t *n_rows; /* [n_agents] */
    uint64_t lost;
    uint64_t twice;
    int is_readable;
};

static const struct load_job *check_job(const struct check *check, const char *id) {
    const char *number = strncmp(id, "load-", 5) == 0 ? id + 5 : NULL;
    unsigned long at = number != NULL ? strtoul(number, NULL, 10) : UINT32_MAX;
    return at < check->fleet->n_jobs ? &check->fleet->jobs[at] : NULL;
}

/* How many reports of an agent must be there, and how many may. */
static void check_bounds(const struct load_agent *agent, uint64_t *out_least, uint64_t *out_most) {
    *out_least = agent->n_acked;
    *out_most = agent->n_acked + 1; /* one that has no answer may have been taken */
}

/* Rows are numbers from 0 on, so how many there are and what they sum up to tell which. */
static void check_rows(struct check *check, const struct load_agent *agent, const char *what,
                       uint64_t per_report, uint64_t n, int sums_up) {
    uint64_t least = 0;
    uint64_t most = 0;
    check_bounds(agent, &least, &most);
    uint64_t lost = n < least * per_report ? least * per_report - n : 0;
    uint64_t twice = n > most * per_report ? n - most * per_report : 0;
    if (lost == 0 && twice == 0 && (!sums_up || n % per_report != 0)) {
        lost = 1;
    }
    check->lost += lost;
    check->twice += twice;
    if (lost + twice > 0) {
        (void)fprintf(stderr, "load: job %s, rank %u: %" PRIu64 " %s, expected %" PRIu64 "\n",
                      agent->job->id, agent->rank, n, what, least * per_report);
    }
}

static int check_iterations(struct check *check, sqlite3_stmt *row) {
    const struct load_job *job =
        check_job(check, (const char *)(const void *)sqlite3_column_text(row, 0));
    uint32_t rank = (uint32_t)sqlite3_column_int64(row, 1);
    if (job == NULL || rank >= job->n_agents) {
        return 0;
    }
    const struct load_agent *agent = &check->fleet->agents[job->first_agent + rank];
    uint64_t n = (uint64_t)sqlite3_column_int64(row, 2);
    uint64_t sum = (uint64_t)sqlite3_column_int64(row, 3);
    check->n_rows[job->first_agent + rank]++;
    check_rows(check, agent, "iterations", job->n_iterations, n, sum == n * (n - 1) / 2);
    return 1;
}

/* All-reduces are there as sums over a job's agents. */
static int check_ops(struct check *check, sqlite3_stmt *row) {
    const struct load_job *job =
        check_job(check, (const char *)(const void *)sqlite3_column_text(row, 0));
    uint64_t n = (uint64_t)sqlite3_column_int64(row, 1);
    uint64_t least = 0;
    uint64_t most = 0;
    for (uint32_t rank = 0; job != NULL && rank < job->n_agents; rank++) {
        uint64_t least_of_one = 0;
        uint64_t most_of_one = 0;
        check_bounds(&check->fleet->agents[job->first_agent + rank], &least_of_one, &most_of_one);
        least += least_of_one * LOAD_JOB_OPS;
        most += most_of_one * LOAD_JOB_OPS;
    }
    if (job != NULL && (n < least || n > most || n % LOAD_JOB_OPS != 0)) {
        check->lost += n < least ? least - n : n <= most;
        check->twice += n > most ? n - most : 0;
        (void)fprintf(stderr, "load: job %s: %" PRIu64 " all-reduces, expected %" PRIu64 "\n",
                      job->id, n, least);
    }
    return job != NULL;
}

static void check_query(struct check *check, sqlite3 *db, const char *sql,
                        int (*take)(struct check *check, sqlite3_stmt *row)) {
    sqlite3_stmt *statement = NULL;
    int code = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    while (code == SQLITE_OK || code == SQLITE_ROW) {
        code = sqlite3_step(statement);
        if (code == SQLITE_ROW && !take(check, statement)) {
            (void)fprintf(stderr, "load: the database has rows of nobody\n");
            check->twice++;
        }
    }
    check->is_readable &= code == SQLITE_DONE;
    (void)sqlite3_finalize(statement);
}

void load_fleet_check(const struct load_fleet *fleet, const char *path, uint64_t *out_lost,
                      uint64_t *out_twice) {
    struct check check = {.fleet = fleet, .is_readable = 1};
    sqlite3 *db = NULL;
    check.n_rows = calloc(fleet->options.n_agents, sizeof(*check.n_rows));
    if (check.n_rows == NULL ||
        sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) != SQLITE_OK) {
        check.is_readable = 0;
    } else {
        check_query(&check, db,
                    "SELECT i.job, t.rank, count(*), sum(t.iteration) FROM iterations t"
                    " JOIN incarnations i ON i.id = t.incarnation GROUP BY t.incarnation, t.rank",
                    check_iterations);
        check_query(&check, db,
                    "SELECT i.job, sum(t.n_medians) FROM link_totals t"
                    " JOIN incarnations i ON i.id = t.incarnation GROUP BY t.incarnation",
                    check_ops);
    }
    for (uint32_t i = 0; check.is_readable && i < fleet->options.n_agents; i++) {
        const struct load_agent *agent = &fleet->agents[i];
        if (agent->n_acked > 0 && check.n_rows[i] == 0) {
            check.lost += agent->n_acked * agent->job->n_iterations;
        }
    }
    if (!check.is_readable) {
        (void)fprintf(stderr, "load: the database cannot be read: %s\n",
                      db != NULL ? sqlite3_errmsg(db) : "no memory");
        check.lost = UINT64_MAX;
    }
    (void)sqlite3_close(db);
    free(check.n_rows);
    *out_lost = check.lost;
    *out_twice = check.twice;
}
