#include "store/store_sums.h"

#include <math.h>
#include <sqlite3.h>
#include <string.h>

/* Minimum and maximum of a value that may not be there yet. */
static void sums_widen(int64_t n, double *least, double *most, double low, double high) {
    *least = n == 0 || low < *least ? low : *least;
    *most = n == 0 || high > *most ? high : *most;
}

static void sums_widen_steps(struct store_sums *to, int64_t low_ns, int64_t high_ns) {
    to->step_min_ns = to->n_steps == 0 || low_ns < to->step_min_ns ? low_ns : to->step_min_ns;
    to->step_max_ns = to->n_steps == 0 || high_ns > to->step_max_ns ? high_ns : to->step_max_ns;
}

void store_sums_add(struct store_sums *to, const struct store_sums *more) {
    if (to->n_iterations == 0) {
        *to = *more;
        return;
    }
    to->first = more->first < to->first ? more->first : to->first;
    to->last = more->last > to->last ? more->last : to->last;
    to->plan_seq = more->plan_seq > to->plan_seq ? more->plan_seq : to->plan_seq;
    to->n_iterations += more->n_iterations;
    if (more->n_steps > 0) {
        sums_widen_steps(to, more->step_min_ns, more->step_max_ns);
        to->n_steps += more->n_steps;
        to->step_ns += more->step_ns;
    }
    for (int i = 0; i < STORE_SUMS_STAGES; i++) {
        to->stage_ns[i] += more->stage_ns[i];
    }
    to->updates += more->updates;
    if (more->n_losses > 0) {
        sums_widen(to->n_losses, &to->loss_min, &to->loss_max, more->loss_min, more->loss_max);
        to->n_losses += more->n_losses;
        to->loss += more->loss;
    }
    for (int i = 0; i < STORE_SUMS_FIGURES; i++) {
        to->n_figures[i] += more->n_figures[i];
        to->figures[i] += more->figures[i];
    }
}

/* --- rows of ranks ---------------------------------------------------------------------------- */

enum { RAW_ITERATION, RAW_RECEIVED, RAW_PLAN, RAW_UPDATES, RAW_STEP, RAW_STAGES };
enum { RAW_LOSS = RAW_STAGES + STORE_SUMS_STAGES, RAW_FIGURES };

static int64_t sums_larger(int64_t a, int64_t b) {
    return a > b ? a : b;
}

int store_fold_row(struct store_fold *fold, sqlite3_stmt *row) {
    struct store_sums *sums = &fold->sums;
    int64_t iteration = sqlite3_column_int64(row, RAW_ITERATION);
    if (fold->n_rows == 0) {
        memset(fold, 0, sizeof(*fold));
        sums->first = iteration;
        sums->last = iteration;
        sums->n_iterations = 1;
    } else if (iteration != sums->first) {
        return 0;
    }
    fold->n_rows++;
    fold->received_ns = sums_larger(fold->received_ns, sqlite3_column_int64(row, RAW_RECEIVED));
    sums->plan_seq = sums_larger(sums->plan_seq, sqlite3_column_int64(row, RAW_PLAN));
    sums->updates = sums_larger(sums->updates, sqlite3_column_int64(row, RAW_UPDATES));
    int64_t step_ns = sqlite3_column_int64(row, RAW_STEP);
    if (step_ns > sums->step_max_ns) { /* 0: unknown */
        sums->n_steps = 1;
        sums->step_ns = (double)step_ns;
        sums->step_min_ns = step_ns;
        sums->step_max_ns = step_ns;
    }
    for (int i = 0; i < STORE_SUMS_STAGES; i++) {
        double stage_ns = sqlite3_column_double(row, RAW_STAGES + i);
        sums->stage_ns[i] = stage_ns > sums->stage_ns[i] ? stage_ns : sums->stage_ns[i];
    }
    if (sqlite3_column_type(row, RAW_LOSS) != SQLITE_NULL) {
        double loss = sqlite3_column_double(row, RAW_LOSS);
        sums_widen(sums->n_losses, &sums->loss_min, &sums->loss_max, loss, loss);
        sums->n_losses++;
        sums->loss += loss;
    }
    for (int i = 0; i < STORE_SUMS_FIGURES; i++) {
        if (sqlite3_column_type(row, RAW_FIGURES + i) != SQLITE_NULL) {
            sums->n_figures[i]++;
            sums->figures[i] += sqlite3_column_double(row, RAW_FIGURES + i);
        }
    }
    return 1;
}

/* --- rows of roll-ups --------------------------------------------------------------------------
 */

