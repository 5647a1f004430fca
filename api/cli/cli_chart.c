#include "cli_chart.h"

#include <stdint.h>
#include <string.h>

#include <dsched/simulate.h>

#include "cli_profile.h"
#include "cli_table.h"

/* A cycle of many iterations would be a blur. */
#define CLI_CHART_MAX_ITERATIONS 8u

/* The simulation runs several times, to find the window and to paint it, so that no span is kept.
 */
struct cli_chart {
    uint64_t first; /* iterations [first, first + n) are shown */
    uint64_t last_iteration;
    int64_t begin_ns;
    int64_t end_ns;
    char compute[CLI_CHART_COLUMNS + 1];
    char links[DSCHED_MAX_LINKS][CLI_CHART_COLUMNS + 1];
};

static void cli_chart_find_last(void *context, const struct dsched_span *span) {
    struct cli_chart *chart = context;
    if (span->lane != DSCHED_LANE_LINK && span->iteration > chart->last_iteration) {
        chart->last_iteration = span->iteration;
    }
}

static void cli_chart_find_window(void *context, const struct dsched_span *span) {
    struct cli_chart *chart = context;
    if (span->lane == DSCHED_LANE_LINK || span->iteration < chart->first) {
        return;
    }
    if (chart->end_ns == 0 || span->begin_ns < chart->begin_ns) {
        chart->begin_ns = span->begin_ns;
    }
    if (span->end_ns > chart->end_ns) {
        chart->end_ns = span->end_ns;
    }
}

static void cli_chart_paint(void *context, const struct dsched_span *span) {
    static const char letters[] = {'f', 'b', 'o', '.'};
    static const char digits[] = "0123456789";
    struct cli_chart *chart = context;
    int64_t width_ns = chart->end_ns - chart->begin_ns;
    if (span->end_ns <= chart->begin_ns || span->begin_ns >= chart->end_ns || width_ns <= 0 ||
        span->end_ns == span->begin_ns) {
        return;
    }
    double scale = (double)CLI_CHART_COLUMNS / (double)width_ns;
    double begin = (double)(span->begin_ns - chart->begin_ns) * scale;
    double end = (double)(span->end_ns - chart->begin_ns) * scale;
    size_t from = begin < 0 ? 0 : (size_t)begin;
    size_t to = end > (double)CLI_CHART_COLUMNS ? CLI_CHART_COLUMNS : (size_t)end;
    char *lane = span->lane == DSCHED_LANE_LINK ? chart->links[span->link] : chart->compute;
    char letter;
    if (span->lane == DSCHED_LANE_LINK) {
        letter = digits[span->generation % 10];
    } else {
        letter = letters[span->lane];
    }
    /* What is shorter than a column is shown all the same. */
    for (size_t i = from; i < CLI_CHART_COLUMNS && (i < to || i == from); i++) {
        lane[i] = letter;
    }
}

static enum dsched_status cli_chart_run(const struct dsched_profile *profile,
                                        const struct dsched_plan *plan, dsched_span_fn on_span,
                                        struct cli_chart *chart, struct dsched_error *reason) {
    struct dsched_report report;
    return dsched_simulate_plan(profile, plan, 0, on_span, chart, &report, reason);
}

enum deft_status cli_chart_print(const struct dsched_profile *profile,
                                 const struct dsched_plan *plan, FILE *stream,
                                 struct deft_error *error) {
    struct cli_chart chart = {0};
    struct dsched_error reason = {{0}};
    char duration[16];
    uint64_t n_shown = 2 * (uint64_t)dsched_plan_cycle(plan);
    const char *what = "two cycles";
    if (n_shown > CLI_CHART_MAX_ITERATIONS) {
        n_shown = CLI_CHART_MAX_ITERATIONS;
        what = "part of a cycle";
    }
    memset(chart.compute, ' ', CLI_CHART_COLUMNS);
    for (size_t i = 0; i < DSCHED_MAX_LINKS; i++) {
        memset(chart.links[i], ' ', CLI_CHART_COLUMNS);
    }
    enum dsched_status status = cli_chart_run(profile, plan, cli_chart_find_last, &chart, &reason);
    if (status == DSCHED_OK) {
        chart.first = chart.last_iteration + 1 > n_shown ? chart.last_iteration + 1 - n_shown : 0;
        status = cli_chart_run(profile, plan, cli_chart_find_window, &chart, &reason);
    }
    if (status == DSCHED_OK) {
        status = cli_chart_run(profile, plan, cli_chart_paint, &chart, &reason);
    }
    if (status != DSCHED_OK) {
        return cli_profile_failed(status, &reason, error);
    }
    cli_table_duration(chart.end_ns - chart.begin_ns, duration);
    (void)fprintf(stream, "%s, %llu iterations, %s\n", what, (unsigned long long)n_shown, duration);
    (void)fprintf(stream, "%-10.10s |%s|\n", "compute", chart.compute);
    for (uint32_t i = 0; i < plan->n_links && i < profile->n_links; i++) {
        (void)fprintf(stream, "%-10.10s |%s|\n", profile->links[i].name, chart.links[i]);
    }
    (void)fprintf(stream,
                  "%-10s  f forward, b backward, o optimizer, . waiting; on links the last "
                  "digit of the generation\n",
                  "");
    return DEFT_OK;
}
