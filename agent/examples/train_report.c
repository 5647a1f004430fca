#include "train_report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"

#define ALL_PLANS     UINT32_MAX
#define BAR_WIDTH     30u
#define BAR_PERIOD_NS INT64_C(100000000)

enum deft_status train_report_init(struct train_report *report, uint32_t n_epochs,
                                   uint32_t n_iterations, int32_t rank, int32_t n_ranks,
                                   struct deft_error *error) {
    struct train_report r = {
        .capacity = n_iterations,
        .quiet = rank != 0,
        .on_terminal = rank == 0 && isatty(STDOUT_FILENO) == 1,
        .n_epochs = n_epochs,
        .rank = rank,
        .n_ranks = n_ranks,
    };
    r.records = calloc(n_iterations, sizeof(*r.records));
    if (r.records == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the records of %u iterations",
                         n_iterations);
    }
    *report = r;
    return DEFT_OK;
}

void train_report_done(struct train_report *report) {
    if (report != NULL) {
        free(report->records);
        *report = (struct train_report){0};
    }
}

/* --- while it trains -------------------------------------------------------------------------- */

static uint32_t plan_row(struct train_report *report, const struct deft_stats *stats) {
    uint32_t p = 0;
    while (p < report->n_plans && report->plans[p].hash != stats->plan_hash) {
        p++;
    }
    if (p == TRAIN_MAX_PLANS) {
        return TRAIN_MAX_PLANS - 1;
    }
    if (p == report->n_plans) {
        report->n_plans++;
        report->plans[p].hash = stats->plan_hash;
        memcpy(report->plans[p].rule, stats->rule, sizeof(report->plans[p].rule));
    }
    report->plans[p].seq = stats->plan_seq;
    return p;
}

void train_report_iteration(struct train_report *report, int64_t begin_ns, int64_t step_ns,
                            const struct deft_stats *stats) {
    if (report->n_records < report->capacity) {
        report->records[report->n_records++] = (struct train_record){
            .begin_ns = begin_ns,
            .step_ns = step_ns,
            .exposed_ns = stats->exposed_ns - report->exposed_before_ns,
            .plan = plan_row(report, stats),
        };
    }
    report->exposed_before_ns = stats->exposed_ns;
}

static double last_step_ms(const struct train_report *report) {
    uint32_t n = report->n_records < TRAIN_BLOCK ? report->n_records : TRAIN_BLOCK;
    int64_t sum_ns = 0;
    for (uint32_t i = report->n_records - n; i < report->n_records; i++) {
        sum_ns += report->records[i].step_ns;
    }
    return n == 0 ? 0.0 : (double)sum_ns / n / 1e6;
}

static const char *current_rule(const struct train_report *report) {
    return report->n_records == 0 ? ""
                                  : report->plans[report->records[report->n_records - 1].plan].rule;
}

void train_report_progress(struct train_report *report, uint32_t epoch, double loss) {
    int64_t now_ns = clock_monotonic_ns();
    uint32_t filled;
    char bar[BAR_WIDTH + 1];

    if (!report->on_terminal || now_ns - report->shown_ns < BAR_PERIOD_NS) {
        return;
    }
    report->shown_ns = now_ns;
    filled = (uint32_t)((uint64_t)report->n_records * BAR_WIDTH / report->capacity);
    memset(bar, '.', BAR_WIDTH);
    memset(bar, '#', filled);
    bar[BAR_WIDTH] = '\0';
    (void)printf("\r[%s] %u/%u  epoch %u/%u  loss %.4f  %6.1f ms  %-9s", bar, report->n_records,
                 report->capacity, epoch + 1, report->n_epochs, loss, last_step_ms(report),
                 current_rule(report));
    (void)fflush(stdout);
}

void train_report_epoch(struct train_report *report, uint32_t epoch, double loss, double accuracy) {
    if (report->quiet) {
        return;
    }
    if (report->on_terminal) {
        (void)printf("\r\033[K"); /* the bar's line */
    }
    (void)printf("epoch %2u/%u  loss %.4f  step %6.1f ms  rule %s", epoch + 1, report->n_epochs,
                 loss, last_step_ms(report), current_rule(report));
    if (isfinite(accuracy)) {
        (void)printf("  accuracy %.2f %%", 100.0 * accuracy);
    }
    (void)printf("\n");
    (void)fflush(stdout);
}

/* --- when it is done -------------------------------------------------------------------------- */

static int compare_doubles(const void *left, const void *right) {
    double a = *(const double *)left;
    double b = *(const double *)right;
    return (a > b) - (a < b);
}