enum {
    SUMS_FIRST,
    SUMS_LAST,
    SUMS_RECEIVED,
    SUMS_PLAN,
    SUMS_ITERATIONS,
    SUMS_STEPS,
    SUMS_STEP,
    SUMS_STEP_MIN,
    SUMS_STEP_MAX,
    SUMS_STAGES
};
enum {
    SUMS_UPDATES = SUMS_STAGES + STORE_SUMS_STAGES,
    SUMS_LOSSES,
    SUMS_LOSS,
    SUMS_LOSS_MIN,
    SUMS_LOSS_MAX,
    SUMS_FIGURES
};

_Static_assert(SUMS_FIGURES + 2 * STORE_SUMS_FIGURES == STORE_SUMS_N_COLUMNS,
               "every column has its place");

void store_sums_read(sqlite3_stmt *row, struct store_sums *out, int64_t *out_received_ns) {
    out->first = sqlite3_column_int64(row, SUMS_FIRST);
    out->last = sqlite3_column_int64(row, SUMS_LAST);
    if (out_received_ns != NULL) {
        *out_received_ns = sqlite3_column_int64(row, SUMS_RECEIVED);
    }
    out->plan_seq = sqlite3_column_int64(row, SUMS_PLAN);
    out->n_iterations = sqlite3_column_int64(row, SUMS_ITERATIONS);
    out->n_steps = sqlite3_column_int64(row, SUMS_STEPS);
    out->step_ns = sqlite3_column_double(row, SUMS_STEP);
    out->step_min_ns = sqlite3_column_int64(row, SUMS_STEP_MIN);
    out->step_max_ns = sqlite3_column_int64(row, SUMS_STEP_MAX);
    for (int i = 0; i < STORE_SUMS_STAGES; i++) {
        out->stage_ns[i] = sqlite3_column_double(row, SUMS_STAGES + i);
    }
    out->updates = sqlite3_column_int64(row, SUMS_UPDATES);
    out->n_losses = sqlite3_column_int64(row, SUMS_LOSSES);
    out->loss = sqlite3_column_double(row, SUMS_LOSS);
    out->loss_min = sqlite3_column_double(row, SUMS_LOSS_MIN);
    out->loss_max = sqlite3_column_double(row, SUMS_LOSS_MAX);
    for (int i = 0; i < STORE_SUMS_FIGURES; i++) {
        out->n_figures[i] = sqlite3_column_int64(row, SUMS_FIGURES + 2 * i);
        out->figures[i] = sqlite3_column_double(row, SUMS_FIGURES + 2 * i + 1);
    }
}

/* A sum that is no number any more, of losses near the largest, must not become NULL. */
static void sums_bind_real(sqlite3_stmt *s, int parameter, double value) {
    (void)sqlite3_bind_double(s, parameter, isnan(value) ? 0 : value);
}

void store_sums_bind(sqlite3_stmt *s, int first_parameter, const struct store_sums *sums,
                     int64_t received_ns) {
    const int p = first_parameter;
    (void)sqlite3_bind_int64(s, p + SUMS_FIRST, sums->first);
    (void)sqlite3_bind_int64(s, p + SUMS_LAST, sums->last);
    (void)sqlite3_bind_int64(s, p + SUMS_RECEIVED, received_ns);
    (void)sqlite3_bind_int64(s, p + SUMS_PLAN, sums->plan_seq);
    (void)sqlite3_bind_int64(s, p + SUMS_ITERATIONS, sums->n_iterations);
    (void)sqlite3_bind_int64(s, p + SUMS_STEPS, sums->n_steps);
    sums_bind_real(s, p + SUMS_STEP, sums->step_ns);
    if (sums->n_steps > 0) {
        (void)sqlite3_bind_int64(s, p + SUMS_STEP_MIN, sums->step_min_ns);
        (void)sqlite3_bind_int64(s, p + SUMS_STEP_MAX, sums->step_max_ns);
    }
    for (int i = 0; i < STORE_SUMS_STAGES; i++) {
        sums_bind_real(s, p + SUMS_STAGES + i, sums->stage_ns[i]);
    }
    (void)sqlite3_bind_int64(s, p + SUMS_UPDATES, sums->updates);
    (void)sqlite3_bind_int64(s, p + SUMS_LOSSES, sums->n_losses);
    sums_bind_real(s, p + SUMS_LOSS, sums->loss);
    if (sums->n_losses > 0) {
        sums_bind_real(s, p + SUMS_LOSS_MIN, sums->loss_min);
        sums_bind_real(s, p + SUMS_LOSS_MAX, sums->loss_max);
    }
    for (int i = 0; i < STORE_SUMS_FIGURES; i++) {
        (void)sqlite3_bind_int64(s, p + SUMS_FIGURES + 2 * i, sums->n_figures[i]);
        sums_bind_real(s, p + SUMS_FIGURES + 2 * i + 1, sums->figures[i]);
    }
}
