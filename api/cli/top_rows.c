#include "top_rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli_table.h"

/* Columns of the figures behind the name, which takes what is left. */
#define TOP_ROWS_FIGURES 81u
#define TOP_ROWS_NAME    12u /* the least of the name; a narrower screen cuts the line */

const char *const top_order_names[TOP_N_ORDERS + 1] = {"gain",  "step", "ranks",
                                                       "phase", "job",  NULL};

/* --- order --------------------------------------------------------------------------------------
 */

static int top_falling(double a, double b) {
    a = isfinite(a) ? a : -1.0;
    b = isfinite(b) ? b : -1.0;
    return (a < b) - (a > b);
}

static int top_by_job(const void *a, const void *b) {
    const struct wire_job *one = a;
    const struct wire_job *other = b;
    return strcmp(one->id, other->id);
}

static int top_by_gain(const void *a, const void *b) {
    const struct wire_job *one = a;
    const struct wire_job *other = b;
    int order = top_falling(one->gain, other->gain);
    return order != 0 ? order : top_by_job(a, b);
}

static int top_by_step(const void *a, const void *b) {
    const struct wire_job *one = a;
    const struct wire_job *other = b;
    int order = top_falling((double)one->step_ns, (double)other->step_ns);
    return order != 0 ? order : top_by_job(a, b);
}

static int top_by_ranks(const void *a, const void *b) {
    const struct wire_job *one = a;
    const struct wire_job *other = b;
    int order = top_falling(one->n_ranks, other->n_ranks);
    return order != 0 ? order : top_by_job(a, b);
}

static int top_by_phase(const void *a, const void *b) {
    const struct wire_job *one = a;
    const struct wire_job *other = b;
    int order = strcmp(one->phase, other->phase);
    return order != 0 ? order : top_by_job(a, b);
}

void top_rows_sort(struct wire_jobs *jobs, enum top_order order) {
    static int (*const orders[TOP_N_ORDERS])(const void *, const void *) = {
        top_by_gain, top_by_step, top_by_ranks, top_by_phase, top_by_job};
    if (jobs->n_jobs > 0) {
        qsort(jobs->jobs, jobs->n_jobs, sizeof(*jobs->jobs), orders[order]);
    }
}

/* --- lines --------------------------------------------------------------------------------------
 */

static unsigned top_name_columns(unsigned columns) {
    return columns > TOP_ROWS_FIGURES + TOP_ROWS_NAME ? columns - TOP_ROWS_FIGURES : TOP_ROWS_NAME;
}

/* Each part is made of printable letters only; the whole is cut where the screen ends. */
static void top_join(const char *name, const char *figures, unsigned columns,
                     char out[TOP_TEXT_BYTES]) {
    char first[TOP_TEXT_BYTES];
    char line[TOP_TEXT_BYTES + 2 * TOP_ROWS_FIGURES];
    top_text_fit(name, top_name_columns(columns), first);
    (void)snprintf(line, sizeof(line), "%s%s", first, figures);
    top_text_fit(line, columns, out);
}

void top_rows_heading(unsigned columns, char out[TOP_TEXT_BYTES]) {
    char figures[2 * TOP_ROWS_FIGURES];
    (void)snprintf(figures, sizeof(figures), " %-10s %-7s %11s %-9s %9s %6s %8s %s", "PHASE",
                   "MODE", "HEARD", "RULE", "STEP", "GAIN", "PROGRESS", "LOSSES");
    top_join("JOB", figures, columns, out);
}

static void top_ratio(double value, double scale, const char *unit, int digits, char out[16]) {
    if (isfinite(value)) {
        (void)snprintf(out, 16, "%.*f%s", digits, value * scale, unit);
    } else {
        (void)snprintf(out, 16, "-");
    }
}

void top_rows_line(const struct wire_job *job, unsigned columns, char out[TOP_TEXT_BYTES]) {
    char figures[2 * TOP_ROWS_FIGURES];
    char step[16];
    char gain[16];
    char progress[16];
    char heard[32];
    cli_table_duration(job->step_ns, step);
    top_ratio(job->gain, 1.0, "x", 2, gain);
    top_ratio(job->progress, 100.0, "%", 1, progress);
    (void)snprintf(heard, sizeof(heard), "%u/%u", job->n_ranks_heard, job->n_ranks);
    (void)snprintf(figures, sizeof(figures), " %-10s %-7s %11s %-9s %9s %6s %8s %s", job->phase,
                   job->mode, heard, job->rule[0] != '\0' ? job->rule : "exact", step, gain,
                   progress, job->loss_state[0] != '\0' ? job->loss_state : "-");
    top_join(job->id, figures, columns, out);
}

static int top_up(const void *a, const void *b) {
    return -top_falling(*(const double *)a, *(const double *)b);
}

void top_rows_summary(const struct wire_jobs *jobs, unsigned columns, char out[TOP_TEXT_BYTES]) {
    char text[192];
    char more[64] = "";
    double *gains = calloc((size_t)jobs->n_jobs + 1, sizeof(*gains));
    uint32_t n_tuned = 0;
    uint32_t n_gains = 0;
    for (uint32_t i = 0; i < jobs->n_jobs; i++) {
        const struct wire_job *job = &jobs->jobs[i];
        int is_tuned = job->rule[0] != '\0' && strcmp(job->rule, "exact") != 0;
        n_tuned += (uint32_t)is_tuned;
        if (gains != NULL && is_tuned && isfinite(job->gain)) {
            gains[n_gains++] = job->gain;
        }
    }
    int n = snprintf(text, sizeof(text), "%llu job%s, %u tuned", (unsigned long long)jobs->total,
                     jobs->total == 1 ? "" : "s", n_tuned);
    if (n_gains > 0) {
        qsort(gains, n_gains, sizeof(*gains), top_up);
        double median = (gains[(n_gains - 1) / 2] + gains[n_gains / 2]) / 2.0;
        n += snprintf(text + n, sizeof(text) - (size_t)n, ", median gain %.2fx", median);
    }
    if (jobs->total > jobs->n_jobs) {
        (void)snprintf(more, sizeof(more), "; only %u are shown", jobs->n_jobs);
    }
    (void)snprintf(text + n, sizeof(text) - (size_t)n, "%s", more);
    free(gains);
    top_text_fit(text, columns, out);
}