/* Nearest rank of `n` >= 1 sorted values. */
static double quantile(const double *sorted, uint32_t n, double q) {
    uint32_t at = (uint32_t)(q * (n - 1) + 0.5);
    return sorted[at];
}

static double median_of_blocks(double *values, uint32_t n) {
    uint32_t n_blocks = n / TRAIN_BLOCK;
    double sum = 0.0;

    if (n_blocks < 2) {
        for (uint32_t i = 0; i < n; i++) {
            sum += values[i];
        }
        return sum / n;
    }
    for (uint32_t b = 0; b < n_blocks; b++) {
        sum = 0.0;
        for (uint32_t i = 0; i < TRAIN_BLOCK; i++) {
            sum += values[b * TRAIN_BLOCK + i];
        }
        values[b] = sum / TRAIN_BLOCK;
    }
    qsort(values, n_blocks, sizeof(*values), compare_doubles);
    return n_blocks % 2 == 1 ? values[n_blocks / 2]
                             : (values[n_blocks / 2 - 1] + values[n_blocks / 2]) / 2.0;
}

enum deft_status train_report_times(const struct train_report *report, uint32_t plan,
                                    struct train_times *out, struct deft_error *error) {
    uint32_t first = report->n_records > 2 * TRAIN_WARM_UP ? TRAIN_WARM_UP : 0;
    struct train_times times = {0};
    double *sorted = calloc((size_t)report->n_records * 2 + 1, sizeof(*sorted));
    double *in_order = NULL;

    if (sorted == NULL) {
        return deft_fail(error, DEFT_NO_MEMORY, 0, "no memory for the times of %u iterations",
                         report->n_records);
    }
    in_order = sorted + report->n_records;
    for (uint32_t i = first; i < report->n_records; i++) {
        const struct train_record *record = &report->records[i];
        if (plan == ALL_PLANS || record->plan == plan) {
            in_order[times.n] = sorted[times.n] = (double)record->step_ns / 1e6;
            times.exposed_ms += (double)record->exposed_ns / 1e6;
            times.n++;
        }
    }
    if (times.n > 0) {
        qsort(sorted, times.n, sizeof(*sorted), compare_doubles);
        times.p10_ms = quantile(sorted, times.n, 0.1);
        times.p90_ms = quantile(sorted, times.n, 0.9);
        times.exposed_ms /= times.n;
        times.step_ms = median_of_blocks(in_order, times.n);
    }
    free(sorted);
    *out = times;
    return DEFT_OK;
}

enum deft_status train_report_table(const struct train_report *report,
                                    const struct train_outcome *outcome, struct deft_error *error) {
    const struct deft_stats *s = &outcome->stats;

    if (report->quiet) {
        return DEFT_OK;
    }
    if (report->on_terminal) {
        (void)printf("\r\033[K");
    }
    (void)printf("\n%-10s %10s %9s %9s %9s %11s\n", "rule", "iterations", "step ms", "p10 ms",
                 "p90 ms", "exposed ms");
    for (uint32_t p = 0; p < report->n_plans; p++) {
        struct train_times t = {0};
        enum deft_status status = train_report_times(report, p, &t, error);
        if (status != DEFT_OK) {
            return status;
        }
        (void)printf("%-10s %10u %9.1f %9.1f %9.1f %11.1f\n", report->plans[p].rule, t.n, t.step_ms,
                     t.p10_ms, t.p90_ms, t.exposed_ms);
    }
    (void)printf("\n%u iterations on %d %s in %.1f s%s; %" PRIu64 " updates, %" PRIu64
                 " skipped, %" PRIu64 " plan switches\n",
                 report->n_records, report->n_ranks, report->n_ranks == 1 ? "rank" : "ranks",
                 outcome->training_s, outcome->stopped ? " (stopped early)" : "", s->updates,
                 s->skipped, s->switches);
    (void)printf("matrix products: %.0f GFLOP/s, %.0f %% of the time not spent waiting\n",
                 outcome->gemm_gflops_per_s, 100.0 * outcome->gemm_frac);
    (void)printf("loss %.4f, test accuracy %.2f %%\n", outcome->loss, 100.0 * outcome->accuracy);
    (void)fflush(stdout);
    return DEFT_OK;
}

/* JSON has no NaN: null stands for it. */
static void json_number(FILE *stream, const char *name, double value, int decimals) {
    if (isfinite(value)) {
        (void)fprintf(stream, ",\"%s\":%.*f", name, decimals, value);
    } else {
        (void)fprintf(stream, ",\"%s\":null", name);
    }
}

