#include "cli_price.h"

#include "cli.h"
#include "cli_table.h"
#include "cli_units.h"

/* More samples than any job has seen; a double holds every whole number up to it. */
#define CLI_PRICE_MAX_SAMPLES INT64_C(1000000000000)
/* Beyond every edge of stability, in billionths. */
#define CLI_PRICE_MAX_RATE INT64_C(100000000000)

enum {
    CLI_PRICE_OPTIMIZER = 1024,
    CLI_PRICE_MOMENTUM,
    CLI_PRICE_BATCH,
    CLI_PRICE_NOISE,
    CLI_PRICE_RATE,
};

static const struct argp_option cli_price_table[] = {
    {NULL, 0, NULL, 0, "Statistics of the job; with any of them plans are chosen by progress:", 15},
    {"optimizer", CLI_PRICE_OPTIMIZER, "NAME", 0, "sgd, adam, adamw or unknown (the default)", 15},
    {"momentum", CLI_PRICE_MOMENTUM, "M", 0, "Momentum of sgd, 0 (the default) to below 1", 15},
    {"batch", CLI_PRICE_BATCH, "N", 0, "Samples of one iteration, all ranks together", 15},
    {"noise-scale", CLI_PRICE_NOISE, "N", 0,
     "Gradient noise scale in samples; unknown, or without --batch: that of the batch", 15},
    {"rate-curvature", CLI_PRICE_RATE, "S", 0,
     "Learning rate times largest curvature, with sgd; unknown: half of what exact bears, but no "
     "edge for lookahead and averaged",
     15},
    {0},
};

static void cli_price_optimizer(const struct argp_state *state, const char *argument,
                                struct cli_price *price) {
    static const char *const words[] = {"unknown", "sgd", "adam", "adamw", NULL};
    static const enum dsched_optimizer_class classes[] = {
        DSCHED_OPTIMIZER_UNKNOWN, DSCHED_OPTIMIZER_SGD, DSCHED_OPTIMIZER_ADAM,
        DSCHED_OPTIMIZER_ADAM};
    price->inputs.optimizer = classes[cli_word(state, "--optimizer", argument, words)];
}

static double cli_price_decimal(const struct argp_state *state, const char *name,
                                const char *argument, double unit, int64_t most) {
    struct deft_error error;
    int64_t value = 0;
    if (cli_units_decimal(name, argument, unit, 0, most, &value, &error) != DEFT_OK) {
        argp_error(state, "%s", error.text);
    }
    return (double)value / unit;
}

static error_t cli_price_parse(int key, char *argument, struct argp_state *state) {
    struct cli_price *price = state->input;
    struct dsched_efficiency_inputs *inputs = &price->inputs;
    switch (key) {
    case ARGP_KEY_INIT:
        *price = (struct cli_price){.inputs = {.batch_samples = DSCHED_UNKNOWN,
                                               .noise_samples = DSCHED_UNKNOWN,
                                               .rate_curvature = DSCHED_UNKNOWN,
                                               .measured_frac = DSCHED_UNKNOWN}};
        return 0;
    case CLI_PRICE_OPTIMIZER:
        cli_price_optimizer(state, argument, price);
        break;
    case CLI_PRICE_MOMENTUM:
        inputs->momentum = cli_price_decimal(state, "--momentum", argument, 1e6, 999999);
        price->needs_sgd = "--momentum";
        break;
    case CLI_PRICE_BATCH:
        inputs->batch_samples =
            (double)cli_number(state, "--batch", argument, 1, (uint64_t)CLI_PRICE_MAX_SAMPLES);
        break;
    case CLI_PRICE_NOISE:
        inputs->noise_samples = cli_price_decimal(state, "--noise-scale", argument, 1e6,
                                                  CLI_PRICE_MAX_SAMPLES * 1000000);
        break;
    case CLI_PRICE_RATE:
        inputs->rate_curvature =
            cli_price_decimal(state, "--rate-curvature", argument, 1e9, CLI_PRICE_MAX_RATE);
        price->needs_sgd = "--rate-curvature";
        break;
    case ARGP_KEY_END:
        if (price->needs_sgd != NULL && inputs->optimizer != DSCHED_OPTIMIZER_SGD) {
            argp_error(state, "%s is given, but it says something of --optimizer=sgd only",
                       price->needs_sgd);
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    price->is_given = 1;
    return 0;
}

const struct argp cli_price_argp = {.options = cli_price_table, .parser = cli_price_parse};

void cli_price_figures(const struct dsched_candidate *candidate, char progress[16], char cost[16]) {
    (void)snprintf(progress, 16, "0");
    (void)snprintf(cost, 16, "-");
    if (candidate->progress_ppm > 0) {
        (void)snprintf(progress, 16, "%.3f", candidate->progress_ppm / 1e6);
        cli_table_duration(candidate->cost_ns, cost);
    }
}
