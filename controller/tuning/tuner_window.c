#include "tuning/tuner_window.h"

#include "tuning/median.h"

/* Each position of a cycle is measured at least this often, so that a median can drop an outlier.
 */
#define WINDOW_CYCLES 3u

uint32_t tuner_window_rows(const struct tuner_config *config, uint32_t cycle) {
    if (cycle <= 1) {
        return config->n_window;
    }
    uint32_t n_cycles = (config->n_window + cycle - 1) / cycle;
    if (n_cycles < WINDOW_CYCLES) {
        n_cycles = WINDOW_CYCLES;
    }
    while (n_cycles > 1 && n_cycles * cycle > TUNER_WINDOW_ROWS) {
        n_cycles--;
    }
    return n_cycles * cycle < TUNER_WINDOW_ROWS ? n_cycles * cycle : TUNER_WINDOW_ROWS;
}

void tuner_window_reset(struct tuner *tuner, uint32_t n_skip) {
    tuner->n_skipping = n_skip;
    tuner->n_window = 0;
    tuner->n_since = 0;
    tuner->at = 0;
}

void tuner_window_add(struct tuner *tuner, uint64_t iteration, int64_t step_ns) {
    if (tuner->n_skipping > 0) {
        tuner->n_skipping--;
        return;
    }
    tuner->window[tuner->at].iteration = iteration;
    tuner->window[tuner->at].step_ns = step_ns;
    tuner->at = (tuner->at + 1) % TUNER_WINDOW_ROWS;
    if (tuner->n_window < TUNER_WINDOW_ROWS) {
        tuner->n_window++;
    }
    tuner->n_since++;
}

/* Under merged plans long and short steps alternate: a median over all would name one of them. The
 * mean of the medians of each position in the cycle is the step that whole cycles take, and a
 * checkpoint in one of them does not move it. */
int64_t tuner_measure(const struct tuner *tuner, uint32_t cycle) {
    int64_t values[TUNER_WINDOW_ROWS];
    uint32_t rows = tuner_window_rows(&tuner->config, cycle);
    uint32_t n_positions = 0;
    int64_t sum = 0;
    if (tuner->n_window < rows || rows == 0) {
        return 0;
    }
    if (cycle == 0 || cycle > rows) {
        cycle = 1;
    }
    for (uint32_t position = 0; position < cycle; position++) {
        size_t n = 0;
        for (uint32_t i = 0; i < rows; i++) {
            uint32_t row = (tuner->at + TUNER_WINDOW_ROWS - 1 - i) % TUNER_WINDOW_ROWS;
            if (tuner->window[row].iteration % cycle == position) {
                values[n++] = tuner->window[row].step_ns;
            }
        }
        if (n > 0) {
            sum += median_of(values, n);
            n_positions++;
        }
    }
    return sum / n_positions;
}

int64_t tuner_estimate(const struct tuner *tuner) {
    uint32_t n = tuner->n_window;
    uint32_t cycle = tuner->state.running.cycle;
    int64_t sum = 0;
    if (tuner->state.step_ns > 0 || n == 0) {
        return tuner->state.step_ns;
    }
    if (cycle > 1 && n > cycle) {
        n -= n % cycle;
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += tuner->window[(tuner->at + TUNER_WINDOW_ROWS - 1 - i) % TUNER_WINDOW_ROWS].step_ns;
    }
    return n > 0 ? sum / n : 0;
}
