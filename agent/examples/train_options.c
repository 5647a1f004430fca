#include "train_options.h"

#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"

#define EXIT_USAGE 2

enum key {
    KEY_EPOCHS = 256, /* above every character, so that there are long options only */
    KEY_BATCH,
    KEY_WIDTH,
    KEY_DEPTH,
    KEY_LR,
    KEY_MOMENTUM,
    KEY_WEIGHT_DECAY,
    KEY_OPTIMIZER,
    KEY_SCHEDULE,
    KEY_SEED,
    KEY_DATA,
    KEY_SYNC,
    KEY_DEVICE,
    KEY_RULE_FREE,
    KEY_LIMIT_ITERATIONS,
    KEY_EVAL_EVERY,
    KEY_THREADS,
    KEY_JSON,
    KEY_STEPS,
};

static const struct argp_option option_table[] = {
    {NULL, 0, NULL, 0, "Network and samples:", 1},
    {"width", KEY_WIDTH, "N", 0, "Units of each hidden layer, 1..16384 (1024)", 1},
    {"depth", KEY_DEPTH, "N", 0, "Hidden layers, 0..128 (3)", 1},
    {"batch", KEY_BATCH, "N", 0, "Samples per rank and iteration, 1..65536 (768)", 1},
    {"data", KEY_DATA, "DIR", 0, "Folder of the four files (" DATA_DEFAULT_DIR ")", 1},
    {"seed", KEY_SEED, "N", 0, "Of initialisation and shuffling (1)", 1},
    {NULL, 0, NULL, 0, "Training:", 2},
    {"epochs", KEY_EPOCHS, "N", 0, "Passes over the samples, 1..100000 (5)", 2},
    {"limit-iterations", KEY_LIMIT_ITERATIONS, "N", 0, "Stop after N iterations", 2},
    {"optimizer", KEY_OPTIMIZER, "NAME", 0, "sgd or adamw (sgd)", 2},
    {"lr", KEY_LR, "X", 0, "Learning rate, above 0 to 1000 (0.1; adamw: 0.001)", 2},
    {"momentum", KEY_MOMENTUM, "X", 0, "Of sgd, 0 to below 1 (0.9)", 2},
    {"weight-decay", KEY_WEIGHT_DECAY, "X", 0, "0..1 (0)", 2},
    {"schedule", KEY_SCHEDULE, "NAME", 0, "Of the learning rate: constant or cosine (cosine)", 2},
    {NULL, 0, NULL, 0, "Ranks:", 3},
    {"sync", KEY_SYNC, "NAME", 0,
     "deft: average through libdeft; none: each rank trains alone on its share, the floor that "
     "no communication can beat (deft)",
     3},
    {"device", KEY_DEVICE, "NAME", 0,
     "Where libdeft finds gradients and parameters: cpu, cuda or cuda:NUMBER. Forward, backward "
     "and "
     "the optimizer stay on the host, with copies to and fro: it exercises the path of GPUs and "
     "makes nothing faster (DEFT_DEVICE, else cpu)",
     3},
    {"rule-free", KEY_RULE_FREE, NULL, 0,
     "Keep the parameters from libdeft: only rules that average gradients can run", 3},
    {"threads", KEY_THREADS, "N", 0, "Of the matrix products, per rank, 1..256 (1)", 3},
    {NULL, 0, NULL, 0, "Results:", 4},
    {"eval-every", KEY_EVAL_EVERY, "N", 0, "Evaluate every N epochs, not only at the end", 4},
    {"json", KEY_JSON, "FILE", OPTION_ARG_OPTIONAL,
     "One JSON object on the last line, or in FILE (rank r > 0 writes FILE.r)", 4},
    {"steps", KEY_STEPS, "FILE", 0,
     "Every iteration as a line 'iteration,begin_ns,step_ns,exposed_ns,plan_seq' of FILE "
     "(rank r > 0 writes FILE.r); begin_ns is of the monotonic clock",
     4},
    {0},
};

static uint64_t parse_count(struct argp_state *state, const char *option, const char *text,
                            uint64_t min, uint64_t max) {
    char *end = NULL;
    unsigned long long value;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end != '\0' || errno != 0 || value < min ||
        value > max) {
        argp_error(state, "--%s is '%s', but a whole number in %llu..%llu is expected", option,
                   text, (unsigned long long)min, (unsigned long long)max);
    }
    return value;
}

/* `above`: the number must be larger than `min`, not equal; `below` likewise for `max`. */
static double parse_real(struct argp_state *state, const char *option, const char *text, double min,
                         double max, bool above, bool below) {
    char *end = NULL;
    double value;

    errno = 0;
    value = strtod(text, &end);
    if (end == text || *end != '\0' || !isfinite(value) || value < min || value > max ||
        (above && value <= min) || (below && value >= max)) {
        argp_error(state, "--%s is '%s', but a number from %s%g to %s%g is expected", option, text,
                   above ? "above " : "", min, below ? "below " : "", max);
    }
    return value;
}

/* The index of `text` among two names. */
static int parse_either(struct argp_state *state, const char *option, const char *text,
                        const char *first, const char *second) {
    if (strcmp(text, first) != 0 && strcmp(text, second) != 0) {
        argp_error(state, "--%s is '%s', but %s or %s is expected", option, text, first, second);
    }
    return strcmp(text, second) == 0;
}

