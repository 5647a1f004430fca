/* The training loop: one for every update rule. */
#ifndef TRAIN_LOOP_H
#define TRAIN_LOOP_H

#include <stdint.h>

#include "data.h"
#include "mlp.h"
#include "optimizer.h"
#include "sync.h"
#include "train_options.h"
#include "train_report.h"

struct train_loop {
    const struct train_options *options;
    struct sync *sync;
    struct mlp *mlp;
    struct optimizer *optimizer;
    const struct data_set *training;
    const struct data_set *test;
    struct train_report *report;
    uint32_t rank;
    uint32_t n_ranks;
    uint32_t n_iterations; /* in total, as the learning rate's schedule sees them */
};

/* Iterations in all epochs, cut by --limit-iterations. Fails when a batch on every rank needs more
 * samples than there are, or when there would be more than TRAIN_MAX_ITERATIONS. */
DEFT_NODISCARD enum deft_status train_loop_iterations(const struct train_options *options,
                                                      uint32_t n_images, uint32_t n_ranks,
                                                      uint32_t *out, struct deft_error *error);

/* Trains, drains and evaluates. Collective. Fills everything of `out`. Returns DEFT_INVALID when
 * the loss stopped being a number; whatever else is from the ranks' communication. */
DEFT_NODISCARD enum deft_status train_loop_run(struct train_loop *loop, struct train_outcome *out,
                                               struct deft_error *error);

#endif
