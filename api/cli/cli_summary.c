#include "cli_summary.h"

#include <stdlib.h>
#include <string.h>

#include "cli_profile.h"
#include "cli_table.h"

enum deft_status cli_summary_init(struct cli_summary *summary, size_t capacity,
                                  struct deft_error *error) {
    *summary = (struct cli_summary){.capacity = capacity};
    summary->rows = calloc(capacity > 0 ? capacity : 1, sizeof(*summary->rows));
    if (summary->rows == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the figures of %zu profiles",
                         capacity);
    }
    return DEFT_OK;
}

struct cli_summary_row *cli_summary_add(struct cli_summary *summary, const char *path) {
    struct cli_summary_row *row = &summary->rows[summary->n++];
    row->path = path;
    return row;
}

void cli_summary_done(struct cli_summary *summary) {
    free(summary->rows);
    *summary = (struct cli_summary){0};
}

/* Index into dsched_policies, or CLI_POLICY_MAX. */
static size_t cli_summary_find(const char *name) {
    size_t i = 0;
    while (dsched_policies[i] != NULL && strcmp(dsched_policies[i]->name, name) != 0) {
        i++;
    }
    return dsched_policies[i] != NULL ? i : CLI_POLICY_MAX;
}

static int cli_summary_order(const void *a, const void *b) {
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

static double cli_summary_median(double *values, size_t n) {
    qsort(values, n, sizeof(*values), cli_summary_order);
    return (values[(n - 1) / 2] + values[n / 2]) / 2;
}

/* How much faster `policy` is than `other` in one row. */
static double cli_summary_ratio(const struct cli_summary_row *row, size_t policy, size_t other) {
    return row->step_ns[policy] > 0 ? (double)row->step_ns[other] / (double)row->step_ns[policy]
                                    : 0.0;
}

struct cli_summary_spread {
    double median;
    double worst;
    const char *worst_path;
};

static struct cli_summary_spread cli_summary_spread(const struct cli_summary *summary,
                                                    double *scratch, size_t policy, size_t other) {
    struct cli_summary_spread spread = {0};
    for (size_t i = 0; i < summary->n; i++) {
        scratch[i] = cli_summary_ratio(&summary->rows[i], policy, other);
        if (i == 0 || scratch[i] < spread.worst) {
            spread.worst = scratch[i];
            spread.worst_path = summary->rows[i].path;
        }
    }
    spread.median = cli_summary_median(scratch, summary->n);
    return spread;
}

static void cli_summary_table(const struct cli_summary *summary, size_t wfbp, double *scratch,
                              FILE *stream) {
    static const char *const headings[] = {"policy", "median x wfbp", "worst x wfbp",
                                           "median updates/step", "max delay"};
    size_t n_columns = sizeof(headings) / sizeof(headings[0]);
    struct cli_table table;
    cli_table_init(&table, n_columns);
    for (size_t i = 0; i < n_columns; i++) {
        cli_table_add(&table, "%s", headings[i]);
    }
    for (size_t p = 0; dsched_policies[p] != NULL && p < CLI_POLICY_MAX; p++) {
        struct cli_summary_spread spread = cli_summary_spread(summary, scratch, p, wfbp);
        uint32_t max_delay = 0;
        for (size_t i = 0; i < summary->n; i++) {
            const struct cli_summary_row *row = &summary->rows[i];
            scratch[i] = row->updates_per_step[p];
            max_delay = row->max_delay[p] > max_delay ? row->max_delay[p] : max_delay;
        }
        cli_table_add(&table, "%s", dsched_policies[p]->name);
        cli_table_add(&table, "%.2f", spread.median);
        cli_table_add(&table, "%.2f", spread.worst);
        cli_table_add(&table, "%.3f", cli_summary_median(scratch, summary->n));
        cli_table_add(&table, "%u", max_delay);
    }
    cli_table_print(&table, stream);
    cli_table_done(&table);
}

enum deft_status cli_summary_print(const struct cli_summary *summary, FILE *stream,
                                   struct deft_error *error) {
    static const char *const peers[] = {"wfbp", "bytescheduler", "us-byte"};
    size_t wfbp = cli_summary_find("wfbp");
    size_t deft = cli_summary_find("deft");
    if (summary->n == 0 || wfbp == CLI_POLICY_MAX || deft == CLI_POLICY_MAX) {
        return DEFT_OK;
    }
    double *scratch = calloc(summary->n, sizeof(*scratch));
    if (scratch == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for a summary");
    }
    (void)fprintf(stream, "summary of %zu profiles\n", summary->n);
    cli_summary_table(summary, wfbp, scratch, stream);
    (void)fputc('\n', stream);
    for (size_t i = 0; i < sizeof(peers) / sizeof(peers[0]); i++) {
        size_t peer = cli_summary_find(peers[i]);
        if (peer < CLI_POLICY_MAX) {
            struct cli_summary_spread spread = cli_summary_spread(summary, scratch, deft, peer);
            (void)fprintf(
                stream, "deft is %.2f times as fast as %s at the median, %.2f at worst (%s)\n",
                spread.median, peers[i], spread.worst, cli_profile_label(spread.worst_path));
        }
    }
    free(scratch);
    return DEFT_OK;
}
