/* The figures of a window of losses: level, slope, spread, and the deviation of the walk. */
#ifndef LOSS_MEASURE_H
#define LOSS_MEASURE_H

#include <dsched/loss.h>

struct loss_figures {
    double level;
    double spread;
    double batch;
    double slope;
    double slope_error;
    double deviation;
    double lowest; /* of the window */
};
/* All 0 for an empty window. All finite, deviations >= 0. */
void loss_measure(const struct dsched_loss *stream, struct loss_figures *out);

#endif
