#include "tuning/contention.h"

#include <math.h>

#include "tuning/median.h"

/* Of forward; less is too little to tell a factor from noise. */
#define CONTENTION_LEAST 0.5
/* Of a cycle, each place is seen at least so often. */
#define CONTENTION_CYCLES 3u

void contention_add(struct contention *contention, const struct contention_plan *plan,
                    const struct contention_row *row) {
    if (plan->is_exact) {
        contention->idle[contention->n_idle++ % CONTENTION_ROWS] = *row;
        return;
    }
    if (contention->plan.seq != plan->seq) {
        contention->n_busy = 0;
        contention->is_full = 0;
    }
    contention->plan = *plan;
    if (contention->is_full) {
        contention->busy[contention->n_busy++ % CONTENTION_ROWS] = *row;
    }
    contention->is_full |= row->bytes > 0;
}

/* Median forward of the iterations at one place of a cycle; 0: there is none. */
static int64_t contention_forward(const struct contention_row *rows, uint32_t n, uint32_t cycle,
                                  uint32_t place) {
    int64_t values[CONTENTION_ROWS];
    uint32_t n_values = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (rows[i].iteration % cycle == place) {
            values[n_values++] = rows[i].forward_ns;
        }
    }
    return n_values > 0 ? median_of(values, n_values) : 0;
}

static int64_t contention_step(const struct contention_row *rows, uint32_t n) {
    int64_t values[CONTENTION_ROWS];
    for (uint32_t i = 0; i < n; i++) {
        values[i] = rows[i].step_ns;
    }
    return median_of(values, n);
}

static uint32_t contention_rows(uint32_t n) {
    return n < CONTENTION_ROWS ? n : CONTENTION_ROWS;
}

double contention_factor(const struct contention *contention, double ns_per_byte) {
    const struct contention_plan *plan = &contention->plan;
    uint32_t n = contention_rows(contention->n_busy);
    uint32_t n_idle = contention_rows(contention->n_idle);
    double forward_ns = 0;
    double bytes = 0;
    if (n_idle < CONTENTION_MIN_ROWS || n < CONTENTION_MIN_ROWS ||
        n < CONTENTION_CYCLES * plan->cycle) {
        return 0;
    }
    for (uint32_t place = 0; place < plan->cycle; place++) {
        int64_t place_ns = contention_forward(contention->busy, n, plan->cycle, place);
        forward_ns = fmax(forward_ns, (double)place_ns);
    }
    for (uint32_t i = 0; i < n; i++) {
        bytes += (double)contention->busy[i].bytes / n;
    }
    double idle_ns = (double)contention_forward(contention->idle, n_idle, 1, 0);
    double work_ns = bytes * plan->n_merged * ns_per_byte;
    double before_ns =
        plan->at_boundary ? 0 : fmax((double)contention_step(contention->busy, n) - forward_ns, 0);
    double beside_ns = fmin(work_ns - before_ns, forward_ns);
    if (!(beside_ns >= CONTENTION_LEAST * forward_ns)) {
        return 0;
    }
    double lost = fmax(forward_ns - idle_ns, 0) / beside_ns;
    return lost < 1 - 1 / CONTENTION_MOST ? 1 / (1 - lost) : CONTENTION_MOST;
}
