#include "cli_chart.h"

#include <stdint.h>
#include <string.h>

#include "cli_table.h"

/* A cycle of many iterations would be a blur. */
#define CLI_CHART_MAX_ITERATIONS 8u

struct cli_chart {
    int64_t begin_ns;
    int64_t end_ns;
    char compute[CLI_CHART_COLUMNS + 1];
    char links[DSCHED_MAX_LINKS][CLI_CHART_COLUMNS + 1];
};

static void cli_chart_paint(struct cli_chart *chart, const struct dsched_span *span) {
    static const char letters[] = {'f', 'b', 'o', '.'};
    static const char digits[] = "0123456789";
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

/* When the first iteration that is shown begins. */
static int64_t cli_chart_begin_ns(const struct dsched_window *window, uint32_t n_shown) {
    uint64_t first = window->first_iteration + window->n_iterations - n_shown;
    for (uint32_t i = 0; i < window->n_spans; i++) {
        const struct dsched_span *span = &window->spans[i];
        if (span->lane != DSCHED_LANE_LINK && span->iteration >= first) {
            return span->begin_ns;
        }
    }
    return window->begin_ns;
}

void cli_chart_print(const struct dsched_profile *profile, const struct dsched_window *window,
                     FILE *stream) {
    struct cli_chart chart = {0};
    char duration[16];
    uint32_t n_shown = window->n_iterations;
    const char *what = "two cycles";
    if (n_shown > CLI_CHART_MAX_ITERATIONS) {
        n_shown = CLI_CHART_MAX_ITERATIONS;
        what = "part of two cycles";
    }
    if (window->is_cut) {
        n_shown = window->n_iterations;
        what = "the begin of two cycles";
    }
    chart.begin_ns = cli_chart_begin_ns(window, n_shown);
    chart.end_ns = window->end_ns;
    memset(chart.compute, ' ', CLI_CHART_COLUMNS);
    for (size_t i = 0; i < DSCHED_MAX_LINKS; i++) {
        memset(chart.links[i], ' ', CLI_CHART_COLUMNS);
    }
    for (uint32_t i = 0; i < window->n_spans; i++) {
        cli_chart_paint(&chart, &window->spans[i]);
    }
    cli_table_duration(chart.end_ns - chart.begin_ns, duration);
    (void)fprintf(stream, "%s, %u iterations, %s\n", what, n_shown, duration);
    (void)fprintf(stream, "%-10.10s |%s|\n", "compute", chart.compute);
    for (uint32_t i = 0; i < profile->n_links; i++) {
        (void)fprintf(stream, "%-10.10s |%s|\n", profile->links[i].name, chart.links[i]);
    }
    (void)fprintf(stream,
                  "%-10s  f forward, b backward, o optimizer, . waiting; on links the last "
                  "digit of the generation\n",
                  "");
}