static void json_times(FILE *stream, const struct train_times *times) {
    (void)fprintf(stream, ",\"iterations\":%u", times->n);
    json_number(stream, "step_ms", times->step_ms, 3);
    json_number(stream, "step_p10_ms", times->p10_ms, 3);
    json_number(stream, "step_p90_ms", times->p90_ms, 3);
    json_number(stream, "exposed_ms", times->exposed_ms, 3);
    (void)fputc('}', stream);
}

static enum deft_status json_plans(const struct train_report *report, FILE *stream,
                                   struct deft_error *error) {
    (void)fputs(",\"plans\":[", stream);
    for (uint32_t p = 0; p < report->n_plans; p++) {
        const struct train_plan *plan = &report->plans[p];
        struct train_times times = {0};
        enum deft_status status = train_report_times(report, p, &times, error);
        if (status != DEFT_OK) {
            return status;
        }
        (void)fprintf(stream, "%s{\"rule\":\"%s\",\"seq\":%" PRIu64 ",\"hash\":\"%016" PRIx64 "\"",
                      p == 0 ? "" : ",", plan->rule, plan->seq, plan->hash);
        json_times(stream, &times);
    }
    (void)fputc(']', stream);
    return DEFT_OK;
}

enum deft_status train_report_json(const struct train_report *report,
                                   const struct train_outcome *outcome, FILE *stream,
                                   struct deft_error *error) {
    const struct deft_stats *s = &outcome->stats;
    struct train_times all = {0};
    struct train_times last = {0};
    uint32_t last_plan =
        report->n_records == 0 ? ALL_PLANS : report->records[report->n_records - 1].plan;
    enum deft_status status = train_report_times(report, ALL_PLANS, &all, error);

    if (status == DEFT_OK) {
        status = train_report_times(report, last_plan, &last, error);
    }
    if (status != DEFT_OK) {
        return status;
    }
    (void)fprintf(stream, "{\"sync\":\"%s\",\"rank\":%d,\"n_ranks\":%d", outcome->sync,
                  report->rank, report->n_ranks);
    (void)fprintf(stream, ",\"stopped\":%s", outcome->stopped ? "true" : "false");
    (void)fprintf(stream, ",\"all\":{\"warm_up\":%u", report->n_records - all.n);
    json_times(stream, &all);
    (void)fprintf(stream, ",\"last\":{\"rule\":\"%s\"", current_rule(report));
    json_times(stream, &last);
    status = json_plans(report, stream, error);
    if (status != DEFT_OK) {
        return status;
    }
    (void)fprintf(stream, ",\"epochs\":%u", outcome->epochs);
    json_number(stream, "training_s", outcome->training_s, 3);
    json_number(stream, "loss", outcome->loss, 6);
    json_number(stream, "accuracy", outcome->accuracy, 4);
    json_number(stream, "gemm_frac", outcome->gemm_frac, 4);
    json_number(stream, "gemm_gflops_per_s", outcome->gemm_gflops_per_s, 1);
    (void)fprintf(stream,
                  ",\"updates\":%" PRIu64 ",\"skipped\":%" PRIu64 ",\"switches\":%" PRIu64
                  ",\"refused\":%" PRIu64 ",\"pending_bytes\":%" PRIu64
                  ",\"agent_connected\":%s,\"parameters_hash\":\"%016" PRIx64 "\"}\n",
                  s->updates, s->skipped, s->switches, s->refused, s->pending_bytes,
                  s->agent_connected != 0 ? "true" : "false", outcome->parameters_hash);
    if (fflush(stream) != 0 || ferror(stream) != 0) {
        return deft_fail(error, DEFT_IO, 0, "the JSON result cannot be written");
    }
    return DEFT_OK;
}

enum deft_status train_report_steps(const struct train_report *report,
                                    const struct train_outcome *outcome, FILE *stream,
                                    struct deft_error *error) {
    (void)outcome;
    (void)fputs("iteration,begin_ns,step_ns,exposed_ns,plan_seq\n", stream);
    for (uint32_t i = 0; i < report->n_records; i++) {
        const struct train_record *record = &report->records[i];
        (void)fprintf(stream, "%u,%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRIu64 "\n", i,
                      record->begin_ns, record->step_ns, record->exposed_ns,
                      report->plans[record->plan].seq);
    }
    if (fflush(stream) != 0 || ferror(stream) != 0) {
        return deft_fail(error, DEFT_IO, 0, "the steps cannot be written");
    }
    return DEFT_OK;
}
