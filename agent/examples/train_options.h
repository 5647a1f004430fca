/* The command line of deft-train. */
#ifndef TRAIN_OPTIONS_H
#define TRAIN_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>

#include "optimizer.h"
#include "sync.h"

/* Each iteration keeps a record of 24 bytes for the final table: 96 MB at most. */
#define TRAIN_MAX_ITERATIONS 4000000u

enum train_schedule { TRAIN_CONSTANT, TRAIN_COSINE };

struct train_options {
    uint32_t n_epochs;
    uint32_t batch; /* per rank */
    uint32_t width;
    uint32_t depth;
    double learning_rate;
    enum train_schedule schedule;
    struct optimizer_options optimizer;
    uint64_t seed;
    const char *data_dir;
    const struct sync_ops *sync;
    const char *device; /* as in deft_options; NULL: DEFT_DEVICE's */
    bool gradients_only;
    uint32_t limit_iterations; /* 0: all epochs */
    uint32_t eval_every;       /* epochs between evaluations; 0: at the end only */
    uint32_t n_threads;
    bool json;
    const char *json_file;  /* NULL: standard output */
    const char *steps_file; /* NULL: none */
};

/* Fills in defaults and reads the command line. A wrong one is told in one sentence on standard
 * error and ends the process with status 2; --help and --version end it with 0. */
void train_options_parse(int argc, char **argv, struct train_options *out);

#endif