static const char *parse_device(struct argp_state *state, const char *text) {
    static const char prefix[] = "cuda:";
    bool is_numbered = strncmp(text, prefix, strlen(prefix)) == 0;
    const char *number = text + strlen(prefix);

    if (strcmp(text, "cpu") != 0 && strcmp(text, "cuda") != 0 &&
        (!is_numbered || number[0] == '\0' || number[strspn(number, "0123456789")] != '\0')) {
        argp_error(state, "--device is '%s', but cpu, cuda or cuda:NUMBER is expected", text);
    }
    return text;
}

static void parse_finish(struct argp_state *state, struct train_options *o) {
    if (o->learning_rate <= 0.0) {
        o->learning_rate = o->optimizer.kind == OPTIMIZER_ADAMW ? 0.001 : 0.1;
    }
    if (o->gradients_only && strcmp(o->sync->name, "deft") != 0) {
        argp_error(state, "--rule-free says what libdeft may do, which --sync %s does not use",
                   o->sync->name);
    }
    if (o->device != NULL && strcmp(o->device, "cpu") != 0 && strcmp(o->sync->name, "deft") != 0) {
        argp_error(state, "--device %s is for libdeft, which --sync %s does not use", o->device,
                   o->sync->name);
    }
}

static void parse_training(struct argp_state *state, int key, const char *text,
                           struct train_options *o) {
    switch (key) {
    case KEY_EPOCHS:
        o->n_epochs = (uint32_t)parse_count(state, "epochs", text, 1, 100000);
        break;
    case KEY_LIMIT_ITERATIONS:
        o->limit_iterations =
            (uint32_t)parse_count(state, "limit-iterations", text, 1, TRAIN_MAX_ITERATIONS);
        break;
    case KEY_LR:
        o->learning_rate = parse_real(state, "lr", text, 0.0, 1000.0, true, false);
        break;
    case KEY_MOMENTUM:
        o->optimizer.momentum = (float)parse_real(state, "momentum", text, 0.0, 1.0, false, true);
        break;
    case KEY_WEIGHT_DECAY:
        o->optimizer.weight_decay =
            (float)parse_real(state, "weight-decay", text, 0.0, 1.0, false, false);
        break;
    case KEY_OPTIMIZER:
        o->optimizer.kind = parse_either(state, "optimizer", text, "sgd", "adamw") != 0
                                ? OPTIMIZER_ADAMW
                                : OPTIMIZER_SGD;
        break;
    case KEY_SCHEDULE:
        o->schedule = parse_either(state, "schedule", text, "constant", "cosine") != 0
                          ? TRAIN_COSINE
                          : TRAIN_CONSTANT;
        break;
    default:
        break;
    }
}

static error_t parse_option(int key, char *text, struct argp_state *state) {
    struct train_options *o = state->input;

    switch (key) {
    case KEY_WIDTH:
        o->width = (uint32_t)parse_count(state, "width", text, 1, MLP_MAX_WIDTH);
        break;
    case KEY_DEPTH:
        o->depth = (uint32_t)parse_count(state, "depth", text, 0, MLP_MAX_DEPTH);
        break;
    case KEY_BATCH:
        o->batch = (uint32_t)parse_count(state, "batch", text, 1, MLP_MAX_BATCH);
        break;
    case KEY_DATA:
        o->data_dir = text;
        break;
    case KEY_SEED:
        o->seed = parse_count(state, "seed", text, 0, UINT64_MAX);
        break;
    case KEY_SYNC:
        o->sync = sync_find(text);
        if (o->sync == NULL) {
            argp_error(state, "--sync is '%s', but deft or none is expected", text);
        }
        break;
    case KEY_DEVICE:
        o->device = parse_device(state, text);
        break;
    case KEY_RULE_FREE:
        o->gradients_only = true;
        break;
    case KEY_THREADS:
        o->n_threads = (uint32_t)parse_count(state, "threads", text, 1, 256);
        break;
    case KEY_EVAL_EVERY:
        o->eval_every = (uint32_t)parse_count(state, "eval-every", text, 1, 100000);
        break;
    case KEY_JSON:
        o->json = true;
        o->json_file = text;
        break;
    case KEY_STEPS:
        o->steps_file = text;
        break;
    case ARGP_KEY_ARG:
        argp_error(state, "'%s' is not an option; deft-train takes options only", text);
        break;
    case ARGP_KEY_END:
        parse_finish(state, o);
        break;
    default:
        if (key < KEY_EPOCHS) {
            return ARGP_ERR_UNKNOWN;
        }
        parse_training(state, key, text, o);
        break;
    }
    return 0;
}

static void print_version(FILE *stream, struct argp_state *state) {
    (void)state;
    (void)fprintf(stream, "deft-train, libdeft %s\n", deft_version());
}

void train_options_parse(int argc, char **argv, struct train_options *out) {
    static const struct argp parser = {
        .options = option_table,
        .parser = parse_option,
        .doc = "Trains a multi-layer perceptron on Fashion-MNIST with data-parallel ranks. Start "
               "it through 'deft run', srun, or torchrun's variables; alone it is one rank.",
    };
    struct train_options o = {
        .n_epochs = 5,
        .batch = 768,
        .width = 1024,
        .depth = 3,
        .schedule = TRAIN_COSINE,
        .seed = 1,
        .data_dir = DATA_DEFAULT_DIR,
        .sync = &sync_deft,
        .n_threads = 1,
    };

    optimizer_defaults(&o.optimizer);
    argp_program_version_hook = print_version;
    argp_err_exit_status = EXIT_USAGE;
    if (argp_parse(&parser, argc, argv, 0, NULL, &o) != 0) {
        exit(EXIT_USAGE);
    }
    *out = o;
}
